"""The promises of the oci lifecycle: budgets, pauses, acknowledgements, operators."""

from typing import Any

from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.lifecycle.adversary import NOW
from tests.lifecycle.table import (
    CLAIMED,
    DAY,
    FUTURE,
    HOUR,
    LOST,
    NO_CLAIM,
    NO_ERROR,
    PAST,
    SECOND,
    Row,
    Within,
    error,
    hold,
    refused,
    rows,
)

OCI = oci_lifecycle()
SPENT: dict[str, Any] = {"attempt_count": 5}
TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")
CAPPED = error("MAX_ATTEMPTS", "PERMANENT", "MAX_ATTEMPTS_EXCEEDED")
ERROR_INPUT = {"error_code": "CODE", "error_message": "why"}
FAILED = {"failed_at": PAST, "finished_at": PAST, "timer_at": FUTURE}
REVIVABLE = {**FAILED, **TRANSIENT, "timer_at": NOW, "attempt_count": 1}
QUEUED_ANEW = {"run_at": NOW, "timer_at": None, "failed_at": None, "finished_at": None}
TIRED = {"attempt_count": 6, "attempt_base": 2, "return_count": 1}  # four used, one returned
RENEWED = {"attempt_count": 6, "attempt_base": 6, "return_count": 0}
WAS_CLAIMED = {"seq": 5, "claim_seq": 4, "payload_seq": 1}
CORRECTED = {"seq": 9, "claim_seq": 4, "payload_seq": 9}
PASSING, LASTING = ("TRANSIENT", "RATE_LIMIT"), ("VALIDATION", "AUTH", "PERMANENT")


def after(seconds: int) -> Within:
    """That long from now, and up to a minute of jitter."""
    return Within(NOW + seconds * SECOND, NOW + (seconds + 60) * SECOND)


def sent(action: str, to: str, then: dict, *, category: str = "TRANSIENT", **given: int) -> Row:
    """A row that was sent, and the worker reports an error."""
    return Row(
        action,
        "worker",
        "PROCESSING",
        given={**CLAIMED, **given},
        change={**ERROR_INPUT, "error_category": category},
        path=f"{action}: PROCESSING → {to}",
        then={**NO_CLAIM, "error_code": "CODE", **then},
    )


ACKNOWLEDGED = {
    "ack clears the error and needs no token": Row(
        "ack",
        "worker",
        "PROCESSING",
        given={**CLAIMED, **TRANSIENT, "timer_at": FUTURE},
        change={"token": None, "result": '{"requestId":"7"}'},
        path="ack: PROCESSING → COMPLETED",
        then={**NO_ERROR, **NO_CLAIM, "timer_at": None, "result_json": '{"requestId":"7"}'},
    ),
    "ack of a row acknowledged before changes nothing": refused("ack", "worker", "COMPLETED", "state"),
    "ack_duplicate keeps the code": sent("ack_duplicate", "COMPLETED", {"uploaded_at": NOW}, category="PERMANENT"),
    **{
        f"no ack is lost: a {state} row with a {category} error is completed": Row(
            "ack",
            "worker",
            state,
            given={**WAS_CLAIMED, **error("SOME", category), "timer_at": FUTURE},
            change={"token": None},
            path=f"late_ack: {state} → COMPLETED",
            then={**NO_ERROR, "uploaded_at": NOW, "timer_at": None, "failed_at": None},
        )
        for state, category in zip(("RETRY", "QUEUED", "FAILED"), LASTING, strict=True)
    },
    "an ack for a row never claimed is refused": refused("ack", "worker", "QUEUED", "was_claimed"),
    "an ack for a row corrected since its claim is refused": refused(
        "ack", "worker", "QUEUED", "was_claimed", **CORRECTED
    ),
    "reject counts no attempt": Row(
        "reject",
        "worker",
        "RETRY",
        given={"attempt_count": 2},
        change={**ERROR_INPUT, "error_category": "VALIDATION"},
        path="reject: RETRY → FAILED",
        then={"failed_at": NOW, "attempt_count": 2, "timer_at": None},
    ),
}

