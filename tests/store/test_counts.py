"""Counts by state and tenant, and the flows they are summed from."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kesin.lifecycle.task import task_lifecycle
from kesin.store.records import MoveCount
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.conftest import counted, listed
from tests.store.scene import (
    HOUR,
    LEASE_S,
    NOW,
    SECOND,
)
from tests.store.traffic import traffic


@pytest.mark.parametrize(
    "lifecycle",
    [task_lifecycle(), oci_lifecycle(), pdf_lifecycle(), optiplan_lifecycle()],
    ids=lambda one: one.name,
)
def test_counts_are_right_after_random_traffic(open_queue, lifecycle):
    scene = open_queue(lifecycle)
    for seed in (1, 2):
        traffic(scene, random.Random(seed), steps=60)
        assert counted(scene.store, scene.queue) == listed(scene.store, scene.queue)
        scene.store.compact(scene.queue)
    assert counted(scene.store, scene.queue) == listed(scene.store, scene.queue)
    assert sum(listed(scene.store, scene.queue).values()) > 20


def test_every_state_is_counted_even_when_it_is_empty(oci):
    oci.create_job()
    assert oci.store.stats("oci", now=NOW).states == {
        "QUEUED": 1,
        "RETRY": 0,
        "PROCESSING": 0,
        "COMPLETED": 0,
        "FAILED": 0,
    }


def test_tenants_are_counted_apart(oci):
    oci.move("ack", oci.claim_new_job(tenant="b"))
    oci.create_jobs(2, tenant="a")
    tenants = oci.store.stats("oci", now=NOW).tenants
    assert {name: {s: n for s, n in states.items() if n} for name, states in tenants.items()} == {
        "a": {"QUEUED": 2},
        "b": {"COMPLETED": 1},
    }


def test_the_total_is_all_jobs_in_the_store(oci):
    oci.move("ack", oci.claim_new_job())
    oci.create_jobs(3)
    assert oci.store.stats("oci", now=NOW).total == 4


def test_an_empty_queue_counts_nothing(oci):
    stats = oci.store.stats("oci", now=NOW)
    assert (stats.total, stats.tenants, stats.oldest_due_at, stats.lease_over) == (0, {}, None, 0)


def test_counts_are_of_one_queue(oci, task):
    task.create_jobs(2)
    assert oci.store.stats("oci", now=NOW).total == 0


def test_the_oldest_due_job_is_told_among_all_tenants(oci):
    oci.create_job(tenant="a", run_at=NOW - 5)
    oci.create_job(tenant="b", run_at=NOW - HOUR)
    oci.create_job(tenant="c", run_at=NOW + HOUR)
    assert oci.store.stats("oci", now=NOW).oldest_due_at == NOW - HOUR


def test_jobs_for_later_and_claimed_jobs_are_not_due(oci):
    oci.claim_new_job(run_at=NOW - HOUR)
    oci.create_job(run_at=NOW + 1)
    assert oci.store.stats("oci", now=NOW).oldest_due_at is None
    assert oci.store.stats("oci", now=NOW + 1).oldest_due_at == NOW + 1


def test_claims_past_their_lease_are_counted(oci):
    oci.claim_new_jobs(2)
    until = NOW + LEASE_S * SECOND
    overdue = [oci.store.stats("oci", now=now).lease_over for now in (until - 1, until)]
    assert overdue == [0, 2]


def test_the_counts_say_what_time_it_was(oci):
    assert oci.store.stats("oci", now=NOW + 7).now == NOW + 7


def test_flows_count_every_move_by_tenant(oci):
    oci.move("ack", oci.claim_new_job(tenant="a"))
    oci.create_jobs(2, tenant="b")
    assert oci.store.move_counts("oci") == [
        MoveCount("a", "ack", "PROCESSING", "COMPLETED", 1, NOW),
        MoveCount("a", "claim", "QUEUED", "PROCESSING", 1, NOW),
        MoveCount("a", "enqueue", "", "QUEUED", 1, NOW),
        MoveCount("b", "enqueue", "", "QUEUED", 2, NOW),
    ]


def test_a_flow_says_when_it_last_moved_and_compacting_keeps_it(oci):
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


def test_flows_are_the_events_counted(optiplan):
    traffic(optiplan, random.Random(4), steps=80)
    counts = Counter(
        (job.tenant, event.move, event.from_state, event.to_state)
        for job, events in optiplan.store.scan("optiplan")
        for event in events
    )
    assert {flow[:4]: flow.n for flow in optiplan.store.move_counts("optiplan")} == counts


def test_compacting_keeps_every_sum(oci):
    for _ in range(5):
        oci.apply("ack", oci.claim_new_jobs(3))
    before = oci.store.move_counts("oci")
    oci.store.compact("oci")
    assert oci.store.move_counts("oci") == before


def test_compacting_again_folds_nothing(oci):
    for _ in range(5):
        oci.apply("ack", oci.claim_new_jobs(3))
    oci.store.compact("oci")
    assert oci.store.compact("oci") == 0


def test_compacting_leaves_other_queues_alone(oci, task):
    for _ in range(3):
        task.create_job()
    before = task.store.move_counts("task")
    oci.store.compact("oci")
    assert task.store.move_counts("task") == before


def test_counting_goes_on_after_compacting(oci):
    oci.create_jobs(3)
    oci.store.compact("oci")
    oci.create_jobs(2)
    assert oci.counts() == {"QUEUED": 5}
