"""What a job's page offers: every kind of job, in its states, to its readers."""

import html
import json
import re
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from kesin.engine.queue import apply_changes
from kesin.engine.results import Failed
from kesin.engine.worker import Worker
from kesin.foundation.permissions import system_actor
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change
from kesin.store.errors import StoreUnreachable
from kesin.web.dashboard.frame.page import JobAction, WorkloadPages
from kesin.workloads.oci.lifecycle import ADVICE
from kesin.workloads.optiplan.lifecycle import OptiplanLimits
from kesin.workloads.pdf.jobs import submit
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from kesin.workloads.pdf.jobs.store import PdfJobStatus
from kesin.workloads.pdf.services import load_pdf_templates, open_job_store
from tests.tables import table
from tests.web.conftest import World
from tests.web.dashboard.jobs.test_page import CONVERSION, create_pdf, read, uploaded
from tests.workloads.optiplan.orders_ready import held_order, order_service, planned_order

ROOT = system_actor("tests")
PART = {"hx-request": "true"}
CONTROL = "/dashboard/site/north/oci-control"


@pytest.fixture
def world(shared_world: World) -> World:
    """One for all of them: each has a job of its own."""
    return shared_world


class Offered(NamedTuple):
    """A button of the header: its label, its look, and where it leads."""

    label: str
    look: str  # first, ends or nothing
    path: str
    fields: dict[str, str]


def offered(world: World, job_id: str, role: str = "admin", **headers: str) -> list[Offered]:
    page = read(world, job_id, role, **headers)
    head = page[page.index('id="job-head"') :].partition('id="job-')[2]
    head = head.partition('id="job-')[0]
    found = re.findall(
        r'<(?:a|button) id="act-[^"]+"[^>]* ?class="button ?(first|ends|)"'
        r'[^>]*?(?:hx-post|hx-get|href)="([^"]+)"'
        r'(?: hx-vals="([^"]+)")?[^>]*>([^<]+)</(?:button|a)>',
        head,
    )
    return [
        Offered(label, look, html.unescape(path), json.loads(html.unescape(vals or "{}")))
        for look, path, vals, label in found
    ]


def labels(world: World, job_id: str, role: str = "admin") -> list[tuple[str, str]]:
    return [(one.label, one.look) for one in offered(world, job_id, role)]


def conversion(world: World, code: str = "", category: str = "") -> str:
    """A conversion that waits, or that failed with this code."""
    queue = world.service.queues["oci"]
    stamps = {"conversion_at": queue.now()}
    job_id = world.job("north", queue="oci", payload=CONVERSION, stamps=stamps)
    if code:
        [job] = queue.claim("one", ids=[job_id])
        change = Change(job.id, job.claim_seq, code, category, "it did not work")
        apply_changes(queue, "ack_failed", [change], actor="one")
    return job_id


# Queues without actions of their own: the operator's moves of the lifecycle


def test_a_task_offers_what_its_lifecycle_allows_and_destroys_last(world):
    broken = [("Fix data", "first"), ("Retry", ""), ("Dismiss", "ends")]
    assert labels(world, world.broken()) == broken
    assert labels(world, world.failed()) == [("Retry", "")]  # a decision: nothing is urged
    waiting = world.job()
    assert labels(world, waiting) == [("Cancel", "ends")]
    [cancel] = offered(world, waiting)
    assert (cancel.path, cancel.fields) == ("/dashboard/queues/task/sheet", {"call": "cancel", "ids": waiting})
    world.task.claim("one", ids=[waiting])
    assert labels(world, waiting) == [("Cancel", "ends")]  # its worker loses the claim


def test_an_error_that_lasts_urges_no_retry_and_says_why(world):
    job_id = world.job()
    Worker(world.task, lambda _: Failed("GONE", category="PERMANENT")).drain()
    assert labels(world, job_id) == [("Retry", ""), ("Dismiss", "ends")]
    assert "PERMANENT: it will fail again unless the cause has been fixed." in read(world, job_id)


