"""How a worker that waits learns of a job, and what a pause holds back."""

import threading
from contextlib import closing
from pathlib import Path

from kesin import Queue, Worker, task_lifecycle
from kesin.foundation.clock import ManualClock
from kesin.store.sqlite.store import SqliteStore
from tests.engine.conftest import PATIENCE_S, Meeting, Spy, Start, fill


def test_a_job_enqueued_in_the_same_process_wakes_the_worker_at_once(
    queue: Queue, store: SqliteStore, running: Start
):
    waits = Spy(store, "wait")
    meeting = Meeting()
    meeting.go_on.set()
    running(Worker(queue, meeting, poll_s=10_000))
    while not waits.calls:
        assert not threading.Event().wait(0.001)
    fill(queue, 1)
    meeting.wait()


def test_a_job_that_nobody_announced_is_found_by_polling(clock: ManualClock, tmp_path: Path):
    path = tmp_path / "shared.db"
    with closing(SqliteStore(path)) as here, closing(SqliteStore(path)) as there:
        ours = Queue("work", task_lifecycle(), here, clock=clock)
        theirs = Queue("work", task_lifecycle(), there, clock=clock)
        waits = Spy(here, "wait")
        meeting = Meeting()
        meeting.go_on.set()
        worker = Worker(ours, meeting, poll_s=0.05)
        worker.start()
        try:
            assert waits.made.acquire(timeout=PATIENCE_S)
            pulse = here.notification_count("work")
            theirs.enqueue({})
            assert here.notification_count("work") == pulse
            meeting.wait()
        finally:
            worker.stop()
            worker.join()


def test_polls_are_spread_so_that_workers_do_not_march_in_step(
    queue: Queue, store: SqliteStore, running: Start
):
    waited: list[float] = []
    enough = threading.Event()

    def wait(_queue: str, _since: int, timeout_s: float) -> None:
        waited.append(timeout_s)
        if len(waited) >= 20:
            enough.set()
            threading.Event().wait(0.01)

    store.wait = wait  # type: ignore[method-assign]
    running(Worker(queue, lambda _job: None, poll_s=10))
    assert enough.wait(PATIENCE_S)
    assert all(5 <= seconds <= 15 for seconds in waited)
    assert len(set(waited)) > 10


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


def test_a_paused_tenant_leaves_the_others_alone(queue: Queue):
    fill(queue, 2, tenant="ankara")
    fill(queue, 2, tenant="izmir")
    queue.pause(actor="operator", tenant="ankara")
    assert Worker(queue, lambda _job: None).drain() == 2
    assert queue.stats().tenants["izmir"]["done"] == 2
