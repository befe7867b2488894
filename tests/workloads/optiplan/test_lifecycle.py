"""The optiplan lifecycle as its page has it: the states, the moves, workers and the clock."""

from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from tests.lifecycle.adversary import NOW
from tests.lifecycle.table import (
    CLAIMED,
    FUTURE,
    LOST,
    MINUTE,
    NO_CLAIM,
    STALE,
    Row,
    edges_by_role,
    error,
    hold,
    rows,
    written,
)

OPTIPLAN = optiplan_lifecycle()
APPROVED = OPTIPLAN.flag_bit("manual_trigger_approved")
EARLY = ("NEW", "PREPARED", "OPTI_IMPORTED", "OPTI_RUNNING", "OPTI_DONE", "XML_READY")
LATE = ("OPTI_RUNNING", "OPTI_DONE", "XML_READY", "DELIVERED")
ERROR_INPUT = {"error_code": "E_SOME", "error_category": "TRANSIENT", "error_message": "why"}


def forward(action, source, to, timer=None):
    return Row(
        action,
        "worker",
        source,
        given={**CLAIMED, "timer_at": FUTURE},
        path=f"{action}: {source} → {to}",
        then={"timer_at": timer},
        kept=("worker", "claim_seq", "lease_until", "attempt_count"),
    )


def wake_up(source, **given):
    return Row(
        "claim",
        "worker",
        source,
        given={"attempt_count": 5, **given},
        path=f"claim: {source} → {source}",
        then={"worker": "worker-2", "claimed_at": NOW, "claim_seq": 2, "attempt_count": 5},
        kept=("timer_at",),
    )


CLAIMS = {
    **{
        f"claim of a {state} job counts the attempt and leaves the state": Row(
            "claim",
            "worker",
            state,
            path=f"claim: {state} → {state}",
            then={"attempt_count": 1, "worker": "worker-2", "claim_seq": 2},
        )
        for state in ("NEW", "OPTI_DONE")
    },
    **{
        f"claim of a {state} job needs budget": Row(
            "claim", "worker", state, given={"attempt_count": 5}, refused="budget_left"
        )
        for state in ("NEW", "OPTI_DONE")
    },
    "claim wakes an OPTI_IMPORTED job up without counting": wake_up("OPTI_IMPORTED"),
    "claim wakes an OPTI_RUNNING job up without counting": wake_up("OPTI_RUNNING", timer_at=FUTURE),
    "claim wakes an XML_READY job up without counting": wake_up("XML_READY", timer_at=FUTURE),
    **{
        f"claim no longer wakes a {state} job once its time is up": Row(
            "claim", "worker", state, given={"timer_at": NOW}, refused="timer_not_over"
        )
        for state in ("OPTI_RUNNING", "XML_READY")
    },
    **{
        f"claim waits until a {state} job is due": Row(
            "claim", "worker", state, given={"run_at": FUTURE}, refused="due"
        )
        for state in ("NEW", "OPTI_IMPORTED", "OPTI_RUNNING", "OPTI_DONE", "XML_READY")
    },
    **{
        f"claim leaves a {state} job alone": Row("claim", "worker", state, refused="state")
        for state in ("PREPARED", "DELIVERED", "DONE", "HOLD", "FAILED")
    },
    **{
        f"wait in {state} drops the claim, sets a wake-up time and keeps the timer": Row(
            "wait",
            "worker",
            state,
            given={**CLAIMED, "timer_at": FUTURE},
            change={"run_at": NOW + MINUTE},
            path=f"wait: {state} → {state}",
            then={**NO_CLAIM, "run_at": NOW + MINUTE},
            kept=("timer_at", "attempt_count", "attempt_base"),
        )
        for state in ("OPTI_IMPORTED", "OPTI_RUNNING", "XML_READY")
    },
}

FORWARD = {
    "NEW goes on to PREPARED": forward("prepare", "NEW", "PREPARED"),
    "PREPARED goes on to OPTI_IMPORTED": forward("import", "PREPARED", "OPTI_IMPORTED"),
    "OPTI_IMPORTED goes on to OPTI_RUNNING and has 20 minutes": forward(
        "run", "OPTI_IMPORTED", "OPTI_RUNNING", NOW + 20 * MINUTE
    ),
    "OPTI_RUNNING goes on to OPTI_DONE": forward("collect", "OPTI_RUNNING", "OPTI_DONE"),
    "OPTI_DONE goes on to XML_READY and has 5 minutes": forward(
        "validate", "OPTI_DONE", "XML_READY", NOW + 5 * MINUTE
    ),
    "XML_READY goes on to DELIVERED": forward("deliver", "XML_READY", "DELIVERED"),
    "done by the worker ends a DELIVERED job": Row(
        "done",
        "worker",
        "DELIVERED",
        given=CLAIMED,
        change={"result": '{"xml_file":"a.xml"}'},
        path="done: DELIVERED → DONE",
        then={**NO_CLAIM, "finished_at": NOW, "result": '{"xml_file":"a.xml"}'},
    ),
    "done by the clock ends an unclaimed DELIVERED job": Row(
        "done", "clock", "DELIVERED", path="done: DELIVERED → DONE", then={"finished_at": NOW}
    ),
    "done by the clock leaves a claimed job to its worker": Row(
        "done", "clock", "DELIVERED", given=CLAIMED, refused="unclaimed"
    ),
    **{
        f"{action} of a {source} job by a worker that lost its claim is refused": Row(
            action, "worker", source, given=CLAIMED, change={"token": STALE}, refused="holds_claim"
        )
        for action, sources in {
            "prepare": ("NEW",),
            "import": ("PREPARED",),
            "run": ("OPTI_IMPORTED",),
            "collect": ("OPTI_RUNNING",),
            "validate": ("OPTI_DONE",),
            "deliver": ("XML_READY",),
            "done": ("DELIVERED",),
            "wait": ("OPTI_IMPORTED", "OPTI_RUNNING", "XML_READY"),
            "hold": ("NEW", "PREPARED"),
            "hold_for_operator": ("OPTI_IMPORTED",),
            "fail": EARLY,
            "release": (*EARLY, "DELIVERED"),
        }.items()
        for source in sources
    },
}

