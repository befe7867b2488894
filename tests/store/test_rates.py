"""Rates: as many in a time as declared, however many claim."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin import Job, NewJob, Queue, task_lifecycle
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.model import Meter
from tests.store.scene import MINUTE, SECOND, tenants, until_held

RATED = task_lifecycle(rate=(4, 60))
guarded = pytest.mark.parametrize("store", ["sqlite-file", "postgres"], indirect=True)


def test_a_tenant_starts_as_many_at_once_as_its_rate_and_then_one_by_one(open_queue):
    scene = open_queue(RATED)
    for tenant in ("a", "b"):
        scene.create_jobs(9, tenant=tenant)
    assert tenants(scene.claim(20)) == {"a": 4, "b": 4}
    assert scene.claim(20) == []
    scene.clock.advance(14)
    assert scene.claim(20) == []
    scene.clock.advance(1)
    assert tenants(scene.claim(20)) == {"a": 1, "b": 1}
    scene.clock.advance(600)
    assert tenants(scene.claim(20)) == {"a": 4, "b": 4}


def test_a_rate_counts_named_jobs_too_and_what_is_undone_costs_nothing(open_queue):
    scene = open_queue(RATED)
    ids = scene.create_jobs(6)
    with suppress(ZeroDivisionError), scene.store.transaction():
        assert len(scene.claim(9)) == 4
        raise ZeroDivisionError
    assert [job.id for job in scene.claim(9, ids=ids)] == ids[:4]
    assert scene.claim(9, ids=ids) == scene.claim(9) == []
    scene.clock.advance(-1)  # a little behind, it gets no second helping
    assert scene.claim(9) == []


def test_what_a_rate_counts_is_dropped_once_it_matters_no_more(open_queue):
    scene = open_queue(RATED)
    scene.create_jobs(4, tenant="a")
    scene.create_jobs(2, tenant="b")
    scene.claim(20)
    assert scene.store.meters(scene.queue) == {"a": scene.now + MINUTE, "b": scene.now + MINUTE / 2}
    prune = next(move for move in RATED.moves if move.prunes)
    scene.clock.advance(3_600 + 30)
    scene.store.sweep(scene.queue, prune, limit=9, now=scene.now)
    assert scene.store.meters(scene.queue).keys() == {"a", "b"}
    scene.clock.advance(1)
    scene.store.sweep(scene.queue, prune, limit=9, now=scene.now)
    assert scene.store.meters(scene.queue).keys() == {"a"}
    scene.clock.advance(30)
    scene.store.sweep(scene.queue, prune, limit=9, now=scene.now)
    assert scene.store.meters(scene.queue) == {}
    scene.create_jobs(9, tenant="a")
    assert len(scene.claim(9)) == 4


def test_a_rate_and_slots_hold_together_and_a_clock_that_goes_back_by_hours_holds_up_nothing(open_queue):
    scene, slots = open_queue(RATED), open_queue(task_lifecycle(concurrency=2, rate=(3, 60)), "slots")
    scene.create_jobs(9)
    scene.clock.advance(3 * 3_600)
    assert len(scene.claim(9)) == 4
    scene.clock.advance(-2 * 3_600)
    assert len(scene.claim(9)) == 4
    assert scene.claim(9) == []
    slots.create_jobs(9)
    first = slots.claim(9)
    assert len(first) == 2
    for job in first:
        slots.move("complete", job)
    assert len(slots.claim(9)) == 1


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_claim_waits_for_another_of_the_same_tenant_and_then_gets_what_its_rate_leaves(store, postgres_url):
    queue = Queue("q", RATED, store)
    queue.enqueue_many([NewJob({"n": n}) for n in range(9)])
    assert len(queue.claim("w", limit=1)) == 1  # the tenant's rate has a row
    late: list[Job] = []
    claims = threading.Thread(target=lambda: late.extend(queue.claim("late", limit=9)))
    with store.transaction():
        assert len(queue.claim("first", limit=1)) == 1
        claims.start()
        until_held(claims, postgres_url)
    claims.join()
    assert len(late) == 2


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_claim_does_not_wait_for_a_transaction_that_lasts(store, monkeypatch):
    monkeypatch.setattr("kesin.store.postgres.store.METER_WAIT_MS", 1)
    queue = Queue("q", RATED, store)
    queue.enqueue_many([NewJob({"n": n}) for n in range(9)])
    queue.claim("w", limit=1)
    late: list[Job] = []
    claims = threading.Thread(target=lambda: late.extend(queue.claim("late", limit=9)))
    with store.transaction():
        queue.claim("first", limit=1)
        claims.start()
        claims.join()
    assert late == []
    assert len(queue.claim("late", limit=9)) == 2


@guarded
def test_of_claimers_at_once_none_gets_nothing_while_the_rate_leaves_something(store):
    queue = Queue("q", task_lifecycle(rate=(8, 3_600)), store)
    queue.enqueue_many([NewJob({"n": n}) for n in range(20)])
    got: list[int] = []
    claim = partial(queue.claim, "w", limit=1)
    threads = [threading.Thread(target=lambda: got.append(len(claim()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [1] * 8
    assert claim() == []


def test_a_queue_knows_when_its_rate_leaves_something_again(store):
    clock = ManualClock()
    queue = Queue("q", RATED, store, clock=clock)
    queue.enqueue_many([NewJob({}, tenant=tenant) for tenant in "aaaaaabb"])
    assert queue.rate_opens_at() is None
    queue.claim("w", limit=9, tenants=["a"])
    assert queue.rate_opens_at() == clock.time_us + 15 * SECOND
    assert queue.rate_opens_at(["b"]) is None  # it has used nothing
    clock.advance(14.999_999)
    assert queue.claim("w", tenants=["a"]) == []
    clock.advance(0.000_001)
    assert queue.rate_opens_at() is None
    assert len(queue.claim("w", limit=9, tenants=["a"])) == 1
    assert len(queue.claim("w", limit=9)) == 2
    clock.advance(3_600)
    queue.claim("w", limit=9)
    assert queue.rate_opens_at() is None  # none waits


@settings(max_examples=settings.default.max_examples // 2)
@given(
    claims=st.integers(1, 50),
    per_s=st.integers(1, 600),
    steps=st.lists(st.tuples(st.integers(0, 90_000_000), st.integers(1, 60)), max_size=40),
)
def test_at_most_twice_the_rate_starts_in_any_period(claims, per_s, steps):
    meter = Meter(claims, per_s * SECOND)
    now, free_at, started = 0, 0, list[tuple[int, int]]()
    for pause, wanted in steps:
        now += pause
        taken = min(wanted, meter.left(free_at, now))
        assert taken >= 0
        if taken:
            free_at = meter.after(free_at, now, taken)
            started.append((now, taken))
    for since, _ in started:
        within = sum(n for at, n in started if since <= at < since + meter.per_us)
        assert within <= 2 * claims
    assert meter.left(free_at, now + meter.per_us) == claims
