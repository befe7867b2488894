"""Leases: extended by their holder, never for ever, and never in the history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import UnknownQueue
from tests.store.scene import LEASE_S, NOW, SECOND, UNKNOWN_ID, error, sent_by


def renew(scene, *claims, lease_s=LEASE_S):
    claims = [(one.id, one.claim_seq) if hasattr(one, "claim_seq") else one for one in claims]
    return scene.store.renew(scene.queue, claims, lease_us=lease_s * SECOND, now=scene.now)


def test_a_renewal_extends_the_lease_from_now(task):
    job = task.claim_new_job()
    task.clock.advance(20)
    assert renew(task, job) == {job.id}
    assert task.job(job).lease_until == NOW + (20 + LEASE_S) * SECOND


def test_a_renewal_changes_nothing_but_the_lease(task):
    job = task.claim_new_job(key="k")
    task.clock.advance(20)
    renew(task, job)
    assert task.job(job) == job._replace(lease_until=NOW + (20 + LEASE_S) * SECOND)


def test_a_renewal_writes_no_event(task):
    job = task.claim_new_job()
    before = task.events(job)
    task.clock.advance(20)
    renew(task, job)
    assert task.events(job) == before


def test_a_renewal_counts_no_move(task):
    job = task.claim_new_job()
    before = task.store.move_counts("task")
    task.clock.advance(20)
    renew(task, job)
    assert task.store.move_counts("task") == before


def test_a_renewal_never_shortens_a_lease(task):
    task.create_job()
    (job,) = task.claim(lease_s=600)
    task.clock.advance(20)
    assert renew(task, job, lease_s=60) == {job.id}
    assert task.job(job).lease_until == job.lease_until


def test_many_leases_are_renewed_at_once(task):
    jobs = task.claim_new_jobs(50)
    task.clock.advance(20)
    assert renew(task, *jobs) == {job.id for job in jobs}
    assert {job.lease_until for job in task.all().values()} == {task.now + LEASE_S * SECOND}


def test_renewing_many_costs_the_same_number_of_statements_as_renewing_one(task, statements):
    jobs = task.claim_new_jobs(50)
    task.clock.advance(20)
    one = sent_by(statements, lambda: renew(task, jobs[0]))
    assert sent_by(statements, lambda: renew(task, *jobs)) == one


@pytest.mark.parametrize("token", [0, 1, 3])
def test_only_the_token_of_the_claim_renews_it(task, token):
    job = task.claim_new_job()
    task.clock.advance(20)
    assert renew(task, (job.id, token)) == set()
    assert task.job(job) == job


def test_the_others_are_renewed_though_one_was_lost(task):
    lost, kept = task.claim_new_jobs(2)
    task.move("release", lost)
    assert renew(task, lost, kept) == {kept.id}


def test_a_finished_job_has_no_lease_to_renew(task):
    job = task.claim_new_job()
    task.move("complete", job)
    assert renew(task, job) == set()


def test_the_former_holder_cannot_renew_the_next_ones_lease(task):
    job = task.claim_new_job()
    task.move("retry", job, **error())
    task.clock.advance(86_400)
    (again,) = task.claim(worker="w2")
    assert renew(task, job) == set()
    assert task.job(job) == again


def test_a_wake_up_of_the_same_worker_is_another_claim(optiplan):
    job = optiplan.claim_new_job()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    optiplan.move("wait", job, run_at=optiplan.now)
    (again,) = optiplan.claim()
    assert (renew(optiplan, job), renew(optiplan, again)) == (set(), {job.id})


def test_a_lease_is_kept_through_the_moves_under_its_claim(optiplan):
    job = optiplan.claim_new_job()
    optiplan.move("prepare", job)
    optiplan.clock.advance(20)
    assert renew(optiplan, job) == {job.id}
    assert optiplan.job(job).lease_until == optiplan.now + LEASE_S * SECOND


def test_a_job_nobody_has_is_not_held(task):
    assert renew(task, (UNKNOWN_ID, 2)) == set()


def test_an_id_that_is_none_is_not_held_and_sinks_nobody(task):
    job = task.claim_new_job()
    assert renew(task, ("nope", 2), job) == {job.id}


def test_nothing_to_renew_is_no_mistake(task):
    assert renew(task) == set()


def test_a_job_of_another_queue_is_not_held(task, open_queue):
    other = open_queue(task_lifecycle(), "other").claim_new_job()
    assert renew(task, other) == set()


@pytest.fixture
def short(open_queue):
    """Jobs here may run for a hundred seconds in all."""
    return open_queue(replace(task_lifecycle(), max_run_seconds=100))


def test_no_lease_is_renewed_beyond_the_longest_run(short):
    job = short.claim_new_job()
    short.clock.advance(50)
    assert renew(short, job) == {job.id}
    assert short.job(job).lease_until == NOW + 100 * SECOND


def test_renewing_often_gets_no_further(short):
    job = short.claim_new_job()
    for _ in range(9):
        short.clock.advance(11)
        renew(short, job)
    assert short.job(job).lease_until == NOW + 100 * SECOND


def test_a_claim_that_ran_too_long_is_no_longer_held(short):
    job = short.claim_new_job()
    short.clock.advance(50)
    renew(short, job)
    short.clock.advance(50)
    assert renew(short, job) == set()


def test_a_job_that_ran_too_long_is_recovered(short):
    job = short.claim_new_job()
    for _ in range(10):
        short.clock.advance(10)
        renew(short, job)
    assert short.sweep("recover", to="ready") == 1


def test_a_later_claim_has_its_own_longest_run(short):
    short.create_job()
    short.move("release", short.claim()[0])
    short.clock.advance(90)
    (job,) = short.claim()
    short.clock.advance(50)
    renew(short, job)
    assert short.job(job).lease_until == NOW + 190 * SECOND


def test_an_unknown_queue_is_refused_by_name(store):
    with pytest.raises(UnknownQueue, match="'nope'"):
        store.renew("nope", [], lease_us=1, now=NOW)
