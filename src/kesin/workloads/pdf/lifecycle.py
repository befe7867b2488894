"""The lifecycles of a PDF job, of a batch whose rows become jobs, and of a webhook.

A job is rendered once, or its failure is recorded. A webhook is enqueued with its subject, sent
when that ends, and retried for a day.
"""

from kesin.lifecycle import moves
from kesin.lifecycle.budget import DAY_S, HOUR_S, Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Taxonomy, Verdict, one_channel
from kesin.lifecycle.vocabulary import STAY, Fixed, budget_left, code_in, flag_not_set, lease_over, retries_left
from kesin.workloads.pdf.errors import MAX_RETRIES

WORKER_LOST = Fixed("WORKER_LOST", Category.TRANSIENT, "the worker died while rendering")
INTERRUPTED = Fixed("INTERRUPTED", Category.TRANSIENT, "the worker was asked to stop")
RETRYABLE = ("BROWSER_LAUNCH_FAILED", "NAVIGATION_TIMEOUT", "WORKER_LOST", "ARTIFACT_WRITE_FAILED")
RETRY_DELAYS = Backoff((0, 5), counts="retries")
TTL_HOURS = 24
KEEP_DAYS = 7  # of what is over
_INVALID = (
    *("TEMPLATE_ERROR", "MISSING_GLYPHS", "NOT_CONFORMING", "TEMPLATE_TOO_COSTLY"),
    *("PICTURES_TOO_LARGE", "DOCUMENT_TOO_COSTLY", "UPLOAD_GONE", "HTML_REFUSED"),
)
_FINAL = ("UNSUPPORTED_PLATFORM", "UNKNOWN", "DOCUMENT_TOO_SLOW", "PASSWORD_GONE")
_CODES = (
    *(Code(name, Category.TRANSIENT) for name in (*RETRYABLE, INTERRUPTED.code)),
    *(Code(name, Category.VALIDATION) for name in _INVALID),
    *(Code(name, Category.PERMANENT) for name in _FINAL),
)


def pdf_lifecycle(*, max_retries: int = MAX_RETRIES, lease_seconds: int = 60, ttl_hours: int = TTL_HOURS) -> Lifecycle:
    """Build the lifecycle with these limits. A retry is *fail* and *requeue* in one transaction."""
    ttl_s = ttl_hours * HOUR_S
    return Lifecycle(
        name="pdf",
        doc="HTML templates to PDF: queued, rendered in a browser that stays open, kept for a day.",
        max_attempts=max_retries + 1,
        lease_seconds=lease_seconds,
        stamps=("started_at",),
        states=(
            State("queued", initial=True, holds_key=True),
            State("running", holds_key=True),
            State("succeeded", resting=True, success=True, holds_key=True),
            State("failed", resting=True),
            State("expired", terminal=True),
        ),
        moves=(
            moves.enqueue("queued"),
            moves.claim("queued", "running", stamp=("started_at",)),
            moves.complete("running", "succeeded", name="succeed"),
            moves.fail("running", "failed", then="requeue"),
            moves.release(
                "running", "failed", error=INTERRUPTED, run_at="keep", stamp=("finished_at",), then="requeue"
            ),
            moves.recover_spent(
                "running", "failed", name="lose", when=(lease_over,), error=WORKER_LOST, then="requeue"
            ),
            moves.requeue(
                "failed",
                "queued",
                by=("worker", "clock"),
                when=(code_in(*RETRYABLE), retries_left(max_retries), budget_left),
                attempt="keep",
                retry="count",
                run_at=RETRY_DELAYS,
                chained=True,
            ),
            moves.requeue(
                "failed",
                "queued",
                name="resume",
                action="requeue",
                by=("worker",),
                when=(code_in(INTERRUPTED.code), budget_left),
                attempt="keep",
                chained=True,
            ),
            moves.expire("queued", "expired", ttl_s),
            moves.expire(("succeeded", "failed"), "expired", ttl_s, since="finished_at"),
            Move(
                "artifact_gone",
                ("succeeded",),
                "expired",
                by=("producer",),
                doc="The PDF was requested again, but is missing: a new job takes over the key.",
            ),
            moves.cancel("queued", "expired"),
            moves.cancel("failed", "expired", name="dismiss", stamp=(), doc="No further action is needed."),
            moves.prune("expired", days=KEEP_DAYS),
        ),
        # Every verdict is *fail*; *requeue* decides whether to retry.
        errors=one_channel("worker", *_CODES, unknown=Category.PERMANENT, fail="fail", complete="succeed"),
    )


def configured_lifecycle() -> Lifecycle:
    return pdf_lifecycle(ttl_hours=configured_ttl_hours())


