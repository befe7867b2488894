"""What moves leave behind: errors, payloads, times, budgets and flags."""

from __future__ import annotations

import pytest

from kesin.lifecycle.model import Change
from kesin.store.errors import StoreError
from kesin.store.records import Outcome
from tests.store.scene import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    OPERATOR,
    PRODUCER,
    SECOND,
    error,
)

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")


# Errors and payloads


def test_a_recorded_error_is_the_callers(oci):
    job = oci.move("ack_failed", oci.claim_new_job(), **error("CODE", "AUTH", "the words"))
    assert (job.error_code, job.error_category, job.error_message) == ("CODE", "AUTH", "the words")


def test_a_fixed_error_is_the_moves_own_whatever_the_caller_says(task):
    job = task.move("cancel", task.create_job(), **OPERATOR, **error("MINE", "AUTH", "my words"))
    assert (job.error_code, job.error_category, job.error_message) == (
        "CANCELLED",
        "PERMANENT",
        "cancelled before it ran",
    )


def test_a_success_clears_the_error(task):
    job = task.claim_new_job()
    task.move("retry", job, **error())
    task.clock.advance(86_400)
    (again,) = task.claim()
    assert again.error_code == "BOOM"
    done = task.move("complete", again)
    assert (done.error_code, done.error_category, done.error_message) == (None, None, None)


def test_a_move_that_keeps_the_error_keeps_it(task):
    job = task.move("fail", task.claim_new_job(), **error())
    assert task.move("requeue", job.id, **OPERATOR).error_code == "BOOM"


def test_the_event_of_a_failure_holds_its_error(task):
    job = task.claim_new_job()
    task.move("retry", job, **error("BOOM", "TRANSIENT", "it's 100% broken"))
    task.clock.advance(86_400)
    task.move("complete", task.claim()[0])
    event = task.events(job)[2]
    assert (event.error_code, event.error_category, event.error_message) == (
        "BOOM",
        "TRANSIENT",
        "it's 100% broken",
    )


def invalid_in_oci(oci, **details):
    return oci.move("ack_failed", oci.claim_new_job(**details), **error("BAD", "VALIDATION"))


def test_a_correction_replaces_the_payload(oci):
    job = invalid_in_oci(oci, payload='{"v":1}')
    corrected = oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    assert (corrected.payload, corrected.payload_seq) == ('{"v":2}', corrected.seq)


def test_a_correction_without_a_payload_is_refused_in_words(oci):
    job = invalid_in_oci(oci)
    with pytest.raises(StoreError, match="payload"):
        oci.apply_one("correct", job.id, **PRODUCER)
    assert oci.job(job) == job


def test_a_correction_keeps_old_and_new_payload_in_its_event(oci):
    job = invalid_in_oci(oci, payload='{"v":1}')
    oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    event = oci.events(job)[-1]
    assert (event.payload, event.old_payload) == ('{"v":2}', '{"v":1}')


def test_no_other_event_holds_a_payload(oci):
    job = invalid_in_oci(oci)
    oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    oci.move("ack", oci.claim()[0])
    held = [(one.move, one.payload) for one in oci.events(job) if one.payload or one.old_payload]
    assert held == [("correct", '{"v":2}')]


def test_the_next_claim_brings_the_corrected_payload(oci):
    job = invalid_in_oci(oci, payload='{"v":1}')
    oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    assert oci.claim()[0].payload == '{"v":2}'


def test_a_correction_takes_the_stamp_it_is_given(oci):
    job = invalid_in_oci(oci, stamps={"conversion_at": NOW - DAY})
    corrected = oci.move(
        "correct", job.id, payload="{}", stamps={"conversion_at": NOW - HOUR}, **PRODUCER
    )
    assert corrected.stamp_1 == NOW - HOUR


def test_a_batch_of_corrections_gives_each_job_its_own_payload(oci):
    jobs = oci.claim_new_jobs(20)
    oci.apply("ack_failed", jobs, **error("BAD", "VALIDATION"))
    oci.apply(
        "correct",
        [Change(job.id, payload=f'{{"n":{n}}}') for n, job in enumerate(jobs)],
        **PRODUCER,
    )
    assert [oci.job(job).data["n"] for job in jobs] == list(range(20))


# Times, as the model has them


