"""The plain lifecycle, for queues without rules of their own: ready, running, done, failed."""

from __future__ import annotations

from kesin.lifecycle.budget import DAY_S, Backoff, doubling
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.vocabulary import (
    GONE,
    Fixed,
    age_over,
    budget_left,
    budget_spent,
    due,
    holds_claim,
    lease_over,
    returns_left,
    unclaimed,
)

OUT_OF_ATTEMPTS = Fixed("MAX_ATTEMPTS", Category.PERMANENT, "every attempt was used up")


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
            Move("enqueue", (), "ready", by=("producer",), run_at="input"),
            Move(
                "claim",
                ("ready",),
                "running",
                by=("worker",),
                when=(due, unclaimed, budget_left),
                claim="take",
                attempt="count",
            ),
            Move(
                "complete",
                ("running",),
                "done",
                by=("worker",),
                when=(holds_claim,),
                claim="drop",
                error="clear",
                result="record",
                stamp=("finished_at",),
            ),
            Move(
                "retry",
                ("running",),
                "ready",
                by=("worker",),
                when=(holds_claim, budget_left),
                claim="drop",
                error="record",
                run_at=retry_backoff,
            ),
            Move(
                "retry",
                ("running",),
                "failed",
                by=("worker",),
                when=(holds_claim, budget_spent),
                claim="drop",
                error="record",
                stamp=("finished_at",),
                doc="The last attempt failed: the job keeps that failure's own words.",
            ),
            Move(
                "fail",
                ("running",),
                "failed",
                by=("worker",),
                when=(holds_claim,),
                claim="drop",
                error="record",
                stamp=("finished_at",),
            ),
            Move(
                "release",
                ("running",),
                "ready",
                by=("worker",),
                when=(holds_claim, returns_left),
                claim="drop",
                attempt="return",
                run_at="now",
                doc="A graceful stop gives the attempt back.",
            ),
            Move(
                "attempt_cap",
                ("ready",),
                "failed",
                by=("clock",),
                when=(unclaimed, budget_spent),
                error=OUT_OF_ATTEMPTS,
                stamp=("finished_at",),
                stage="cap",
            ),
            Move(
                "recover",
                ("running",),
                "ready",
                by=("clock",),
                when=(lease_over, budget_left),
                claim="drop",
                run_at="now",
                stage="recover",
                doc="The worker died or lost its lease.",
            ),
            Move(
                "recover",
                ("running",),
                "failed",
                by=("clock",),
                when=(lease_over, budget_spent),
                claim="drop",
                error=OUT_OF_ATTEMPTS,
                stamp=("finished_at",),
                stage="recover",
            ),
            Move(
                "requeue",
                ("failed",),
                "ready",
                by=("operator",),
                attempt="renew",
                run_at="now",
                unstamp=("finished_at",),
                doc="Try a failed job again with a full budget.",
            ),
            Move(
                "cancel",
                ("ready",),
                "failed",
                by=("operator", "producer"),
                when=(unclaimed,),
                error=Fixed("CANCELLED", Category.PERMANENT, "cancelled before it ran"),
                stamp=("finished_at",),
            ),
            Move(
                "prune",
                ("done", "failed"),
                GONE,
                by=("clock",),
                when=(age_over("finished_at", keep_days * DAY_S),),
                stage="prune",
            ),
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