def configured_ttl_hours() -> int:
    """Return how long a PDF is kept; unreadable settings are reported elsewhere."""
    from kesin.foundation.settings import BadSettings, load_settings

    try:
        return load_settings().pdf_ttl_hours
    except BadSettings:
        return TTL_HOURS


def retried_errors(complete: str, *codes: Code) -> Taxonomy:
    """Build the taxonomy of a queue beside the jobs: what may pass is retried, the rest fails."""
    verdicts = dict.fromkeys((Category.AUTH, Category.TRANSIENT, Category.RATE_LIMIT), Verdict.RETRY)
    return one_channel("worker", *codes, verdicts=verdicts, fail="fail", retry="retry", complete=complete)


BATCH_ATTEMPTS = 5
BATCH_DELAYS = Backoff((1, 5, 30, 120))
CANCEL_ASKED = "cancel_asked"
_BATCH_CODES = (
    Code("MAX_ATTEMPTS", Category.PERMANENT),
    Code("EVERY_ROW_FAILED", Category.PERMANENT),
    Code("TOO_LARGE", Category.PERMANENT),
    Code("ROWS_MISSING", Category.PERMANENT),  # the submitted rows are no longer in storage
    Code("STORAGE_DOWN", Category.TRANSIENT),
)


def batch_lifecycle(ttl_hours: int | None = None) -> Lifecycle:
    """Build the lifecycle; the output file is kept as long as a PDF."""
    ttl_s = (configured_ttl_hours() if ttl_hours is None else ttl_hours) * HOUR_S
    return Lifecycle(
        name="pdf_batches",
        doc="Rows of one template, rendered as capacity allows, collected into a zip or one PDF.",
        max_attempts=BATCH_ATTEMPTS,
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
            moves.enqueue("queued"),
            moves.claim("queued", "running"),
            moves.complete("running", "succeeded", name="succeed", doc="Every row has its PDF."),
            moves.complete("running", "partial", name="settle", doc="Some rows failed: the file contains the others."),
            moves.fail("running", "failed", result="record", doc="No row succeeded, or the file could not be made."),
            moves.fail("running", "expired", name="stop", error="keep", doc="The client cancelled it."),
            moves.retry("running", "queued", BATCH_DELAYS),
            moves.retry_spent("running", "failed"),
            moves.release("running", "queued"),
            moves.attempt_cap("queued", "failed"),
            moves.recover("running", "queued", doc="The worker died: the next one continues where it stopped."),
            moves.recover_spent("running", "failed"),
            moves.expire("queued", "expired", ttl_s),
            moves.expire(("succeeded", "partial", "failed"), "expired", ttl_s, since="finished_at"),
            moves.cancel("queued", "expired"),
            Move(
                "ask_cancel",
                ("running",),
                STAY,
                by=("operator", "producer"),
                when=(flag_not_set(CANCEL_ASKED),),
                flag=(CANCEL_ASKED,),
                doc="Its worker stops at the next check.",
            ),
            moves.prune("expired", days=KEEP_DAYS),
        ),
        errors=retried_errors("succeed", *_BATCH_CODES),
    )


WEBHOOK_ATTEMPTS = 8
WEBHOOK_DELAYS = Backoff((5, 60, 300, 1_800, 7_200, 18_000, 36_000), jitter_s=5)
MAX_WAIT_S = 40 * DAY_S  # longer than any job lives: the initial delay
CANCELLED = Fixed("CANCELLED", Category.PERMANENT, "cancelled by an operator")
_WEBHOOK_CODES = (
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
        max_attempts=WEBHOOK_ATTEMPTS,
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
            moves.retry("sending", "pending", WEBHOOK_DELAYS),
            moves.retry_spent("sending", "failed"),
            moves.retry("sending", "pending", "input", name="later", doc="The receiver asked for a pause."),
            moves.retry_spent("sending", "failed", name="later", doc="A pause was requested; no attempts remain."),
            moves.fail("sending", "failed", doc="It cannot be delivered: the address is refused or no longer exists."),
            moves.release("sending", "pending"),
            moves.attempt_cap("pending", "failed"),
            moves.recover(
                "sending", "pending", doc="A worker died while sending: the webhook may arrive twice, with the same id."
            ),
            moves.recover_spent("sending", "failed"),
            moves.requeue("failed", "pending", name="resend", doc="Retry with new attempts."),
            moves.cancel(("waiting", "pending"), "failed", by=("operator",), error=CANCELLED),
            moves.prune(("delivered", "failed"), days=KEEP_DAYS),
        ),
        errors=retried_errors("deliver", *_WEBHOOK_CODES),
    )
