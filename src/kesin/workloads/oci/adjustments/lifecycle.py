"""The lifecycle of an adjustment: it waits for its conversion, then it is sent, one at a time."""

from typing import Final

from kesin.lifecycle import moves
from kesin.lifecycle.budget import DAY_S, Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code
from kesin.lifecycle.vocabulary import Fixed, due, unclaimed
from kesin.workloads.oci import lifecycle
from kesin.workloads.oci.google.classify import ADJUSTMENT_CODES

QUEUE: Final = "oci_adjustments"
WINDOW_S: Final = 54 * DAY_S  # later, Google adjusts no conversion
TOO_LATE: Final = (
    "the sale is older than 54 days, and Google will no longer adjust it: correct your own figures"
)
EXPIRED: Final = Fixed("CONVERSION_EXPIRED", Category.VALIDATION, TOO_LATE)
SENDABLE: Final = ("READY", "RETRY")
OPEN: Final = ("WAITING", *SENDABLE)
UNFINISHED: Final = (*OPEN, "PROCESSING")
_REFUSALS: Final = (  # our own codes: Google was not asked
    *("ALREADY_RETRACTED", "CONSENT_DENIED", "UNKNOWN_CONVERSION", "WBRAID_NOT_ADJUSTABLE"),
    "RETRACT_NOT_POSSIBLE",
)


def adjustment_lifecycle(limits: lifecycle.OciLimits | None = None) -> Lifecycle:
    limits = limits or lifecycle.OciLimits()
    return Lifecycle(
        name=QUEUE,
        doc="Adjustments: each waits for its conversion, then for any earlier adjustments to it.",
        max_attempts=limits.max_attempts_script,
        lease_seconds=limits.lease_seconds,
        stamps=("conversion_at", "uploaded_at", "failed_at"),
        states=(
            State("WAITING", initial=True, holds_key=True),
            State("READY", holds_key=True),
            *lifecycle.SENDING,
        ),
        moves=(
            moves.enqueue("WAITING", stamp_input=("conversion_at",)),
            Move(
                "ready",
                ("WAITING",),
                "READY",
                by=("worker",),
                run_at="now",
                doc="Google has the conversion, and no other adjustment to it is in progress.",
            ),
            Move(
                "settle",
                ("WAITING",),
                "COMPLETED",
                by=("worker",),
                result="record",
                stamp=("finished_at",),
                doc="The conversion was never claimed: Kesin changed it, and nothing is sent.",
            ),
            moves.claim(SENDABLE, "PROCESSING"),
            lifecycle.reject_move(OPEN),
            moves.complete("PROCESSING", "COMPLETED", name="ack", when=(), stamp=lifecycle.SENT),
            moves.fail("PROCESSING", "FAILED", name="ack_failed", stamp=lifecycle.ENDED),
            *lifecycle.answer_moves(limits),
            *lifecycle.cap_moves(SENDABLE),
            moves.expire(
                *(OPEN, "FAILED", WINDOW_S),
                since="conversion_at",
                error=EXPIRED,
                stamp=lifecycle.ENDED,
            ),
            Move(
                "give_up",
                ("WAITING",),
                "FAILED",
                by=("clock",),
                when=(unclaimed, due),
                error=EXPIRED,
                stamp=lifecycle.ENDED,
                stage="expire",
                doc="Also ends an adjustment of a sale whose time is unknown.",
            ),
            moves.requeue(
                "FAILED",
                "WAITING",
                name="RETRY_SELECTED",
                run_at=Backoff((WINDOW_S,)),
                unstamp=lifecycle.ENDED,
            ),
            lifecycle.mark_failed_move(OPEN),  # one in flight ends first: none overtakes it
            Move(
                "MARK_SENT",
                (*SENDABLE, "FAILED"),
                "COMPLETED",
                by=("operator",),
                when=(unclaimed,),
                stamp=lifecycle.SENT,
                unstamp=("failed_at",),
                doc="Uploaded by hand, from the file.",
            ),
            moves.prune("COMPLETED", days=limits.keep_completed_days),
            moves.prune("FAILED", days=limits.keep_failed_days),
        ),
        errors=lifecycle.oci_taxonomy(
            *(Code(name, Category.VALIDATION) for name in _REFUSALS), *ADJUSTMENT_CODES
        ),
        default_errors=(("MARK_FAILED", lifecycle.MANUAL_FAIL),),
    )
