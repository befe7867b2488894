"""Tenants take turns: no tenant waits behind the flood of another."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from threading import Barrier
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.turns import next_turn
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.task import task_lifecycle
from kesin.store.postgres.store import PostgresStore
from kesin.store.sqlite.store import SqliteStore
from tests.store.scene import NOW, Scene


@pytest.fixture
def queue(store) -> Queue:
    return Queue("turns", task_lifecycle(), store, clock=ManualClock(NOW), seed=1)


def flood(queue: Queue, **jobs: int) -> None:
    news = [NewJob(n, tenant=tenant) for tenant, count in jobs.items() for n in range(count)]
    queue.enqueue_many(news)


def claimed_tenants(queue: Queue, limit: int = 1) -> list[str]:
    return [job.tenant for job in queue.claim("w", limit=limit)]


def test_a_tenant_does_not_wait_behind_the_flood_of_another(queue):
    flood(queue, agency=30)
    assert claimed_tenants(queue) == ["agency"]
    flood(queue, newcomer=5)
    places = [place for place in range(2, 15) if claimed_tenants(queue) == ["newcomer"]]
    assert places == [2, 4, 6, 8, 10]


def test_every_tenant_is_served_alike_at_every_claim_size(queue):
    flood(queue, a=40, b=40, c=40, d=40)
    for limit in (1, 5):
        served: Counter[str] = Counter()
        for _ in range(12):
            served.update(claimed_tenants(queue, limit))
            assert max(served.values()) - min(served[tenant] for tenant in "abcd") <= max(1, -(-limit // 4))


def test_what_a_tenant_does_not_use_is_left_to_the_next_claim(queue):
    flood(queue, a=1, b=40)
    assert Counter(claimed_tenants(queue, 10)) == {"a": 1, "b": 5}
    assert Counter(claimed_tenants(queue, 10)) == {"b": 10}
    flood(queue, a=9, c=9)
    served = [queue.claim("w", tenants=["c", "a"])[0].tenant for _ in range(6)]
    assert Counter(served) == {"a": 3, "c": 3}, "named tenants take turns as well"
    assert all(first != second for first, second in pairwise(served))
    queue.store.pause("turns", tenant="a", actor="op", now=NOW)
    assert {claimed_tenants(queue)[0] for _ in range(4)} == {"b", "c"}
    queue.store.resume("turns", tenant="a")
    assert {claimed_tenants(queue)[0] for _ in range(3)} == {"a", "b", "c"}


def test_the_first_start_of_a_queue_is_drawn_by_its_seed(store):
    def firsts() -> list[str]:
        queues = (Queue("turns", task_lifecycle(), store, clock=ManualClock(NOW), seed=seed) for seed in range(8))
        return [queue.peek()[0].tenant for queue in queues]

    clock = ManualClock(NOW)
    flood(Queue("turns", task_lifecycle(), store, clock=clock), **{f"t{n}": 2 for n in range(5)})
    assert len(set(firsts())) > 2
    assert firsts() == firsts()


def test_jobs_come_as_they_were_due_though_the_claim_sets_their_time(store):
    plain = task_lifecycle()
    moves = [replace(m, run_at="now") if m.name == "claim" else m for m in plain.moves]
    clock = ManualClock(NOW)
    queue = Queue("turns", replace(plain, moves=tuple(moves)), store, clock=clock)
    ids = [queue.enqueue(n, tenant="ba"[n % 2], run_at=NOW - n).id for n in range(6)]
    assert [job.id for job in queue.claim("w", limit=9)] == ids[::-1]


JOBS = st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 9), min_size=1)


@settings(max_examples=settings.default.max_examples // 5)
@given(jobs=JOBS, limit=st.integers(1, 12), seed=st.integers(0, 99))
def test_the_printed_bound_holds(jobs, limit, seed):
    """The k-th job of a line is in the k·⌈T/b⌉-th claim of b jobs; b ≥ T: the ⌈k/⌊b/T⌋⌉-th."""
    store = SqliteStore(":memory:")
    queue = Queue("turns", task_lifecycle(), store, clock=ManualClock(NOW), seed=seed)
    flood(queue, **jobs)
    tenants, line, number = len(jobs), Counter[str](), 0
    while batch := claimed_tenants(queue, limit):
        number += 1
        for tenant in batch:
            line[tenant] += 1
            place = line[tenant]
            rounds = place * -(-tenants // limit)
            bound = -(-place // (limit // tenants)) if limit >= tenants else rounds
            assert number <= bound
    assert line == jobs
    store.close()


@settings(max_examples=settings.default.max_examples // 3)
@given(due=st.sets(st.sampled_from("abcdefgh")), after=st.sampled_from(["", "a", "d", "h", "z"]))
def test_a_claim_that_looks_at_few_tenants_at_a_time_finds_what_is_due(due, after):
    store = SqliteStore(":memory:")
    with patch("kesin.store.sqlite.claims.MAX_WALKED", 3):
        scene = Scene(store, "task", task_lifecycle())
        for tenant in "abcdefgh":
            scene.create_jobs(1, tenant=tenant, run_at=NOW if tenant in due else NOW + 60_000_000)
        order = sorted(due, key=lambda tenant: (tenant <= after, tenant))
        peeked = store.peek("task", limit=1, after=after, now=NOW)
        found = [scene.claim(1, after=after) for _ in range(len(due) + 1)]
    assert [job.tenant for job in peeked] == order[:1]
    assert [job.tenant for jobs in found for job in jobs] == order
    store.close()


def test_others_write_while_a_claim_looks_for_a_tenant_with_due_jobs(monkeypatch):
    monkeypatch.setattr("kesin.store.sqlite.claims.MAX_WALKED", 2)
    scene = Scene(store := SqliteStore(":memory:"), "task", task_lifecycle())
    for tenant in "abcdef":
        scene.create_jobs(1, tenant=tenant, run_at=NOW if tenant == "f" else NOW + 60_000_000)
    begun: list[str] = []
    store._connections.writer.set_trace_callback(begun.append)
    assert len(scene.claim(1)) == 1
    assert begun.count("BEGIN IMMEDIATE") == 3
    store.close()


@given(after=st.sampled_from(["", "b", "z"]), tenants=st.lists(st.sampled_from("abcd"), min_size=1, max_size=9))
def test_the_next_turn_is_behind_the_last_who_got_most(after, tenants):
    counts = Counter(tenants)
    order = sorted(counts, key=lambda tenant: (tenant <= after, tenant))
    most = [tenant for tenant in order if counts[tenant] == max(counts.values())]
    jobs: list[Any] = [SimpleNamespace(tenant=tenant) for tenant in tenants]
    assert next_turn(after, jobs) == most[-1]


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_claim_of_one_locks_one_row(store: PostgresStore, queue):
    flood(queue, **{f"t{n}": 2 for n in range(10)})
    table = store.dialect.table("job")
    with store.transaction():
        queue.claim("w")
        with ThreadPoolExecutor(1) as pool:  # another connection
            sql = f"SELECT id FROM {table} FOR UPDATE SKIP LOCKED"
            assert len(pool.submit(store._rows, sql, {}).result()) == 19


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_no_claimer_goes_empty_while_others_hold_locks(store: PostgresStore, queue):
    flood(queue, **{f"t{n}": 4 for n in range(20)})
    start = Barrier(8)

    def claim_ten(number: int) -> list[int]:
        start.wait(20)
        return [len(queue.claim(f"w{number}")) for _ in range(10)]

    with ThreadPoolExecutor(8) as pool:
        assert all(all(counts) for counts in pool.map(claim_ten, range(8)))


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_redis_and_sql_give_the_same_turns(store):
    scenes = [Scene(each, "task", task_lifecycle()) for each in (store, SqliteStore(":memory:"))]
    orders = []
    for scene in scenes:
        for tenant in ("x", "Y", "10", "9", "é", "zz"):
            scene.create_jobs(2, tenant=tenant)
        orders.append([job.tenant for job in scene.claim(1, after="9")])
    assert orders[0] == orders[1]
