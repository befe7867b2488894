"""A job whose worker never answered may have killed it: it is worked on alone, or among few."""

from dataclasses import replace

import pytest

from kesin import Done, Failed, New, Queue, Sweeper, Worker, task_lifecycle
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.model import Job
from kesin.store.errors import StoreUnreachable
from kesin.store.sqlite.store import SqliteStore
from tests.engine.conftest import moves

LEASE_S = 60


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


def test_a_suspect_is_given_back_and_claimed_alone(clock):
    queue = made(clock)
    suspects = lose(queue, clock, 3)
    [fresh] = [one.id for one in queue.enqueue_many([New({"n": 9})])]
    held: list[tuple[str, set[str]]] = []

    def handler(job: Job) -> None:
        held.append((job.id, {job.id for job in worker.leases.held()}))

    worker = Worker(queue, handler)
    worker.work_on([*suspects, fresh])
    assert held == [(fresh, {fresh}), *((job_id, {job_id}) for job_id in suspects)]
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
    assert "release" not in {move for job_id in ids for move in moves(queue, job_id)}


def test_a_stop_is_no_death(clock):
    queue = made(clock)
    ids = [one.id for one in queue.enqueue_many(New({"n": n}) for n in range(2))]
    Worker(queue, Done).release_claims(queue.claim("stopping", limit=2))
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


def test_one_that_somebody_gave_back_unworked_is_still_a_suspect(clock):
    """Between the release and the claim alone, another thread may claim it in its batch."""
    queue = made(clock)
    suspects = lose(queue, clock, 2)
    other = Worker(queue, lambda _: Done())
    assert other.release_claims(queue.claim("other", limit=2)) == set(suspects)
    held: list[int] = []
    worker = Worker(queue, lambda _: held.append(len(worker.leases.held())))
    worker.work_on(suspects)
    assert held == [1, 1]


def test_many_suspects_are_claimed_in_groups_and_those_of_a_group_that_died_alone(clock):
    queue = made(clock)
    suspects = lose(queue, clock, 100)
    largest: list[int] = []

    def killed(_job: Job) -> None:
        raise KeyboardInterrupt

    worker = Worker(queue, killed)
    worker.on_claim = lambda jobs: largest.append(len(jobs))
    with pytest.raises(KeyboardInterrupt):
        worker.work_on(suspects)
    assert largest == [100, 10]
    clock.advance(LEASE_S + 1)
    assert Sweeper([queue]).sweep(("recover",)).total == 10
    claims: list[int] = []
    heir = Worker(queue, lambda _: Done())
    heir.on_claim = lambda jobs: claims.append(len(jobs))
    assert heir.work_on(suspects) == {"done": 100}
    assert claims == [100, *[9] * 10, *[1] * 10]


def test_a_store_that_is_away_keeps_the_suspects_and_not_the_others(clock, monkeypatch):
    queue = made(clock)
    suspects = lose(queue, clock, 2)
    [fresh] = [one.id for one in queue.enqueue_many([New({"n": 9})])]
    apply = queue.apply

    def away(call: str, *args, **how):
        if call == "release":
            raise StoreUnreachable("away")
        return apply(call, *args, **how)

    monkeypatch.setattr(queue, "apply", away)
    worker = Worker(queue, lambda _: Done())
    assert worker.work_on([*suspects, fresh]) == {"done": 1}
    assert worker.leases.held() == []
    assert {queue.job(one).state for one in suspects} == {"running"}
    assert queue.job(fresh).state == "done"


def test_what_was_given_back_is_counted_once(clock):
    queue = made(clock)
    lose(queue, clock, 40)
    assert Worker(queue, lambda _: Done()).drain() == 40
