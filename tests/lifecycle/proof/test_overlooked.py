"""Small declarations in which something is wrong that is easily overlooked."""

from dataclasses import replace

import pytest

from kesin.lifecycle import moves
from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Verdict
from kesin.lifecycle.vocabulary import (
    STAY,
    After,
    DeclarationError,
    Fixed,
    budget_left,
    budget_spent,
    category_in,
    code_in,
    due,
    holds_claim,
    lease_over,
    returns_left,
    slot_free,
    timer_not_over,
    timer_over,
    unclaimed,
)
from tests.lifecycle.adversary import walk
from tests.lifecycle.broken import CATEGORIES, REAL
from tests.lifecycle.broken import proved as prove

TASK = REAL["task"]
GIVEN_UP = Fixed("GIVEN_UP", Category.PERMANENT, "given up")
DONE = State("done", terminal=True, success=True)
FAILED = State("failed", resting=True)
TAXONOMY = replace(
    TASK.errors, moves=((Verdict.FAIL, "fail"), (Verdict.RETRY, "fail")), codes=(Code("GIVEN_UP", Category.PERMANENT),)
)


def counted(*sources, when=(budget_left,)):
    """A claim that leaves the state as it is."""
    return moves.claim(sources, STAY, when=(due, unclaimed, *when))


def wake_up(*sources, when=()):
    """A claim that leaves the state as it is and counts no attempt."""
    return moves.claim(sources, STAY, when=(due, unclaimed, *when), attempt="keep")


def worker(name, sources, to, **changes):
    return Move(name, sources, to, by=("worker",), **{"when": (holds_claim,), **changes})


def clock(name, sources, to, *when, **changes):
    return Move(name, sources, to, by=("clock",), when=when, **{"stage": "timeout", **changes})


def ends(name, sources, to="done", **changes):
    changes = {"claim": "drop", "timer": "clear", "stamp": ("finished_at",), **changes}
    return worker(name, sources, to, **changes)


def lost(*sources, to=STAY, **changes):
    return moves.recover(sources, to, **{"when": (lease_over,), **changes})


def gives_up(name, source, *when):
    return clock(name, (source,), "failed", *when, error=GIVEN_UP, stamp=("finished_at",))


def small(*declared, states, **header):
    places = tuple(
        name if isinstance(name, State) else State(name, initial=index == 0)
        for index, name in enumerate((states[0], *states[1:]))
    )
    return Lifecycle("small", (*places, DONE, FAILED), (moves.enqueue(states[0]), *declared), TAXONOMY, **header)


REFUND = Move("refund", ("failed",), "failed", by=("worker",), when=(returns_left,), attempt="return", chained=True)


def looking_again(then=""):
    """A job that waits under a timer, and whose every look takes three steps."""
    return small(
        counted("new"),
        worker("start", ("new",), "waiting", claim="drop", timer=After(60), run_at="now"),
        wake_up("waiting", when=(timer_not_over,)),
        worker("look", ("waiting",), "looking"),
        worker("check", ("looking",), "checking"),
        worker("back", ("checking",), "waiting", claim="drop", run_at="input"),
        ends("finish", ("checking",)),
        ends("fail", ("new", "waiting", "looking", "checking"), "failed", error="record", then=then),
        lost("new"),
        lost("waiting", "looking", "checking", to="waiting"),
        gives_up("time_out", "waiting", unclaimed, timer_over),
        gives_up("attempt_cap", "new", unclaimed, budget_spent),
        *((replace(REFUND, name=then, action=then),) if then else ()),
        states=("new", "waiting", "looking", "checking"),
        max_attempts=1,
    )


def test_the_bound_counts_every_step_of_a_look_that_leads_out():
    lifecycle = looking_again()
    proof = prove(lifecycle)
    longest = walk(lifecycle, CATEGORIES).longest()
    assert proof
    assert proof.bound is not None
    assert longest is not None
    assert longest <= proof.bound