ASIDE = {
    **{
        f"hold stops a {state} job with its code": Row(
            "hold",
            "worker",
            state,
            given=CLAIMED,
            change={"error_code": "E_CRM_NO_MATCH", "error_category": "VALIDATION"},
            path=f"hold: {state} → HOLD",
            then={**NO_CLAIM, "error_code": "E_CRM_NO_MATCH"},
        )
        for state in ("NEW", "PREPARED")
    },
    **{
        f"hold cannot stop a {state} job": Row(
            "hold", "worker", state, given=CLAIMED, refused="state"
        )
        for state in ("OPTI_IMPORTED", "OPTI_RUNNING", "OPTI_DONE", "XML_READY", "DELIVERED")
    },
    "hold_for_operator stops an OPTI_IMPORTED job that is not approved": Row(
        "hold_for_operator",
        "worker",
        "OPTI_IMPORTED",
        given=CLAIMED,
        path="hold_for_operator: OPTI_IMPORTED → HOLD",
        then={**NO_CLAIM, "error_code": "E_OPERATOR_TRIGGER_REQUIRED"},
    ),
    "hold_for_operator is refused once approved": Row(
        "hold_for_operator",
        "worker",
        "OPTI_IMPORTED",
        given={**CLAIMED, "flags": APPROVED},
        refused="flag_not_set",
    ),
    **{
        f"fail ends a {state} job with its error": Row(
            "fail",
            "worker",
            state,
            given={**CLAIMED, "timer_at": FUTURE},
            change=ERROR_INPUT,
            path=f"fail: {state} → FAILED",
            then={**NO_CLAIM, **error("E_SOME", "TRANSIENT", "why"), "timer_at": None},
        )
        for state in EARLY
    },
    "fail cannot undo a delivery": Row(
        "fail", "worker", "DELIVERED", given=CLAIMED, refused="state"
    ),
    **{
        f"release of a {state} job goes back to NEW and returns the attempt": Row(
            "release",
            "worker",
            state,
            given=CLAIMED,
            path=f"release: {state} → NEW",
            then={**NO_CLAIM, "attempt_base": 1, "return_count": 1, "run_at": NOW},
        )
        for state in ("NEW", "PREPARED")
    },
    **{
        f"release of a {state} job is refused once two attempts were returned": Row(
            "release",
            "worker",
            state,
            given={**CLAIMED, "return_count": 2},
            refused="returns_left",
        )
        for state in ("NEW", "PREPARED")
    },
    **{
        f"release of a {state} job only drops the claim": Row(
            "release",
            "worker",
            state,
            given={**CLAIMED, "return_count": 2, "timer_at": FUTURE},
            path=f"release: {state} → {state}",
            then=NO_CLAIM,
            kept=("attempt_count", "attempt_base", "return_count", "timer_at"),
        )
        for state in ("OPTI_IMPORTED", *LATE)
    },
}

