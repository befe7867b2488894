"""Effects over several moves: payloads, waits, budgets and flags.

``test_words`` compares every single effect with the model.
"""

from __future__ import annotations

import pytest

from kesin.lifecycle.model import Change
from kesin.store.errors import StoreError
from kesin.store.records import Outcome
from tests.store.scene import MINUTE, OPERATOR, PRODUCER, error

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")


# Payloads


def invalid_in_oci(oci, **details):
    return oci.move("ack_failed", oci.claim_new_job(**details), **error("BAD", "VALIDATION"))


def test_a_correction_replaces_the_payload_and_its_event_holds_both(oci):
    job = invalid_in_oci(oci, payload='{"v":1}')
    corrected = oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    assert (corrected.payload, corrected.payload_seq) == ({"v": 2}, corrected.seq)
    (claimed,) = oci.claim()
    assert claimed.payload == {"v": 2}
    oci.move("ack", claimed)
    payloads = [(event.move, event.payload, event.old_payload) for event in oci.events(job)]
    assert [row for row in payloads if row[1:] != (None, None)] == [
        ("correct", '{"v":2}', '{"v":1}')
    ]


def test_a_correction_without_a_payload_is_refused_in_words(oci):
    job = invalid_in_oci(oci)
    with pytest.raises(StoreError, match="payload"):
        oci.apply_one("correct", job.id, **PRODUCER)
    assert oci.job(job) == job


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


def test_a_failure_arms_a_timer_only_if_it_is_temporary_and_attempts_are_left(oci):
    move = next(m for m in oci.lifecycle.actions["ack_failed"] if m.timer != "keep")
    for category in ("TRANSIENT", "RATE_LIMIT", "VALIDATION", "AUTH", "PERMANENT"):
        held = oci.claim_new_job()
        change = Change(held.id, held.claim_seq, **error("CODE", category))
        expected = oci.modelled(move, held, change)
        assert oci.move("ack_failed", change) == expected
        assert (expected.timer_at is not None) == (category in ("TRANSIENT", "RATE_LIMIT"))
    last = oci.claim_new_job(max_attempts=1)
    assert oci.move("ack_failed", last, **TRANSIENT).timer_at is None


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


# Budgets


def test_a_release_returns_the_attempt_but_no_more_than_two(task):
    task.create_job()
    for n in (1, 2):
        job = task.move("release", task.claim()[0])
        assert (job.attempt_count, job.attempt_base, job.return_count) == (n, n, n)
        assert job.attempts_left == 5
    (held,) = task.claim()
    outcome = task.apply_one("release", held)
    assert outcome == Outcome("refused", held.id, "running", 6, "returns_left")


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


def test_only_the_approval_of_a_trigger_raises_the_flag(optiplan):
    job = optiplan.move("approve", on_hold(optiplan, "E_CRM_NO_MATCH").id, **OPERATOR)
    assert (job.state, job.flags) == ("NEW", 0)
    optiplan.move("cancel", job.id, **OPERATOR)
    job = optiplan.move("approve", awaiting_trigger(optiplan).id, **OPERATOR)
    assert (job.state, job.flags) == ("NEW", optiplan.lifecycle.flag_bit("manual_trigger_approved"))
    (job,) = optiplan.claim()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    assert optiplan.apply_one("hold_for_operator", job).reason == "flag_not_set"
