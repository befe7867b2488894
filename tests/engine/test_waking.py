"""How a waiting worker learns of a job, and what a pause holds back."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from kesin import Queue, Worker, task_lifecycle
from kesin.engine.worker_thread import RATE_WAIT_S
from kesin.foundation.clock import ManualClock
from kesin.store.sqlite.store import SqliteStore
from tests.engine.conftest import PATIENCE_S, Meeting, Spy, Start, fill, states


def test_a_job_enqueued_in_the_same_process_wakes_the_worker_at_once(queue: Queue, store: SqliteStore, running: Start):
    waits = Spy(store, "wait")
    meeting = Meeting()
    meeting.go_on.set()
    running(Worker(queue, meeting, poll_s=10_000))
    while not waits.calls:
        assert not threading.Event().wait(0.001)
    fill(queue, 1)
    meeting.wait()


def test_a_job_without_a_notification_is_found_by_polling(clock: ManualClock, tmp_path: Path):
    path = tmp_path / "shared.db"
    with closing(SqliteStore(path)) as here, closing(SqliteStore(path)) as there:
        ours = Queue("work", task_lifecycle(), here, clock=clock)
        theirs = Queue("work", task_lifecycle(), there, clock=clock)
        here._listener = None
        waits = Spy(here, "wait")
        meeting = Meeting()
        worker = Worker(ours, meeting, poll_s=0.05)
        worker.start()
        try:
            assert waits.made.acquire(timeout=PATIENCE_S)
            count = here.notification_count("work")
            theirs.enqueue({})
            assert here.notification_count("work") == count  # a result would notify
            meeting.go_on.set()
            meeting.wait()
        finally:
            worker.stop()
            worker.join()


def test_polling_intervals_have_jitter(
    queue: Queue, store: SqliteStore, running: Start, monkeypatch: pytest.MonkeyPatch
):
    waited: list[float] = []
    enough = threading.Event()

    def wait(_queue: str, _since: int, timeout_s: float) -> None:
        waited.append(timeout_s)
        if len(waited) >= 20:
            enough.set()
            threading.Event().wait(0.01)

    monkeypatch.setattr(store, "wait", wait)
    running(Worker(queue, lambda _job: None, poll_s=10))
    assert enough.wait(PATIENCE_S)
    assert all(5 <= seconds <= 15 for seconds in waited)
    assert len(set(waited)) > 10


def test_a_worker_waits_until_its_rate_leaves_something_again(
    store: SqliteStore, clock: ManualClock, running: Start, monkeypatch: pytest.MonkeyPatch
):
    queue = Queue("rated", task_lifecycle(rate=(2, 60)), store, clock=clock)
    fill(queue, 4)
    waited: list[float] = []
    done = threading.Event()

    def wait(_queue: str, _since: int, timeout_s: float) -> None:
        waited.append(timeout_s)
        clock.advance(timeout_s)
        if len(waited) == 3:
            done.set()
            worker.stop()

    monkeypatch.setattr(store, "wait", wait)
    worker = running(Worker(queue, lambda _job: None, poll_s=10_000, sweep=False))
    assert done.wait(PATIENCE_S)
    assert waited[:2] == [30, 30]
    assert waited[2] >= 5_000  # all are done
    assert states(queue) == {"done": 4}


def test_a_rate_of_many_claims_wakes_no_worker_for_each(
    store: SqliteStore, clock: ManualClock, running: Start, monkeypatch: pytest.MonkeyPatch
):
    queue = Queue("rated", task_lifecycle(rate=(10_000, 1)), store, clock=clock)
    monkeypatch.setattr(queue, "rate_opens_at", lambda _tenants: clock.time_us + 100)
    waits = Spy(store, "wait")
    running(Worker(queue, lambda _job: None, poll_s=10_000, sweep=False))
    assert waits.made.acquire(timeout=PATIENCE_S)
    assert waits.calls[0]["args"][2] == RATE_WAIT_S


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(queue: Queue, running: Start):
    queue.pause(actor="operator", reason="stock-taking")
    fill(queue, 2)
    assert Worker(queue, lambda _job: None).drain() == 0
    meeting = Meeting()
    meeting.go_on.set()
    running(Worker(queue, meeting, poll_s=10_000))
    assert queue.resume()
    meeting.wait(2)
    assert not queue.resume()
