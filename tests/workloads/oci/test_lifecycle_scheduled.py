"""The oci lifecycle as its page has it: what the clock does."""

from tests.lifecycle.adversary import NOW
from tests.lifecycle.table import CLAIMED, DAY, FUTURE, LOST, NO_CLAIM, PAST, Row, error, hold, rows
from tests.workloads.oci.lifecycle_rows import FAILED, OCI, QUEUED_ANEW, SPENT, TRANSIENT

CAPPED = error("MAX_ATTEMPTS", "PERMANENT", "MAX_ATTEMPTS_EXCEEDED")
REVIVABLE = {**FAILED, **TRANSIENT, "timer_at": NOW, "attempt_count": 1}

CLOCK = {
    "recover with budget left goes to RETRY due at once": Row(
        "recover",
        "clock",
        "PROCESSING",
        given={**LOST, "run_at": PAST},
        path="recover: PROCESSING → RETRY",
        then={**NO_CLAIM, "run_at": NOW, "attempt_count": 1, "attempt_base": 0},
    ),
    "recover with the budget spent goes to FAILED as MAX_ATTEMPTS": Row(
        "recover",
        "clock",
        "PROCESSING",
        given={**LOST, **SPENT},
        path="recover: PROCESSING → FAILED",
        then={**NO_CLAIM, **CAPPED, "failed_at": NOW},
    ),
    "recover leaves a live claim alone": Row(
        "recover", "clock", "PROCESSING", given=CLAIMED, refused="lease_over"
    ),
    "recover leaves a live last attempt alone": Row(
        "recover", "clock", "PROCESSING", given={**CLAIMED, **SPENT}, refused="lease_over"
    ),
    "recover never touches FAILED": Row("recover", "clock", "FAILED", refused="state"),
    **{
        f"attempt_cap fails a spent {state} row at once": Row(
            "attempt_cap",
            "clock",
            state,
            given=SPENT,
            path=f"attempt_cap: {state} → FAILED",
            then={**CAPPED, "failed_at": NOW, "attempt_count": 5},
        )
        for state in ("QUEUED", "RETRY")
    },
    "attempt_cap fails a spent PROCESSING row once its lease is over": Row(
        "attempt_cap",
        "clock",
        "PROCESSING",
        given={**LOST, **SPENT},
        path="attempt_cap: PROCESSING → FAILED",
        then={**NO_CLAIM, **CAPPED, "failed_at": NOW},
    ),
    "attempt_cap lets a fifth attempt in flight live": Row(
        "attempt_cap", "clock", "PROCESSING", given={**CLAIMED, **SPENT}, refused="lease_over"
    ),
    "attempt_cap leaves a lost claim with budget to recover": Row(
        "attempt_cap", "clock", "PROCESSING", given=LOST, refused="budget_spent"
    ),
    "attempt_cap leaves a row with budget": Row(
        "attempt_cap", "clock", "RETRY", given={"attempt_count": 4}, refused="budget_spent"
    ),
    **{
        f"revive takes a {category} failure to RETRY once its timer is over": Row(
            "revive",
            "clock",
            "FAILED",
            given={**REVIVABLE, **error("SOME", category)},
            path="revive: FAILED → RETRY",
            then={**QUEUED_ANEW, "attempt_count": 1, "attempt_base": 0},
        )
        for category in ("TRANSIENT", "RATE_LIMIT")
    },
    **{
        f"revive never takes a {category} failure": Row(
            "revive",
            "clock",
            "FAILED",
            given={**REVIVABLE, **error("SOME", category)},
            refused="category_in",
        )
        for category in ("VALIDATION", "AUTH", "PERMANENT")
    },
    "revive waits for the timer": Row(
        "revive", "clock", "FAILED", given={**REVIVABLE, "timer_at": FUTURE}, refused="timer_over"
    ),
    "revive takes only what ack_failed armed": Row(
        "revive", "clock", "FAILED", given={**REVIVABLE, "timer_at": None}, refused="timer_over"
    ),
    "revive leaves a row whose budget is spent": Row(
        "revive", "clock", "FAILED", given={**REVIVABLE, **SPENT}, refused="budget_left"
    ),
    **{
        f"expire fails a {state} row whose click is 90 days old": Row(
            "expire",
            "clock",
            state,
            given={"conversion_at": NOW - 90 * DAY},
            path=f"expire: {state} → FAILED",
            then={"error_code": "EXPIRED", "error_category": "VALIDATION", "failed_at": NOW},
        )
        for state in ("QUEUED", "RETRY")
    },
    "expire leaves a click of nearly 90 days": Row(
        "expire",
        "clock",
        "QUEUED",
        given={"conversion_at": NOW - 90 * DAY + 1},
        refused="age_over",
    ),
    "expire leaves a row that is being sent": Row(
        "expire", "clock", "PROCESSING", given={**CLAIMED, "conversion_at": 0}, refused="state"
    ),
}


@rows({f"oci {name}": row for name, row in CLOCK.items()})
def test_the_clock(row):
    hold(OCI, row)
