"""What the clock does about caps, lost workers, passing failures and old age."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kesin.lifecycle import declare
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import age_over
from tests.store.scene import DAY, HOUR, MINUTE, NOW, OPERATOR, SECOND, error

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


def test_the_cap_takes_jobs_by_the_cap_they_carry(oci):
    spent, left = put_off(oci, 1, max_attempts=1), put_off(oci, 1, max_attempts=2)
    assert oci.sweep("attempt_cap", source="QUEUED") == 1
    assert (oci.state(spent), oci.state(left)) == ("FAILED", "RETRY")


def test_a_capped_job_says_why(oci):
    job = put_off(oci, 1, max_attempts=1)
    oci.sweep("attempt_cap", source="QUEUED")
    capped = oci.job(job)
    assert (capped.error_code, capped.error_category, capped.error_message) == (
        "MAX_ATTEMPTS",
        "PERMANENT",
        "MAX_ATTEMPTS_EXCEEDED",
    )


@pytest.mark.parametrize(("cap", "moved"), [(1, 1), (2, 1), (3, 0)])
def test_a_cap_given_by_the_caller_counts_instead(oci, cap, moved):
    put_off(oci, 2, max_attempts=5)
    assert oci.sweep("attempt_cap", source="QUEUED", max_attempts=cap) == moved


def test_a_cap_given_by_the_caller_spares_jobs_their_own_would_take(oci):
    put_off(oci, 1, max_attempts=1)
    assert oci.sweep("attempt_cap", source="QUEUED", max_attempts=2) == 0


def test_a_cap_given_by_the_caller_takes_a_claim_whose_lease_is_over(oci):
    job = oci.claim_new_job(max_attempts=5)
    oci.clock.time_us = job.lease_until
    assert oci.sweep("attempt_cap", source="PROCESSING", max_attempts=1) == 1
    assert oci.state(job) == "FAILED"


def test_a_cap_given_by_the_caller_leaves_a_live_claim_alone(oci):
    job = oci.claim_new_job(max_attempts=5)
    oci.clock.time_us = job.lease_until - 1
    assert oci.sweep("attempt_cap", source="PROCESSING", max_attempts=1) == 0


def test_a_cap_given_by_the_caller_counts_from_the_last_renewal(oci):
    job = put_off(oci, 2, max_attempts=5)
    oci.move("RESET_TO_QUEUED", job, **OPERATOR)
    assert oci.sweep("attempt_cap", source="QUEUED", max_attempts=1) == 0


@pytest.mark.parametrize("cap", [None, 1])
def test_a_least_age_spares_jobs_that_moved_lately(oci, cap):
    oci.move("retry_later", oci.claim_new_job(max_attempts=1), **TRANSIENT)
    oci.clock.advance(59)
    asked = {"min_age_us": MINUTE, "max_attempts": cap}
    assert oci.sweep("attempt_cap", source="QUEUED", **asked) == 0
    oci.clock.advance(1)
    assert oci.sweep("attempt_cap", source="QUEUED", **asked) == 1


def test_a_least_age_spares_claims_that_moved_lately(oci):
    job = oci.claim_new_job()
    oci.clock.time_us = job.lease_until
    assert oci.sweep("recover", to="RETRY", min_age_us=HOUR) == 0
    oci.clock.time_us = NOW + HOUR
    assert oci.sweep("recover", to="RETRY", min_age_us=HOUR) == 1


# Recovery


def test_a_recovered_job_is_due_at_once_and_keeps_its_error(oci):
    job = oci.claim_new_job()
    oci.clock.time_us = job.lease_until + 5
    oci.sweep("recover", to="RETRY")
    recovered = oci.job(job)
    assert (recovered.run_at, recovered.worker, recovered.error_code) == (oci.now, None, None)
    assert [one.id for one in oci.claim()] == [job.id]


def test_a_crash_counts_as_an_attempt(oci):
    job = oci.claim_new_job()
    oci.clock.time_us = job.lease_until
    oci.sweep("recover", to="RETRY")
    assert oci.job(job).attempts_left == 4


def test_recovery_goes_by_what_is_left_of_the_budget(oci):
    spent, left = oci.claim_new_job(max_attempts=1), oci.claim_new_job(max_attempts=2)
    oci.clock.time_us = left.lease_until
    assert (oci.sweep("recover", to="RETRY"), oci.sweep("recover", to="FAILED")) == (1, 1)
    assert (oci.state(spent), oci.state(left)) == ("FAILED", "RETRY")


def test_a_renewed_lease_is_not_over(oci):
    job = oci.claim_new_job()
    oci.clock.advance(30)
    oci.store.renew("oci", [(job.id, job.claim_seq)], lease_us=60 * SECOND, now=oci.now)
    oci.clock.time_us = job.lease_until
    assert oci.sweep("recover", to="RETRY") == 0


def test_an_early_runner_begins_again_and_a_late_one_stays_where_it_was(optiplan):
    early, late = optiplan.claim_new_jobs(2)
    for call in ("prepare", "import", "run", "collect"):
        optiplan.move(call, late)
    optiplan.move("prepare", early)
    optiplan.clock.time_us = early.lease_until
    optiplan.sweep("recover", to="NEW")
    optiplan.sweep("recover", to="=")
    assert (optiplan.state(early), optiplan.state(late)) == ("NEW", "OPTI_DONE")


def test_recovery_keeps_the_deadline(optiplan):
    job = reached(optiplan, "prepare", "import", "run")
    optiplan.clock.time_us = job.lease_until
    optiplan.sweep("recover", to="=")
    assert (optiplan.state(job), optiplan.job(job).timer_at) == ("OPTI_RUNNING", job.timer_at)


def test_recovery_keeps_the_slot(optiplan):
    first, second = optiplan.claim_new_jobs(2)
    optiplan.apply("prepare", [first, second])
    optiplan.apply("import", [first, second])
    optiplan.move("run", first)
    optiplan.clock.time_us = first.lease_until
    optiplan.sweep("recover", to="=")
    assert optiplan.apply_one("run", second).result == "busy"


def test_a_timed_out_job_leaves_the_slot(optiplan):
    job = reached(optiplan, "prepare", "import", "run", "release")
    optiplan.clock.time_us = job.timer_at
    optiplan.sweep("xml_timeout")
    assert reached(optiplan, "prepare", "import", "run").state == "OPTI_RUNNING"


# Chains


def test_a_lost_job_goes_back_in_the_same_sweep(pdf):
    job = pdf.claim_new_job()
    pdf.clock.time_us = job.lease_until
    pdf.sweep("lose")
    assert pdf.history(job) == ["enqueue", "claim", "lose", "requeue"]
    assert pdf.job(job).error_code == "WORKER_LOST"


def test_a_job_lost_for_the_last_time_stays_failed(pdf):
    job = pdf.create_job()
    for _ in range(3):
        pdf.clock.advance(5)
        (held,) = pdf.claim()
        pdf.clock.time_us = held.lease_until
        pdf.sweep("lose")
    assert pdf.state(job) == "failed"


def test_a_swept_chain_is_made_whole_or_not_at_all(pdf, monkeypatch):
    job = pdf.claim_new_job()
    pdf.clock.time_us = job.lease_until
    monkeypatch.setattr(Lifecycle, "chained_moves", property(lambda self: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        pdf.sweep("lose")
    assert pdf.job(job) == job


def test_a_sweep_follows_the_chain_for_each_job_by_its_own_row(pdf):
    spent, left = pdf.claim_new_job(max_attempts=1), pdf.claim_new_job(max_attempts=3)
    pdf.clock.time_us = left.lease_until
    assert pdf.sweep("lose") == 2
    assert (pdf.state(spent), pdf.state(left)) == ("failed", "queued")


# Revival and expiry


@pytest.mark.parametrize("category", ["VALIDATION", "AUTH", "PERMANENT"])
def test_only_a_passing_failure_is_revived(oci, category):
    oci.move("ack_failed", oci.claim_new_job(), **error("CODE", category))
    oci.clock.advance(30 * 86_400)
    assert oci.sweep("revive") == 0


def test_a_failure_without_budget_is_not_revived(oci):
    oci.move("ack_failed", oci.claim_new_job(max_attempts=1), **TRANSIENT)
    oci.clock.advance(30 * 86_400)
    assert oci.sweep("revive") == 0


def test_a_revived_job_is_due_at_once_and_no_longer_finished(oci):
    job = oci.move("ack_failed", oci.claim_new_job(), **TRANSIENT)
    oci.clock.time_us = job.timer_at
    oci.sweep("revive")
    revived = oci.job(job)
    assert (revived.run_at, revived.timer_at, revived.finished_at) == (oci.now, None, None)


def test_a_failure_marked_by_hand_is_never_revived(oci):
    job = oci.claim_new_job()
    oci.move("MARK_FAILED", job.id, **OPERATOR, **TRANSIENT)
    oci.clock.advance(30 * 86_400)
    assert oci.sweep("revive") == 0


def test_a_job_without_a_conversion_time_never_expires(oci):
    oci.create_job()
    oci.clock.advance(YEARS_S)
    assert oci.sweep("expire") == 0


def test_expiry_asks_for_the_conversion_not_for_the_birth(oci):
    old = oci.create_job(stamps={"conversion_at": NOW - 90 * DAY})
    oci.create_job(stamps={"conversion_at": NOW - 90 * DAY + 1})
    assert oci.sweep("expire") == 1
    assert (oci.state(old), oci.job(old).error_code) == ("FAILED", "EXPIRED")


def test_a_waiting_pdf_expires_by_its_birth_and_a_made_one_by_its_end(pdf):
    waiting = pdf.create_job(run_at=NOW + 10 * DAY)
    made = pdf.claim_new_job()
    pdf.clock.advance(3_600)
    pdf.move("succeed", made)
    pdf.clock.time_us = NOW + DAY
    moved = pdf.sweep("expire", source="queued"), pdf.sweep("expire", source="succeeded")
    assert moved == (1, 0)
    assert (pdf.state(waiting), pdf.state(made)) == ("expired", "succeeded")


# Sweeps that take a key


@pytest.fixture
def stubborn(open_queue):
    """The clock itself tries failed jobs again, and a job that waits holds its key."""
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
    kept, free = failed_with(stubborn, "taken"), failed_with(stubborn, "free")
    stubborn.create_job(key="taken")
    stubborn.clock.advance(60)
    assert stubborn.sweep("again") == 1
    assert (stubborn.state(kept), stubborn.state(free)) == ("failed", "ready")


def test_of_jobs_with_one_key_a_sweep_takes_one(stubborn):
    jobs = [failed_with(stubborn, "k") for _ in range(3)]
    stubborn.clock.advance(60)
    for _ in range(3):
        stubborn.sweep("again")
    assert sorted(stubborn.state(one) for one in jobs) == ["failed", "failed", "ready"]


def test_jobs_with_one_key_do_not_keep_a_sweep_from_the_others(stubborn):
    for key in ("k", "k", "other"):
        failed_with(stubborn, key)
    stubborn.clock.advance(60)
    for _ in range(3):
        stubborn.sweep("again")
    assert stubborn.counts() == {"ready": 2, "failed": 1}
