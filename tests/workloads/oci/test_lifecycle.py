"""The oci lifecycle as its page has it: the states, the moves, and what workers do."""

import pytest

from kesin.lifecycle.model import Change, MoveContext, apply_move
from kesin.workloads.oci.lifecycle import OciLimits, oci_lifecycle
from tests.lifecycle.adversary import NOW, new_job
from tests.lifecycle.table import (
    CLAIMED,
    FUTURE,
    HOUR,
    LEASE,
    NO_CLAIM,
    NO_ERROR,
    PAST,
    SECOND,
    STALE,
    Row,
    Within,
    edges_by_role,
    error,
    hold,
    rows,
    written,
)
from tests.workloads.oci.lifecycle_rows import ERROR_INPUT, OCI, SPENT, TRANSIENT, WAS_CLAIMED

CORRECTED = {"seq": 9, "claim_seq": 4, "payload_seq": 9}


def after(seconds):
    """That long from now, and up to a minute of jitter."""
    return Within(NOW + seconds * SECOND, NOW + (seconds + 60) * SECOND)


def tries(used, action, **change):
    """A job on its n-th attempt, failing for a passing reason."""
    return {
        "action": action,
        "by": "worker",
        "source": "PROCESSING",
        "given": {**CLAIMED, "attempt_count": used},
        "change": {**ERROR_INPUT, "error_category": "TRANSIENT", **change},
    }


CLAIMS = {
    "claim takes a due QUEUED row, stamps it and counts the attempt": Row(
        "claim",
        "worker",
        "QUEUED",
        given={"run_at": NOW},
        path="claim: QUEUED → PROCESSING",
        then={
            "attempt_count": 1,
            "claimed_at": NOW,
            "moved_at": NOW,
            "worker": "worker-2",
            "lease_until": NOW + LEASE,
        },
    ),
    "claim takes a due RETRY row and counts the attempt": Row(
        "claim",
        "worker",
        "RETRY",
        given={"run_at": PAST, "attempt_count": 2},
        path="claim: RETRY → PROCESSING",
        then={"attempt_count": 3, "claimed_at": NOW},
    ),
    "claim leaves a row whose next_retry_at is to come": Row(
        "claim", "worker", "RETRY", given={"run_at": FUTURE}, refused="due"
    ),
    "claim takes a fifth attempt": Row(
        "claim",
        "worker",
        "RETRY",
        given={"attempt_count": 4},
        path="claim: RETRY → PROCESSING",
        then={"attempt_count": 5},
    ),
    "claim leaves a row whose budget is spent": Row(
        "claim", "worker", "RETRY", given=SPENT, refused="budget_left"
    ),
    "claim leaves a row that is being sent": Row(
        "claim", "worker", "PROCESSING", given=CLAIMED, refused="state"
    ),
    "claim is no operator's move": Row("claim", "operator", "QUEUED", refused="role"),
    "reject fails a QUEUED row with its code and counts no attempt": Row(
        "reject",
        "worker",
        "QUEUED",
        change={**ERROR_INPUT, "error_category": "VALIDATION"},
        path="reject: QUEUED → FAILED",
        then={**error("CODE", "VALIDATION", "why"), "failed_at": NOW, "attempt_count": 0},
    ),
    "reject fails a RETRY row and counts no attempt": Row(
        "reject",
        "worker",
        "RETRY",
        given={"attempt_count": 2},
        change={**ERROR_INPUT, "error_category": "VALIDATION"},
        path="reject: RETRY → FAILED",
        then={"failed_at": NOW, "attempt_count": 2, "timer_at": None},
    ),
    "reject cannot touch a row that is being sent": Row(
        "reject", "worker", "PROCESSING", given=CLAIMED, refused="state"
    ),
}

