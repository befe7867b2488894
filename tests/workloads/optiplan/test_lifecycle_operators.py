"""The optiplan lifecycle as its page has it: what operators do."""

import pytest

from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from tests.lifecycle.adversary import NOW
from tests.lifecycle.table import (
    CLAIMED,
    FUTURE,
    MINUTE,
    NO_CLAIM,
    NO_ERROR,
    PAST,
    Row,
    error,
    hold,
    rows,
)

OPTIPLAN = optiplan_lifecycle()
APPROVED = OPTIPLAN.flag_bit("manual_trigger_approved")
REISSUED = OPTIPLAN.flag_bit("reissued")
CANCEL_ASKED = OPTIPLAN.flag_bit("cancel_requested")
EARLY = ("NEW", "PREPARED", "OPTI_IMPORTED", "OPTI_RUNNING", "OPTI_DONE", "XML_READY")
TRIGGER = error("E_OPERATOR_TRIGGER_REQUIRED", "VALIDATION")
NO_MATCH = error("E_CRM_NO_MATCH", "VALIDATION")
FAILED = {**error("E_OPTI_RUNNER_FAILED", "TRANSIENT"), "finished_at": PAST}
TIRED = {"attempt_count": 6, "attempt_base": 2, "return_count": 1}
RENEWED = {"attempt_count": 6, "attempt_base": 6, "return_count": 0}

OPERATOR = {
    "approve of a trigger hold sets the flag, clears the error and renews the budget": Row(
        "approve",
        "operator",
        "HOLD",
        given={**TIRED, **TRIGGER, "finished_at": PAST},
        path="approve: HOLD → NEW",
        then={
            **RENEWED,
            **NO_ERROR,
            **NO_CLAIM,
            "flags": APPROVED,
            "run_at": NOW,
            "finished_at": None,
        },
        kept=("retry_count",),
    ),
    **{
        f"approve of another hold leaves the flag as it was, {flags}": Row(
            "approve",
            "operator",
            "HOLD",
            given={**TIRED, **NO_MATCH, "flags": flags, "finished_at": PAST},
            path="approve: HOLD → NEW",
            then={**RENEWED, **NO_ERROR, "flags": flags, "run_at": NOW, "finished_at": None},
        )
        for flags in (0, APPROVED)
    },
    **{
        f"approve of a {state} job is refused": Row("approve", "operator", state, refused="state")
        for state in (*EARLY, "DELIVERED", "DONE", "FAILED")
    },
    **{
        f"retry number {count + 1} waits {minutes} min": Row(
            "retry",
            "operator",
            "FAILED",
            given={**TIRED, **FAILED, "retry_count": count, "flags": APPROVED},
            path="retry: FAILED → NEW",
            then={
                **RENEWED,
                **NO_ERROR,
                **NO_CLAIM,
                "retry_count": count + 1,
                "run_at": NOW + minutes * MINUTE,
                "flags": APPROVED,
                "finished_at": None,
            },
        )
        for count, minutes in enumerate((1, 3, 9))
    },
    "retry is refused at the limit of three": Row(
        "retry", "operator", "FAILED", given={**FAILED, "retry_count": 3}, refused="retries_left"
    ),
    **{
        f"retry is refused after {code}": Row(
            "retry", "operator", "FAILED", given=error(code, "PERMANENT"), refused="code_not_in"
        )
        for code in (
            "E_TEMPLATE_INVALID",
            "E_CRM_NO_MATCH",
            "E_PLATE_SIZE_MISSING",
            "E_XML_INVALID",
            "E_CANCELLED",
            "E_REISSUED",
        )
    },
    "retry is allowed after E_MAX_ATTEMPTS": Row(
        "retry",
        "operator",
        "FAILED",
        given=error("E_MAX_ATTEMPTS", "TRANSIENT"),
        path="retry: FAILED → NEW",
    ),
    "retry is refused once the job was reissued": Row(
        "retry", "operator", "FAILED", given={**FAILED, "flags": REISSUED}, refused="flag_not_set"
    ),
    **{
        f"retry of a {state} job is refused": Row("retry", "operator", state, refused="state")
        for state in (*EARLY, "DELIVERED", "DONE", "HOLD")
    },
    **{
        f"cancel fails an unclaimed {state} job for good": Row(
            "cancel",
            "operator",
            state,
            given={"timer_at": FUTURE},
            path=f"cancel: {state} → FAILED",
            then={"error_code": "E_CANCELLED", "error_category": "PERMANENT", "timer_at": None},
        )
        for state in (*EARLY, "HOLD")
    },
    **{
        f"cancel leaves a claimed {state} job to its worker": Row(
            "cancel", "operator", state, given=CLAIMED, refused="unclaimed"
        )
        for state in EARLY
    },
    "cancel cannot undo a delivery": Row("cancel", "operator", "DELIVERED", refused="state"),
    **{
        f"request_cancel puts a flag on a claimed {state} job": Row(
            "request_cancel",
            "operator",
            state,
            given=CLAIMED,
            path=f"request_cancel: {state} → {state}",
            then={"flags": CANCEL_ASKED},
            kept=("worker", "claim_seq", "lease_until"),
        )
        for state in EARLY
    },
    "reissue puts a flag on a FAILED job": Row(
        "reissue",
        "operator",
        "FAILED",
        given={**FAILED, "flags": APPROVED},
        path="reissue: FAILED → FAILED",
        then={"flags": APPROVED | REISSUED, "error_code": "E_OPTI_RUNNER_FAILED"},
    ),
}


@rows({f"optiplan {name}": row for name, row in OPERATOR.items()})
def test_operators(row):
    hold(OPTIPLAN, row)


@pytest.mark.parametrize("state", ["HOLD", "FAILED"])
def test_only_a_person_leaves_a_rest(state):
    leaving = [move for move in OPTIPLAN.moves if state in move.sources]
    assert leaving
    assert {role for move in leaving for role in move.by} == {"operator"}
