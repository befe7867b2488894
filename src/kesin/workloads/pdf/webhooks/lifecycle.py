"""The lifecycle of a webhook: enqueued with its subject, sent when that ends, retried for a day."""

from kesin.lifecycle import moves
from kesin.lifecycle.budget import DAY_S, Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code
from kesin.lifecycle.vocabulary import Fixed
from kesin.workloads.pdf.lifecycle import retried_errors

MAX_ATTEMPTS = 8
RETRY_DELAYS = Backoff((5, 60, 300, 1_800, 7_200, 18_000, 36_000), jitter_s=5)
MAX_WAIT_S = 40 * DAY_S  # longer than any job lives: the initial delay
KEEP_DAYS = 7
CANCELLED = Fixed("CANCELLED", Category.PERMANENT, "cancelled by an operator")
_CODES = (
    Code("MAX_ATTEMPTS", Category.PERMANENT),
    Code("NEVER_ENDED", Category.PERMANENT),
    Code("CANCELLED", Category.PERMANENT),
    Code("HOOK_REFUSED", Category.VALIDATION),  # not an allowed URL, or not a public address
    Code("HOOK_GONE", Category.PERMANENT),  # 410: the receiver is gone
    Code("HOOK_UNREACHABLE", Category.TRANSIENT),
    Code("HOOK_BAD_ANSWER", Category.TRANSIENT),  # anything but a 2xx
    Code("SUBJECT_GONE", Category.PERMANENT),  # there is nothing left to report
)


def webhook_lifecycle() -> Lifecycle:
    return Lifecycle(
        name="pdf_webhooks",
        doc="A webhook: sent when the job has ended, and retried for most of a day.",
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
            moves.enqueue("waiting", doc="Checked again later if the job has not ended."),
            Move(
                "ready",
                ("waiting",),
                "pending",
                by=("producer",),
                run_at="now",
                doc="The job that the webhook reports on has ended.",
            ),
            moves.claim(("waiting", "pending"), "sending"),
            moves.complete("sending", "delivered", name="deliver"),
            moves.retry("sending", "pending", RETRY_DELAYS),
            moves.retry_spent("sending", "failed"),
            moves.retry(
                "sending", "pending", "input", name="later", doc="The receiver asked for a pause."
            ),
            moves.retry_spent(
                "sending", "failed", name="later", doc="A pause was requested; no attempts remain."
            ),
            moves.fail(
                "sending",
                "failed",
                doc="It cannot be delivered: the address is refused or no longer exists.",
            ),
            moves.release("sending", "pending"),
            moves.attempt_cap("pending", "failed"),
            moves.recover(
                "sending",
                "pending",
                doc="A worker died while sending: the webhook may arrive twice, with the same id.",
            ),
            moves.recover_spent("sending", "failed"),
            moves.requeue("failed", "pending", name="resend", doc="Retry with new attempts."),
            moves.cancel(("waiting", "pending"), "failed", by=("operator",), error=CANCELLED),
            moves.prune(("delivered", "failed"), days=KEEP_DAYS),
        ),
        errors=retried_errors("deliver", *_CODES),
    )
