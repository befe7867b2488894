"""The lifecycle of an order; it keeps its claim from state to state, and drops it to wait."""

from dataclasses import dataclass, replace

from kesin.lifecycle import moves
from kesin.lifecycle.budget import MINUTE_S, Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Taxonomy, Verdict, one_channel
from kesin.lifecycle.vocabulary import (
    STAY,
    After,
    Fixed,
    code_in,
    code_not_in,
    due,
    flag_not_set,
    holds_claim,
    lease_over,
    retries_left,
    slot_free,
    timer_not_over,
    timer_over,
    unclaimed,
)

HOLD_CODES = (
    *("E_CRM_NO_MATCH", "E_TEMPLATE_INVALID", "E_PLATE_SIZE_MISSING"),
    *("E_BACKING_THICKNESS_UNKNOWN", "E_TRIM_RULE_MISSING"),
)
TRIGGER_REQUIRED = "E_OPERATOR_TRIGGER_REQUIRED"
NEVER_RETRIED = (
    *("E_TEMPLATE_INVALID", "E_CRM_NO_MATCH", "E_PLATE_SIZE_MISSING", "E_XML_INVALID"),
    *("E_CANCELLED", "E_REISSUED"),
)
# What a waiting order cannot use for now: it keeps the code while it waits, and times out with it.
BLOCKED_CODES = (*("E_DROP_DIR_UNWRITABLE", "E_EXPORT_DIR_UNWRITABLE", "E_CONFIG_UNAVAILABLE"), "E_OPTI_RUNNER_FAILED")
MAX_ATTEMPTS = Fixed("E_MAX_ATTEMPTS", Category.TRANSIENT, "all attempts were used")
START_BY_HAND = Fixed(TRIGGER_REQUIRED, Category.VALIDATION, "start OptiPlanning by hand, then approve")
CANCELLED = Fixed("E_CANCELLED", Category.PERMANENT, "cancelled by an operator")
APPROVED, REISSUED, CANCEL_REQUESTED = "manual_trigger_approved", "reissued", "cancel_requested"
BEFORE_DELIVERY = ("NEW", "PREPARED", "OPTI_IMPORTED", "OPTI_RUNNING", "OPTI_DONE", "XML_READY")


@dataclass(frozen=True, slots=True)
class OptiplanLimits:
    """The limits, backoffs and deadlines of the workload."""

    max_attempts: int = 5
    retry_count_max: int = 3
    retry_backoff_s: tuple[int, ...] = (1 * MINUTE_S, 3 * MINUTE_S, 9 * MINUTE_S)
    xml_timeout_s: int = 20 * MINUTE_S
    ack_timeout_s: int = 5 * MINUTE_S
    lease_seconds: int = 60
    keep_done_days: int = 365


def optiplan_lifecycle(limits: OptiplanLimits | None = None) -> Lifecycle:
    limits = limits or OptiplanLimits()
    return Lifecycle(
        name="optiplan",
        doc="Cutting orders: prepared, optimised one at a time, delivered to the saw.",
        max_attempts=limits.max_attempts,
        lease_seconds=limits.lease_seconds,
        flags=(APPROVED, REISSUED, CANCEL_REQUESTED),
        states=(
            State("NEW", initial=True, holds_key=True),
            State("PREPARED", holds_key=True),
            State("OPTI_IMPORTED", holds_key=True),
            State("OPTI_RUNNING", exclusive=True, holds_key=True),
            State("OPTI_DONE", holds_key=True),
            State("XML_READY", holds_key=True),
            State("DELIVERED", holds_key=True),
            State("DONE", terminal=True, success=True, holds_key=True),
            State("HOLD", resting=True, holds_key=True),
            State("FAILED", resting=True, holds_key=True),
        ),
        moves=(
            moves.enqueue("NEW"),
            *_claim_moves(),
            *_forward_moves(limits),
            *_hold_and_fail_moves(),
            *_scheduled_moves(limits),
            *_operator_moves(limits),
        ),
        errors=optiplan_errors(),
    )


def _claim_moves() -> tuple[Move, ...]:
    wait = Move(
        "wait",
        ("OPTI_IMPORTED", "OPTI_RUNNING", "XML_READY"),
        STAY,
        by=("worker",),
        when=(holds_claim,),
        claim="drop",
        error="clear",
        run_at="input",
    )
    return (
        moves.claim(("NEW", "OPTI_DONE"), STAY),
        moves.claim(
            "OPTI_IMPORTED",
            STAY,
            when=(due, unclaimed, slot_free("OPTI_RUNNING")),
            attempt="keep",
            doc="The order waits until the optimiser is free.",
        ),
        moves.claim(
            ("OPTI_RUNNING", "XML_READY"),
            STAY,
            when=(due, unclaimed, timer_not_over),
            attempt="keep",
            doc="Kesin checks for the XML or the saw's acknowledgement.",
        ),
        wait,
        replace(
            wait,
            name="block",
            action="block",
            sources=("OPTI_RUNNING", "XML_READY"),
            error="record",
            doc="The order waits for something that is currently unavailable; the error names it.",
        ),
    )


