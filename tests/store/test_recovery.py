"""Scheduled moves: the attempt cap, recovery, revival and expiry.

``test_sweep`` compares each scheduled move, made at its time, with the model.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kesin.lifecycle import declare
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import age_over
from tests.store.scene import HOUR, MINUTE, NOW, OPERATOR, error

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")
YEARS_S = 10 * 366 * 86_400


def reached(optiplan, *calls, **details):
    job = optiplan.claim_new_job(**details)
    for call in calls:
        last = optiplan.move(call, job)
    return last if calls else job


# The cap


def put_off(oci, attempts, **details):
    """A job that has used so many attempts and waits for the next."""
    job = oci.create_job(**details)
    for _ in range(attempts):
        oci.move("retry_later", oci.claim()[0], **TRANSIENT)
        oci.clock.advance(2 * 86_400)
    return job


def test_a_job_is_capped_by_its_own_cap_and_says_why(oci):
    spent, left = put_off(oci, 1, max_attempts=1), put_off(oci, 1, max_attempts=2)
    assert oci.sweep("attempt_cap", source="QUEUED") == 1
    assert (oci.state(spent), oci.state(left)) == ("FAILED", "RETRY")
    job = oci.job(spent)
    assert (job.error_code, job.error_category) == ("MAX_ATTEMPTS", "PERMANENT")
    assert job.error_message == "MAX_ATTEMPTS_EXCEEDED"


def test_a_cap_given_by_the_caller_counts_instead_of_the_jobs_own(oci):
    put_off(oci, 1, max_attempts=1)
    put_off(oci, 2, max_attempts=5)
    moved = [oci.sweep("attempt_cap", source="QUEUED", max_attempts=cap) for cap in (3, 2, 1)]
    assert moved == [0, 1, 1]


def test_a_cap_given_by_the_caller_takes_a_claim_only_once_its_lease_is_over(oci):
    job = oci.claim_new_job(max_attempts=5)
    for now, moved, state in ((job.lease_until - 1, 0, "PROCESSING"), (job.lease_until, 1, "FAILED")):
        oci.clock.time_us = now
        assert oci.sweep("attempt_cap", source="PROCESSING", max_attempts=1) == moved
        assert oci.state(job) == state


def test_a_cap_given_by_the_caller_counts_from_the_last_renewal(oci):
    job = put_off(oci, 2, max_attempts=5)
    oci.move("RESET_TO_QUEUED", job, **OPERATOR)
    assert oci.sweep("attempt_cap", source="QUEUED", max_attempts=1) == 0


@pytest.mark.parametrize("cap", [None, 1])
def test_a_minimum_age_spares_jobs_that_moved_lately(oci, cap):
    oci.move("retry_later", oci.claim_new_job(max_attempts=1), **TRANSIENT)
    for seconds, moved in ((59, 0), (1, 1)):
        oci.clock.advance(seconds)
        how = {"min_age_us": MINUTE, "max_attempts": cap}
        assert oci.sweep("attempt_cap", source="QUEUED", **how) == moved


def test_a_minimum_age_spares_claims_that_moved_lately(oci):
    job = oci.claim_new_job()
    for now, moved in ((job.lease_until, 0), (NOW + HOUR, 1)):
        oci.clock.time_us = now
        assert oci.sweep("recover", to="RETRY", min_age_us=HOUR) == moved


# Recovery


def test_recovery_keeps_the_deadline_and_the_slot(optiplan):
    first, second = optiplan.claim_new_jobs(2)
    optiplan.apply("prepare", [first, second])
    optiplan.apply("import", [first, second])
    running = optiplan.move("run", first)
    optiplan.clock.time_us = first.lease_until
    optiplan.sweep("recover", to="=")
    recovered = optiplan.job(first)
    assert (recovered.state, recovered.timer_at) == ("OPTI_RUNNING", running.timer_at)
    assert optiplan.apply_one("run", second).result == "busy"


def test_a_timed_out_job_leaves_the_slot(optiplan):
    job = reached(optiplan, "prepare", "import", "run", "release")
    optiplan.clock.time_us = job.timer_at
    optiplan.sweep("xml_timeout")
    assert reached(optiplan, "prepare", "import", "run").state == "OPTI_RUNNING"


# Chains


def test_a_lost_job_goes_back_in_the_same_sweep_if_attempts_are_left(pdf):
    spent, left = pdf.claim_new_job(max_attempts=1), pdf.claim_new_job(max_attempts=3)
    pdf.clock.time_us = left.lease_until
    assert pdf.sweep("lose") == 2
    assert pdf.history(spent) == ["enqueue", "claim", "lose"]
    assert pdf.history(left) == ["enqueue", "claim", "lose", "requeue"]
    assert (pdf.state(spent), pdf.state(left)) == ("failed", "queued")
    assert pdf.job(left).error_code == "WORKER_LOST"


def test_a_swept_chain_is_made_whole_or_not_at_all(pdf, monkeypatch):
    job = pdf.claim_new_job()
    pdf.clock.time_us = job.lease_until
    monkeypatch.setattr(Lifecycle, "chained_moves", property(lambda self: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        pdf.sweep("lose")
    assert pdf.job(job) == job


# Revival and expiry


def test_only_a_temporary_failure_with_attempts_left_is_revived(oci):
    for category in ("VALIDATION", "AUTH", "PERMANENT"):
        oci.move("ack_failed", oci.claim_new_job(), **error("CODE", category))
    oci.move("ack_failed", oci.claim_new_job(max_attempts=1), **TRANSIENT)
    oci.move("MARK_FAILED", oci.claim_new_job().id, **OPERATOR, **TRANSIENT)
    oci.clock.advance(30 * 86_400)
    assert oci.sweep("revive") == 0


def test_a_job_without_a_conversion_time_never_expires(oci):
    oci.create_job()
    oci.clock.advance(YEARS_S)
    assert oci.sweep("expire") == 0


# Sweeps that take a key


@pytest.fixture
def stubborn(open_queue):
    """A scheduled move retries failed jobs, and a job that waits holds its key."""
    plain = task_lifecycle("stubborn")
    again = declare.Move(
        "again",
        ("failed",),
        "ready",
        by=("clock",),
        when=(age_over("finished_at", 60),),
        run_at="now",
        unstamp=("finished_at",),
        stage="revive",
    )
    return open_queue(replace(plain, moves=(*plain.moves, again)))


def failed_with(stubborn, key):
    return stubborn.move("fail", stubborn.claim_new_job(key=key), **error()).id


def test_a_sweep_leaves_jobs_whose_key_is_taken(stubborn):
    blocked, free = failed_with(stubborn, "taken"), failed_with(stubborn, "free")
    stubborn.create_job(key="taken")
    stubborn.clock.advance(60)
    assert stubborn.sweep("again") == 1
    assert (stubborn.state(blocked), stubborn.state(free)) == ("failed", "ready")


def test_of_jobs_with_one_key_a_sweep_takes_one_and_all_others(stubborn):
    jobs = [failed_with(stubborn, key) for key in ("k", "k", "k", "other")]
    stubborn.clock.advance(60)
    for _ in range(3):
        stubborn.sweep("again")
    states = [stubborn.state(job) for job in jobs]
    assert (sorted(states[:3]), states[3]) == (["failed", "failed", "ready"], "ready")
