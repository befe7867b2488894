"""A template with an error: its file, line and text, on the page, in the preview and at the job."""

import html
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from tests.browser.sample_data import press
from tests.web.conftest import MakeWorld, World, opened

PAGE = "/dashboard/pdf"
SAMPLE = json.loads((SHIPPED / "invoice" / "sample.json").read_text("utf-8"))
BAD_DATA = '<b title="<i>">{{ buyer.nickname }}</b>'
BAD_SYNTAX = "<script>alert(1)</script>{% iff buyer %}"


class Broken(NamedTuple):
    """A service, its folder of templates, and the line of its invoice that has an error."""

    world: World
    folder: Path
    line: int


def put(folder: Path, name: str, line: str) -> int:
    """A copy of the invoice with this line at the top of its page; returns the line's number."""
    shutil.copytree(SHIPPED / "invoice", folder / name, dirs_exist_ok=True)
    page = folder / name / "template.html"
    lines = page.read_text("utf-8").split("\n")
    at = lines.index("{% block body %}") + 1
    page.write_text("\n".join([*lines[:at], line, *lines[at:]]), "utf-8")
    return at + 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "templates"
    place.mkdir()
    return place


@pytest.fixture
def world(make_world: MakeWorld, folder: Path) -> World:
    return with_printer(make_world(pdf_templates=folder))


@pytest.fixture(scope="module")
def broken(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _quick_hashes: None
) -> Iterator[Broken]:
    """A service whose invoice has an error, for all tests that look at it."""
    folder = tmp_path_factory.mktemp("broken")
    templates = folder / "templates"
    line = put(templates, "invoice", BAD_DATA)
    with ExitStack() as stack:
        store = opened("sqlite", folder, request, stack)
        world = World(store, folder, pdf_templates=templates)
        world.site("north", "south")
        stack.enter_context(world.kept())
        yield Broken(with_printer(world), templates, line)


def with_printer(world: World) -> World:
    world.person("ayse", "admin", all_sites=True)
    Heartbeat(world.store, "one", now=world.service.queues["pdf"].now).beat()
    return world


def get(world: World, path: str, **headers: str) -> Any:
    return world.client.get(path, headers=world.cookie("ayse") | headers)


def post(world: World, path: str, **data: Any) -> Any:
    headers = world.cookie("ayse") | {"hx-request": "true"}
    return world.client.post(PAGE + path, data=data, headers=headers)


def document(world: World, **headers: str) -> Any:
    """What the frame of the preview shows."""
    data = {"template": "invoice", "source": json.dumps(SAMPLE)}
    return world.client.post(f"{PAGE}/document", data=data, headers=world.cookie("ayse") | headers)


def test_a_preview_that_cannot_be_made_says_where_and_why(broken):
    world, folder, line = broken
    answer = document(world)
    assert answer.status_code == 400
    text = html.unescape(answer.text)
    assert f"template invoice/template.html, line {line}: 'nickname' is missing" in text
    assert f">{line:5}  {BAD_DATA}" in text
    assert f" {line - 1:5}  {{% block body %}}" in text
    assert f" {line + 1:5}  " in text
    assert BAD_DATA not in answer.text  # as text, never as markup
    assert str(folder) not in text


def test_only_our_pages_frame_the_error_and_it_runs_nothing(broken):
    headers = document(broken.world).headers
    policy = headers["content-security-policy"]
    assert {"default-src 'none'", "frame-ancestors 'self'", "sandbox"} <= set(policy.split("; "))
    assert "script-src 'none'" in policy
    assert headers["x-frame-options"] == "SAMEORIGIN"
    assert headers["content-type"].startswith("text/html")


def test_the_error_is_told_in_turkish(broken):
    world, _, line = broken
    text = html.unescape(document(world, **{"accept-language": "tr"}).text)
    assert f"şablon invoice/template.html, {line}. satır: 'nickname' eksik" in text
    assert 'lang="en"' not in text


def test_a_template_that_cannot_be_read_is_listed_with_its_line(world, folder):
    line = put(folder, "cutting_plan", BAD_SYNTAX)
    for path in (PAGE, f"{PAGE}?template=cutting_plan", f"{PAGE}?part=broken"):
        answer = get(world, path)
        assert answer.status_code == 200
        text = html.unescape(answer.text)
        assert f"template cutting_plan/template.html, line {line}: syntax error: " in text
        assert f">{line:5}  {BAD_SYNTAX}" in text
        assert BAD_SYNTAX not in answer.text
        assert str(folder) not in text
    assert 'href="#broken-cutting_plan"' in get(world, PAGE).text
    assert 'id="broken-cutting_plan"' in get(world, PAGE).text


def test_a_change_that_cannot_be_used_is_told_with_each_preview(world, folder):
    assert "has an error" not in get(world, PAGE).text
    line = put(folder, "invoice", BAD_SYNTAX)
    answer = post(world, "/preview", template="invoice", source=json.dumps(SAMPLE))
    text = html.unescape(answer.text)
    assert "The previous version is still in use." in text
    assert f"line {line}: syntax error: " in text
    assert document(world).status_code == 200


def test_a_failed_job_shows_the_template_the_line_and_its_text(broken):
    world, folder, line = broken
    made = post(world, "/jobs", template="invoice", source=json.dumps(SAMPLE))
    assert made.status_code == 200
    press(world)
    job = re.findall(r"/dashboard/jobs/([0-9a-f-]{36})", made.text)[0]
    assert world.state(job) == "failed"
    answer = get(world, f"/dashboard/jobs/{job}")
    text = html.unescape(answer.text)
    assert text.count(f"template invoice/template.html, line {line}: 'nickname' is missing") >= 2
    assert f">{line:5}  {BAD_DATA}" in text
    assert BAD_DATA not in answer.text
    assert 'href="/dashboard/pdf?template=invoice"' in answer.text
    assert str(folder) not in text


def test_the_api_names_file_line_and_text_too(broken):
    world, _, line = broken
    answer = world.client.post("/pdf/templates/invoice/preview", headers=world.key("pdf"), json={"variables": SAMPLE})
    assert answer.status_code == 400
    details = answer.json()["error"]["details"]
    assert (details["template"], details["line"]) == ("invoice/template.html", line)
    assert BAD_DATA in details["excerpt"]


def test_a_rejected_form_names_each_field_and_makes_nothing(world):
    wrong = {**SAMPLE, "issued_on": "yesterday", "number": ""}
    answer = post(world, "/jobs", template="invoice", source=json.dumps(wrong))
    assert answer.status_code == 422
    assert answer.headers["hx-retarget"] == "#pdf-problems"
    assert "data-rejected" in answer.text
    assert "2 values must be corrected" in answer.text
    assert '<a href="#v/issued_on">Issued on</a>' in answer.text
    assert '<span data-at="v/issued_on">must be a valid date</span>' in answer.text
    assert "<tr id=" not in get(world, f"{PAGE}?part=jobs").text
    name = post(world, "/jobs", template="invoice", source=json.dumps(SAMPLE), file_name="x" * 141)
    assert name.status_code == 422
    assert '<a href="#pdf-file">File name</a>' in name.text
    assert "data-rejected" not in post(world, "/preview", template="invoice", source="{}").text
    assert "data-rejected" not in get(world, f"{PAGE}?template=invoice&start=empty").text
