"""The lifecycle of a PDF job: it is rendered once, or its failure is recorded."""

from kesin.lifecycle import moves
from kesin.lifecycle.budget import HOUR_S, Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.vocabulary import Fixed, budget_left, code_in, lease_over, retries_left
from kesin.workloads.pdf.errors import MAX_RETRIES

WORKER_LOST = Fixed("WORKER_LOST", Category.TRANSIENT, "the worker died while rendering")
INTERRUPTED = Fixed("INTERRUPTED", Category.TRANSIENT, "the worker was asked to stop")
RETRYABLE = ("BROWSER_LAUNCH_FAILED", "NAVIGATION_TIMEOUT", "WORKER_LOST", "ARTIFACT_WRITE_FAILED")
RETRY_DELAYS = Backoff((0, 5), counts="retries")
TTL_HOURS = 24
_CODES = {
    Category.TRANSIENT: (*RETRYABLE, INTERRUPTED.code),
    Category.VALIDATION: (
        *("TEMPLATE_ERROR", "MISSING_GLYPHS", "NOT_CONFORMING"),
        *("TEMPLATE_TOO_COSTLY", "PICTURES_TOO_LARGE", "DOCUMENT_TOO_COSTLY"),
        *("UPLOAD_GONE", "HTML_REFUSED"),
    ),
    Category.PERMANENT: ("UNSUPPORTED_PLATFORM", "UNKNOWN", "DOCUMENT_TOO_SLOW", "PASSWORD_GONE"),
}


def pdf_lifecycle(
    *, max_retries: int = MAX_RETRIES, lease_seconds: int = 60, ttl_hours: int = TTL_HOURS
) -> Lifecycle:
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
                "running",
                "failed",
                error=INTERRUPTED,
                run_at="keep",
                stamp=("finished_at",),
                then="requeue",
            ),
            moves.recover_spent(
                "running",
                "failed",
                name="lose",
                when=(lease_over,),
                error=WORKER_LOST,
                then="requeue",
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
            moves.cancel(
                "failed", "expired", name="dismiss", stamp=(), doc="No further action is needed."
            ),
            moves.prune("expired", days=7),
        ),
        # Every verdict is *fail*; *requeue* decides whether to retry.
        errors=Taxonomy(
            channels=("worker",),
            rules=same_everywhere(("worker",), dict.fromkeys(Category, Verdict.FAIL)),
            moves=((Verdict.FAIL, "fail"), (Verdict.COMPLETE, "succeed")),
            codes=tuple(Code(name, category) for category in _CODES for name in _CODES[category]),
            unknown=Category.PERMANENT,
        ),
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
    verdicts = dict.fromkeys(Category, Verdict.RETRY)
    verdicts |= dict.fromkeys((Category.VALIDATION, Category.PERMANENT), Verdict.FAIL)
    return Taxonomy(
        channels=("worker",),
        rules=same_everywhere(("worker",), verdicts),
        moves=((Verdict.FAIL, "fail"), (Verdict.RETRY, "retry"), (Verdict.COMPLETE, complete)),
        codes=codes,
    )
