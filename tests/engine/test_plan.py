"""A worker with a plan: whom it serves, and with how many jobs at a time."""

from collections.abc import Iterator, Sequence

import pytest

from kesin import Done, Job, Queue, Worker
from kesin.engine.results import Answer
from kesin.engine.worker_thread import Share


def done(jobs: Sequence[Job]) -> list[Answer]:
    return [Done() for _ in jobs]


def fill(queue: Queue, tenant: str, jobs: int) -> None:
    for n in range(jobs):
        queue.enqueue({"n": n}, tenant=tenant)


def test_a_turn_claims_each_share_for_itself(queue: Queue):
    fill(queue, "north", 5)
    fill(queue, "south", 5)
    batches: list[list[str]] = []

    def keep(jobs: Sequence[Job]) -> list[Answer]:
        batches.append([job.tenant for job in jobs])
        return done(jobs)

    plan = [Share(("south",), 3), Share(("north",), 2), Share(("west",), 2)]
    ended = Worker(queue, batch_handler=keep, plan=lambda: plan).turn()
    assert batches == [["south"] * 3, ["north"] * 2]
    assert ended == {"done": 5}


def test_a_share_is_worked_off_before_the_plan_goes_on(queue: Queue):
    fill(queue, "north", 1)
    fill(queue, "south", 1)
    told: list[str] = []

    def plan() -> Iterator[Share]:
        for tenant in ("north", "south"):
            told.append(f"asks for {tenant}")
            yield Share((tenant,), 1)

    def keep(jobs: Sequence[Job]) -> list[Answer]:
        told.append(f"works for {jobs[0].tenant}")
        return done(jobs)

    Worker(queue, batch_handler=keep, plan=plan).turn()
    assert told == ["asks for north", "works for north", "asks for south", "works for south"]


def test_a_worker_that_stops_takes_no_further_share(queue: Queue):
    fill(queue, "north", 2)
    workers: list[Worker] = []

    def stop(jobs: Sequence[Job]) -> list[Answer]:
        workers[0].stop()
        return done(jobs)

    workers.append(Worker(queue, batch_handler=stop, plan=lambda: [Share(None, 1)] * 2))
    assert workers[0].turn() == {"done": 1}


def test_a_plan_without_a_batch_handler_is_refused(queue: Queue):
    with pytest.raises(ValueError, match="needs a batch_handler"):
        Worker(queue, lambda _job: None, plan=list)
