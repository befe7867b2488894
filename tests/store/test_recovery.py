"""Scheduled moves: caps and ages of the caller, chains, and keys.

``test_sweep`` compares each scheduled move, made at its time, with the model, and
``test_histories`` what each of random sweeps takes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kesin.lifecycle import declare
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import age_over
from tests.store.scene import HOUR, MINUTE, OPERATOR, error

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")


# The cap


def put_off(oci, attempts, **details):
    """A job that has used so many attempts and waits for the next."""
    job = oci.create_job(**details)
    for _ in range(attempts):
        oci.move("retry_later", oci.claim()[0], **TRANSIENT)
        oci.clock.advance(2 * 86_400)
    return job


def test_a_cap_given_by_the_caller_counts_instead_of_the_jobs_own_from_the_last_renewal(oci):
    put_off(oci, 1, max_attempts=1)
    put_off(oci, 2, max_attempts=5)
    moved = [oci.sweep("attempt_cap", source="QUEUED", max_attempts=cap) for cap in (3, 2, 1)]
    assert moved == [0, 1, 1]
    renewed = put_off(oci, 2, max_attempts=5)
    oci.move("RESET_TO_QUEUED", renewed, **OPERATOR)
    assert oci.sweep("attempt_cap", source="QUEUED", max_attempts=1) == 0
    (held,) = oci.claim()
    for now, moved_then in ((held.lease_until - 1, 0), (held.lease_until, 1)):
        oci.clock.time_us = now
        assert oci.sweep("attempt_cap", source="PROCESSING", max_attempts=1) == moved_then


def test_a_minimum_age_spares_jobs_that_moved_lately(oci):
    for cap in (None, 1):
        oci.move("retry_later", oci.claim_new_job(max_attempts=1), **TRANSIENT)
        for seconds, moved in ((59, 0), (1, 1)):
            oci.clock.advance(seconds)
            how = {"min_age_us": MINUTE, "max_attempts": cap}
            assert oci.sweep("attempt_cap", source="QUEUED", **how) == moved
    job = oci.claim_new_job()
    for now, moved in ((job.lease_until, 0), (job.claimed_at + HOUR, 1)):
        oci.clock.time_us = now
        assert oci.sweep("recover", to="RETRY", min_age_us=HOUR) == moved


# Chains


def test_a_lost_job_goes_back_in_the_same_sweep_if_attempts_are_left(pdf):
    spent, left = pdf.claim_new_job(max_attempts=1), pdf.claim_new_job(max_attempts=3)
    pdf.clock.time_us = left.lease_until
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lifecycle, "chained_moves", property(lambda self: 1 / 0))
        with pytest.raises(ZeroDivisionError):
            pdf.sweep("lose")
    assert [pdf.job(job) for job in (spent, left)] == [spent, left], "a chain is made whole or not at all"
    assert pdf.sweep("lose") == 2
    assert pdf.history(spent) == ["enqueue", "claim", "lose"]
    assert pdf.history(left) == ["enqueue", "claim", "lose", "requeue"]
    assert (pdf.state(spent), pdf.state(left)) == ("failed", "queued")
    assert pdf.job(left).error_code == "WORKER_LOST"


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


def test_a_sweep_leaves_jobs_whose_key_is_taken_and_moves_all_others(stubborn):
    jobs = [failed_with(stubborn, key) for key in ("taken", "k", "k", "k", "other")]
    stubborn.create_job(key="taken")
    stubborn.clock.advance(60)
    for _ in range(3):
        stubborn.sweep("again")
    states = [stubborn.state(job) for job in jobs]
    assert (states[0], sorted(states[1:4]), states[4]) == ("failed", ["failed", "failed", "ready"], "ready")
