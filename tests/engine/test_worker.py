"""What a worker claims, passes to its handlers and writes back."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from kesin import Done, Failed, Job, Queue, Worker
from kesin.foundation.clock import ManualClock
from kesin.store.sqlite.store import SqliteStore
from tests.engine.conftest import PATIENCE_S, Spy, Start, fill, job_of, moves, only, states

# Batches


def test_batches_of_quick_jobs_grow_up_to_their_limit_and_are_small_again_after_an_empty_queue(
    queue: Queue, store: SqliteStore, clock: ManualClock
):
    fill(queue, 40)
    claims = Spy(store, "claim")
    worker = Worker(queue, lambda _job: None)
    assert worker.last_success is None
    clock.advance(5)
    assert worker.drain() == 40
    assert worker.last_success == clock.monotonic()
    assert claims.values("limit") == [1, 2, 4, 8, 16, 32, 16]
    fill(queue, 1)
    worker.drain()
    assert claims.values("limit")[7] == 1
    fill(queue, 20)
    limited = Worker(queue, lambda _job: None, batch=4)
    limited.drain()
    assert max(claims.values("limit")[8:]) == 4
    assert states(queue) == {"done": 61}
    assert worker.name != limited.name
    assert Worker(queue, lambda _job: None, name="w").name == "w"


def test_batches_of_slow_jobs_shrink_to_one(queue: Queue, store: SqliteStore, clock: ManualClock):
    fill(queue, 40)
    claims = Spy(store, "claim")
    handled = []

    def handler(job: Job) -> None:
        handled.append(job.id)
        if len(handled) > 15:  # the batch of sixteen
            clock.advance(1)

    Worker(queue, handler).drain()
    assert claims.values("limit")[:8] == [1, 2, 4, 8, 16, 8, 4, 2]


def test_jobs_are_handled_the_longest_due_first(queue: Queue, clock: ManualClock):
    now = clock.time_us
    for due in (30, 10, 20, 40):
        queue.enqueue({"due": due}, run_at=now - due)
    handled: list[int] = []

    def together(jobs: Sequence[Job]) -> list[None]:
        handled.extend(job.payload["due"] for job in jobs)
        return [None] * len(jobs)

    Worker(queue, batch_handler=together).drain()
    assert handled == [40, 30, 20, 10]


def test_a_batch_handler_gets_a_whole_batch_at_once(queue: Queue):
    fill(queue, 25)
    sizes: list[int] = []
    worker = Worker(queue, batch_handler=lambda jobs: sizes.append(len(jobs)) or [None] * len(jobs), batch=10)  # type: ignore[func-returns-value]
    assert (worker.drain(), sizes, states(queue)) == (25, [10, 10, 5], {"done": 25})


def test_only_the_named_tenants_are_served(queue: Queue):
    fill(queue, 2, tenant="ankara")
    fill(queue, 2, tenant="izmir")
    assert Worker(queue, lambda _job: None, tenants=["izmir"]).drain() == 2
    assert queue.stats().tenants["ankara"]["ready"] == 2


# Results


def test_results_wait_no_longer_than_half_a_second(queue: Queue, clock: ManualClock):
    fill(queue, 7)  # batches of one, two and four
    seen: list[dict[str, int]] = []

    def handler(_job: Job) -> None:
        seen.append(states(queue))
        if len(seen) > 3:
            clock.advance(0.3)

    Worker(queue, handler).drain()
    finished = [counts.get("done", 0) for counts in seen]
    assert finished == [0, 1, 1, 3, 3, 5, 5]


def test_results_of_one_kind_are_written_in_one_statement(queue: Queue, store: SqliteStore):
    fill(queue, 30)
    applied = Spy(store, "apply")

    def together(jobs: Sequence[Job]) -> list[Any]:
        return [Failed("E") if job.payload["n"] % 3 == 0 else Done(job.payload["n"]) for job in jobs]

    worker = Worker(queue, batch_handler=together, batch=30)
    worker.drain()
    assert sorted(call["args"][1] for call in applied.calls) == ["complete", "retry"]
    assert states(queue) == {"done": 20, "ready": 10}
    assert worker.completed == 30


# Batch handlers


def test_an_error_of_a_batch_handler_or_the_wrong_number_of_results_is_the_result_of_every_job(queue: Queue):
    def together(jobs: Sequence[Job]) -> list[None]:
        match jobs[0].tenant:
            case "failed":
                raise Failed("NO_PAPER", "empty")
            case "raised":
                raise KeyError("x")
        return [None] * int(jobs[0].tenant)

    for tenant, code in {**dict.fromkeys("024", "RuntimeError"), "failed": "NO_PAPER", "raised": "KeyError"}.items():
        ids = fill(queue, 3, tenant=tenant)
        Worker(queue, batch_handler=together, batch=3, tenants=[tenant]).drain()
        jobs = [job_of(queue, job_id) for job_id in ids]
        assert {(job.state, job.error_code) for job in jobs} == {("ready", code)}, tenant
        if code == "RuntimeError":
            assert f"the handler got 3 jobs but returned {tenant} results" in (jobs[0].error_message or "")


# Running out of attempts


def test_a_job_out_of_attempts_fails_with_its_last_error(queue: Queue, clock: ManualClock):
    [job_id] = fill(queue, 1)
    errors = iter(["first", "second", "third"])

    def handler(_job: Job) -> None:
        raise ValueError(next(errors))

    for _ in range(5):
        Worker(queue, handler).drain()
        clock.advance(200)
    job = only(queue)
    assert (job.state, job.attempt_count, job.error_message) == ("failed", 3, "third")
    assert moves(queue, job_id) == ["enqueue", "claim", "retry", "claim", "retry", "claim", "retry"]


# Threads


def test_several_threads_share_the_work_and_never_a_job(queue: Queue, running: Start):
    ids = fill(queue, 200)
    lock, handled, finished = threading.Lock(), [], threading.Event()

    def handler(job: Job) -> None:
        with lock:
            handled.append(job.id)
            if len(handled) == len(ids):
                finished.set()

    worker = running(Worker(queue, handler, threads=4, batch=10))
    assert finished.wait(PATIENCE_S)
    worker.stop()
    worker.join()
    assert sorted(handled) == sorted(ids)
    assert states(queue) == {"done": 200}
    assert worker.completed == 200


# Construction


@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ({}, "handler"),
        ({"handler": print, "batch_handler": print}, "handler"),
        ({"handler": print, "threads": 0}, "threads must be positive, got 0"),
        ({"handler": print, "batch": -1}, "batch must be positive, got -1"),
        ({"handler": print, "poll_s": 0}, "poll_s must be positive, got 0"),
    ],
)
def test_bad_arguments_are_refused(queue: Queue, kwargs: dict[str, Any], complaint: str):
    with pytest.raises(ValueError, match=complaint):
        Worker(queue, **kwargs)
