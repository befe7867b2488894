"""A job whose worker never answered may have killed it: it is worked on alone."""

from dataclasses import replace

import pytest

from kesin import Done, Failed, New, Queue, Sweeper, Worker, task_lifecycle
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.model import Job
from kesin.store.sqlite import SqliteStore

LEASE_S = 60


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def made(clock: ManualClock, **changes) -> Queue:
    lifecycle = replace(task_lifecycle(max_attempts=4, lease_seconds=LEASE_S), **changes)
    return Queue("work", lifecycle, SqliteStore(":memory:"), clock=clock, seed=1)


def lose(queue: Queue, clock: ManualClock, jobs: int) -> list[str]:
    """So many jobs in the hands of a worker that dies with them."""
    outcomes = queue.enqueue_many(New({"n": n}) for n in range(jobs))
    queue.claim("dead", limit=jobs)
    clock.advance(LEASE_S + 1)
    Sweeper([queue]).sweep(("recover",))
    return [one.id for one in outcomes]


def moves(queue: Queue, job_id: str) -> list[str]:
    return [event.move for event in queue.events(job_id)]


def test_a_suspect_is_given_back_and_claimed_alone(clock):
    queue = made(clock)
    suspects = lose(queue, clock, 3)
    [fresh] = [one.id for one in queue.enqueue_many([New({"n": 9})])]
    held: list[tuple[str, set[str]]] = []

    def handler(job: Job) -> None:
        held.append((job.id, {one.id for one in worker.leases.held()}))

    worker = Worker(queue, handler)
    worker.work_on([*suspects, fresh])
    assert held == [(fresh, {fresh}), *((one, {one}) for one in suspects)]
    story = ["enqueue", "claim", "recover", "claim", "release", "claim", "complete"]
    assert [moves(queue, one) for one in suspects] == [story] * 3
    assert moves(queue, fresh) == ["enqueue", "claim", "complete"]
    assert {queue.job(one).attempts_left for one in suspects} == {2}  # of four: dead, and this one


def test_one_that_failed_and_is_tried_again_is_no_suspect(clock):
    queue = made(clock)
    ids = [one.id for one in queue.enqueue_many(New({"n": n}) for n in range(3))]
    answers = iter([Failed("BUSY", "later"), Failed("BUSY", "later"), Failed("BUSY", "later")])
    worker = Worker(queue, lambda _: next(answers, Done()))
    worker.work_on(ids)
    clock.advance(86_400)
    assert worker.work_on(ids) == {"done": 3}
    assert "release" not in {move for one in ids for move in moves(queue, one)}


def test_a_stop_is_no_death(clock):
    queue = made(clock)
    ids = [one.id for one in queue.enqueue_many(New({"n": n}) for n in range(2))]
    Worker(queue, Done).give_back(queue.claim("stopping", limit=2))
    Worker(queue, lambda _: Done()).work_on(ids)
    assert {moves(queue, one).count("release") for one in ids} == {1}


def test_what_cannot_be_given_back_comes_last_and_the_others_are_written_before(clock):
    """A lifecycle that gives no attempt back: the suspects keep their claims."""
    queue = made(clock, max_returns=0)
    suspects = lose(queue, clock, 2)
    [fresh] = [one.id for one in queue.enqueue_many([New({"n": 9})])]
    done: list[tuple[str, int]] = []

    def handler(job: Job) -> None:
        done.append((job.id, queue.stats().states["done"]))

    worker = Worker(queue, handler)
    worker.work_on([*suspects, fresh])
    assert done == [(fresh, 0), (suspects[0], 1), (suspects[1], 2)]
    assert worker.leases.held() == []
    assert queue.stats().states["done"] == 3


def test_a_worker_told_to_stop_leaves_suspects_for_the_next(clock):
    queue = made(clock)
    suspects = lose(queue, clock, 3)
    worker = Worker(queue, lambda _: worker.stop())
    worker.work_on(suspects)
    assert queue.stats().states == {"ready": 2, "running": 0, "done": 1, "failed": 0}
    assert Worker(queue, lambda _: Done()).drain() == 2
