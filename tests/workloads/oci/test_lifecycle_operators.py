"""The oci lifecycle as its page has it: what people do."""

from tests.lifecycle.adversary import NOW
from tests.lifecycle.table import CLAIMED, FUTURE, NO_CLAIM, NO_ERROR, Row, error, hold, rows
from tests.workloads.oci.lifecycle_rows import (
    ERROR_INPUT,
    FAILED,
    OCI,
    QUEUED_ANEW,
    TRANSIENT,
    WAS_CLAIMED,
)

ENDS = ("QUEUED", "RETRY", "PROCESSING", "FAILED")
CLEAR = frozenset({"clearErrors"})
TIRED = {"attempt_count": 6, "attempt_base": 2, "return_count": 1}  # four used, one returned
RENEWED = {"attempt_count": 6, "attempt_base": 6, "return_count": 0}

PEOPLE = {
    **{
        f"RETRY_SELECTED puts a {state} row back with a new budget and its error": Row(
            "RETRY_SELECTED",
            "operator",
            state,
            given={**TIRED, **TRANSIENT, **FAILED},
            path=f"RETRY_SELECTED: {state} → QUEUED",
            then={**RENEWED, **TRANSIENT, **NO_CLAIM, **QUEUED_ANEW},
        )
        for state in ("FAILED", "RETRY")
    },
    **{
        f"RETRY_SELECTED does not touch {state}": Row(
            "RETRY_SELECTED", "operator", state, refused="state"
        )
        for state in ("QUEUED", "PROCESSING", "COMPLETED")
    },
    **{
        f"RESET_TO_QUEUED takes a {state} row back and keeps its error": Row(
            "RESET_TO_QUEUED",
            "operator",
            state,
            given={**(CLAIMED if state == "PROCESSING" else FAILED), **TIRED, **TRANSIENT},
            path=f"RESET_TO_QUEUED: {state} → QUEUED",
            then={**RENEWED, **TRANSIENT, **NO_CLAIM, **QUEUED_ANEW},
        )
        for state in ENDS
    },
    **{
        f"RESET_TO_QUEUED with clearErrors takes a {state} row back without its error": Row(
            "RESET_TO_QUEUED",
            "operator",
            state,
            given={**(CLAIMED if state == "PROCESSING" else FAILED), **TIRED, **TRANSIENT},
            options=CLEAR,
            path=f"RESET_TO_QUEUED: {state} → QUEUED",
            then={**RENEWED, **NO_ERROR, **NO_CLAIM, **QUEUED_ANEW},
        )
        for state in ENDS
    },
    "RESET_TO_QUEUED never touches COMPLETED": Row(
        "RESET_TO_QUEUED", "operator", "COMPLETED", refused="state"
    ),
    "RESET_TO_QUEUED with clearErrors never touches COMPLETED": Row(
        "RESET_TO_QUEUED", "operator", "COMPLETED", options=CLEAR, refused="state"
    ),
    "RESET_TO_QUEUED stamps the cap it is given": Row(
        "RESET_TO_QUEUED",
        "operator",
        "FAILED",
        given=TIRED,
        change={"max_attempts": 8},
        path="RESET_TO_QUEUED: FAILED → QUEUED",
        then={"max_attempts": 8},
    ),
    **{
        f"MARK_FAILED fails a {state} row with what the operator says": Row(
            "MARK_FAILED",
            "operator",
            state,
            given=CLAIMED if state == "PROCESSING" else {"attempt_count": 1},
            change={**ERROR_INPUT, "error_category": "PERMANENT"},
            path=f"MARK_FAILED: {state} → FAILED",
            then={
                **error("CODE", "PERMANENT", "why"),
                **NO_CLAIM,
                "failed_at": NOW,
                "finished_at": NOW,
            },
            kept=("attempt_count", "attempt_base"),
        )
        for state in ("PROCESSING", "QUEUED", "RETRY")
    },
    "MARK_FAILED as TRANSIENT is not revived": Row(
        "MARK_FAILED",
        "operator",
        "RETRY",
        given={"timer_at": FUTURE},
        change={**ERROR_INPUT, "error_category": "TRANSIENT"},
        path="MARK_FAILED: RETRY → FAILED",
        then={"timer_at": None},
    ),
    "MARK_FAILED does not touch COMPLETED": Row(
        "MARK_FAILED", "operator", "COMPLETED", refused="state"
    ),
    **{
        f"correct by the {role} replaces the payload and renews the budget": Row(
            "correct",
            role,
            "FAILED",
            given={**TIRED, **FAILED, **error("MISSING_TIME", "VALIDATION"), **WAS_CLAIMED},
            change={"payload": '{"mended":true}', "stamps": {"conversion_at": 77}},
            path="correct: FAILED → QUEUED",
            then={
                **RENEWED,
                "payload": '{"mended":true}',
                "payload_seq": 6,
                "conversion_at": 77,
                **QUEUED_ANEW,
            },
        )
        for role in ("producer", "operator")
    },
    **{
        f"correct is refused for a {category} failure": Row(
            "correct",
            "producer",
            "FAILED",
            given=error("SOME", category),
            change={"payload": "{}"},
            refused="category_in",
        )
        for category in ("AUTH", "TRANSIENT", "RATE_LIMIT", "PERMANENT")
    },
}


@rows({f"oci {name}": row for name, row in PEOPLE.items()})
def test_people(row):
    hold(OCI, row)
