"""Workers and jobs that come after others: fan-out, fan-in, progress, limits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from kesin import Queue, RunContext, Sweeper, Worker, open_store, task_lifecycle
from kesin.engine.results import PROGRESS_INTERVAL_S, BadResult
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.model import Job
from kesin.store.contract import Store
from tests.engine.conftest import PATIENCE_S

AFTER = task_lifecycle(parents=True)


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{tmp_path}/jobs.db")) as opened:
        yield opened


def test_fan_out_and_fan_in_need_no_object_of_their_own(store: Store):
    queue = Queue("q", AFTER, store)

    def handle(job: Job, run: RunContext) -> int | None:
        match job.payload:
            case {"split": parts}:
                with run.transaction() as transaction:
                    ids = [queue.enqueue({"square": n}).id for n in range(parts)]
                    queue.enqueue({"sum": True}, key="the sum", after=ids)
                    transaction.result = {"parts": parts}
                return None
            case {"square": n}:
                return n * n
            case _:
                return sum(parent.result for parent in run.parents())

    queue.enqueue({"split": 5})
    Worker(queue, handle).drain()
    [total] = queue.holders("default", ["the sum"]).values() or [None]
    assert queue.stats().states["done"] == 7
    page = queue.jobs(limit=10).jobs
    assert [job.result for job in page if "sum" in job.payload] == [0 + 1 + 4 + 9 + 16]
    assert total is None


def test_the_sweeper_moves_on_what_no_worker_asks_for(store: Store):
    queue, others = Queue("q", AFTER, store), Queue("others", task_lifecycle(), store)
    parent = others.enqueue({}).id
    child = queue.enqueue({}, after=[parent]).id
    with pytest.raises(TimeoutError, match="still blocked"):
        queue.wait(child, timeout=0.05)
    Worker(others, lambda _job: None).drain()
    swept = Sweeper([queue]).sweep(("settle",))
    assert swept.moved == {("q", "unblock"): 1, ("q", "parent_failed"): 0}
    assert queue.states([child]) == {child: "ready"}


def test_a_worker_elsewhere_picks_up_a_job_whose_parents_are_done(store: Store):
    queue, others = Queue("q", AFTER, store), Queue("others", task_lifecycle(), store)
    parent = others.enqueue({}).id
    child = queue.enqueue({}, after=[parent]).id
    worker = Worker(queue, lambda _job: {"done": True})
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        Worker(others, lambda _job: None).drain()
        assert queue.wait(child, timeout=PATIENCE_S).result == {"done": True}
    finally:
        worker.stop()
        thread.join(PATIENCE_S)


def test_progress_is_said_at_most_once_a_second_and_its_end_always(store: Store):
    clock = ManualClock()
    queue = Queue("q", task_lifecycle(), store, clock=clock)
    job_id = queue.enqueue({}).id
    seen = []

    def handle(_job: Job, run: RunContext) -> None:
        for n in range(4):
            run.progress(n / 10, f"page {n}")
            seen.append(queue.progress([job_id])[job_id].message)
            if n == 2:
                clock.advance(PROGRESS_INTERVAL_S)
        run.progress(1)
        assert queue.progress([job_id])[job_id].fraction == 1

    Worker(queue, handle).run_once()
    assert seen == ["page 0", "page 0", "page 0", "page 3"]
    assert queue.progress([job_id]) == {}
    assert queue.states([job_id]) == {job_id: "done"}


def test_progress_that_cannot_be_meant_fails_the_job(store: Store):
    queue, wrong = Queue("q", task_lifecycle(), store), [-0.1, 1.1, float("nan"), "0.4", True]
    for n in range(len(wrong)):
        queue.enqueue(n)
    Worker(queue, lambda job, run: run.progress(wrong[job.payload])).drain()
    assert [job.error_code for job in queue.jobs().jobs] == ["BAD_ANSWER"] * len(wrong)
    assert issubclass(BadResult, ValueError)


def test_workers_keep_to_the_slots_of_the_queue(store: Store):
    queue = Queue("q", task_lifecycle(concurrency=2), store)
    for n in range(12):
        queue.enqueue({"n": n})
    lock, running, highest = threading.Lock(), [0], [0]
    both = threading.Barrier(2)

    def handle(_job: Job) -> None:
        with lock:
            running[0] += 1
            highest[0] = max(highest[0], running[0])
        both.wait(PATIENCE_S)  # each waits for another: two do run at once
        with lock:
            running[0] -= 1

    Worker(queue, handle, threads=2, batch=1).drain()
    assert queue.stats().states["done"] == 12
    assert highest == [2]
