"""The routes of jobs: create, show, list, cancel; each key sees its own jobs."""

import json
import re
from contextlib import ExitStack
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kesin.store.postgres.store import PostgresStore
from kesin.workloads.pdf.jobs.store import expire_jobs
from tests.web.conftest import error_of
from tests.workloads.pdf.front import AT_ONCE, NO_JOB, Front, at_once, front_over, one_new, opened_front, order
from tests.workloads.pdf.press import SAMPLE, TTL_S

# From request to download


def test_a_pdf_is_requested_rendered_and_downloaded(each_front):
    front, me = each_front, each_front.owner()
    response = front.post(me)
    assert response.status_code == 202
    created = response.json()
    assert created.keys() == {"job_id", "status", "created_at"}
    assert created["status"] == "queued"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", created["created_at"])
    path = f"/pdf/jobs/{created['job_id']}"
    assert response.headers["location"] == path

    waiting_job = front.client.get(path, headers=me).json()
    queued = front.queue.stats().states["queued"]
    assert (waiting_job["position"], waiting_job["download_url"]) == (queued, None)
    front.clock.advance(3)
    front.worker.process_job(created["job_id"])

    status = front.client.get(path, headers=me).json()
    assert status["status"] == "succeeded"
    assert (status["pages"], status["engine"], status["warnings"]) == (1, "quick", ["a warning"])
    assert status["started_at"] > status["created_at"]
    assert (status["position"], status["error_code"], status["retry_count"]) == (None, None, 0)
    fetched = front.client.get(status["download_url"], headers=me)
    assert (fetched.status_code, fetched.headers["content-type"]) == (200, "application/pdf")
    assert fetched.content == front.artifacts.get_pdf(front.seen(created["job_id"]).artifact_key)
    assert len(fetched.content) == status["bytes"]
    assert fetched.headers["etag"] == f'"{status["sha256"]}"'


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
sheets = st.one_of(
    st.fixed_dictionaries({}, optional={"format": st.sampled_from(["A3", "A4", "A5", "Letter"])}),
    st.fixed_dictionaries({"width_mm": st.floats(60, 900), "height_mm": st.integers(60, 900)}),
)
options = st.builds(
    lambda sheet, rest: {**sheet, **rest},
    sheets,
    st.fixed_dictionaries(
        {},
        optional={
            "timeout": st.integers(1, 600),
            "fail_safe": st.sampled_from(["strict", "degrade"]),
            "engine": st.sampled_from([None, "chromium", "weasyprint"]),
            "landscape": st.booleans(),
            "margin_mm": st.floats(0, 20) | st.lists(st.integers(0, 20), min_size=4, max_size=4),
            "scale": st.floats(0.1, 2),
            "page_ranges": st.sampled_from(["", "1", "1-3, 5", "2-"]),
            "tagged": st.booleans(),
        },
    ),
)
requests = st.fixed_dictionaries(
    {
        "template_name": st.just("invoice"),
        "variables": st.builds(lambda number, notes: {**SAMPLE, "number": number or "1", "notes": notes}, words, words),
    },
    optional={"options": st.none() | options, "file_name": words.filter(bool)},
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(body=requests)
def test_a_created_job_is_found_as_it_was(front, body):
    """Feature: pdf-render-worker, Property 8: a job that was created is found as it was."""
    who = _one_owner(front)
    created = front.post(who, body)
    assert created.status_code in {200, 202}, created.text
    summary = created.json()
    job = front.get(who, summary["job_id"]).json()
    assert {name: job[name] for name in ("job_id", "status", "created_at")} == summary


def _one_owner(front: Front) -> dict[str, str]:
    if not hasattr(front, "examples"):
        front.examples = front.owner()  # type: ignore[attr-defined]
    who: dict[str, str] = front.examples  # type: ignore[attr-defined]
    return who


# Equal requests


def test_an_equal_request_gets_the_same_job_until_it_has_failed(front, me):
    body = order()
    job_id = front.submit(me, body)
    again = front.post(me, body)
    assert (again.status_code, again.json()["job_id"]) == (200, job_id)
    assert again.headers["location"] == f"/pdf/jobs/{job_id}"
    assert front.submit(front.owner(), body) != job_id
    [claimed] = front.queue.claim("one", ids=[job_id])
    assert front.post(me, body).json()["status"] == "running"
    front.jobs.succeed(claimed, front.worker._render_and_store(front.seen(job_id)))
    done = front.post(me, body)
    assert (done.status_code, done.json()["status"]) == (200, "succeeded")
    body = order()
    front.engine.fails("TEMPLATE_ERROR")
    failed = front.done(me, body)
    anew = front.post(me, body)
    assert (anew.status_code, anew.json()["job_id"] == failed) == (202, False)


def test_only_options_that_change_the_bytes_create_another_job(front, me):
    body = order()
    job_id = front.submit(me, body)
    same: list[dict[str, Any]] = [
        {"timeout": 7}, {"fail_safe": "degrade"}, {"format": "A4"}, {"margin_mm": [0, 0, 0, 0]},
    ]  # fmt: skip
    for options in same:
        assert front.submit(me, {**body, "options": options}) == job_id, options
    assert front.submit(me, {**body, "file_name": "other.pdf"}) == job_id
    other: list[dict[str, Any]] = [
        {"engine": "weasyprint"}, {"landscape": True}, {"margin_mm": 5}, {"format": "A5"},
    ]  # fmt: skip
    for options in other:
        assert front.submit(me, {**body, "options": options}) != job_id, options


def test_of_equal_requests_to_two_processes_one_makes_the_job(request, tmp_path, postgres_url):
    with ExitStack() as stack:
        front = stack.enter_context(opened_front("postgres", tmp_path, request))
        assert isinstance(front.store, PostgresStore)
        store = PostgresStore(postgres_url, schema=front.store.schema, listen=False)
        stack.callback(store.close)
        beside = stack.enter_context(front_over(store, tmp_path))
        me = front.owner()
        assert [each.get(me, NO_JOB).status_code for each in (front, beside)] == [404, 404]
        body = order()
        calls = [lambda: front.post(me, body), lambda: beside.post(me, body)] * (AT_ONCE // 2)
        job_id = one_new(at_once(calls))
        assert beside.get(me, job_id).json() == front.get(me, job_id).json()


# Owners


def test_another_owners_job_exists_for_admins_alone(front, me):
    job_id = front.done(me)
    assert front.fetch(front.boss, job_id).status_code == 200
    listed = front.client.get("/pdf/jobs?limit=1", headers=front.boss).json()
    assert [job["job_id"] for job in listed["jobs"]] == [job_id]
    other = front.owner()
    for call in (front.get, front.fetch, front.cancel):
        there, nowhere = call(other, job_id), call(other, NO_JOB)
        assert there.status_code == 404
        assert there.content == nowhere.content
    listed = front.client.get("/pdf/jobs", headers=other).json()
    assert listed == {"jobs": [], "cursor": None}


def test_the_list_is_ones_own_newest_first_and_in_pages(front, me):
    ids = [front.submit(me) for _ in range(5)]
    front.submit(front.owner())
    front.cancel(me, ids[1])

    def page(**params: Any) -> dict[str, Any]:
        response = front.client.get("/pdf/jobs", headers=me, params=params)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    first = page(limit=3)
    assert [job["job_id"] for job in first["jobs"]] == ids[:1:-1]
    rest = page(limit=3, cursor=first["cursor"])
    assert [job["job_id"] for job in rest["jobs"]] == [ids[1], ids[0]]
    assert rest["cursor"] is None
    assert [job["job_id"] for job in page(status="expired")["jobs"]] == [ids[1]]
    assert front.client.get("/pdf/jobs?status=lost", headers=me).status_code == 422
    assert front.client.get("/pdf/jobs?cursor=x", headers=me).status_code == 422


def test_a_job_made_by_hand_is_shown_whatever_it_holds(front):
    payloads: tuple[Any, ...] = ([], "text", None, {"payload": 5, "manner": {"file_name": 7}})
    for payload in payloads:
        job_id = front.queue.enqueue(payload).id
        job = front.get(front.boss, job_id).json()
        assert (job["template_name"], job["file_name"]) == ("", None)
        assert front.fetch(front.boss, job_id).status_code == 202
        front.cancel(front.boss, job_id)


# Back-pressure


def test_back_pressure_starts_at_the_limit_and_ends_when_the_queue_is_a_fifth_shorter(request, tmp_path):
    with opened_front("sqlite", tmp_path, request, pdf_max_queued=10) as front:
        me, first = front.owner(), order()
        waiting_jobs = [front.submit(me, first), *(front.submit(me) for _ in range(9))]
        refused = front.post(me)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
        assert error_of(refused)["code"] == "BACKPRESSURE_ACTIVE"
        assert front.post(me, first).status_code == 200  # there is nothing to make
        for job_id in waiting_jobs[:2]:
            front.worker.process_job(job_id)
            assert front.post(front.owner()).status_code == 429
        front.worker.process_job(waiting_jobs[2])  # seven are left
        assert [front.post(me).status_code for _ in range(4)] == [202, 202, 202, 429]


def test_a_client_with_too_many_waiting_jobs_is_refused_and_others_are_not(request, tmp_path):
    with opened_front("sqlite", tmp_path, request, pdf_max_queued_per_owner=2) as front:
        me, first = front.owner(), order()
        waiting = [front.submit(me, first), front.submit(me)]
        refused = front.post(me)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
        assert error_of(refused)["message"] == "2 of your jobs are waiting: try again later"
        assert front.post(me, first).status_code == 200
        assert front.post(front.owner()).status_code == 202
        front.worker.process_job(waiting[0])
        assert front.post(me).status_code == 202


# Cancelling


def test_its_owner_or_an_admin_cancels_a_waiting_job_and_again_changes_nothing(front, me):
    def cancel(who: dict[str, str], noted: str, **how: str) -> None:
        body, responses = order(), []
        job_id = front.submit(me, body)
        lines = front.said(lambda: responses.append(front.cancel(who, job_id, **how)))
        responses.append(front.cancel(who, job_id))
        assert [(each.status_code, each.json()) for each in responses] == [(200, responses[0].json())] * 2
        [event] = [event for event in front.queue.events(job_id) if event.move == "cancel"]
        assert (event.actor, json.loads(event.note)) == (front.name_of(who), {"reason": noted})
        assert [(line.action, line.allowed, line.target) for line in lines] == [("pdf.cancel", True, job_id)]
        assert front.fetch(me, job_id).status_code == 410
        assert front.worker.process_job(job_id) is None
        assert front.seen(job_id).status == "expired"
        assert front.post(me, body).status_code == 202

    cancel(me, "typed twice", reason="typed twice")
    cancel(front.boss, "cancelled by an admin")


def test_what_is_past_waiting_is_not_cancelled(own_front):
    front, me = own_front, own_front.owner()
    done, running = front.done(me), front.submit(me)
    front.queue.claim("one", ids=[running])
    front.engine.fails("TEMPLATE_ERROR")
    failed = front.done(me)
    old = front.done(me)
    front.clock.advance(TTL_S + 1)
    expire_jobs(front.queue)
    for job_id in (done, running, failed, old):
        lines = front.said(lambda job_id=job_id: front.cancel(me, job_id))
        response = front.cancel(me, job_id)
        assert (response.status_code, error_of(response)["code"]) == (409, "conflict")
        assert lines == []
