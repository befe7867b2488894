"""A worker with a plan: the tenants it serves, and how many jobs it claims of each."""

from collections.abc import Iterator, Sequence

import pytest

from kesin import Done, Job, Queue, Worker
from kesin.engine.results import HandlerResult
from kesin.engine.worker_thread import ClaimShare


def done(jobs: Sequence[Job]) -> list[HandlerResult]:
    return [Done() for _ in jobs]


def fill(queue: Queue, tenant: str, jobs: int) -> None:
    for n in range(jobs):
        queue.enqueue({"n": n}, tenant=tenant)


def test_each_share_of_the_plan_is_claimed_separately(queue: Queue):
    fill(queue, "north", 5)
    fill(queue, "south", 5)
    batches: list[list[str]] = []

    def record(jobs: Sequence[Job]) -> list[HandlerResult]:
        batches.append([job.tenant for job in jobs])
        return done(jobs)

    plan = [ClaimShare(("south",), 3), ClaimShare(("north",), 2), ClaimShare(("west",), 2)]
    results = Worker(queue, batch_handler=record, plan=lambda: plan).run_once()
    assert batches == [["south"] * 3, ["north"] * 2]
    assert results == {"done": 5}


def test_a_share_is_finished_before_the_next_is_planned(queue: Queue):
    fill(queue, "north", 1)
    fill(queue, "south", 1)
    calls: list[str] = []

    def plan() -> Iterator[ClaimShare]:
        for tenant in ("north", "south"):
            calls.append(f"plan {tenant}")
            yield ClaimShare((tenant,), 1)

    def record(jobs: Sequence[Job]) -> list[HandlerResult]:
        calls.append(f"work for {jobs[0].tenant}")
        return done(jobs)

    Worker(queue, batch_handler=record, plan=plan).run_once()
    assert calls == ["plan north", "work for north", "plan south", "work for south"]


def test_a_stopping_worker_claims_no_further_share(queue: Queue):
    fill(queue, "north", 2)
    workers: list[Worker] = []

    def stop(jobs: Sequence[Job]) -> list[HandlerResult]:
        workers[0].stop()
        return done(jobs)

    workers.append(Worker(queue, batch_handler=stop, plan=lambda: [ClaimShare(None, 1)] * 2))
    assert workers[0].run_once() == {"done": 1}


def test_a_plan_without_a_batch_handler_is_refused(queue: Queue):
    with pytest.raises(ValueError, match="give a batch_handler"):
        Worker(queue, lambda _job: None, plan=list)
