"""A job whose worker died may be the cause: it is claimed alone, or in a small group."""

from dataclasses import replace
from typing import Any

import pytest

from kesin import Done, Failed, Queue, Sweeper, Worker, task_lifecycle
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.model import Job
from kesin.store.errors import StoreUnreachable
from kesin.store.sqlite.store import SqliteStore
from tests.engine.conftest import fill, job_of, moves

LEASE_S = 60


def new_queue(clock: ManualClock, **changes: Any) -> Queue:
    lifecycle = replace(task_lifecycle(max_attempts=4, lease_seconds=LEASE_S), **changes)
    return Queue("work", lifecycle, SqliteStore(":memory:"), clock=clock, seed=1)


def lose(queue: Queue, clock: ManualClock, jobs: int) -> list[str]:
    """Enqueue jobs that a worker claims and dies with."""
    ids = fill(queue, jobs)
    queue.claim("dead", limit=jobs)
    clock.advance(LEASE_S + 1)
    Sweeper([queue]).sweep(("recover",))
    return ids


def test_a_suspect_is_released_and_claimed_alone(clock):
    queue = new_queue(clock)
    suspects = lose(queue, clock, 3)
    [fresh] = fill(queue, 1)
    held: list[tuple[str, set[str]]] = []

    def handler(job: Job) -> None:
        held.append((job.id, {job.id for job in worker.leases.held()}))

    worker = Worker(queue, handler)
    worker.work_on([*suspects, fresh])
    assert held == [(fresh, {fresh}), *((job_id, {job_id}) for job_id in suspects)]
    expected = ["enqueue", "claim", "recover", "claim", "release", "claim", "complete"]
    assert [moves(queue, job_id) for job_id in suspects] == [expected] * 3
    assert moves(queue, fresh) == ["enqueue", "claim", "complete"]
    assert {job_of(queue, job_id).attempts_left for job_id in suspects} == {2}  # of four


def test_a_failed_job_that_is_retried_and_one_that_a_stopping_worker_released_are_no_suspects(clock):
    queue = new_queue(clock)
    ids = fill(queue, 3)
    results = iter([Failed("BUSY", "later")] * 3)
    worker = Worker(queue, lambda _: next(results, Done()))
    worker.work_on(ids)
    clock.advance(86_400)
    assert worker.work_on(ids) == {"done": 3}
    assert "release" not in {move for job_id in ids for move in moves(queue, job_id)}
    ids = fill(queue, 2)
    Worker(queue, Done).release_claims(queue.claim("stopping", limit=2))
    Worker(queue, lambda _: Done()).work_on(ids)
    assert {moves(queue, job_id).count("release") for job_id in ids} == {1}


def test_suspects_that_cannot_be_released_run_last_and_other_results_are_written_first(clock):
    """This lifecycle gives no attempt back, so the suspects keep their claims."""
    queue = new_queue(clock, max_returns=0)
    suspects = lose(queue, clock, 2)
    [fresh] = fill(queue, 1)
    done: list[tuple[str, int]] = []

    def handler(job: Job) -> None:
        done.append((job.id, queue.stats().states["done"]))

    worker = Worker(queue, handler)
    worker.work_on([*suspects, fresh])
    assert done == [(fresh, 0), (suspects[0], 1), (suspects[1], 2)]
    assert worker.leases.held() == []
    assert queue.stats().states["done"] == 3


def test_a_stopping_worker_leaves_suspects_for_the_next_worker(clock):
    queue = new_queue(clock)
    suspects = lose(queue, clock, 3)
    worker = Worker(queue, lambda _: worker.stop())
    worker.work_on(suspects)
    assert queue.stats().states == {"ready": 2, "running": 0, "done": 1, "failed": 0}
    assert Worker(queue, lambda _: Done()).drain() == 2


def test_a_suspect_that_was_released_unworked_is_still_a_suspect(clock):
    """Between the release and the claim alone, another thread may claim it in its batch."""
    queue = new_queue(clock)
    suspects = lose(queue, clock, 2)
    other = Worker(queue, lambda _: Done())
    assert other.release_claims(queue.claim("other", limit=2)) == set(suspects)
    held: list[int] = []
    worker = Worker(queue, lambda _: held.append(len(worker.leases.held())))
    worker.work_on(suspects)
    assert held == [1, 1]


def test_many_suspects_are_claimed_in_groups_and_alone_after_a_group_died(clock):
    queue = new_queue(clock)
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


def test_an_unreachable_store_does_not_keep_other_jobs_from_running(clock, monkeypatch):
    queue = new_queue(clock)
    suspects = lose(queue, clock, 2)
    [fresh] = fill(queue, 1)
    apply = queue.store.apply

    def away(queue_name: str, action: str, *args, **how):
        if action == "release":
            raise StoreUnreachable("away")
        return apply(queue_name, action, *args, **how)

    monkeypatch.setattr(queue.store, "apply", away)
    worker = Worker(queue, lambda _: Done())
    assert worker.work_on([*suspects, fresh]) == {"done": 1}
    assert worker.leases.held() == []
    assert {job_of(queue, job_id).state for job_id in suspects} == {"running"}
    assert job_of(queue, fresh).state == "done"


def test_a_released_suspect_is_counted_once(clock):
    queue = new_queue(clock)
    lose(queue, clock, 40)
    assert Worker(queue, lambda _: Done()).drain() == 40