def _forward_moves(limits: OptiplanLimits) -> tuple[Move, ...]:
    def step(name: str, source: str, to: str, timer: After | None = None) -> Move:
        worker = Move(name, (source,), to, by=("worker",), when=(holds_claim,), error="clear")
        return replace(worker, timer=timer or "clear")

    return (
        step("prepare", "NEW", "PREPARED"),
        step("import", "PREPARED", "OPTI_IMPORTED"),
        step("run", "OPTI_IMPORTED", "OPTI_RUNNING", After(limits.xml_timeout_s)),
        step("collect", "OPTI_RUNNING", "OPTI_DONE"),
        step("validate", "OPTI_DONE", "XML_READY", After(limits.ack_timeout_s)),
        step("deliver", "XML_READY", "DELIVERED"),
        moves.complete("DELIVERED", "DONE", name="done", error="keep"),
        Move(
            "done",
            ("DELIVERED",),
            "DONE",
            by=("clock",),
            when=(unclaimed,),
            claim="drop",
            stamp=("finished_at",),
            stage="timeout",
            doc="The worker died after the saw's acknowledgement.",
        ),
    )


def _hold_and_fail_moves() -> tuple[Move, ...]:
    return (
        moves.fail(("NEW", "PREPARED"), "HOLD", name="hold"),
        moves.fail(
            "OPTI_IMPORTED",
            "HOLD",
            name="hold_for_operator",
            when=(holds_claim, flag_not_set(APPROVED)),
            error=START_BY_HAND,
        ),
        moves.fail(BEFORE_DELIVERY, "FAILED", timer="clear"),
        moves.release(("NEW", "PREPARED"), "NEW"),
        moves.release(
            ("OPTI_IMPORTED", "OPTI_RUNNING", "OPTI_DONE", "XML_READY", "DELIVERED"),
            STAY,
            when=(holds_claim,),
            attempt="keep",
        ),
    )


def _scheduled_moves(limits: OptiplanLimits) -> tuple[Move, ...]:
    blocked_timeout = Move(
        "blocked_timeout",
        ("OPTI_RUNNING", "XML_READY"),
        "FAILED",
        by=("clock",),
        when=(unclaimed, timer_over, code_in(*BLOCKED_CODES)),
        timer="clear",
        stamp=("finished_at",),
        stage="timeout",
        doc="The order fails with the error that blocked it.",
    )

    def timeout(name: str, source: str, code: str, message: str) -> Move:
        return replace(
            blocked_timeout,
            name=name,
            action=name,
            sources=(source,),
            when=(unclaimed, timer_over, code_not_in(*BLOCKED_CODES)),
            error=Fixed(code, Category.TRANSIENT, message),
            doc="",
        )

    return (
        moves.attempt_cap(("NEW", "OPTI_DONE"), "FAILED", error=MAX_ATTEMPTS),
        moves.recover(
            ("NEW", "PREPARED", "OPTI_IMPORTED"),
            "NEW",
            when=(lease_over,),
            doc="The worker died before it started anything, so the order starts over.",
        ),
        moves.recover(
            ("OPTI_RUNNING", "OPTI_DONE", "XML_READY", "DELIVERED"),
            STAY,
            when=(lease_over,),
            doc="The order keeps its state, so nothing is delivered twice.",
        ),
        blocked_timeout,
        timeout("xml_timeout", "OPTI_RUNNING", "E_OPTI_XML_TIMEOUT", "no XML appeared in time"),
        timeout("ack_timeout", "XML_READY", "E_OSI_ACK_TIMEOUT", "the saw did not acknowledge"),
        moves.prune("DONE", days=limits.keep_done_days),
    )


def _operator_moves(limits: OptiplanLimits) -> tuple[Move, ...]:
    approve = moves.requeue(
        "HOLD", "NEW", name="approve", when=(code_in(TRIGGER_REQUIRED),), error="clear", flag=(APPROVED,)
    )
    return (
        approve,
        replace(approve, when=(code_not_in(TRIGGER_REQUIRED),), flag=()),
        moves.requeue(
            "FAILED",
            "NEW",
            name="retry",
            when=(flag_not_set(REISSUED), code_not_in(*NEVER_RETRIED), retries_left(limits.retry_count_max)),
            retry="count",
            error="clear",
            run_at=Backoff(limits.retry_backoff_s, counts="retries"),
        ),
        moves.cancel((*BEFORE_DELIVERY, "HOLD"), "FAILED", by=("operator",), error=CANCELLED, timer="clear"),
        Move(
            "request_cancel",
            BEFORE_DELIVERY,
            STAY,
            by=("operator",),
            when=(flag_not_set(CANCEL_REQUESTED),),
            flag=(CANCEL_REQUESTED,),
            doc="The order is claimed, so its worker cancels it at the next step.",
        ),
        Move(
            "reissue",
            ("FAILED",),
            STAY,
            by=("operator",),
            when=(flag_not_set(REISSUED),),
            flag=(REISSUED,),
            error=Fixed("E_REISSUED", Category.PERMANENT, "a new revision has replaced it"),
            doc="A new revision of the same order replaces it.",
        ),
    )


def optiplan_errors() -> Taxonomy:
    """Declare the codes: some hold the order, all others fail it until an operator retries."""
    transient = (
        *(*BLOCKED_CODES, "E_MAX_ATTEMPTS", "E_OPTI_MODE_A_RUNNER_MISSING"),
        *("E_OPTI_MODE_B_MACRO_MISSING", "E_OPTI_XML_TIMEOUT", "E_OSI_ACK_FAILED"),
        "E_OSI_ACK_TIMEOUT",
    )
    return one_channel(
        "runner",
        *(Code(name, Category.VALIDATION) for name in HOLD_CODES),
        Code(TRIGGER_REQUIRED, Category.VALIDATION, Verdict.HOLD, move="hold_for_operator"),
        *(Code(name, Category.PERMANENT) for name in ("E_XML_INVALID", "E_CANCELLED", "E_REISSUED")),
        *(Code(name, Category.TRANSIENT) for name in transient),
        verdicts={Category.VALIDATION: Verdict.HOLD},
        fail="fail",
        hold="hold",
        complete="done",
    )
