"""A job's page: its story, what is next, what may be done, and what it carries."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from kesin.engine.queue import apply_changes
from kesin.foundation.permissions import system_actor
from kesin.lifecycle.drawing.svg import STYLE
from kesin.lifecycle.model import Change
from kesin.web.dashboard.frame.page import WorkloadPages
from kesin.workloads.pdf.services import open_artifacts
from tests.tables import table
from tests.web.conftest import World
from tests.workloads.optiplan.orders_ready import planned_order

PART = {"hx-request": "true"}
PAYLOAD = {"externalId": "A-1", "email": "ayse@example.com", "note": "hello"}
CONVERSION = {
    "externalId": "A-1",
    "gclid": "Cj0KCQiA1234567890",
    "conversionName": "Sale",
    "conversionTime": "2026-11-14T10:00:00+03:00",
    "conversionValue": "12.50",
    "conversionCurrency": "TRY",
}


@pytest.fixture
def world(shared_world: World) -> Iterator[World]:
    """One for all of them: each looks at a job of its own, and takes its pauses back."""
    yield shared_world
    for one in shared_world.store.paused("task"):
        shared_world.task.resume(tenant=one.tenant)


def response_of(world: World, job_id: str, role: str = "admin", **headers: str) -> Any:
    name = world.known(f"the-{role}", role, all_sites=True)
    return world.client.get(f"/dashboard/jobs/{job_id}", headers=world.cookie(name) | headers)


def read(world: World, job_id: str, role: str = "admin", **headers: str) -> str:
    answer = response_of(world, job_id, role, **headers)
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def uploaded(world: World) -> str:
    """A conversion that Google refused."""
    queue = world.service.queues["oci"]
    stamps = {"conversion_at": queue.now()}
    job_id = world.job("north", queue="oci", payload=CONVERSION, stamps=stamps)
    [job] = queue.claim("one", ids=[job_id])
    note = json.dumps({"requestId": "req-7", "errors": [{"message": "the gclid=Cj0KCQiA is cut"}]})
    change = Change(job.id, job.claim_seq, "UNPARSEABLE_GCLID", "VALIDATION", "it cannot be read", note=note)
    apply_changes(queue, "ack_failed", [change], actor="one")
    return job.id


# The story


def test_the_newest_event_is_on_top(world):
    job_id = world.failed()
    text = read(world, job_id)
    assert text.index(">cancel<") < text.index(">enqueue<")
    assert "CANCELLED" in text
    assert "by tests" in text


@table(
    ("language", "words"),
    [
        ("en", ("What it means", "Who must act", "What happens next", "The sender")),
        ("tr", ("Anlamı", "Kim ilgilenmeli", "Sonra ne olur", "Gönderen")),
    ],
)
def test_an_error_is_explained_in_both_languages(language, words, world):
    text = read(world, uploaded(world), **{"accept-language": language})
    assert "UNPARSEABLE_GCLID" in text
    for one in words:
        assert one in text


def test_the_advice_is_shown_once_however_often_the_error_came(world):
    job_id = uploaded(world)
    queue = world.service.queues["oci"]
    world.service.commands.act(system_actor("t"), "oci", "RETRY_SELECTED", ids=[job_id], reason="again")
    [job] = queue.claim("one", ids=[job_id])
    change = Change(job.id, job.claim_seq, "UNPARSEABLE_GCLID", "VALIDATION", "still not")
    apply_changes(queue, "ack_failed", [change], actor="one")
    text = read(world, job_id)
    assert text.count("What it means") == 1
    assert "“again”" in text


def test_the_way_so_far_is_lit(world):
    text = read(world, world.failed())
    lit = re.findall(r'class="edge \w+ lit" data-from="(\w*)" data-to="(\w*)"', text)
    assert {("", "ready"), ("ready", "failed")} == set(lit)
    assert '<g class="state failed here" data-state="failed">' in text
    assert "style=" not in text
    assert "<style" not in text


def test_the_style_of_the_picture_is_the_one_it_is_drawn_for():
    served = (files("kesin.web") / "static" / "dashboard" / "lifecycle.css").read_text("utf-8")
    assert served.partition("\n")[2] == STYLE


def test_what_is_next_is_on_top(world):
    first, then = world.job(queue="optiplan"), world.job(queue="optiplan")
    assert "It is due and first in line" in read(world, first)
    assert "It is due. Jobs ahead of it in line: 1." in read(world, then)
    world.task.pause(actor="user:can", reason="moving house")
    text = read(world, world.job())
    assert "can paused this queue (moving house)" in text


def test_what_a_move_is_for_is_said_in_the_readers_language(world):
    job_id = world.failed()
    world.task.act("requeue", actor="tests", ids=[job_id])
    text = read(world, job_id, **{"accept-language": "tr"})
    assert 'title="Başarısız işi tüm deneme haklarıyla yeniden dene."' in text
    assert "çalışmadan önce iptal edildi" in text


@table(
    ("language", "held", "high"),
    [("en", "until the job is pruned", "1, high"), ("tr", "iş silinene kadar", "1, yüksek")],
)
def test_a_key_held_for_good_and_a_priority_are_among_the_facts(language, held, high, world):
    spoken = {"accept-language": language}
    text = read(world, world.job(key=f"kept-{language}", once=True, priority=1), **spoken)
    assert held in text
    assert high in text
    plain = read(world, world.job(key=f"plain-{language}"), **spoken)
    assert held not in plain
    assert high not in plain


# What may be done


def test_an_operator_is_offered_what_the_lifecycle_allows_and_a_viewer_nothing(world):
    job_id = world.failed()
    offered = f"{{&#34;call&#34;: &#34;requeue&#34;, &#34;ids&#34;: &#34;{job_id}&#34;}}"
    assert offered in read(world, job_id, "operator")
    assert "/dashboard/queues/task/sheet" not in read(world, job_id, "viewer")


@table("job_id", ["x", "0" * 36, "%00", "a" * 500])
def test_an_invalid_id_is_not_found(job_id, world):
    assert response_of(world, job_id).status_code == 404


# Live


def test_a_part_has_the_story_and_only_what_changed(world):
    job_id = world.job(payload=PAYLOAD)
    seq = world.found(job_id).seq
    world.known("the-admin", "admin", all_sites=True)
    headers = world.cookie("the-admin") | PART

    def part(seq: int) -> str:
        path = f"/dashboard/jobs/{job_id}?seq={seq}"
        return str(world.client.get(path, headers=headers).text)

    still = part(seq)
    assert "<html" not in still
    assert 'id="job-story"' in still
    assert 'id="job-values"' not in still
    world.task.act("cancel", actor="tests", ids=[job_id])
    moved = part(seq)
    assert 'id="job-values"' in moved
    assert 'id="job-picture"' in moved
    assert f"seq={seq + 1}" in moved


def test_the_page_of_a_finished_job_does_not_poll(world):
    job_id = world.job("somebody", queue="pdf")
    assert 'hx-trigger="renew, kesin' in read(world, job_id)
    world.service.queues["pdf"].act("cancel", actor="tests", ids=[job_id])
    assert 'hx-trigger="renew, kesin' not in read(world, job_id)


# What it carries


@table("headers", [{}, PART])
def test_only_who_may_reveal_unmasks_a_payload_and_each_attempt_leaves_a_line(headers, world):
    world.known("boss", "operator", all_sites=True)
    world.known("eda", "viewer", all_sites=True)
    job_id = world.job("north", payload=PAYLOAD)
    for name, permitted in (("boss", True), ("eda", False)):
        responses: list[Any] = []
        cookie = world.cookie(name) | headers

        def unmask(cookie: dict[str, str] = cookie, responses: list[Any] = responses) -> None:
            path = f"/dashboard/jobs/{job_id}/unmask"
            responses.append(world.client.post(path, headers=cookie))

        [line] = world.said(unmask)
        assert ("ayse@example.com" in responses[0].text) == permitted
        assert (line.actor, line.action) == (f"user:{name}", "job.reveal")
        assert line.allowed == permitted
        assert not permitted or (line.queue, line.site, line.target) == ("task", "north", job_id)


def test_a_job_without_private_values_offers_nothing_to_unmask(world):
    plain, private = world.job(payload={"note": "hello"}), world.job(payload=PAYLOAD)
    for role in ("admin", "viewer"):
        assert "Personal data" not in read(world, plain, role)
        assert "Personal data and secrets are masked." in read(world, private, role)
    assert "/unmask" not in read(world, plain)
    assert "/unmask" in read(world, private)


def test_a_payload_is_shown_as_text_whatever_is_in_it(world):
    text = read(world, world.job(payload={"note": "<script>alert(1)</script>"}, key="<b>"))
    assert "<script>alert" not in text
    assert "<b>" not in text


# What the workload adds


def test_a_conversion_shows_what_is_sent_and_what_came_back(world):
    job_id = uploaded(world)
    text = read(world, job_id)
    assert "req-7" in text
    assert "Fetched by the site's Google Ads script" in text
    assert "conversionTime&#34;: &#34;2026-11-14 10:00:00+03:00" in text
    assert "partialFailure" not in text  # which is of the API
    assert "Cj0KCQiA" not in text
    world.accounts.set_site(system_actor("t"), "north", channel="api")
    assert ":uploadClickConversions" in read(world, job_id)
    world.accounts.set_site(system_actor("t"), "north", channel="data_manager")
    assert "events:ingest" in read(world, job_id)
    world.accounts.set_site(system_actor("t"), "north", channel="script")


def test_a_row_that_waits_for_the_script_is_not_fetched_and_a_rejected_one_was_never_sent(world):
    queue = world.service.queues["oci"]
    job_id = world.job("north", queue="oci", payload=CONVERSION, stamps={"conversion_at": queue.now()})
    text = read(world, job_id)
    assert "Not yet fetched by the site's Google Ads script" in text
    assert "conversionTime&#34;: &#34;2026" in text
    apply_changes(queue, "reject", [Change(job_id, error_code="EXPIRED")], actor="one")
    for channel in ("api", "script"):
        world.accounts.set_site(system_actor("t"), "north", channel=channel)
        text = read(world, job_id)
        assert "It was never sent" in text
        assert "Fetched by" not in text
        assert ":uploadClickConversions" not in text


def test_an_order_shows_its_plan_and_files(world):
    text = read(world, planned_order(world.service))
    for what in ("plan.svg", "plan.pdf", "/xml", "import-files"):
        assert what in text


def create_pdf(world: World) -> str:
    queue = world.service.queues["pdf"]
    job_id = world.job("somebody", queue="pdf")
    [job] = queue.claim("one", ids=[job_id])
    storage = open_artifacts(world.service.settings, queue).storage
    storage.put_bytes("a.pdf", b"%PDF-1.7", "application/pdf")
    result = json.dumps({"artifact_key": "a.pdf", "pages": 2, "bytes": 8})
    apply_changes(queue, "succeed", [Change(job.id, job.claim_seq, result=result)], actor="one")
    return job_id


def test_a_pdf_is_shown_once_above_the_outlook_and_only_in_a_frame_of_ours(world):
    job_id = create_pdf(world)
    page, other = response_of(world, job_id), response_of(world, world.job())
    assert f'src="/dashboard/jobs/{job_id}/paper#navpanes=0"' in page.text
    assert page.text.count('id="job-panel"') == 1
    assert page.text.index("<iframe") < page.text.index('id="job-next"')
    assert "frame-src 'self'" in page.headers["content-security-policy"]
    assert "frame-src" not in other.headers["content-security-policy"]
    headers = world.cookie("the-admin")
    paper = world.client.get(f"/dashboard/jobs/{job_id}/paper", headers=headers)
    assert (paper.status_code, paper.content) == (200, b"%PDF-1.7")
    assert paper.headers["x-frame-options"] == "SAMEORIGIN"
    assert "frame-ancestors 'self'" in paper.headers["content-security-policy"]
    assert "sandbox" not in paper.headers["content-security-policy"]  # no viewer works in one
    assert paper.headers["content-type"] == "application/pdf"
    assert paper.headers["content-disposition"] == "inline"
    for_operator = read(world, job_id, "operator")
    assert "<iframe" not in for_operator
    assert "Only its owner and admins can open it." in for_operator


def test_a_panel_that_fails_leaves_the_rest_of_the_page(world, monkeypatch):
    def broken(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setitem(world.app.state.frame.pages, "task", WorkloadPages(job_panel=broken))
    assert "This part cannot be shown now." in read(world, world.job())