CLOCK = {
    **{
        f"recover takes a {state} job back to NEW": Row(
            "recover",
            "clock",
            state,
            given=LOST,
            path=f"recover: {state} → NEW",
            then={**NO_CLAIM, "run_at": NOW},
            kept=("attempt_count", "attempt_base"),
        )
        for state in ("NEW", "PREPARED", "OPTI_IMPORTED")
    },
    **{
        f"recover leaves a {state} job where it is and keeps its timer": Row(
            "recover",
            "clock",
            state,
            given={**LOST, "timer_at": FUTURE},
            path=f"recover: {state} → {state}",
            then=NO_CLAIM,
            kept=("timer_at", "attempt_count", "attempt_base"),
        )
        for state in LATE
    },
    **{
        f"recover leaves a live claim in {state} alone": Row(
            "recover", "clock", state, given=CLAIMED, refused="lease_over"
        )
        for state in (*EARLY, "DELIVERED")
    },
    **{
        f"attempt_cap fails an unclaimed {state} job after five attempts": Row(
            "attempt_cap",
            "clock",
            state,
            given={"attempt_count": 5},
            path=f"attempt_cap: {state} → FAILED",
            then={"error_code": "E_MAX_ATTEMPTS"},
        )
        for state in ("NEW", "OPTI_DONE")
    },
    "attempt_cap leaves a job with budget": Row(
        "attempt_cap", "clock", "NEW", given={"attempt_count": 4}, refused="budget_spent"
    ),
    "attempt_cap lets a fifth attempt in flight live": Row(
        "attempt_cap", "clock", "NEW", given={**CLAIMED, "attempt_count": 5}, refused="unclaimed"
    ),
    **{
        f"{action} fails an unclaimed {state} job when its time is up": Row(
            action,
            "clock",
            state,
            given={"timer_at": NOW},
            path=f"{action}: {state} → FAILED",
            then={"error_code": code, "timer_at": None},
        )
        for action, state, code in (
            ("xml_timeout", "OPTI_RUNNING", "E_OPTI_XML_TIMEOUT"),
            ("ack_timeout", "XML_READY", "E_OSI_ACK_TIMEOUT"),
        )
    },
    **{
        f"{action} leaves the time that is left": Row(
            action, "clock", state, given={"timer_at": FUTURE}, refused="timer_over"
        )
        for action, state in (("xml_timeout", "OPTI_RUNNING"), ("ack_timeout", "XML_READY"))
    },
    **{
        f"{action} leaves a claimed job to its worker": Row(
            action, "clock", state, given={**CLAIMED, "timer_at": NOW}, refused="unclaimed"
        )
        for action, state in (("xml_timeout", "OPTI_RUNNING"), ("ack_timeout", "XML_READY"))
    },
}


@rows({f"optiplan {name}": row for table in (CLAIMS, FORWARD) for name, row in table.items()})
def test_the_way_forward(row):
    hold(OPTIPLAN, row)


@rows({f"optiplan {name}": row for name, row in ASIDE.items()})
def test_the_ways_aside(row):
    hold(OPTIPLAN, row)


@rows({f"optiplan {name}": row for name, row in CLOCK.items()})
def test_the_clock(row):
    hold(OPTIPLAN, row)


def test_optiplan_has_exactly_the_moves_of_its_page():
    assert edges_by_role(OPTIPLAN) == written(
        "claim | NEW, OPTI_DONE, OPTI_IMPORTED, OPTI_RUNNING, XML_READY → unchanged | worker",
        "wait | OPTI_IMPORTED, OPTI_RUNNING, XML_READY → unchanged | worker",
        "prepare | NEW → PREPARED | worker",
        "import | PREPARED → OPTI_IMPORTED | worker",
        "run | OPTI_IMPORTED → OPTI_RUNNING | worker",
        "collect | OPTI_RUNNING → OPTI_DONE | worker",
        "validate | OPTI_DONE → XML_READY | worker",
        "deliver | XML_READY → DELIVERED | worker",
        "done | DELIVERED → DONE | worker, clock",
        "hold | NEW, PREPARED → HOLD | worker",
        "hold_for_operator | OPTI_IMPORTED → HOLD | worker",
        f"fail | {', '.join(EARLY)} → FAILED | worker",
        "xml_timeout | OPTI_RUNNING → FAILED | clock",
        "ack_timeout | XML_READY → FAILED | clock",
        "recover | NEW, PREPARED, OPTI_IMPORTED → NEW | clock",
        f"recover | {', '.join(LATE)} → unchanged | clock",
        "attempt_cap | NEW, OPTI_DONE → FAILED | clock",
        "approve | HOLD → NEW | operator",
        "retry | FAILED → NEW | operator",
        f"cancel | {', '.join(EARLY)}, HOLD → FAILED | operator",
        f"request_cancel | {', '.join(EARLY)} → unchanged | operator",
        "release | NEW, PREPARED → NEW | worker",
        f"release | OPTI_IMPORTED, {', '.join(LATE)} → unchanged | worker",
        "reissue | FAILED → unchanged | operator",
    )


def test_optiplan_marks_its_states_as_its_page_does():
    marked = {
        mark: [state.name for state in OPTIPLAN.states if getattr(state, mark)]
        for mark in ("initial", "terminal", "success", "resting", "exclusive")
    }
    assert marked == {
        "initial": ["NEW"],
        "terminal": ["DONE"],
        "success": ["DONE"],
        "resting": ["HOLD", "FAILED"],
        "exclusive": ["OPTI_RUNNING"],
    }


def test_optiplan_holds_the_dedup_key_in_all_ten_states():
    assert [state.holds_key for state in OPTIPLAN.states] == [True] * 10


def test_optiplan_wakes_up_for_the_slot_only_when_it_is_free():
    slot = [
        guard
        for move in OPTIPLAN.claims
        for guard in move.when
        if guard.kind == "slot_free" and move.sources == ("OPTI_IMPORTED",)
    ]
    assert [guard.names for guard in slot] == [("OPTI_RUNNING",)]
