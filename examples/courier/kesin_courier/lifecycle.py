"""The lifecycle of a delivery: that of ``task``, plus moves for pauses that receivers request."""

from dataclasses import replace

from kesin import (
    Category,
    Code,
    Lifecycle,
    doubling,
    moves,
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
    """Up to eight attempts: at increasing intervals, or at the times that the receiver asks for."""
    task = task_lifecycle("courier", max_attempts=8, backoff=doubling(30, 3_600, jitter_s=30))
    later = (
        moves.retry("running", "ready", "input", name="later", doc="The receiver asked to wait."),
        moves.retry_spent(
            "running", "failed", name="later", doc="A pause was requested; no attempts remain."
        ),
    )
    errors = replace(task.errors, codes=(*task.errors.codes, *CODES))
    return replace(task, moves=(*task.moves, *later), errors=errors)