OVERLOOKED = {
    "a chain whose second move only time allows": (
        "R4",
        lambda: small(
            counted("new"),
            ends("finish", ("new",)),
            worker("fail", ("new",), "limbo", claim="drop", error="record", run_at=Backoff((5,)), then="again"),
            Move("again", ("limbo",), "new", by=("worker",), when=(due, budget_left), run_at="now", chained=True),
            Move("park", ("new",), "limbo", by=("operator",), when=(unclaimed,), error=GIVEN_UP),
            gives_up("leave", "limbo", unclaimed, code_in("GIVEN_UP")),
            gives_up("leave_spent", "limbo", unclaimed, budget_spent),
            lost("new"),
            gives_up("attempt_cap", "new", unclaimed, budget_spent),
            states=("new", "limbo"),
        ),
    ),
    "a round that asks for a slot but never waits for it": (
        "R5",
        lambda: small(
            wake_up("new", when=(slot_free("slot"),)),
            worker("bounce", ("new",), "aside", claim="drop", run_at="now"),
            clock("again", ("aside",), "new", unclaimed, run_at="now"),
            worker("run", ("new",), "slot"),
            ends("finish", ("slot",)),
            ends("fail", ("new", "slot"), "failed", error="record"),
            lost("new"),
            lost("slot", to="failed", error=GIVEN_UP, stamp=("finished_at",)),
            states=("new", "aside", State("slot", exclusive=True)),
        ),
    ),
    "an attempt returned twice under one claim": (
        "R5",
        lambda: replace(
            TASK,
            moves=(
                *TASK.moves,
                worker("give_back", ("running",), STAY, when=(holds_claim, returns_left), attempt="return"),
            ),
        ),
    ),
    "an attempt returned by the second move of a chain though a wake-up never counted it": (
        "R5",
        lambda: looking_again(then="refund"),
    ),
    "a circle for a declared code reported with another category": (
        "R5",
        lambda: replace(
            TASK,
            moves=(
                *TASK.moves,
                clock(
                    "revive",
                    ("failed",),
                    "ready",
                    code_in("BUSY"),
                    category_in(Category.TRANSIENT),
                    attempt="renew",
                    run_at="now",
                    unstamp=("finished_at",),
                ),
            ),
            errors=replace(TASK.errors, codes=(*TASK.errors.codes, Code("BUSY", Category.PERMANENT))),
        ),
    ),
    "a counting claim that needs no budget": (
        "R5",
        lambda: small(
            counted("new", when=()),
            ends("finish", ("new",)),
            ends("fail", ("new",), "failed", error="record"),
            lost("new", to="failed", error=GIVEN_UP, stamp=("finished_at",)),
            Move("again", ("failed",), "new", by=("operator",), run_at="now"),
            states=("new",),
            max_attempts=1,
        ),
    ),
    "a clock that holds one slot and waits for another": (
        "R6",
        lambda: small(
            counted("new"),
            worker("left", ("new",), "left", claim="drop", run_at="now"),
            worker("right", ("new",), "right", claim="drop", run_at="now"),
            clock("cross", ("left",), "done", unclaimed, slot_free("right"), stamp=("finished_at",)),
            clock("back", ("right",), "done", unclaimed, slot_free("left"), stamp=("finished_at",)),
            ends("fail", ("new",), "failed", error="record"),
            lost("new"),
            gives_up("attempt_cap", "new", unclaimed, budget_spent),
            states=("new", State("left", exclusive=True), State("right", exclusive=True)),
        ),
    ),
}


@pytest.mark.parametrize("name", [pytest.param(n, id=n) for n in OVERLOOKED])
def test_what_is_easily_overlooked_is_refused_or_breaks_its_rule(name):
    rule, declare = OVERLOOKED[name]
    try:
        lifecycle = declare()
    except DeclarationError:
        return
    assert rule in {one.rule for one in prove(lifecycle).broken}
