"""The plain lifecycle, for queues without rules of their own: ready, running, done, failed."""

from __future__ import annotations

from kesin.lifecycle import moves
from kesin.lifecycle.budget import Backoff, doubling
from kesin.lifecycle.declare import Lifecycle, State
from kesin.lifecycle.errors import Category, Code, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.vocabulary import Fixed, budget_left, holds_claim, option

LATER = "later"  # the option of a retry at a time that the handler says
RETRY = (holds_claim, budget_left)
CANCELLED = Fixed("CANCELLED", Category.PERMANENT, "cancelled before it ran")
CANCELLED_RUNNING = Fixed("CANCELLED", Category.PERMANENT, "cancelled while it ran")


def task_lifecycle(
    name: str = "task",
    *,
    max_attempts: int = 5,
    backoff: Backoff | None = None,
    lease_seconds: int = 60,
    keep_days: int = 30,
) -> Lifecycle:
    """A lifecycle for work with retries, as most queues need it."""
    retry_backoff = backoff or doubling(15, 3_600, jitter_s=15)
    return Lifecycle(
        name=name,
        doc="A handler that may fail, tried again with growing pauses.",
        max_attempts=max_attempts,
        lease_seconds=lease_seconds,
        states=(
            State("ready", initial=True, holds_key=True),
            State("running", holds_key=True),
            State("done", terminal=True, success=True),
            State("failed", resting=True),
        ),
        moves=(
            moves.enqueue("ready"),
            moves.claim("ready", "running"),
            moves.complete("running", "done"),
            moves.retry(
                "running", "ready", retry_backoff, when=(*RETRY, option(LATER, is_set=False))
            ),
            moves.retry(
                "running",
                "ready",
                "input",
                name="retry_later",
                action="retry",
                when=(*RETRY, option(LATER, is_set=True)),
                doc="The handler said when: Failed(code, retry_in_s=…).",
            ),
            moves.retry_spent(
                "running",
                "failed",
                doc="The last attempt failed: the job keeps that failure's own words.",
            ),
            moves.fail("running", "failed"),
            moves.retry(
                "running",
                "ready",
                "input",
                name="wait",
                error="clear",
                doc="Nothing to do yet: Wait(seconds). It has used an attempt.",
            ),
            moves.retry_spent(
                "running", "failed", name="wait_spent", action="wait", error=moves.OUT_OF_ATTEMPTS
            ),
            moves.release("running", "ready", doc="A graceful stop gives the attempt back."),
            moves.attempt_cap("ready", "failed"),
            moves.recover("running", "ready", doc="The worker died or lost its lease."),
            moves.recover_spent("running", "failed"),
            moves.requeue("failed", "ready", doc="Try a failed job again with a full budget."),
            moves.cancel("ready", "failed", error=CANCELLED),
            moves.cancel(
                "running",
                "failed",
                name="cancel_running",
                action="cancel",
                when=(),
                claim="drop",
                error=CANCELLED_RUNNING,
                doc="The worker loses its claim; its handler can see run.cancelled.",
            ),
            moves.prune(("done", "failed"), days=keep_days),
        ),
        errors=Taxonomy(
            channels=("worker",),
            rules=same_everywhere(
                ("worker",),
                {
                    Category.VALIDATION: Verdict.FAIL,
                    Category.AUTH: Verdict.FAIL,
                    Category.TRANSIENT: Verdict.RETRY,
                    Category.RATE_LIMIT: Verdict.RETRY,
                    Category.PERMANENT: Verdict.FAIL,
                },
            ),
            moves=(
                (Verdict.FAIL, "fail"),
                (Verdict.RETRY, "retry"),
                (Verdict.COMPLETE, "complete"),
            ),
            codes=(
                Code("MAX_ATTEMPTS", Category.PERMANENT),
                Code("CANCELLED", Category.PERMANENT),
            ),
        ),
    )