def test_every_retry_waits_as_long_as_the_model_says(oci):
    job = oci.create_job(max_attempts=12)
    waits = []
    for _ in range(12):
        (held,) = oci.claim()
        expected = oci.modelled(oci.declared("retry_later"), held, Change(held.id, **TRANSIENT))
        assert oci.move("retry_later", held, **TRANSIENT) == expected
        waits.append((expected.run_at - oci.now) // MINUTE)
        oci.clock.time_us = expected.run_at
    assert waits[:3] == [5, 10, 20]
    assert waits[-1] == 24 * 60
    assert oci.job(job).attempt_count == 12


@pytest.mark.parametrize("category", ["TRANSIENT", "RATE_LIMIT", "VALIDATION", "AUTH", "PERMANENT"])
def test_a_failure_arms_a_timer_only_where_it_may_pass(oci, category):
    held = oci.claim_new_job()
    change = Change(held.id, held.claim_seq, **error("CODE", category))
    move = next(m for m in oci.lifecycle.actions["ack_failed"] if m.timer != "keep")
    expected = oci.modelled(move, held, change)
    assert oci.move("ack_failed", change) == expected
    assert (expected.timer_at is not None) == (category in ("TRANSIENT", "RATE_LIMIT"))


def test_the_last_failure_arms_no_timer(oci):
    held = oci.claim_new_job(max_attempts=1)
    assert oci.move("ack_failed", held, **TRANSIENT).timer_at is None


def test_a_click_too_young_for_google_waits_six_hours(oci):
    job = oci.move("too_recent", oci.claim_new_job(), **error("TOO_RECENT_CLICK"))
    assert (job.run_at, job.retry_count, job.attempt_base) == (NOW + 6 * HOUR, 1, 1)


def test_a_counter_of_its_own_bounds_those_waits(oci):
    job = oci.create_job()
    for _ in range(8):
        oci.move("too_recent", oci.claim()[0], **error("TOO_RECENT_CLICK"))
        oci.clock.advance(6 * 3_600)
    (held,) = oci.claim()
    assert oci.apply_one("too_recent", held).reason == "retries_left"
    assert (oci.job(job).attempt_count, oci.job(job).attempts_left) == (9, 4)


def test_an_operators_retry_waits_longer_each_time_and_then_no_more(optiplan):
    job = optiplan.create_job()
    waits = []
    for _ in range(3):
        optiplan.move("fail", optiplan.claim()[0], **error("E_OPTI_RUNNER_FAILED"))
        again = optiplan.move("retry", job, **OPERATOR)
        waits.append((again.run_at - optiplan.now) // MINUTE)
        optiplan.clock.time_us = again.run_at
    optiplan.move("fail", optiplan.claim()[0], **error("E_OPTI_RUNNER_FAILED"))
    assert waits == [1, 3, 9]
    assert optiplan.apply_one("retry", job, **OPERATOR).reason == "retries_left"


def test_a_step_arms_its_deadline_from_the_entry_into_the_state(optiplan):
    job = optiplan.claim_new_job()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    optiplan.clock.advance(5)
    running = optiplan.move("run", job)
    assert running.timer_at == optiplan.now + 20 * MINUTE


def test_waiting_keeps_the_deadline(optiplan):
    job = optiplan.claim_new_job()
    for call in ("prepare", "import", "run"):
        armed = optiplan.move(call, job)
    optiplan.clock.advance(30)
    waiting = optiplan.move("wait", job, run_at=optiplan.now + 10 * SECOND)
    assert (waiting.timer_at, waiting.run_at) == (armed.timer_at, optiplan.now + 10 * SECOND)


def test_a_wait_without_a_time_may_look_again_at_once(optiplan):
    job = optiplan.claim_new_job()
    for call in ("prepare", "import"):
        optiplan.move(call, job)
    assert optiplan.move("wait", job).run_at == NOW


# Budgets


def test_a_release_returns_the_attempt(task):
    job = task.move("release", task.claim_new_job())
    assert (job.attempt_count, job.attempt_base, job.return_count, job.attempts_left) == (
        1,
        1,
        1,
        5,
    )


def test_a_budget_returns_no_more_than_two_attempts(task):
    task.create_job()
    for _ in range(2):
        task.move("release", task.claim()[0])
    (held,) = task.claim()
    assert task.apply_one("release", held) == Outcome(
        "refused", held.id, "running", 6, "returns_left"
    )


def test_a_release_of_a_later_step_returns_no_attempt(optiplan):
    job = optiplan.claim_new_job()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    released = optiplan.move("release", job)
    assert (released.state, released.attempts_left, released.return_count) == (
        "OPTI_IMPORTED",
        4,
        0,
    )


def test_a_renewal_gives_a_full_budget_and_all_returns(task):
    job = task.create_job(max_attempts=2)
    task.move("release", task.claim()[0])
    task.move("fail", task.claim()[0], **error())
    again = task.move("requeue", job, **OPERATOR)
    assert (again.attempt_count, again.attempt_base, again.return_count, again.attempts_left) == (
        2,
        2,
        0,
        2,
    )


def a_failure(oci):
    return oci.move("ack_failed", oci.claim_new_job(), **TRANSIENT)


def test_a_renewal_may_stamp_another_cap(oci):
    job = oci.move("RETRY_SELECTED", a_failure(oci).id, max_attempts=8, **OPERATOR)
    assert (job.max_attempts, job.attempts_left) == (8, 8)


def test_a_renewal_keeps_the_cap_unless_told(oci):
    assert oci.move("RETRY_SELECTED", a_failure(oci).id, **OPERATOR).max_attempts == 5


def test_no_other_move_changes_the_cap(task):
    job = task.claim_new_job()
    assert task.move("complete", job, max_attempts=9).max_attempts == 5


def test_the_attempt_count_never_falls(oci):
    job = oci.create_job()
    counts = []
    for call in ("release", "too_recent", "retry_later", "ack_failed"):
        counts.append(oci.move(call, oci.claim()[0], **TRANSIENT).attempt_count)
        counts.append(oci.move("RESET_TO_QUEUED", job, **OPERATOR).attempt_count)
    assert counts == [1, 1, 2, 2, 3, 3, 4, 4]


def test_the_row_decides_between_a_retry_and_the_end(task):
    task.create_job(max_attempts=2)
    assert task.move("retry", task.claim()[0], **error()).state == "ready"
    task.clock.advance(86_400)
    assert task.move("retry", task.claim()[0], **error()).state == "failed"


# Flags and holds


def on_hold(optiplan, code):
    return optiplan.move("hold", optiplan.claim_new_job(), **error(code, "VALIDATION"))


def awaiting_trigger(optiplan):
    job = optiplan.claim_new_job()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    return optiplan.move("hold_for_operator", job)


def test_the_approval_of_a_trigger_raises_the_flag(optiplan):
    job = optiplan.move("approve", awaiting_trigger(optiplan).id, **OPERATOR)
    assert (job.state, job.flags) == ("NEW", optiplan.lifecycle.flag_bit("manual_trigger_approved"))


def test_any_other_approval_leaves_the_flag_down(optiplan):
    job = optiplan.move("approve", on_hold(optiplan, "E_CRM_NO_MATCH").id, **OPERATOR)
    assert (job.state, job.flags) == ("NEW", 0)


def test_an_approved_job_is_not_held_for_the_trigger_again(optiplan):
    optiplan.move("approve", awaiting_trigger(optiplan).id, **OPERATOR)
    (job,) = optiplan.claim()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    assert optiplan.apply_one("hold_for_operator", job).reason == "flag_not_set"


def test_a_code_that_is_never_retried_is_the_reason(optiplan):
    job = optiplan.move("fail", optiplan.claim_new_job(), **error("E_XML_INVALID", "PERMANENT"))
    assert optiplan.apply_one("retry", job.id, **OPERATOR).reason == "code_not_in"


def test_a_reissued_job_keeps_its_state_and_refuses_a_retry(optiplan):
    job = optiplan.move("fail", optiplan.claim_new_job(), **error("E_OPTI_RUNNER_FAILED"))
    assert optiplan.move("reissue", job.id, **OPERATOR).state == "FAILED"
    assert optiplan.apply_one("retry", job.id, **OPERATOR).reason == "flag_not_set"


def test_a_flag_on_a_claimed_job_leaves_its_claim_alone(optiplan):
    job = optiplan.claim_new_job()
    flagged = optiplan.move("request_cancel", job.id, **OPERATOR)
    assert (flagged.worker, flagged.claim_seq, flagged.lease_until) == (
        job.worker,
        job.claim_seq,
        job.lease_until,
    )
    assert optiplan.move("prepare", job).state == "PREPARED"
