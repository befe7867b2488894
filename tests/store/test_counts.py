"""Counts by state and tenant, and the move counters they are summed from."""

from __future__ import annotations

import random
from collections import Counter

from kesin.store.records import MoveCount
from tests.store.conftest import counted, listed
from tests.store.scene import HOUR, LEASE_S, NOW, SECOND
from tests.store.traffic import traffic


def test_counts_are_right_after_random_traffic(optiplan):
    store, chance = optiplan.store, random.Random(4)
    for _ in range(2):
        traffic(optiplan, chance, steps=40)
        assert counted(store, "optiplan") == listed(store, "optiplan")
        events = Counter(
            (job.tenant, event.move, event.from_state, event.to_state)
            for job, events in store.scan("optiplan")
            for event in events
        )
        counts = {count[:4]: count.n for count in store.move_counts("optiplan")}
        assert {edge: n for edge, n in counts.items() if edge[1] != "prune"} == events
        store.compact("optiplan")
    assert counted(store, "optiplan") == listed(store, "optiplan")
    assert sum(listed(store, "optiplan").values()) > 15


def test_jobs_are_counted_by_tenant_and_by_every_state_of_the_queue(oci, task):
    empty = oci.store.stats("oci", now=NOW)
    assert (empty.total, empty.tenants, empty.oldest_due_at, empty.lease_over) == (0, {}, None, 0)
    oci.move("ack", oci.claim_new_job(tenant="b"))
    oci.create_jobs(2, tenant="a")
    task.create_jobs(2)
    stats = oci.store.stats("oci", now=NOW + 7)
    zeros = {"RETRY": 0, "PROCESSING": 0, "FAILED": 0}
    assert stats.states == {"QUEUED": 2, "COMPLETED": 1} | zeros
    tenants = {t: {s: n for s, n in states.items() if n} for t, states in stats.tenants.items()}
    assert tenants == {"a": {"QUEUED": 2}, "b": {"COMPLETED": 1}}
    assert (stats.total, stats.now) == (3, NOW + 7)


def test_totals_are_the_counts_of_all_tenants_together(oci):
    oci.move("ack", oci.claim_new_job(tenant="a"))
    oci.claim_new_job(tenant="c")
    oci.create_job(tenant="b", run_at=NOW - HOUR)
    for now in (NOW, NOW + 24 * HOUR):
        stats, totals = oci.store.stats("oci", now=now), oci.store.totals("oci", now=now)
        assert (totals.states, totals.moved) == (stats.states, stats.moved)
        assert (totals.lease_over, totals.now) == (stats.lease_over, now)
        assert (totals.tenants, totals.oldest_due_at) == ({}, None)
        oldest = oci.store.totals("oci", now=now, oldest=True).oldest_due_at
        assert oldest == stats.oldest_due_at is not None


def test_the_oldest_due_job_of_all_tenants_and_the_claims_past_their_lease_are_read(oci):
    oci.claim_new_jobs(2, run_at=NOW - HOUR)
    oci.create_job(run_at=NOW + 1)
    due = [oci.store.stats("oci", now=now).oldest_due_at for now in (NOW, NOW + 1)]
    assert due == [None, NOW + 1]
    until = NOW + LEASE_S * SECOND
    overdue = [oci.store.stats("oci", now=now).lease_over for now in (until - 1, until)]
    assert overdue == [0, 2]
    oci.create_job(tenant="a", run_at=NOW - 5)
    oci.create_job(tenant="b", run_at=NOW - HOUR)
    oci.create_job(tenant="c", run_at=NOW + HOUR)
    assert oci.store.stats("oci", now=NOW).oldest_due_at == NOW - HOUR


def test_every_move_is_counted_by_tenant(oci):
    oci.move("ack", oci.claim_new_job(tenant="a"))
    oci.create_jobs(2, tenant="b")
    assert oci.store.move_counts("oci") == [
        MoveCount("a", "ack", "PROCESSING", "COMPLETED", 1, NOW),
        MoveCount("a", "claim", "QUEUED", "PROCESSING", 1, NOW),
        MoveCount("a", "enqueue", "", "QUEUED", 1, NOW),
        MoveCount("b", "enqueue", "", "QUEUED", 2, NOW),
    ]


def test_a_count_keeps_the_time_of_its_last_move_also_when_compacted(oci):
    jobs = oci.claim_new_jobs(3)
    for job, late in zip(jobs, (0, 20, 0), strict=True):
        oci.clock.advance(late)
        oci.move("ack", job)
    oci.clock.advance(5)
    oci.create_job()
    for _ in range(2):
        at = {flow.move: flow.at - NOW for flow in oci.store.move_counts("oci")}
        assert at == {"enqueue": 25 * SECOND, "claim": 0, "ack": 20 * SECOND}
        oci.store.compact("oci")


def test_compacting_keeps_every_sum_and_leaves_nothing_to_compact(oci, task):
    for _ in range(5):
        oci.apply("ack", oci.claim_new_jobs(3))
    for _ in range(3):
        task.create_job()
    before = oci.store.move_counts("oci"), task.store.move_counts("task")
    oci.store.compact("oci")
    assert (oci.store.move_counts("oci"), task.store.move_counts("task")) == before
    assert oci.store.compact("oci") == 0
    oci.create_jobs(2)
    assert oci.counts() == {"COMPLETED": 15, "QUEUED": 2}
