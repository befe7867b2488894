"""A delivery's rules: the plain task's, and a move for receivers that say when to come back."""

from dataclasses import replace

from kesin import (
    Category,
    Code,
    Lifecycle,
    Move,
    budget_left,
    budget_spent,
    doubling,
    holds_claim,
    task_lifecycle,
)

CODES = (
    Code("BAD_ADDRESS", Category.VALIDATION),
    Code("PRIVATE_ADDRESS", Category.VALIDATION),
    Code("REDIRECTED", Category.VALIDATION),  # not followed: it could lead anywhere
    Code("BAD_CERTIFICATE", Category.AUTH),
    Code("NO_ANSWER", Category.TRANSIENT),
    Code("TIMEOUT", Category.TRANSIENT),
)


def courier_lifecycle() -> Lifecycle:
    """Eight tries within about an hour, or when the receiver wants them."""
    task = task_lifecycle("courier", max_attempts=8, backoff=doubling(30, 3_600, jitter_s=30))
    later = Move(
        "later",
        ("running",),
        "ready",
        by=("worker",),
        when=(holds_claim, budget_left),
        claim="drop",
        error="record",
        run_at="input",
        doc="The receiver named a time.",
    )
    too_late = replace(
        later,
        to="failed",
        when=(holds_claim, budget_spent),
        run_at="keep",
        stamp=("finished_at",),
        doc="It named one after the last try.",
    )
    errors = replace(task.errors, codes=(*task.errors.codes, *CODES))
    return replace(task, moves=(*task.moves, later, too_late), errors=errors)
