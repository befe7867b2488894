"""Stopping a worker: claims are finished or released, and signal handlers restored."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import kesin.engine.worker
from kesin import Done, Job, Queue, Sweeper, Worker
from kesin.foundation.clock import ManualClock
from kesin.store.sqlite.store import SqliteStore
from tests.engine.conftest import PATIENCE_S, Meeting, Spy, Start, fill, moves, only, states


def test_a_graceful_stop_finishes_the_running_job(queue: Queue, running: Start):
    fill(queue, 3)
    meeting = Meeting(Done("in time"))
    worker = running(Worker(queue, meeting, poll_s=1_000))
    meeting.wait()
    worker.stop()
    meeting.go_on.set()
    worker.join()
    assert states(queue) == {"done": 1, "ready": 2}
    assert len(meeting.jobs) == 1


def test_a_stop_during_a_batch_releases_its_rest(queue: Queue):
    fill(queue, 7)
    handled: list[str] = []

    def handler(job: Job) -> None:
        handled.append(job.id)
        if len(handled) == 5:  # the second of the batch of four
            worker.stop()

    worker = Worker(queue, handler)
    worker.drain()
    assert states(queue) == {"done": 5, "ready": 2}
    for job in queue.jobs().jobs:
        if job.state == "ready":
            assert moves(queue, job.id) == ["enqueue", "claim", "release"]
            assert (job.attempt_count, job.attempt_base, job.return_count) == (1, 1, 1)


def test_an_attempt_is_returned_at_most_twice_in_a_budget(queue: Queue, clock: ManualClock):
    [job_id] = fill(queue, 1)
    for _ in range(3):
        worker = Worker(queue, lambda _job: None, name="w")
        jobs = queue.claim("w")
        worker.leases.take(jobs)
        worker.release_claims(jobs)
    job = only(queue)
    assert moves(queue, job_id) == ["enqueue", *["claim", "release"] * 2, "claim"]
    assert (job.state, job.attempt_count, job.attempt_base, job.return_count) == ("running", 3, 2, 2)
    clock.advance(61)
    Sweeper([queue]).sweep()
    assert (only(queue).state, only(queue).attempts_left) == ("ready", 2)


def test_more_claims_than_one_call_takes_are_released_in_several(
    queue: Queue, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kesin.engine.worker, "MAX_BATCH", 2)
    ids = fill(queue, 5)
    applied = Spy(store, "apply")
    assert Worker(queue, lambda _job: None).release_claims(queue.claim("w", limit=5)) == set(ids)
    assert [len(call["args"][2]) for call in applied.calls] == [2, 2, 1]


def test_a_job_running_after_the_grace_period_is_released_and_its_finish_refused(queue: Queue, running: Start):
    [job_id] = fill(queue, 1)
    meeting = Meeting(Done("late"))
    worker = running(Worker(queue, meeting, grace_s=0, name="slow"))
    meeting.wait()
    worker.stop()
    worker.join()
    assert (only(queue).state, only(queue).attempt_base) == ("ready", 1)
    meeting.go_on.set()
    for thread in worker._threads:
        thread.join(PATIENCE_S)
    assert only(queue).state == "ready"
    assert only(queue).result_json is None
    assert [note.kind for note in queue.notes(job_id)] == ["stale"]


def test_a_worker_that_waits_for_work_stops_at_once(queue: Queue, running: Start):
    worker = running(Worker(queue, lambda _job: None, threads=2, poll_s=1_000, grace_s=PATIENCE_S))
    worker.stop()
    worker.join()
    assert not any(thread.is_alive() for thread in worker._threads)
    fill(queue, 3)
    assert states(queue) == {"ready": 3}, "it claims no more"


def test_a_claim_made_after_the_grace_period_is_released(
    queue: Queue, store: SqliteStore, running: Start, monkeypatch: pytest.MonkeyPatch
):
    """A thread may be calling the store when the worker is stopped."""
    fill(queue, 1)
    claiming, go_on = threading.Event(), threading.Event()
    claim = store.claim

    def claim_slowly(*args: Any, **details: Any) -> list[Job]:
        claiming.set()
        assert go_on.wait(PATIENCE_S)
        return claim(*args, **details)

    monkeypatch.setattr(store, "claim", claim_slowly)
    ran: list[Job] = []

    def together(jobs: Sequence[Job]) -> list[Done]:
        ran.extend(jobs)
        return [Done()] * len(jobs)

    worker = running(Worker(queue, batch_handler=together, poll_s=1_000, grace_s=0))
    assert claiming.wait(PATIENCE_S)
    worker.stop()
    worker.join()
    go_on.set()
    for thread in worker._threads:
        thread.join(PATIENCE_S)
    assert (ran, states(queue)) == ([], {"ready": 1})


@pytest.fixture
def own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        assert signal.getsignal(number) is handler, "the worker did not restore a signal handler"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("own_signals")
def test_a_signal_stops_a_running_worker_gracefully(queue: Queue, number: signal.Signals):
    fill(queue, 3)

    def handler(_job: Job) -> None:
        if not worker.stopping:
            os.kill(os.getpid(), number)
            stopped.wait(PATIENCE_S)

    worker = Worker(queue, handler, poll_s=0.05)
    stopped = worker._stop
    worker.run()
    assert states(queue)["done"] >= 1
    assert queue.stats().states["running"] == 0


@pytest.mark.usefixtures("own_signals")
def test_a_second_signal_releases_everything_at_once(queue: Queue):
    fill(queue, 1)
    ended = threading.Event()

    def handler(_job: Job) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert worker._stop.wait(PATIENCE_S)
        while worker.grace_s and not ended.wait(0.01):  # until the stop is noticed
            os.kill(os.getpid(), signal.SIGTERM)
        assert ended.wait(PATIENCE_S)

    worker = Worker(queue, handler, grace_s=600, poll_s=0.05)
    patience = threading.Timer(5, ended.set)  # a worker that waits the grace period out fails
    patience.start()
    try:
        worker.run()
        released = only(queue)
    finally:
        patience.cancel()
        ended.set()
        for thread in worker._threads:
            thread.join(PATIENCE_S)
    assert (released.state, released.attempt_base) == ("ready", 1)
