"""The lifecycle of a PDF job: it is rendered once, or its failure is recorded."""

from __future__ import annotations

from dataclasses import dataclass

from kesin.foundation.settings import BadSettings, load_settings
from kesin.lifecycle.budget import DAY_S, HOUR_S, Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.vocabulary import (
    GONE,
    Fixed,
    age_over,
    budget_left,
    code_in,
    due,
    holds_claim,
    lease_over,
    retries_left,
    returns_left,
    unclaimed,
)

WORKER_LOST = Fixed("WORKER_LOST", Category.TRANSIENT, "the worker died while rendering")
INTERRUPTED = Fixed("INTERRUPTED", Category.TRANSIENT, "the worker was asked to stop")
RETRYABLE = (
    "BROWSER_LAUNCH_FAILED",
    "NAVIGATION_TIMEOUT",
    "WORKER_LOST",
    "ARTIFACT_WRITE_FAILED",
)


TTL_HOURS = 24


@dataclass(frozen=True, slots=True)
class PdfLimits:
    """The caps, pauses and ages of the workload."""

    max_retries: int = 2
    retry_pauses_s: tuple[int, ...] = (0, 5)
    lease_seconds: int = 60
    ttl_hours: int = TTL_HOURS
    keep_expired_days: int = 7


def pdf_lifecycle(limits: PdfLimits | None = None) -> Lifecycle:
    """Build the lifecycle with these limits. A retry is *fail* and *requeue* in one transaction."""
    limits = limits or PdfLimits()
    ttl_s = limits.ttl_hours * HOUR_S
    return Lifecycle(
        name="pdf",
        doc="HTML templates to PDF: queued, rendered on a warm browser, kept for a day.",
        max_attempts=limits.max_retries + 1,
        lease_seconds=limits.lease_seconds,
        stamps=("started_at",),
        states=(
            State("queued", initial=True, holds_key=True),
            State("running", holds_key=True),
            State("succeeded", resting=True, success=True, holds_key=True),
            State("failed", resting=True),
            State("expired", terminal=True),
        ),
        moves=(
            Move("enqueue", (), "queued", by=("producer",), run_at="input"),
            Move(
                "claim",
                ("queued",),
                "running",
                by=("worker",),
                when=(due, unclaimed, budget_left),
                claim="take",
                attempt="count",
                stamp=("started_at",),
            ),
            Move(
                "succeed",
                ("running",),
                "succeeded",
                by=("worker",),
                when=(holds_claim,),
                claim="drop",
                error="clear",
                result="record",
                stamp=("finished_at",),
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
                then="requeue",
            ),
            Move(
                "release",
                ("running",),
                "failed",
                by=("worker",),
                when=(holds_claim, returns_left),
                claim="drop",
                attempt="return",
                error=INTERRUPTED,
                stamp=("finished_at",),
                then="requeue",
            ),
            Move(
                "lose",
                ("running",),
                "failed",
                by=("clock",),
                when=(lease_over,),
                claim="drop",
                error=WORKER_LOST,
                stamp=("finished_at",),
                then="requeue",
                stage="recover",
            ),
            Move(
                "requeue",
                ("failed",),
                "queued",
                by=("worker", "clock"),
                when=(code_in(*RETRYABLE), retries_left(limits.max_retries), budget_left),
                retry="count",
                run_at=Backoff(limits.retry_pauses_s, counts="retries"),
                unstamp=("finished_at",),
                chained=True,
            ),
            Move(
                "resume",
                ("failed",),
                "queued",
                action="requeue",
                by=("worker",),
                when=(code_in(INTERRUPTED.code), budget_left),
                run_at="now",
                unstamp=("finished_at",),
                chained=True,
            ),
            Move(
                "expire",
                ("queued",),
                "expired",
                by=("clock",),
                when=(unclaimed, age_over("created_at", ttl_s)),
                stamp=("finished_at",),
                stage="expire",
            ),
            Move(
                "expire",
                ("succeeded", "failed"),
                "expired",
                by=("clock",),
                when=(age_over("finished_at", ttl_s),),
                stage="expire",
            ),
            Move(
                "artifact_gone",
                ("succeeded",),
                "expired",
                by=("producer",),
                doc="Asked for again, and the file is missing: a new job takes over the key.",
            ),
            Move(
                "cancel",
                ("queued",),
                "expired",
                by=("operator", "producer"),
                when=(unclaimed,),
                stamp=("finished_at",),
            ),
            Move(
                "prune",
                ("expired",),
                GONE,
                by=("clock",),
                when=(age_over("finished_at", limits.keep_expired_days * DAY_S),),
                stage="prune",
            ),
        ),
        errors=pdf_errors(),
    )


def configured_lifecycle() -> Lifecycle:
    """Build the lifecycle with the configured retention time."""
    return pdf_lifecycle(PdfLimits(ttl_hours=configured_ttl_hours()))


def configured_ttl_hours() -> int:
    """Return how long a PDF is kept; unreadable settings are reported elsewhere."""
    try:
        return load_settings().pdf_ttl_hours
    except BadSettings:
        return TTL_HOURS


def pdf_errors() -> Taxonomy:
    """Build the error taxonomy. Every verdict is *fail*; *requeue* decides whether to retry."""
    return Taxonomy(
        channels=("worker",),
        rules=same_everywhere(("worker",), dict.fromkeys(Category, Verdict.FAIL)),
        moves=((Verdict.FAIL, "fail"), (Verdict.COMPLETE, "succeed")),
        codes=(
            Code("BROWSER_LAUNCH_FAILED", Category.TRANSIENT),
            Code("NAVIGATION_TIMEOUT", Category.TRANSIENT),
            Code("WORKER_LOST", Category.TRANSIENT),
            Code("INTERRUPTED", Category.TRANSIENT),
            Code("ARTIFACT_WRITE_FAILED", Category.TRANSIENT),
            Code("TEMPLATE_ERROR", Category.VALIDATION),
            Code("UNSUPPORTED_PLATFORM", Category.PERMANENT),
            Code("UNKNOWN", Category.PERMANENT),
        ),
        unknown=Category.PERMANENT,
    )
