"""The job store of the seed: which moves it makes, and which job a request gets."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kesin.store.sqlite.store import SqliteStore
from kesin.workloads import pdf
from kesin.workloads.pdf.errors import PdfErrorCode
from kesin.workloads.pdf.jobs.store import (
    IllegalTransition,
    PdfJob,
    PdfJobStatus,
    PdfJobStore,
    RenderRequest,
    UnknownJob,
)
from tests.workloads.pdf.press import LEASE_S, TTL_S, Press, opened_press, payload

QUEUED, RUNNING, SUCCEEDED, FAILED, EXPIRED = PdfJobStatus
EDGES = {
    ("", "queued"),
    ("queued", "running"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("failed", "queued"),
    ("queued", "expired"),
    ("succeeded", "expired"),
    ("failed", "expired"),
}
MANY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def press(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Press]:
    with opened_press(request.param, tmp_path, request) as press:
        yield press


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Press]:
    """On SQLite alone, for tests that try hundreds of ways."""
    store = SqliteStore(":memory:")
    yield Press(store, tmp_path)
    store.close()


# The state machine


def brought_to(press: Press, status: PdfJobStatus, number: str = "A-1") -> PdfJob:
    """A job in this status, by moves of the lifecycle."""
    job = press.ask(number)
    if status is QUEUED:
        return job
    if status is EXPIRED:
        press.clock.advance(TTL_S)
        press.jobs.cleanup_expired()
        return press.seen(job)
    press.jobs.update_status(job.job_id, RUNNING)
    if status is SUCCEEDED:
        key = press.artifacts.store_pdf(job.job_id, b"%PDF-1.4")
        press.jobs.update_status(job.job_id, SUCCEEDED, artifact_key=key)
    elif status is FAILED:
        press.jobs.update_status(job.job_id, FAILED, error_code=PdfErrorCode.UNKNOWN)
    job = press.seen(job)
    assert job.status is status
    return job


def test_a_running_job_neither_expires_nor_succeeds_without_its_artifact(small):
    job = brought_to(small, RUNNING)
    with pytest.raises(IllegalTransition, match="artifact_key"):
        small.jobs.update_status(job.job_id, SUCCEEDED)
    small.clock.advance(2 * TTL_S)
    with pytest.raises(IllegalTransition, match="it cannot become expired now"):
        small.jobs.update_status(job.job_id, EXPIRED)


def test_a_job_that_was_never_created_is_unknown(small):
    for status in PdfJobStatus:
        with pytest.raises(UnknownJob):
            small.jobs.update_status("0199c0de-0000-7000-8000-000000000000", status)
    assert issubclass(UnknownJob, KeyError)
    assert issubclass(IllegalTransition, ValueError)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("to"), st.sampled_from(PdfJobStatus), st.sampled_from(PdfErrorCode)),
        st.tuples(st.just("pass"), st.sampled_from([1, 6, LEASE_S, TTL_S, 8 * TTL_S])),
        st.tuples(st.sampled_from(["sweep", "cancel", "ask", "lose"])),
    ),
    max_size=14,
)


@given(STEPS)
@MANY
def test_whatever_is_tried_only_declared_transitions_happen(small, steps):
    """Feature: pdf-render-worker, Property 1: only valid transitions are made."""
    job = small.ask(str(small.clock.time_us))
    small.clock.advance(1)
    for step in steps:
        before = small.jobs.get_job(job.job_id)
        if before is None:  # pruned: its time was over twice
            break
        _try(small, job, step)
        after = small.jobs.get_job(job.job_id)
        if after is not None and after.status is not before.status:
            assert after.status in PdfJobStatus
    edges = small.edges(job)
    assert set(edges) <= EDGES
    for (_, to), (source, _) in pairwise(edges):
        assert to == source
    if edges:  # an expired job is the end of it
        assert all(to != "expired" for _, to in edges[:-1])


def _try(press: Press, job: PdfJob, step: tuple[Any, ...]) -> None:
    match step:
        case ("to", status, code):
            details = {"artifact_key": "pdfs/x/1.pdf", "error_code": code}
            before = press.seen(job)
            try:
                assert press.jobs.update_status(job.job_id, status, **details).status in {status, QUEUED}
                assert (before.status, status) in EDGES
            except IllegalTransition:
                assert press.seen(job) == before
        case ("pass", seconds):
            press.clock.advance(seconds)
        case ("sweep",):
            press.sweep()
        case ("lose",):
            press.clock.advance(LEASE_S)
            press.sweep()
        case ("cancel",):
            press.queue.act("cancel", actor="owner", ids=[job.job_id], role="producer")
        case ("ask",):
            press.jobs.create_job(job.template_name, job.payload)


# Retries


def test_the_caller_of_the_seed_may_say_that_it_is_queued_again(small):
    job = brought_to(small, RUNNING)
    small.jobs.update_status(job.job_id, FAILED, error_code="NAVIGATION_TIMEOUT")
    assert small.jobs.update_status(job.job_id, QUEUED, retry_count=1).status is QUEUED
    with pytest.raises(IllegalTransition):
        small.jobs.update_status(job.job_id, QUEUED, retry_count=2)


def test_a_failure_and_its_retry_are_two_moves_of_one_transaction(press):
    """Nobody ever sees the job failed in between: its history says that it was."""
    job = brought_to(press, RUNNING)
    seen: list[str] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.append(press.seen(job).status)

    watcher = threading.Thread(target=watch)
    watcher.start()
    press.jobs.update_status(job.job_id, FAILED, error_code="NAVIGATION_TIMEOUT")
    over.set()
    watcher.join()
    assert set(seen) <= {RUNNING, QUEUED}
    assert press.edges(job)[-2:] == [("running", "failed"), ("failed", "queued")]


# One job for equal requests


@given(st.sampled_from(PdfJobStatus), st.booleans(), st.integers(0, 10**9))
@MANY
def test_equal_requests_share_a_job_while_it_has_or_can_get_a_pdf(small, status, stored, number):
    """Feature: pdf-render-worker, Property 4: idempotency."""
    name = f"{number}-{small.clock.time_us}"
    small.clock.advance(1)
    first = brought_to(small, status, name)
    if status is SUCCEEDED and not stored:
        assert small.artifacts.delete_pdf(first.artifact_key or "")
    again = small.jobs.enqueue(RenderRequest("invoice", payload(name)))
    if status in {QUEUED, RUNNING} or (status is SUCCEEDED and stored):
        assert not again.new
        assert again.job == first
    else:
        assert again.new
        assert again.job.job_id != first.job_id
        assert again.job.status is QUEUED
    if status is SUCCEEDED and not stored:
        assert small.seen(first).status is EXPIRED


def request_together(press: Press, count: int) -> None:
    """Send equal requests at the same moment: all get the same job, and one of them creates it."""
    start = threading.Barrier(count)

    def request(_: int) -> tuple[str, bool]:
        start.wait()
        enqueued = press.jobs.enqueue(RenderRequest("invoice", payload()))
        return enqueued.job.job_id, enqueued.new

    with ThreadPoolExecutor(count) as pool:
        results = list(pool.map(request, range(count)))
    assert len({job_id for job_id, _ in results}) == 1
    assert sum(new for _, new in results) == 1


def test_simultaneous_equal_requests_create_one_job(press):
    request_together(press, 8)


def test_simultaneous_requests_for_a_lost_pdf_create_one_new_job(press):
    old = press.done()
    press.artifacts.delete_pdf(old.artifact_key)
    request_together(press, 6)
    assert press.moves(old)[-1] == "artifact_gone"


def test_when_the_new_job_cannot_be_made_the_old_one_stays(press, monkeypatch):
    old = press.done()
    press.artifacts.delete_pdf(old.artifact_key)
    enqueue, calls = press.queue.store.enqueue, iter([False, True])

    def refuse(*args: Any, **how: Any) -> Any:
        if next(calls):
            raise RuntimeError("no room")
        return enqueue(*args, **how)

    monkeypatch.setattr(press.queue.store, "enqueue", refuse)
    with pytest.raises(RuntimeError, match="no room"):
        press.ask()
    assert press.seen(old).status is SUCCEEDED


# Finding


def test_a_job_is_found_by_its_key_while_it_holds_it(press):
    job = press.ask()
    key = press.jobs.compute_job_key("invoice", payload())
    assert press.jobs.find_by_key(key) == job
    press.clock.advance(TTL_S)
    press.jobs.cleanup_expired()
    assert press.jobs.find_by_key(key) is None
    assert press.jobs.find_by_key("no key") is None


def test_a_job_that_has_just_released_its_key_is_not_found_by_it(small, monkeypatch):
    """The key and the job are read separately, and another producer may come in between."""
    job = small.done()
    small.clock.advance(TTL_S)
    small.jobs.cleanup_expired()
    monkeypatch.setattr(small.queue, "holders", lambda _owner, keys: {keys[0]: job.job_id})
    assert small.jobs.find_by_key(job.job_key) is None


def test_a_place_in_line_counts_those_before(press):
    first, second, third = (press.ask(str(n)) for n in range(3))
    press.jobs.update_status(first.job_id, RUNNING)
    assert [press.jobs.position(press.seen(job)) for job in (first, second, third)] == [None, 1, 2]


def test_times_are_those_of_the_moves(small):
    created = small.clock.monotonic()
    job = small.ask()
    small.clock.advance(2)
    small.jobs.update_status(job.job_id, RUNNING)
    small.clock.advance(3)
    done = small.jobs.update_status(job.job_id, SUCCEEDED, artifact_key="pdfs/x/1.pdf")
    assert (done.created_at, done.started_at, done.finished_at) == (created, created + 2, created + 5)


def test_the_names_of_the_seed_are_importable_from_the_workload():
    for name in pdf.__all__:
        assert getattr(pdf, name) is not None
    assert pdf.PdfJobStore is PdfJobStore
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = pdf.Nonsense
