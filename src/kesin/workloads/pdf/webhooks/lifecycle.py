"""The lifecycle of a webhook: enqueued with its subject, sent when that ends, retried for a day."""

from __future__ import annotations

from kesin.lifecycle.budget import DAY_S, Backoff
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

MAX_ATTEMPTS = 8
RETRY_DELAYS = Backoff((5, 60, 300, 1_800, 7_200, 18_000, 36_000), jitter_s=5)
MAX_WAIT_S = 40 * DAY_S  # longer than any job lives: the initial delay
KEEP_DAYS = 7
GAVE_UP = Fixed("MAX_ATTEMPTS", Category.PERMANENT, "every attempt was used up")
CANCELLED = Fixed("CANCELLED", Category.PERMANENT, "cancelled by an operator")


def webhook_lifecycle() -> Lifecycle:
    """Build the lifecycle: wait for the subject to end, then deliver with retries."""
    return Lifecycle(
        name="pdf_webhooks",
        doc="A promise to tell: kept once the job has ended, and tried again for most of a day.",
        max_attempts=MAX_ATTEMPTS,
        lease_seconds=60,
        states=(
            State("waiting", initial=True, holds_key=True),
            State("pending", holds_key=True),
            State("sending", holds_key=True),
            State("delivered", terminal=True, success=True),
            State("failed", resting=True),
        ),
        moves=(
            Move(
                "enqueue",
                (),
                "waiting",
                by=("producer",),
                run_at="input",
                doc="With a time far away: by then somebody looks why nothing has ended.",
            ),
            Move(
                "ready",
                ("waiting",),
                "pending",
                by=("producer",),
                run_at="now",
                doc="What it tells of has ended.",
            ),
            Move(
                "claim",
                ("waiting", "pending"),
                "sending",
                by=("worker",),
                when=(due, unclaimed, budget_left),
                claim="take",
                attempt="count",
            ),
            Move(
                "deliver",
                ("sending",),
                "delivered",
                by=("worker",),
                when=(holds_claim,),
                claim="drop",
                error="clear",
                result="record",
                stamp=("finished_at",),
            ),
            Move(
                "retry",
                ("sending",),
                "pending",
                by=("worker",),
                when=(holds_claim, budget_left),
                claim="drop",
                error="record",
                run_at=RETRY_DELAYS,
            ),
            Move(
                "retry",
                ("sending",),
                "failed",
                by=("worker",),
                when=(holds_claim, budget_spent),
                claim="drop",
                error="record",
                stamp=("finished_at",),
            ),
            Move(
                "later",
                ("sending",),
                "pending",
                by=("worker",),
                when=(holds_claim, budget_left),
                claim="drop",
                error="record",
                run_at="input",
                doc="The receiver named a time.",
            ),
            Move(
                "later",
                ("sending",),
                "failed",
                by=("worker",),
                when=(holds_claim, budget_spent),
                claim="drop",
                error="record",
                stamp=("finished_at",),
                doc="It named one after the last try.",
            ),
            Move(
                "fail",
                ("sending",),
                "failed",
                by=("worker",),
                when=(holds_claim,),
                claim="drop",
                error="record",
                stamp=("finished_at",),
                doc="It will never be taken: the address is refused, or says that it is gone.",
            ),
            Move(
                "release",
                ("sending",),
                "pending",
                by=("worker",),
                when=(holds_claim, returns_left),
                claim="drop",
                attempt="return",
                run_at="now",
            ),
            Move(
                "attempt_cap",
                ("pending",),
                "failed",
                by=("clock",),
                when=(unclaimed, budget_spent),
                error=GAVE_UP,
                stamp=("finished_at",),
                stage="cap",
            ),
            Move(
                "recover",
                ("sending",),
                "pending",
                by=("clock",),
                when=(lease_over, budget_left),
                claim="drop",
                run_at="now",
                stage="recover",
                doc="Whoever sent it died: it may arrive twice, under the same id.",
            ),
            Move(
                "recover",
                ("sending",),
                "failed",
                by=("clock",),
                when=(lease_over, budget_spent),
                claim="drop",
                error=GAVE_UP,
                stamp=("finished_at",),
                stage="recover",
            ),
            Move(
                "resend",
                ("failed",),
                "pending",
                by=("operator",),
                attempt="renew",
                run_at="now",
                unstamp=("finished_at",),
                doc="Try it again with a full budget.",
            ),
            Move(
                "cancel",
                ("waiting", "pending"),
                "failed",
                by=("operator",),
                when=(unclaimed,),
                error=CANCELLED,
                stamp=("finished_at",),
            ),
            Move(
                "prune",
                ("delivered", "failed"),
                GONE,
                by=("clock",),
                when=(age_over("finished_at", KEEP_DAYS * DAY_S),),
                stage="prune",
            ),
        ),
        errors=_errors(),
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
        moves=((Verdict.FAIL, "fail"), (Verdict.RETRY, "retry"), (Verdict.COMPLETE, "deliver")),
        codes=(
            Code("MAX_ATTEMPTS", Category.PERMANENT),
            Code("NEVER_ENDED", Category.PERMANENT),
            Code("CANCELLED", Category.PERMANENT),
            Code(
                "HOOK_REFUSED", Category.VALIDATION
            ),  # not an allowed URL, or not a public address
            Code("HOOK_GONE", Category.PERMANENT),  # 410: the receiver is gone
            Code("HOOK_UNREACHABLE", Category.TRANSIENT),
            Code("HOOK_BAD_ANSWER", Category.TRANSIENT),  # anything but a 2xx
            Code("SUBJECT_GONE", Category.PERMANENT),  # there is nothing left to report
        ),
    )