def test_a_finished_task_offers_nothing(world):
    job_id = world.job()
    Worker(world.task, lambda _: None).drain()
    assert offered(world, job_id) == []


# Conversions


@table(
    ("code", "category", "expected"),
    [
        ("", "", [("Mark failed", "ends")]),
        ("UNPARSEABLE_GCLID", "VALIDATION", [("Fix data", "first"), ("Retry", ""), ("Reset to queued", "")]),
        ("INTERNAL_ERROR", "TRANSIENT", [("Retry", "first"), ("Reset to queued", "")]),
    ],
)
def test_a_conversion_offers_what_its_control_page_does(code, category, expected, world):
    job_id = conversion(world, code, category)
    assert labels(world, job_id, "operator") == expected
    for one in offered(world, job_id):
        own = f"{CONTROL}/rows/{job_id}/fix" if one.label == "Fix data" else f"{CONTROL}/preview"
        assert one.path == own
        assert one.fields.get("ids", job_id) == job_id


def test_advice_on_an_unknown_code_is_that_of_its_category_on_the_page_and_in_the_api(world):
    job_id = conversion(world, "NEXT_YEARS_ERROR", "VALIDATION")
    means = ADVICE.find("NEXT_YEARS_ERROR", "VALIDATION").means
    assert means != ADVICE.find("NEXT_YEARS_ERROR").means
    assert html.escape(means, quote=False) in html.unescape(read(world, job_id))
    answer = world.client.get(f"/api/jobs/{job_id}", headers=world.key("admin")).json()
    assert answer["advice"]["en"]["means"] == means


def test_a_conversion_in_flight_is_reset_or_marked_and_a_delivered_one_corrected(world):
    job_id = conversion(world)
    queue = world.service.queues["oci"]
    [job] = queue.claim("one", ids=[job_id])
    assert labels(world, job_id) == [("Reset to queued", ""), ("Mark failed", "ends")]
    apply_changes(queue, "ack", [Change(job.id, job.claim_seq)], actor="one")
    assert labels(world, job_id) == [("Correct a sent row", "")]


def test_a_retry_of_bad_data_is_called_futile_on_the_page_and_in_its_dialog(world):
    bad = conversion(world, "UNPARSEABLE_GCLID", "VALIDATION")
    passing = conversion(world, "INTERNAL_ERROR", "TRANSIENT")
    name = world.known("the-operator", "operator", all_sites=True)
    for job_id, futile in ((bad, True), (passing, False)):
        assert ("It will fail until its data is fixed." in read(world, job_id)) == futile
        sent = {"action": "RETRY_SELECTED", "ids": job_id}
        dialog = world.client.post(f"{CONTROL}/preview", data=sent, headers=world.cookie(name))
        assert ("It will keep failing until the data is corrected." in dialog.text) == futile


# Orders


def test_a_held_order_offers_the_customer_first_and_then_the_approval(world):
    phone = "0532 911 00 11"
    job_id = held_order(world.service, customer_phone=phone)
    assert labels(world, job_id, "operator") == [("Cancel", "ends")]  # and the form below it
    assert "Add customer and approve" in read(world, job_id)
    order_service(world.service).add_customer(ROOT, "Işıl", phone)
    assert labels(world, job_id, "operator") == [("Approve", "first"), ("Cancel", "ends")]
    assert "is known now" in read(world, job_id)


def test_a_planned_order_says_that_it_is_ready(world):
    job_id = planned_order(world.service)
    expected = [("Approve", "first"), ("Print the plan", ""), ("Cancel", "ends")]
    assert labels(world, job_id, "operator") == expected
    assert "ready to approve" in read(world, job_id)
    [approve, plan, _] = offered(world, job_id)
    assert approve.path == f"/dashboard/optiplan/orders/{job_id}/approve"
    assert approve.fields  # at once: nothing is left to ask
    assert plan.path == f"/jobs/{job_id}/plan.pdf?lang=en"


