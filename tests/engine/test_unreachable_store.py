"""A worker whose store is unreachable, or becomes so during a call."""

import threading
from typing import Any

import pytest

from kesin import Done, Queue, Sweeper, Worker
from kesin.foundation.clock import ManualClock
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.records import Outcome
from kesin.store.sqlite.store import SqliteStore
from tests.engine.conftest import PATIENCE_S, Meeting, Spy, Start, fill, moves, only, states


def test_a_thread_survives_errors_of_the_store_and_waits_longer_each_time(
    queue: Queue, store: SqliteStore, running: Start, monkeypatch: pytest.MonkeyPatch
):
    fill(queue, 1)
    claims = Spy(store, "claim", [StoreError("gone"), ValueError("odd"), StoreError("gone")])
    meeting = Meeting()
    worker = Worker(queue, meeting, poll_s=1_000)
    pauses: list[float] = []
    monkeypatch.setattr(worker, "pause", pauses.append)
    running(worker)
    meeting.wait()
    meeting.go_on.set()
    assert claims.made.acquire(timeout=PATIENCE_S)
    assert len(pauses) == 3
    assert all(0 < pause <= 60 for pause in pauses)
    assert pauses[0] < pauses[2]  # twice as long each time, give or take half


def test_results_are_written_again_when_the_store_was_unreachable(
    queue: Queue, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    fill(queue, 1)
    Spy(store, "apply", [StoreUnreachable("gone")] * 50)
    worker = Worker(queue, lambda _job: Done(1))
    pauses: list[float] = []
    monkeypatch.setattr(worker, "pause", pauses.append)
    worker.drain()
    assert states(queue) == {"done": 1}
    assert len(pauses) == 50
    assert pauses[0] < 0.2
    assert 0.9 < pauses[-1] <= 3  # longer each time, but never long


@pytest.mark.parametrize("grace_s", [0.0, 600.0])
def test_a_result_is_given_up_when_the_grace_period_is_over(
    queue: Queue, store: SqliteStore, clock: ManualClock, running: Start, grace_s: float
):
    fill(queue, 1)
    spy = Spy(store, "apply", [StoreUnreachable("gone")] * 10_000)
    worker = running(Worker(queue, lambda _job: Done(1), grace_s=grace_s))
    while not spy.calls:
        assert not threading.Event().wait(0.001)
    worker.stop()
    if grace_s:
        attempts = len(spy.calls)
        while len(spy.calls) < attempts + 2:  # it keeps trying
            assert not threading.Event().wait(0.001)
        clock.advance(grace_s)
    worker.join()  # without an error for a claim that cannot be released
    for thread in worker._threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert states(queue) == {"running": 1}


def test_a_result_committed_before_the_connection_broke_counts_once(
    queue: Queue, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    [job_id] = fill(queue, 1)
    real = store.apply
    lost: list[list[Outcome]] = []

    def break_after_the_commit(*args: Any, **kwargs: Any) -> Any:
        outcomes = real(*args, **kwargs)
        if not lost:
            lost.append(outcomes)
            raise StoreUnreachable("the reply never arrived")
        return outcomes

    monkeypatch.setattr(store, "apply", break_after_the_commit)
    worker = Worker(queue, lambda _job: Done(1))
    monkeypatch.setattr(worker, "pause", lambda _seconds: None)
    worker.drain()
    assert moves(queue, job_id) == ["enqueue", "claim", "complete"]
    assert queue.notes(job_id) == []


def test_a_job_whose_result_was_not_written_is_recovered_when_its_lease_is_over(
    queue: Queue, store: SqliteStore, clock: ManualClock
):
    fill(queue, 1)
    spy = Spy(store, "apply", [StoreError("the disk is full")])
    worker = Worker(queue, lambda _job: Done(1))
    with pytest.raises(StoreError):
        worker.drain()
    assert spy.failures == []
    assert states(queue) == {"running": 1}
    assert worker.leases.held() == []  # and so nothing renews it
    clock.advance(61)
    Sweeper([queue]).sweep()
    worker.drain()
    assert states(queue) == {"done": 1}
    assert only(queue).attempt_count == 2