ACKS = {
    "ack completes the row, stamps uploaded_at and clears the error": Row(
        "ack",
        "worker",
        "PROCESSING",
        given={**CLAIMED, **TRANSIENT, "timer_at": FUTURE},
        change={"token": None, "result": '{"requestId":"7"}'},
        path="ack: PROCESSING → COMPLETED",
        then={
            **NO_ERROR,
            **NO_CLAIM,
            "uploaded_at": NOW,
            "finished_at": NOW,
            "timer_at": None,
            "result": '{"requestId":"7"}',
        },
        kept=("attempt_count",),
    ),
    "ack of a row acknowledged before changes nothing": Row(
        "ack", "worker", "COMPLETED", refused="state"
    ),
    "ack is no operator's move": Row(
        "ack", "operator", "PROCESSING", given=CLAIMED, refused="role"
    ),
    "ack_duplicate completes the row and keeps the code": Row(
        "ack_duplicate",
        "worker",
        "PROCESSING",
        given=CLAIMED,
        change={
            "error_code": "ORDER_ID_ALREADY_IN_USE",
            "error_category": "PERMANENT",
            "result": '{"requestId":"7"}',
        },
        path="ack_duplicate: PROCESSING → COMPLETED",
        then={
            **NO_CLAIM,
            "error_code": "ORDER_ID_ALREADY_IN_USE",
            "uploaded_at": NOW,
            "finished_at": NOW,
            "result": '{"requestId":"7"}',
        },
    ),
    "ack_duplicate from a worker that lost its claim is refused": Row(
        "ack_duplicate",
        "worker",
        "PROCESSING",
        given=CLAIMED,
        change={"token": STALE},
        refused="holds_claim",
    ),
    "late_ack of a row never claimed is refused": Row(
        "ack", "worker", "QUEUED", refused="was_claimed"
    ),
    "late_ack of a row corrected since its claim is refused": Row(
        "ack", "worker", "QUEUED", given=CORRECTED, refused="was_claimed"
    ),
    **{
        f"late_ack completes a row in {state} whatever its {category} error": Row(
            "ack",
            "worker",
            state,
            given={**WAS_CLAIMED, **error("SOME", category), "timer_at": FUTURE},
            change={"token": None, "result": '{"requestId":"7"}'},
            path=f"late_ack: {state} → COMPLETED",
            then={
                **NO_ERROR,
                "uploaded_at": NOW,
                "finished_at": NOW,
                "timer_at": None,
                "result": '{"requestId":"7"}',
            },
        )
        for state in ("RETRY", "QUEUED", "FAILED")
        for category in ("VALIDATION", "TRANSIENT", "PERMANENT")
    },
}

FAILURES = {
    "ack_failed fails the row with error, code, category and failed_at": Row(
        "ack_failed",
        "worker",
        "PROCESSING",
        given=CLAIMED,
        change={**ERROR_INPUT, "error_category": "VALIDATION", "token": None},
        path="ack_failed: PROCESSING → FAILED",
        then={**error("CODE", "VALIDATION", "why"), **NO_CLAIM, "failed_at": NOW},
        kept=("attempt_count", "attempt_base"),
    ),
    **{
        f"ack_failed with {category} arms the timer with the backoff": Row(
            "ack_failed",
            "worker",
            "PROCESSING",
            given=CLAIMED,
            change={**ERROR_INPUT, "error_category": category},
            path="ack_failed: PROCESSING → FAILED",
            then={"timer_at": after(300)},
        )
        for category in ("TRANSIENT", "RATE_LIMIT")
    },
    **{
        f"ack_failed with {category} arms no timer": Row(
            "ack_failed",
            "worker",
            "PROCESSING",
            given=CLAIMED,
            change={**ERROR_INPUT, "error_category": category},
            path="ack_failed: PROCESSING → FAILED",
            then={"timer_at": None},
        )
        for category in ("VALIDATION", "AUTH", "PERMANENT")
    },
    "ack_failed of a third attempt waits four times as long": Row(
        **tries(3, "ack_failed"),
        path="ack_failed: PROCESSING → FAILED",
        then={"timer_at": after(1_200)},
    ),
    "ack_failed of the last attempt fails the row for good": Row(
        **tries(5, "ack_failed"),
        path="ack_failed: PROCESSING → FAILED",
        then={
            **error("CODE", "TRANSIENT", "why"),
            **NO_CLAIM,
            "attempt_count": 5,
            "timer_at": None,
            "failed_at": NOW,
        },
    ),
    "retry_later of a first attempt waits 300 s": Row(
        **tries(1, "retry_later"),
        path="retry_later: PROCESSING → RETRY",
        then={**error("CODE", "TRANSIENT", "why"), **NO_CLAIM, "run_at": after(300)},
    ),
    "retry_later of a second attempt waits 600 s": Row(
        **tries(2, "retry_later"),
        path="retry_later: PROCESSING → RETRY",
        then={"run_at": after(600)},
    ),
    "retry_later counts attempts since the last renewal only": Row(
        "retry_later",
        "worker",
        "PROCESSING",
        given={**CLAIMED, "attempt_count": 9, "attempt_base": 7},
        change={**ERROR_INPUT, "error_category": "TRANSIENT"},
        path="retry_later: PROCESSING → RETRY",
        then={"run_at": after(600)},
    ),
    "retry_later never waits longer than a day": Row(
        **tries(40, "retry_later"),
        path="retry_later: PROCESSING → RETRY",
        then={"run_at": after(86_400)},
    ),
    "retry_later counts no attempt": Row(
        **tries(2, "retry_later"),
        path="retry_later: PROCESSING → RETRY",
        kept=("attempt_count", "attempt_base", "return_count", "retry_count"),
    ),
    "retry_later from a worker that lost its claim is refused": Row(
        **tries(2, "retry_later", token=STALE), refused="holds_claim"
    ),
    "release returns the attempt and makes the row due at once": Row(
        "release",
        "worker",
        "PROCESSING",
        given=CLAIMED,
        path="release: PROCESSING → RETRY",
        then={**NO_CLAIM, "attempt_count": 1, "attempt_base": 1, "return_count": 1, "run_at": NOW},
    ),
    "release is refused once two attempts were returned": Row(
        "release",
        "worker",
        "PROCESSING",
        given={**CLAIMED, "return_count": 2},
        refused="returns_left",
    ),
    "release from a worker that lost its claim is refused": Row(
        "release",
        "worker",
        "PROCESSING",
        given=CLAIMED,
        change={"token": STALE},
        refused="holds_claim",
    ),
    "too_recent waits six hours and returns the attempt on a counter of its own": Row(
        **tries(1, "too_recent"),
        path="too_recent: PROCESSING → RETRY",
        then={
            **NO_CLAIM,
            "run_at": NOW + 6 * HOUR,
            "attempt_count": 1,
            "attempt_base": 1,
            "retry_count": 1,
            "return_count": 0,
            "error_code": "CODE",
        },
    ),
    "too_recent from a worker that lost its claim is refused": Row(
        **tries(1, "too_recent", token=STALE), refused="holds_claim"
    ),
    "too_recent is accepted for the eighth time": Row(
        "too_recent",
        "worker",
        "PROCESSING",
        given={**CLAIMED, "retry_count": 7},
        change=ERROR_INPUT,
        path="too_recent: PROCESSING → RETRY",
        then={"retry_count": 8},
    ),
    "too_recent is refused for the ninth time": Row(
        "too_recent",
        "worker",
        "PROCESSING",
        given={**CLAIMED, "retry_count": 8},
        change=ERROR_INPUT,
        refused="retries_left",
    ),
    "retry_later takes over from a ninth too_recent": Row(
        "retry_later",
        "worker",
        "PROCESSING",
        given={**CLAIMED, "retry_count": 8},
        change={**ERROR_INPUT, "error_category": "TRANSIENT"},
        path="retry_later: PROCESSING → RETRY",
        kept=("attempt_base", "retry_count"),
    ),
}