FAILURES = {
    **{
        f"ack_failed with {category} waits to be revived": sent(
            "ack_failed", "FAILED", {"timer_at": after(300)}, category=category
        )
        for category in PASSING
    },
    **{
        f"ack_failed with {category} is not revived": sent(
            "ack_failed", "FAILED", {"timer_at": None}, category=category
        )
        for category in LASTING
    },
    "ack_failed of a third attempt waits four times as long": sent(
        "ack_failed", "FAILED", {"timer_at": after(1_200)}, attempt_count=3
    ),
    "the last attempt fails for good, with its own error": sent(
        "ack_failed", "FAILED", {**error("CODE", "TRANSIENT", "why"), "timer_at": None}, **SPENT
    ),
    **{
        f"retry_later of attempt {count} waits {seconds} s": sent(
            "retry_later", "RETRY", {"run_at": after(seconds)}, attempt_count=count
        )
        for count, seconds in ((1, 300), (2, 600), (40, 86_400))
    },
    "retry_later counts attempts since the last renewal only": sent(
        "retry_later", "RETRY", {"run_at": after(600)}, attempt_count=9, attempt_base=7
    ),
    "too_recent waits six hours and counts on a counter of its own": sent(
        "too_recent",
        "RETRY",
        {"run_at": NOW + 6 * HOUR, "attempt_base": 1, "retry_count": 8, "return_count": 0},
        retry_count=7,
    ),
    "too_recent is refused for the ninth time": refused(
        "too_recent", "worker", "PROCESSING", "retries_left", **CLAIMED, retry_count=8
    ),
    "retry_later takes over from a ninth too_recent": sent(
        "retry_later", "RETRY", {"attempt_base": 0, "retry_count": 8}, retry_count=8
    ),
}

SCHEDULED = {
    "a lost claim goes to RETRY due at once": Row(
        "recover",
        "clock",
        "PROCESSING",
        given={**LOST, "run_at": PAST},
        path="recover: PROCESSING → RETRY",
        then={**NO_CLAIM, "run_at": NOW, "attempt_count": 1, "attempt_base": 0},
    ),
    **{
        f"a lost last attempt fails by {action}": Row(
            action,
            "clock",
            "PROCESSING",
            given={**LOST, **SPENT},
            path=f"{action}: PROCESSING → FAILED",
            then={**NO_CLAIM, **CAPPED, "failed_at": NOW},
        )
        for action in ("recover", "attempt_cap")
    },
    **{
        f"{action} lets a last attempt in flight live": refused(
            action, "clock", "PROCESSING", "lease_over", **CLAIMED | SPENT
        )
        for action in ("recover", "attempt_cap")
    },
    "recover never touches FAILED": refused("recover", "clock", "FAILED", "state"),
    **{
        f"a {category} failure is revived": Row(
            "revive",
            "clock",
            "FAILED",
            given={**REVIVABLE, **error("SOME", category)},
            path="revive: FAILED → RETRY",
            then={**QUEUED_ANEW, "attempt_count": 1, "attempt_base": 0},
        )
        for category in PASSING
    },
    **{
        f"a {category} failure is never revived": refused(
            "revive", "clock", "FAILED", "category_in", **REVIVABLE | error("SOME", category)
        )
        for category in LASTING
    },
    "revive takes only what ack_failed armed": refused(
        "revive", "clock", "FAILED", "timer_over", **REVIVABLE | {"timer_at": None}
    ),
    "revive leaves a row whose budget is spent": refused(
        "revive", "clock", "FAILED", "budget_left", **REVIVABLE | SPENT
    ),
    "a click of 90 days is too old": Row(
        "expire",
        "clock",
        "RETRY",
        given={"conversion_at": NOW - 90 * DAY},
        path="expire: RETRY → FAILED",
        then={"error_code": "EXPIRED", "error_category": "VALIDATION", "failed_at": NOW},
    ),
    "a click of nearly 90 days is not": refused(
        "expire", "clock", "QUEUED", "age_over", conversion_at=NOW - 90 * DAY + 1
    ),
    "a row that is being sent does not expire": refused(
        "expire", "clock", "PROCESSING", "state", **CLAIMED, conversion_at=0
    ),
}

