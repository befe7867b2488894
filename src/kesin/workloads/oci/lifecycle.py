"""The lifecycles of a conversion, from QUEUED to COMPLETED or FAILED, and of an adjustment of one.

An adjustment waits for its conversion; then those of a conversion are sent one at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from kesin.foundation.settings import BadSettings, Settings, load_settings
from kesin.lifecycle import moves
from kesin.lifecycle.budget import DAY_S, HOUR_S, MINUTE_S, Backoff, doubling
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Rule, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.vocabulary import (
    Fixed,
    budget_left,
    budget_spent,
    category_in,
    code_not_in,
    due,
    holds_claim,
    lease_over,
    option,
    retries_left,
    timer_over,
    unclaimed,
    was_claimed,
)
from kesin.workloads.common.advice import AdviceTexts
from kesin.workloads.oci.conversions import conversion
from kesin.workloads.oci.google.classify import ADJUSTMENT_CODES, CODES, WORKER_CHANNELS

ADVICE = AdviceTexts("kesin.workloads.oci")  # the texts are in `advice.toml`
CHANNELS = ("script", *WORKER_CHANNELS)
MAX_ATTEMPTS = Fixed("MAX_ATTEMPTS", Category.PERMANENT, "MAX_ATTEMPTS_EXCEEDED")
MANUAL_FAIL = Fixed("MANUAL_FAIL", Category.PERMANENT, "MANUALLY_MARKED_FAILED")
CONSENT_DENIED = Fixed("CONSENT_DENIED", Category.VALIDATION, conversion.DENIED)
# Not VALIDATION: no correction that was read before it brings such a row back.
RETRACTED = Fixed("RETRACTED", Category.PERMANENT, conversion.RETRACTED)
DECISIONS = {CONSENT_DENIED.code: "withhold", RETRACTED.code: "retract"}  # no failures, by move
EXPIRED = Fixed("EXPIRED", Category.VALIDATION, conversion.TOO_OLD)
PAST_END = Fixed("EXPIRED", Category.VALIDATION, conversion.PAST_WINDOW)
WAITING = ("QUEUED", "RETRY")
PASSING = (Category.TRANSIENT, Category.RATE_LIMIT)
SENT = ("uploaded_at", "finished_at")
ENDED = ("failed_at", "finished_at")
LIFETIME_S = conversion.CLICK_LIFETIME_DAYS * DAY_S
SENDING = (
    State("RETRY", holds_key=True),
    State("PROCESSING", holds_key=True),
    State("COMPLETED", terminal=True, success=True, holds_key=True),
    State("FAILED", resting=True, holds_key=True),
)
BACKOFF = doubling(300, DAY_S, jitter_s=60)


@dataclass(frozen=True, slots=True)
class OciLimits:
    """The attempt caps, pauses and retention times of the workload."""

    max_attempts_script: int = 5
    max_attempts_api: int = 8
    too_recent_waits: int = 8  # without an attempt, for a quota too
    too_recent_pause_s: int = 6 * HOUR_S
    lease_seconds: int = 15 * MINUTE_S
    revive: bool = True
    keep_completed_days: int = 90
    keep_failed_days: int = 365
    backoff: Backoff = BACKOFF

    def max_attempts(self, channel: str) -> int:
        """The attempt cap for rows of a site on this channel."""
        return self.max_attempts_script if channel == "script" else self.max_attempts_api


def limits_of(settings: Settings) -> OciLimits:
    return OciLimits(
        max_attempts_script=settings.oci_max_attempts_script,
        max_attempts_api=settings.oci_max_attempts_api,
        revive=settings.oci_revive,
    )


def with_settings(build: Callable[[OciLimits], Lifecycle]) -> Lifecycle:
    """The lifecycle with the limits of the settings; bad settings are reported elsewhere."""
    try:
        return build(limits_of(load_settings()))
    except BadSettings:
        return build(OciLimits())


def oci_lifecycle(limits: OciLimits | None = None) -> Lifecycle:
    limits = limits or OciLimits()
    return Lifecycle(
        name="oci",
        doc="Offline conversions: queued, claimed by a script or Kesin's worker, acknowledged.",
        max_attempts=limits.max_attempts_script,
        lease_seconds=limits.lease_seconds,
        stamps=("conversion_at", "uploaded_at", "failed_at", "expires_at"),
        states=(State("QUEUED", initial=True, holds_key=True), *SENDING),
        moves=(*_worker_moves(limits), *_scheduled_moves(limits), *_operator_moves()),
        errors=oci_taxonomy(
            Code(EXPIRED.code, EXPIRED.category),
            *(Code(it.code, it.category, decision=True) for it in (CONSENT_DENIED, RETRACTED)),
            *CODES,
        ),
        default_errors=(("MARK_FAILED", MANUAL_FAIL),),
    )


def reject_move(sources: tuple[str, ...]) -> Move:
    """A worker finds a row unsendable before the claim."""
    doc = "Found invalid before the claim; no attempt is counted."
    return moves.fail(sources, "FAILED", name="reject", when=(unclaimed,), claim="keep", stamp=ENDED, doc=doc)


def mark_failed_move(sources: tuple[str, ...]) -> Move:
    """An operator ends a row."""
    return moves.fail(sources, "FAILED", name="MARK_FAILED", by=("operator",), when=(), timer="clear", stamp=ENDED)


def answer_moves(limits: OciLimits) -> tuple[Move, ...]:
    """What follows for a row that our worker has sent, or could not send."""
    too_recent = moves.retry(
        "PROCESSING",
        "RETRY",
        Backoff((limits.too_recent_pause_s,)),
        name="too_recent",
        when=(holds_claim, retries_left(limits.too_recent_waits)),
        attempt="return",
        retry="count",
        doc="Google does not know about the click yet.",
    )
    return (
        moves.complete(
            "PROCESSING",
            "COMPLETED",
            name="ack_duplicate",
            error="record",
            stamp=SENT,
            doc="Google has the row, or already had it; its error code is kept.",
        ),
        moves.retry("PROCESSING", "RETRY", limits.backoff, name="retry_later", when=(holds_claim,)),
        moves.release("PROCESSING", "RETRY"),
        too_recent,
        replace(
            too_recent,
            name="quota_wait",
            action="quota_wait",
            run_at=replace(limits.backoff, counts="retries"),
            doc="Google's quota was used up, so no attempt is counted.",
        ),
    )


def cap_moves(sources: tuple[str, ...]) -> tuple[Move, ...]:
    """What the clock does with claims that are over and budgets that are spent."""
    return (
        moves.attempt_cap(sources, "FAILED", error=MAX_ATTEMPTS, stamp=ENDED),
        moves.attempt_cap(
            "PROCESSING",
            "FAILED",
            when=(lease_over, budget_spent),
            claim="drop",
            error=MAX_ATTEMPTS,
            stamp=ENDED,
            doc="Only after the lease has expired: until then, the last attempt can still finish.",
        ),
        moves.recover("PROCESSING", "RETRY"),
        moves.recover_spent("PROCESSING", "FAILED", error=MAX_ATTEMPTS, stamp=ENDED),
    )


def _worker_moves(limits: OciLimits) -> tuple[Move, ...]:
    reject = reject_move(WAITING)
    refused = "Consent was denied: the row is stored and never sent."
    retracted = "The sale was retracted before the row was sent, so the row will never be sent."
    how: dict[str, Any] = {"by": ("producer",), "timer": "clear", "payload": "replace"}
    how["sources"] = (*WAITING, "FAILED")
    return (
        moves.enqueue("QUEUED", stamp_input=conversion.STAMPS),
        moves.claim(WAITING, "PROCESSING"),
        reject,
        replace(reject, name="withhold", action="withhold", error=CONSENT_DENIED, doc=refused),
        replace(reject, name="retract", action="retract", error=RETRACTED, doc=retracted, **how),
        moves.complete("PROCESSING", "COMPLETED", name="ack", when=(), timer="clear", stamp=SENT),
        moves.complete(
            ("RETRY", "QUEUED", "FAILED"),
            "COMPLETED",
            name="late_ack",
            action="ack",
            when=(was_claimed,),
            claim="keep",
            timer="clear",
            stamp=SENT,
            unstamp=("failed_at",),
            doc="No acknowledgement is ever lost.",
        ),
        moves.fail(
            "PROCESSING",
            "FAILED",
            name="ack_failed",
            when=(budget_left,),
            timer=limits.backoff,
            timer_for=PASSING,
            stamp=ENDED,
            doc="The timer retries temporary failures; other failed rows have no timer.",
        ),
        moves.fail("PROCESSING", "FAILED", name="ack_failed", when=(budget_spent,), stamp=ENDED),
        moves.fail(
            "PROCESSING",
            "FAILED",
            name="attempt_cap",
            action="cap_in_flight",
            error=MAX_ATTEMPTS,
            stamp=ENDED,
            doc="A limit set by the caller also ends running attempts; a late acknowledgement still counts.",
        ),
        *answer_moves(limits),
    )


def _scheduled_moves(limits: OciLimits) -> tuple[Move, ...]:
    revive = Move(
        "revive",
        ("FAILED",),
        "RETRY",
        by=("clock",),
        when=(category_in(*PASSING), budget_left, timer_over),
        timer="clear",
        run_at="now",
        unstamp=ENDED,
        stage="revive",
    )
    return (
        *cap_moves(WAITING),
        moves.expire(WAITING, "FAILED", LIFETIME_S, since="conversion_at", error=EXPIRED, stamp=ENDED),
        moves.expire(*(WAITING, "FAILED", 0), since="expires_at", action="end", error=PAST_END, stamp=ENDED),
        *((revive,) if limits.revive else ()),
        moves.prune("COMPLETED", days=limits.keep_completed_days),
        moves.prune("FAILED", days=limits.keep_failed_days),
    )


def _operator_moves() -> tuple[Move, ...]:
    undecided = code_not_in(*DECISIONS)  # no operator sends what a person decided not to send
    reset = moves.requeue(
        ("QUEUED", "RETRY", "PROCESSING", "FAILED"),
        "QUEUED",
        name="RESET_TO_QUEUED",
        when=(undecided, option("clearErrors", is_set=False)),
        claim="drop",
        timer="clear",
        unstamp=ENDED,
    )
    correct = moves.requeue(
        "FAILED",
        "QUEUED",
        name="correct",
        by=("producer", "operator"),
        when=(category_in(Category.VALIDATION),),
        error="clear",
        timer="clear",
        payload="replace",
        run_at="input",
        stamp_input=conversion.STAMPS,
        unstamp=ENDED,
        doc="Same externalId, corrected data; the old payload stays in the event that stored it.",
    )
    return (
        moves.requeue(
            ("FAILED", "RETRY"), "QUEUED", name="RETRY_SELECTED", when=(undecided,), timer="clear", unstamp=ENDED
        ),
        reset,
        replace(reset, when=(undecided, option("clearErrors", is_set=True)), error="clear"),
        mark_failed_move(("PROCESSING", "QUEUED", "RETRY")),
        correct,
        replace(
            correct,
            sources=("QUEUED",),
            by=("producer",),
            when=(),
            doc="Corrected data for a row that has not been claimed with its current data.",
        ),
    )


def oci_taxonomy(*codes: Code) -> Taxonomy:
    """The verdicts per channel: a script only reports failures, our worker retries by itself."""
    script_verdicts = dict.fromkeys(Category, Verdict.FAIL)
    worker_verdicts = script_verdicts | dict.fromkeys(PASSING, Verdict.RETRY)
    rules: tuple[Rule, ...] = (
        *same_everywhere(("script",), script_verdicts),
        *same_everywhere(WORKER_CHANNELS, worker_verdicts),
    )
    return Taxonomy(
        channels=CHANNELS,
        rules=rules,
        moves=(
            (Verdict.FAIL, "ack_failed"),
            (Verdict.RETRY, "retry_later"),
            (Verdict.COMPLETE, "ack"),
            (Verdict.WAIT, "too_recent"),
        ),
        codes=(
            Code("MAX_ATTEMPTS", Category.PERMANENT),
            Code("MANUAL_FAIL", Category.PERMANENT),
            Code("VALIDATION_FAILED", Category.VALIDATION),
            Code("UPLOAD_EXCEPTION", Category.TRANSIENT),
            *codes,
        ),
    )


QUEUE: Final = "oci_adjustments"
WINDOW_S: Final = 54 * DAY_S  # later, Google adjusts no conversion
TOO_LATE: Final = "the sale is older than 54 days, and Google will no longer adjust it: correct your own figures"
CONVERSION_EXPIRED: Final = Fixed("CONVERSION_EXPIRED", Category.VALIDATION, TOO_LATE)
SENDABLE: Final = ("READY", "RETRY")
OPEN: Final = ("WAITING", *SENDABLE)
UNFINISHED: Final = (*OPEN, "PROCESSING")
_REFUSALS: Final = (  # our own codes: Google was not asked
    *("ALREADY_RETRACTED", "CONSENT_DENIED", "UNKNOWN_CONVERSION", "WBRAID_NOT_ADJUSTABLE"),
    "RETRACT_NOT_POSSIBLE",
)


def adjustment_lifecycle(limits: OciLimits | None = None) -> Lifecycle:
    limits = limits or OciLimits()
    return Lifecycle(
        name=QUEUE,
        doc="Adjustments: each waits for its conversion, then for any earlier adjustments to it.",
        max_attempts=limits.max_attempts_script,
        lease_seconds=limits.lease_seconds,
        stamps=("conversion_at", "uploaded_at", "failed_at"),
        states=(State("WAITING", initial=True, holds_key=True), State("READY", holds_key=True), *SENDING),
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
            reject_move(OPEN),
            moves.complete("PROCESSING", "COMPLETED", name="ack", when=(), stamp=SENT),
            moves.fail("PROCESSING", "FAILED", name="ack_failed", stamp=ENDED),
            *answer_moves(limits),
            *cap_moves(SENDABLE),
            moves.expire(*(OPEN, "FAILED", WINDOW_S), since="conversion_at", error=CONVERSION_EXPIRED, stamp=ENDED),
            Move(
                "give_up",
                ("WAITING",),
                "FAILED",
                by=("clock",),
                when=(unclaimed, due),
                error=CONVERSION_EXPIRED,
                stamp=ENDED,
                stage="expire",
                doc="Also ends an adjustment of a sale whose time is unknown.",
            ),
            moves.requeue("FAILED", "WAITING", name="RETRY_SELECTED", run_at=Backoff((WINDOW_S,)), unstamp=ENDED),
            mark_failed_move(OPEN),  # one in flight ends first: none overtakes it
            Move(
                "MARK_SENT",
                (*SENDABLE, "FAILED"),
                "COMPLETED",
                by=("operator",),
                when=(unclaimed,),
                stamp=SENT,
                unstamp=("failed_at",),
                doc="Uploaded by hand, from the file.",
            ),
            moves.prune("COMPLETED", days=limits.keep_completed_days),
            moves.prune("FAILED", days=limits.keep_failed_days),
        ),
        errors=oci_taxonomy(*(Code(name, Category.VALIDATION) for name in _REFUSALS), *ADJUSTMENT_CODES),
        default_errors=(("MARK_FAILED", MANUAL_FAIL),),
    )
