"""The lifecycle of a batch: its rows become jobs, and their PDFs become one file."""

from __future__ import annotations

from kesin.lifecycle.budget import DAY_S, HOUR_S, Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.vocabulary import (
    GONE,
    STAY,
    Fixed,
    age_over,
    budget_left,
    budget_spent,
    due,
    flag_not_set,
    holds_claim,
    lease_over,
    returns_left,
    unclaimed,
)
from kesin.workloads.pdf.lifecycle import configured_ttl_hours

MAX_ATTEMPTS = 5
RETRY_DELAYS = Backoff((1, 5, 30, 120))
KEEP_DAYS = 7
CANCEL_ASKED = "cancel_asked"
GAVE_UP = Fixed("MAX_ATTEMPTS", Category.PERMANENT, "every attempt was used up")


def batch_lifecycle(ttl_hours: int | None = None) -> Lifecycle:
    """Build the lifecycle; the output file is kept as long as a PDF."""
    ttl_s = (configured_ttl_hours() if ttl_hours is None else ttl_hours) * HOUR_S
    return Lifecycle(
        name="pdf_batches",
        doc="Rows of one template, fed in as the line allows, gathered into a zip or one PDF.",
        max_attempts=MAX_ATTEMPTS,
        lease_seconds=60,
        flags=(CANCEL_ASKED,),
        states=(
            State("queued", initial=True, holds_key=True),
            State("running", holds_key=True),
            State("succeeded", resting=True, success=True, holds_key=True),
            State("partial", resting=True),
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
            ),
            _finish_move("succeed", "succeeded", "Every row has its PDF."),
            _finish_move("settle", "partial", "Some rows failed: the file holds the others."),
            Move(
                "fail",
                ("running",),
                "failed",
                by=("worker",),
                when=(holds_claim,),
                claim="drop",
                error="record",
                result="record",
                stamp=("finished_at",),
                doc="No row came through, or there can be no file of them.",
            ),
            Move(
                "stop",
                ("running",),
                "expired",
                by=("worker",),
                when=(holds_claim,),
                claim="drop",
                stamp=("finished_at",),
                doc="Its owner did not want it any more.",
            ),
            Move(
                "retry",
                ("running",),
                "queued",
                by=("worker",),
                when=(holds_claim, budget_left),
                claim="drop",
                error="record",
                run_at=RETRY_DELAYS,
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
            ),
            Move(
                "release",
                ("running",),
                "queued",
                by=("worker",),
                when=(holds_claim, returns_left),
                claim="drop",
                attempt="return",
                run_at="now",
            ),
            Move(
                "attempt_cap",
                ("queued",),
                "failed",
                by=("clock",),
                when=(unclaimed, budget_spent),
                error=GAVE_UP,
                stamp=("finished_at",),
                stage="cap",
            ),
            Move(
                "recover",
                ("running",),
                "queued",
                by=("clock",),
                when=(lease_over, budget_left),
                claim="drop",
                run_at="now",
                stage="recover",
                doc="The worker died: the next one goes on where it stopped.",
            ),
            Move(
                "recover",
                ("running",),
                "failed",
                by=("clock",),
                when=(lease_over, budget_spent),
                claim="drop",
                error=GAVE_UP,
                stamp=("finished_at",),
                stage="recover",
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
                ("succeeded", "partial", "failed"),
                "expired",
                by=("clock",),
                when=(age_over("finished_at", ttl_s),),
                stage="expire",
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
                "ask_cancel",
                ("running",),
                STAY,
                by=("operator", "producer"),
                when=(flag_not_set(CANCEL_ASKED),),
                flag=(CANCEL_ASKED,),
                doc="Its worker stops at the next look.",
            ),
            Move(
                "prune",
                ("expired",),
                GONE,
                by=("clock",),
                when=(age_over("finished_at", KEEP_DAYS * DAY_S),),
                stage="prune",
            ),
        ),
        errors=_errors(),
    )


def _finish_move(name: str, state: str, doc: str) -> Move:
    return Move(
        name,
        ("running",),
        state,
        by=("worker",),
        when=(holds_claim,),
        claim="drop",
        error="clear",
        result="record",
        stamp=("finished_at",),
        doc=doc,
    )


def _errors() -> Taxonomy:
    return Taxonomy(
        channels=("worker",),
        rules=same_everywhere(
            ("worker",),
            {
                Category.VALIDATION: Verdict.FAIL,
                Category.AUTH: Verdict.RETRY,
                Category.TRANSIENT: Verdict.RETRY,
                Category.RATE_LIMIT: Verdict.RETRY,
                Category.PERMANENT: Verdict.FAIL,
            },
        ),
        moves=((Verdict.FAIL, "fail"), (Verdict.RETRY, "retry"), (Verdict.COMPLETE, "succeed")),
        codes=(
            Code("MAX_ATTEMPTS", Category.PERMANENT),
            Code("EVERY_ROW_FAILED", Category.PERMANENT),
            Code("TOO_LARGE", Category.PERMANENT),
            Code(
                "ROWS_MISSING", Category.PERMANENT
            ),  # the submitted rows are no longer in the storage
            Code("STORAGE_DOWN", Category.TRANSIENT),
        ),
    )