OPERATORS = {
    "RETRY_SELECTED renews the budget and keeps the error": Row(
        "RETRY_SELECTED",
        "operator",
        "FAILED",
        given={**TIRED, **TRANSIENT, **FAILED},
        path="RETRY_SELECTED: FAILED → QUEUED",
        then={**RENEWED, **TRANSIENT, **NO_CLAIM, **QUEUED_ANEW},
    ),
    **{
        f"RETRY_SELECTED does not touch {state}": refused("RETRY_SELECTED", "operator", state, "state")
        for state in ("QUEUED", "PROCESSING", "COMPLETED")
    },
    **{
        f"RESET_TO_QUEUED {text} the error, and takes the cap of the channel": Row(
            "RESET_TO_QUEUED",
            "operator",
            "PROCESSING",
            given={**CLAIMED, **TIRED, **TRANSIENT},
            change={"max_attempts": 8},
            options=frozenset(options),
            path="RESET_TO_QUEUED: PROCESSING → QUEUED",
            then={**RENEWED, **left, **NO_CLAIM, **QUEUED_ANEW, "max_attempts": 8},
        )
        for text, options, left in (("keeps", (), TRANSIENT), ("with clearErrors clears", ("clearErrors",), NO_ERROR))
    },
    **{
        f"{action} never touches COMPLETED": refused(action, "operator", "COMPLETED", "state")
        for action in ("RESET_TO_QUEUED", "MARK_FAILED")
    },
    "MARK_FAILED as TRANSIENT is not revived": Row(
        "MARK_FAILED",
        "operator",
        "PROCESSING",
        given={**CLAIMED, "timer_at": FUTURE},
        change={**ERROR_INPUT, "error_category": "TRANSIENT"},
        path="MARK_FAILED: PROCESSING → FAILED",
        then={**NO_CLAIM, **error("CODE", "TRANSIENT", "why"), "timer_at": None},
    ),
    "correct replaces the payload and renews the budget": Row(
        "correct",
        "producer",
        "FAILED",
        given={**TIRED, **FAILED, **error("MISSING_TIME", "VALIDATION"), **WAS_CLAIMED},
        change={"payload": '{"mended":true}', "stamps": {"conversion_at": 77}},
        path="correct: FAILED → QUEUED",
        then={**RENEWED, **QUEUED_ANEW, "payload_json": '{"mended":true}', "payload_seq": 6, "conversion_at": 77},
    ),
    **{
        f"retract keeps a {state} row from Google": Row(
            "retract",
            "producer",
            state,
            given={**error("SOME", "TRANSIENT"), "timer_at": FUTURE, "seq": 5},
            change={"payload": '{"retracted":"a1"}'},
            path=f"retract: {state} → FAILED",
            then={"error_code": "RETRACTED", "timer_at": None, "payload_seq": 6},
        )
        for state in ("QUEUED", "RETRY", "FAILED")
    },
    **{
        f"retract leaves a {state} row": refused("retract", "producer", state, "state")
        for state in ("PROCESSING", "COMPLETED")
    },
    **{
        f"correct is refused for a {category} failure": refused(
            "correct", "producer", "FAILED", "category_in", **error("SOME", category)
        )
        for category in ("AUTH", "PERMANENT", *PASSING)
    },
}


@rows({**ACKNOWLEDGED, **FAILURES, **SCHEDULED, **OPERATORS})
def test_the_promises_of_a_conversion(row):
    hold(OCI, row)


def test_operators_and_producers_may_ask_for_nothing_else():
    assert OCI.actions_of("producer") == ("retract", "correct")
    assert OCI.actions_of("operator") == ("RETRY_SELECTED", "RESET_TO_QUEUED", "MARK_FAILED", "correct")


def test_an_external_id_is_held_in_every_state():
    assert all(state.holds_key for state in OCI.states)


def test_spent_rows_are_capped_before_lost_ones_are_recovered():
    names = [move.name for move in OCI.scheduled_moves]
    assert max(i for i, name in enumerate(names) if name == "attempt_cap") < names.index("recover")