def test_a_failed_order_is_retried_while_that_helps_and_reissued_once(world):
    queue, orders = world.service.queues["optiplan"], order_service(world.service)
    job_id = held_order(world.service)
    orders.cancel(ROOT, job_id)
    assert labels(world, job_id) == [("Reissue", "first")]  # what was cancelled is not retried
    orders.reissue(ROOT, job_id)
    assert offered(world, job_id) == []  # a new revision has taken over
    job_id = world.job(queue="optiplan", site="default")
    for n in range(OptiplanLimits().retry_count_max + 1):
        world.clock.time_us += 3600 * 1_000_000
        [job] = queue.claim("one", ids=[job_id])
        change = Change(job.id, job.claim_seq, "E_OSI_ACK_FAILED", "TRANSIENT", "no")
        apply_changes(queue, "fail", [change], actor="one")
        last = n == OptiplanLimits().retry_count_max
        expected = [("Reissue", "first")] if last else [("Retry", "first"), ("Reissue", "")]
        assert labels(world, job_id) == expected
        if not last:
            orders.retry(ROOT, job_id)


# PDFs


def test_a_pdf_is_downloaded_cancelled_or_made_again(world):
    done, waiting = create_pdf(world), world.job("nur", queue="pdf")
    assert labels(world, done) == [("Download", "first"), ("Create link…", "")]
    assert offered(world, done)[0].path == f"/pdf/jobs/{done}/download"
    assert offered(world, done, "operator") == []
    assert labels(world, waiting) == labels(world, waiting, "operator") == [("Cancel", "ends")]
    world.service.queues["pdf"].act("cancel", actor="tests", ids=[waiting])
    assert labels(world, waiting) == [("Render again", "first")]
    assert offered(world, waiting, "operator") == []


def test_a_pdf_that_failed_is_made_again_for_its_owner(world):
    context = world.service.workload_context("pdf")
    jobs = open_job_store(context)
    sample = {"variables": {"number": "A-1"}}
    made = jobs.create_job("invoice", sample, owner="user:nur")
    name = world.known("the-admin", "admin", all_sites=True)
    path, admin = f"/dashboard/pdf/jobs/{made.job_id}/again", world.cookie(name)
    assert world.client.post(path, headers=admin).status_code == 422  # the values do not fit
    good = load_pdf_templates(context.settings).get("invoice").sample
    made = jobs.create_job("invoice", {"variables": dict(good)}, owner="user:nur")
    world.service.queues["pdf"].act("cancel", actor="tests", ids=[made.job_id])
    path = f"/dashboard/pdf/jobs/{made.job_id}/again"
    assert world.client.post(path, headers=admin).status_code == 503  # no worker renders
    Heartbeat(world.store, "one", now=world.service.queues["pdf"].now).beat()
    answer = world.client.post(path, headers=admin)
    assert answer.status_code == 200
    assert answer.headers["hx-trigger"] == "kesin:forget"
    [new] = re.findall(r'href="/dashboard/jobs/([^"]+)"', answer.text)
    again = jobs.get_job(new)
    assert again is not None
    assert (again.owner, again.payload["variables"]) == ("user:nur", dict(good))
    assert "queued again as a new job" in answer.text
    assert "already exists" in world.client.post(path, headers=admin).text


@pytest.mark.parametrize("exists", [False, True], ids=["a new job", "one that exists"])
def test_a_failed_pdf_that_is_made_again_needs_nobody_and_links_to_the_new_job(world, exists):
    context, queue = world.service.workload_context("pdf"), world.service.queues["pdf"]
    jobs, sample = open_job_store(context), load_pdf_templates(context.settings).get("invoice")
    variables = dict(sample.sample) | {"number": f"again {exists}"}
    values = {"variables": variables, "template_hash": sample.content_hash}
    failed = jobs.create_job("invoice", values, owner="user:nur").job_id
    jobs.update_status(failed, PdfJobStatus.RUNNING)
    jobs.update_status(failed, PdfJobStatus.FAILED, error_code="TEMPLATE_ERROR")
    assert labels(world, failed) == [("Render again", "first"), ("Dismiss", "ends")]
    existing = jobs.create_job("invoice", values, owner="user:nur").job_id if exists else ""
    Heartbeat(world.store, "one", now=queue.now).beat()
    admin = world.cookie(world.known("the-admin", "admin", all_sites=True))
    path = f"/dashboard/pdf/jobs/{failed}/again"

    before = queue.stats().total
    with patch.object(submit, "apply_changes", side_effect=StoreUnreachable("gone")):
        assert world.client.post(path, headers=admin).status_code == 503
    assert queue.stats().total == before  # neither a new job nor a dismissed one
    [new] = re.findall(r'href="/dashboard/jobs/([^"]+)"', world.client.post(path, headers=admin).text)
    assert not exists or new == existing
    event = queue.events(failed)[-1]
    assert (event.move, event.actor, event.to_state) == ("dismiss", "user:the-admin", "expired")
    page = world.client.get(f"/dashboard/jobs/{failed}", headers=admin).text
    assert f'A new job was created for this PDF. <a href="/dashboard/jobs/{new}">' in page


