"""The lifecycle of a batch: its rows become jobs, and their PDFs become one file."""

from kesin.lifecycle import moves
from kesin.lifecycle.budget import HOUR_S, Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code
from kesin.lifecycle.vocabulary import STAY, flag_not_set
from kesin.workloads.pdf.lifecycle import configured_ttl_hours, retried_errors

MAX_ATTEMPTS = 5
RETRY_DELAYS = Backoff((1, 5, 30, 120))
KEEP_DAYS = 7
CANCEL_ASKED = "cancel_asked"
_CODES = (
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
            moves.enqueue("queued"),
            moves.claim("queued", "running"),
            moves.complete("running", "succeeded", name="succeed", doc="Every row has its PDF."),
            moves.complete(
                "running",
                "partial",
                name="settle",
                doc="Some rows failed: the file contains the others.",
            ),
            moves.fail(
                "running",
                "failed",
                result="record",
                doc="No row succeeded, or the file could not be made.",
            ),
            moves.fail(
                "running", "expired", name="stop", error="keep", doc="The client cancelled it."
            ),
            moves.retry("running", "queued", RETRY_DELAYS),
            moves.retry_spent("running", "failed"),
            moves.release("running", "queued"),
            moves.attempt_cap("queued", "failed"),
            moves.recover(
                "running", "queued", doc="The worker died: the next one continues where it stopped."
            ),
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
        errors=retried_errors("succeed", *_CODES),
    )
