"""Documents that cost too much: refused by name where it is known, else the job fails at once."""

import json
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from kesin.foundation.settings import load_settings
from kesin.workloads.pdf import cli, doctor, services
from kesin.workloads.pdf.templating.filling import LIMITS
from kesin.workloads.pdf.templating.library import TemplateLibrary
from tests.attacks.bombs import png
from tests.web.conftest import error_of
from tests.workloads.pdf.front import Front, opened_front
from tests.workloads.pdf.templating.test_library import PAGE, write

LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
BODIES = {
    "bomb": "{{ 'a' | center(50000000) }}",
    "loop": LOOP,
    "logos": "{% for i in range(3) %}<img src='data:image/png;base64,{{ x[i] }}'>{% endfor %}",
    "sound": "{{ x }}",
}
BOMB = png(20_000, pixels=False)


@pytest.fixture(scope="module")
def costly(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("costly")
    for name, body in BODIES.items():
        write(folder, name, PAGE.format(body), sample={"x": "abc"})
    library = TemplateLibrary.load([folder], limits=LIMITS._replace(cpu_s=0.15))
    allowed = {"pdf_allowed_templates": ",".join(BODIES)}
    with (
        opened_front("sqlite", tmp_path_factory.mktemp("front"), request, **allowed) as front,
        patch.object(services, "load_pdf_templates", lambda _: library),
    ):
        front.worker._library = library
        yield front


def request(template: str, **variables: object) -> dict[str, object]:
    return {"template_name": template, "variables": variables}


def preview(front: Front, template: str, **variables: object):
    return front.client.post(f"/pdf/templates/{template}/preview", json={"variables": variables}, headers=front.owner())


def test_a_job_or_a_preview_of_a_template_that_loops_fails_once_with_its_reason(costly):
    me = costly.owner()
    job_id = costly.done(me, request("loop"))
    job = costly.get(me, job_id).json()
    assert (job["status"], job["error_code"], job["retry_count"]) == ("failed", "TEMPLATE_ERROR", 0)
    assert "template loop: it was stopped" in job["error_message"]
    assert costly.seen(job_id).internal_code == "TEMPLATE_TOO_COSTLY"
    done = costly.done(me, request("sound", x="next"))
    assert costly.get(me, done).json()["status"] == "succeeded"
    answer = preview(costly, "loop")
    assert (answer.status_code, error_of(answer)["code"]) == (422, "TEMPLATE_TOO_COSTLY")
    assert "template loop: it was stopped" in answer.text


def test_a_broken_template_is_named_and_the_others_work(costly):
    me = costly.owner()
    listed = costly.client.get("/pdf/templates", headers=me).json()
    problems = {template["name"]: template["problem"] for template in listed}
    assert problems.keys() == {"logos", "loop", "sound"}
    assert problems["sound"] is None
    assert "template loop: it was stopped" in problems["loop"]
    for answer in (costly.post(me, request("bomb")), preview(costly, "bomb")):
        assert answer.status_code == 400
        assert "template bomb: it was stopped" in answer.text


@pytest.mark.parametrize("call", ["jobs", "batches", "preview"])
def test_a_large_picture_in_the_variables_is_refused_with_its_path(costly, call):
    if call == "jobs":
        answer = costly.post(costly.owner(), request("sound", x=BOMB))
    elif call == "preview":
        answer = preview(costly, "sound", x=BOMB)
    else:
        body = {"template_name": "sound", "rows": [{"x": BOMB}]}
        answer = costly.client.post("/pdf/batches", json=body, headers=costly.owner())
    assert answer.status_code == 422
    assert "/x a picture has more than the allowed 25 million pixels" in answer.text


def test_large_pictures_that_the_template_puts_together_fail_the_job_at_once(costly):
    me = costly.owner()
    x = [png(side, pixels=False).partition(",")[2] for side in (4_800, 4_801, 4_802)]
    job_id = costly.done(me, request("logos", x=x))
    job = costly.get(me, job_id).json()
    assert (job["status"], job["error_code"], job["retry_count"]) == ("failed", "TEMPLATE_ERROR", 0)
    assert "more than the allowed 60 million pixels" in job["error_message"]
    assert costly.seen(job_id).internal_code == "PICTURES_TOO_LARGE"
    assert preview(costly, "logos", x=x).status_code == 422


def test_html_of_any_origin_is_measured(costly):
    with pytest.raises(Exception, match="PICTURES_TOO_LARGE"):
        costly.worker.render_html_to_pdf(f'<img src="{BOMB}">', 60)


def test_a_broken_template_is_named_on_the_page(costly):
    costly.person("ayse", "admin", all_sites=True)
    page = costly.client.get("/dashboard/pdf", headers=costly.cookie("ayse"))
    assert page.status_code == 200
    assert "template bomb: it was stopped" in page.text
    assert 'hx-get="/dashboard/pdf?part=broken"' in page.text
    part = costly.client.get("/dashboard/pdf?part=broken", headers=costly.cookie("ayse"))
    with patch.object(TemplateLibrary, "render_html", side_effect=AssertionError("once is enough")):
        again = costly.client.get("/dashboard/pdf?part=broken", headers=costly.cookie("ayse"))
    assert again.text == part.text
    assert all(f"template {name}: it was stopped" in part.text for name in ("bomb", "loop"))
    assert "template sound" not in part.text


def test_a_broken_template_is_named_by_the_commands(costly, monkeypatch, tmp_path):
    monkeypatch.setenv("KESIN_DATA", str(tmp_path))
    listed = CliRunner().invoke(cli.app, ["templates", "--json"])
    problems = {row["name"]: row.get("problem", "") for row in json.loads(listed.stdout)}
    assert all("it was stopped" in problems[name] for name in ("bomb", "loop"))
    checks = doctor.run_checks(load_settings(), "weasyprint")
    usable = next(checks)
    assert usable.ok
    assert "sound" in usable.found
    assert "loop" not in usable.found
    broken = next(checks)
    assert (broken.name, broken.ok) == ("broken template", False)
    assert "template bomb: it was stopped" in broken.found