# Readers, and whatever a workload says


def test_a_viewer_is_offered_nothing_and_no_action_stands_twice(world):
    jobs = [
        world.failed(),
        conversion(world, "UNPARSEABLE_GCLID", "VALIDATION"),
        held_order(world.service),
        create_pdf(world),
        uploaded(world),
    ]
    for job_id in jobs:
        assert offered(world, job_id, "viewer") == []
        found = offered(world, job_id)
        assert found
        assert len({one.label for one in found}) == len(found)
        assert len({(one.path, str(one.fields)) for one in found}) == len(found)
        assert sum(one.look == "first" for one in found) <= 1
        assert [one.look for one in found] == sorted((one.look for one in found), key=["first", "", "ends"].index)


def test_a_destructive_action_is_never_primary_whatever_a_workload_says(world, monkeypatch):
    bad = JobAction("Destroy", "/x", primary=True, destructive=True)
    good = JobAction("Help", "/y", is_link=True)
    pages = WorkloadPages(job_actions=lambda *_: (bad, good))
    monkeypatch.setitem(world.app.state.frame.pages, "task", pages)
    job_id = world.failed()
    assert labels(world, job_id) == [("Help", ""), ("Destroy", "ends")]
    assert offered(world, job_id, "viewer") == []


def test_a_workload_that_cannot_say_what_it_offers_leaves_the_rest_of_the_page(world, monkeypatch):
    def broken(*_: Any) -> Any:
        raise RuntimeError("no")

    monkeypatch.setitem(world.app.state.frame.pages, "task", WorkloadPages(job_actions=broken))
    job_id = world.failed()
    assert "Timeline" in read(world, job_id)
    assert offered(world, job_id) == []


# Afterwards


def test_after_an_action_the_part_has_the_new_state_everywhere(world):
    job_id = world.job()
    Worker(world.task, lambda _: Failed("BROKEN", "it broke", category=Category.VALIDATION)).drain()
    name = world.known("the-operator", "operator", all_sites=True)
    cookie = world.cookie(name) | PART
    seq = world.found(job_id).seq
    sent = {"call": "requeue", "ids": job_id}
    dialog = world.client.post("/dashboard/queues/task/sheet", data=sent, headers=cookie)
    assert "1 will move" in dialog.text
    done = world.client.post("/dashboard/queues/task/act", data=sent, headers=cookie)
    assert "Retry: 1 moved" in done.text
    assert "now ready" in done.text
    assert '<div id="sheet" hx-swap-oob="true"></div>' in done.text
    assert done.headers["hx-trigger"] == "kesin:forget"
    part = world.client.get(f"/dashboard/jobs/{job_id}?seq={seq}", headers=cookie).text
    for one in ("head", "outcome", "next", "story", "facts", "picture", "values", "panel"):
        assert part.count(f'id="job-{one}"') == 1, one
    assert 'data-now="ready BROKEN 0"' in part
    assert '<g class="state waiting here" data-state="ready">' in part
    assert "Why it stopped" not in part
    again = world.client.post("/dashboard/queues/task/act", data=sent, headers=cookie).text
    assert "0 moved" in again
    assert "already ready" in again
