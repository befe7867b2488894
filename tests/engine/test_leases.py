from collections.abc import Callable
from dataclasses import replace

import pytest

import kesin.engine.leases
from kesin import Job, Queue, Sweeper, task_lifecycle
from kesin.engine.leases import Leases
from kesin.foundation.clock import ManualClock
from kesin.store.errors import StoreError
from kesin.store.sqlite.store import SqliteStore
from tests.engine.conftest import PATIENCE_S, Spy, only

Renewals = Callable[[], list[int]]

LEASE_S = 60.0
SECOND = 1_000_000


@pytest.fixture
def leases(queue: Queue) -> Leases:
    return Leases(queue, LEASE_S)


@pytest.fixture
def renewals(store: SqliteStore) -> Renewals:
    """The number of claims in each renewal statement so far."""
    spy = Spy(store, "renew")
    return lambda: [len(call["args"][1]) for call in spy.calls]


def claimed(queue: Queue, jobs: int = 1) -> list[Job]:
    for n in range(jobs):
        queue.enqueue({"n": n})
    return queue.claim("w", limit=jobs, lease_seconds=LEASE_S)


def test_a_claim_is_renewed_each_time_a_third_of_its_lease_is_over(
    queue: Queue, leases: Leases, clock: ManualClock, renewals: Renewals
):
    leases.take(claimed(queue))
    clock.advance(LEASE_S / 3 - 0.001)
    assert leases.renew() == 0
    assert renewals() == []
    clock.advance(0.001)
    assert leases.renew() == 1
    assert renewals() == [1]
    assert only(queue).lease_until == clock.time_us + round(LEASE_S * SECOND)
    assert leases.renew() == 0
    clock.advance(LEASE_S / 3)
    assert leases.renew() == 1
    clock.advance(LEASE_S + 1)
    assert leases.renew() == 1, "a lease that is over, but was not recovered"


def test_more_claims_than_one_call_takes_are_renewed_in_several(
    queue: Queue, leases: Leases, clock: ManualClock, renewals: Renewals, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kesin.engine.leases, "MAX_BATCH", 2)
    leases.take(claimed(queue, 5))
    clock.advance(LEASE_S / 3)
    assert leases.renew() == 5
    assert renewals() == [2, 2, 1]


def test_all_claims_that_are_old_enough_are_renewed_in_one_statement(
    queue: Queue, leases: Leases, clock: ManualClock, renewals: Renewals
):
    leases.take(claimed(queue, 5))
    clock.advance(LEASE_S / 3)
    leases.take(claimed(queue, 2))
    assert leases.renew() == 5
    assert renewals() == [5]


def test_a_claim_whose_result_was_written_is_not_renewed(queue: Queue, leases: Leases, clock: ManualClock):
    jobs = claimed(queue, 2)
    leases.take(jobs)
    leases.drop(jobs[:1])
    clock.advance(LEASE_S)
    assert leases.renew() == 1
    assert [job.id for job in leases.held()] == [jobs[1].id]


def test_a_lost_claim_is_reported_and_no_longer_renewed(
    queue: Queue, leases: Leases, clock: ManualClock, renewals: Renewals
):
    [job] = claimed(queue)
    leases.take([job])
    clock.advance(LEASE_S + 1)
    Sweeper([queue]).sweep(("recover",))
    assert not leases.is_lost(job)
    assert leases.renew() == 0
    assert leases.is_lost(job)
    assert leases.held() == []
    clock.advance(LEASE_S)
    assert leases.renew() == 0
    assert renewals() == [1]


def test_a_lease_ends_with_the_longest_run(store: SqliteStore, clock: ManualClock):
    lifecycle = replace(task_lifecycle(), max_run_seconds=150)
    queue = Queue("short", lifecycle, store, clock=clock)
    leases = Leases(queue, LEASE_S)
    [job] = claimed(queue)
    leases.take([job])
    for _ in range(2):
        clock.advance(50)
        assert leases.renew() == 1
    assert only(queue).lease_until == job.moved_at + 150 * SECOND
    clock.advance(50)
    assert leases.renew() == 0
    assert leases.is_lost(job)


def test_the_end_of_an_old_claim_does_not_drop_a_newer_one_of_the_same_job(
    queue: Queue, leases: Leases, clock: ManualClock
):
    """Two threads of a worker: the first lost the job, the second claimed it."""
    [old] = claimed(queue)
    leases.take([old])
    clock.advance(LEASE_S + 1)
    Sweeper([queue]).sweep(("recover",))
    [new] = queue.claim("w", lease_seconds=LEASE_S)
    assert (new.id, new.claim_seq != old.claim_seq) == (old.id, True)
    leases.take([new])
    leases.drop([old])
    assert [job.claim_seq for job in leases.held()] == [new.claim_seq]
    clock.advance(LEASE_S / 2)
    assert leases.renew() == 1


# The thread


def short_claim(queue: Queue) -> list[Job]:
    queue.enqueue({})
    return queue.claim("w", lease_seconds=0.3)


def test_the_thread_renews_claims_by_itself(queue: Queue, clock: ManualClock):
    leases = Leases(queue, 0.3)
    leases.take(short_claim(queue))
    clock.advance(0.2)
    renewals = Spy(queue.store, "renew")
    leases.start()
    try:
        assert renewals.made.acquire(timeout=PATIENCE_S)
    finally:
        leases.stop()
    assert not leases._thread.is_alive()


def test_the_thread_survives_errors_of_the_store(queue: Queue, clock: ManualClock):
    [job] = short_claim(queue)
    leases = Leases(queue, 0.3)
    leases.take([job])
    clock.advance(0.2)
    renewals = Spy(queue.store, "renew", [StoreError("gone for a moment")] * 2)
    leases.start()
    try:
        assert renewals.made.acquire(timeout=PATIENCE_S)
    finally:
        leases.stop()
    assert not leases.is_lost(job)
