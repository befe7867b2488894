"""Counts by state and tenant, and the move counters they are summed from.

``test_histories`` compares them with the reference, and every test with the rows.
"""

from __future__ import annotations

from tests.store.scene import HOUR, LEASE_S, NOW, SECOND


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
    oci.claim_new_jobs(2, tenant="c")
    oci.create_job(run_at=NOW + 1)
    until = NOW + LEASE_S * SECOND
    for now, oldest, overdue in ((NOW, None, 0), (NOW + 1, NOW + 1, 0), (until - 1, NOW + 1, 0), (until, NOW + 1, 2)):
        stats, totals = oci.store.stats("oci", now=now), oci.store.totals("oci", now=now)
        assert (stats.oldest_due_at, stats.lease_over) == (oldest, overdue)
        assert (totals.states, totals.moved) == (stats.states, stats.moved)
        assert (totals.lease_over, totals.now) == (overdue, now)
        assert (totals.tenants, totals.oldest_due_at) == ({}, None)
        assert oci.store.totals("oci", now=now, oldest=True).oldest_due_at == oldest
    for tenant, run_at in (("a", NOW - 5), ("b", NOW - HOUR), ("c", NOW + HOUR)):
        oci.create_job(tenant=tenant, run_at=run_at)
    assert oci.store.stats("oci", now=NOW).oldest_due_at == NOW - HOUR
    assert oci.store.totals("oci", now=NOW, oldest=True).oldest_due_at == NOW - HOUR


def test_compacting_keeps_every_sum_and_the_time_of_its_last_move(oci, task):
    jobs = oci.claim_new_jobs(3)
    for job, late in zip(jobs, (0, 20, 0), strict=True):
        oci.clock.advance(late)
        oci.move("ack", job)
    oci.clock.advance(5)
    for _ in range(3):
        oci.create_job()
        task.create_job()
    before = oci.store.move_counts("oci"), task.store.move_counts("task")
    at = {flow.move: flow.at - NOW for flow in before[0]}
    assert at == {"enqueue": 25 * SECOND, "claim": 0, "ack": 20 * SECOND}
    for _ in range(2):
        compacted = oci.store.compact("oci")
        assert (oci.store.move_counts("oci"), task.store.move_counts("task")) == before
    assert compacted == 0, "nothing was left"
    oci.create_jobs(2)
    assert oci.counts() == {"COMPLETED": 3, "QUEUED": 5}
