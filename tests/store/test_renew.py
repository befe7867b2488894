"""Leases: renewed by the worker that holds the claim, up to a limit, outside the history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kesin.lifecycle.task import task_lifecycle
from tests.store.scene import LEASE_S, NOW, SECOND, UNKNOWN_ID, error, sent_by


def renew(scene, *jobs, lease_s=LEASE_S):
    """Renew claims, given as jobs or as pairs of id and token."""
    claims = [(job.id, job.claim_seq) if hasattr(job, "claim_seq") else job for job in jobs]
    return scene.store.renew(scene.queue, claims, lease_us=lease_s * SECOND, now=scene.now)


def test_a_renewal_extends_the_lease_from_now_never_shortens_it_and_changes_nothing_else(task):
    job = task.claim_new_job(key="k")
    before = task.events(job), task.store.move_counts("task")
    task.clock.advance(20)
    for lease_s in (LEASE_S, 1):
        assert renew(task, job, lease_s=lease_s) == {job.id}
        assert task.job(job) == job._replace(lease_until=NOW + (20 + LEASE_S) * SECOND)
    assert (task.events(job), task.store.move_counts("task")) == before


def test_many_leases_are_renewed_by_as_many_statements_as_one(task, statements):
    jobs = task.claim_new_jobs(50)
    task.clock.advance(20)
    single = sent_by(statements, lambda: renew(task, jobs[0]))
    renewed = set()
    assert sent_by(statements, lambda: renewed.update(renew(task, *jobs))) == single
    assert renewed == {job.id for job in jobs}
    assert {job.lease_until for job in task.all().values()} == {task.now + LEASE_S * SECOND}


def test_only_the_claims_that_are_held_are_renewed_by_their_tokens(task, open_queue):
    finished, released, retried, held = task.claim_new_jobs(4)
    task.move("complete", finished)
    task.move("release", released)
    task.clock.time_us = task.move("retry", retried, **error()).run_at or 0
    task.claim(9, worker="w2")
    foreign = open_queue(task_lifecycle(), "other").claim_new_job()
    before = task.snapshot()
    wrong = [(held.id, token) for token in (0, 1, 3)]
    assert renew(task, finished, released, retried, foreign, (UNKNOWN_ID, 2), ("nope", 2), *wrong) == set()
    assert task.snapshot() == before
    assert renew(task, finished, retried, held) == {held.id}
    assert renew(task) == set()


def test_a_lease_is_kept_through_the_moves_under_its_claim(optiplan):
    job = optiplan.claim_new_job()
    optiplan.move("prepare", job)
    optiplan.clock.advance(20)
    assert renew(optiplan, job) == {job.id}
    assert optiplan.job(job).lease_until == optiplan.now + LEASE_S * SECOND


@pytest.fixture
def short(open_queue):
    """Jobs here may run for a hundred seconds in all."""
    return open_queue(replace(task_lifecycle(), max_run_seconds=100))


def test_no_lease_is_renewed_beyond_the_longest_run_of_its_claim(short):
    job = short.claim_new_job()
    for _ in range(9):
        short.clock.advance(11)
        assert renew(short, job) == {job.id}
    assert short.job(job).lease_until == NOW + 100 * SECOND
    assert short.sweep("recover", to="ready") == 0
    short.clock.advance(1)
    assert renew(short, job) == set()
    assert short.sweep("recover", to="ready") == 1
    (again,) = short.claim()
    short.clock.advance(50)
    renew(short, again)
    assert short.job(job).lease_until == NOW + 200 * SECOND