@rows({f"oci {name}": row for table in (CLAIMS, ACKS) for name, row in table.items()})
def test_claims_and_acknowledgements(row):
    hold(OCI, row)


@rows({f"oci {name}": row for name, row in FAILURES.items()})
def test_failures_and_returns(row):
    hold(OCI, row)


def test_oci_has_exactly_the_moves_of_its_page():
    assert edges_by_role(OCI) == written(
        "claim | QUEUED, RETRY → PROCESSING | worker",
        "reject | QUEUED, RETRY → FAILED | worker",
        "ack | PROCESSING → COMPLETED | worker",
        "ack_duplicate | PROCESSING → COMPLETED | worker",
        "ack_failed | PROCESSING → FAILED | worker",
        "retry_later | PROCESSING → RETRY | worker",
        "release | PROCESSING → RETRY | worker",
        "too_recent | PROCESSING → RETRY | worker",
        "late_ack | RETRY, QUEUED, FAILED → COMPLETED | worker",
        "recover | PROCESSING → RETRY | clock",
        "recover | PROCESSING → FAILED | clock",
        "attempt_cap | QUEUED, RETRY, PROCESSING → FAILED | clock",
        "revive | FAILED → RETRY | clock",
        "expire | QUEUED, RETRY → FAILED | clock",
        "RETRY_SELECTED | FAILED, RETRY → QUEUED | operator",
        "RESET_TO_QUEUED | QUEUED, RETRY, PROCESSING, FAILED → QUEUED | operator",
        "MARK_FAILED | PROCESSING, QUEUED, RETRY → FAILED | operator",
        "correct | FAILED → QUEUED | producer, operator",
    )


def test_oci_has_exactly_the_states_of_its_page():
    marks = {s.name: (s.initial, s.terminal, s.resting, s.success, s.exclusive) for s in OCI.states}
    assert marks == {
        "QUEUED": (True, False, False, False, False),
        "RETRY": (False, False, False, False, False),
        "PROCESSING": (False, False, False, False, False),
        "COMPLETED": (False, True, False, True, False),
        "FAILED": (False, False, True, False, False),
    }


def test_oci_holds_the_dedup_key_in_all_five_states():
    assert all(state.holds_key for state in OCI.states)


def test_an_oci_enqueue_keeps_the_time_of_the_conversion():
    change = Change("job-1", stamps={"conversion_at": 77})
    job = apply_move(OCI, OCI.enqueue_move, new_job(OCI), change, MoveContext(NOW, "producer"))
    assert getattr(job, OCI.stamp_column("conversion_at")) == 77


def test_oci_caps_before_it_recovers():
    names = [move.name for move in OCI.scheduled_moves]
    assert max(i for i, name in enumerate(names) if name == "attempt_cap") < names.index("recover")


def test_oci_does_not_revive_when_it_is_switched_off():
    assert "revive" not in oci_lifecycle(OciLimits(revive=False)).actions


@pytest.mark.parametrize(("channel", "cap"), [("script", 5), ("api", 8), ("data_manager", 8)])
def test_oci_caps_attempts_per_channel(channel, cap):
    assert OciLimits().max_attempts(channel) == cap


def test_an_oci_claim_lives_fifteen_minutes_by_default():
    assert OCI.lease_seconds == 15 * 60


def test_oci_spreads_its_backoff_by_up_to_a_minute():
    assert OciLimits().backoff.jitter_s == 60
