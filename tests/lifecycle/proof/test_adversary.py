from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import Phase, example, find, given, settings
from hypothesis import strategies as st

from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.moves import claim, complete, enqueue, fail, recover, retry
from kesin.lifecycle.vocabulary import (
    STAY,
    After,
    Fixed,
    budget_left,
    budget_spent,
    code_in,
    code_not_in,
    due,
    flag_not_set,
    flag_set,
    holds_claim,
    lease_over,
    retries_left,
    returns_left,
    timer_not_over,
    timer_over,
    unclaimed,
)
from kesin.workloads.optiplan.lifecycle import OptiplanLimits, optiplan_lifecycle
from tests.lifecycle.adversary import walk
from tests.lifecycle.broken import MUTANTS, REAL, REPORTS, SMALL
from tests.lifecycle.broken import proved as prove

HURRIED = optiplan_lifecycle(OptiplanLimits(xml_timeout_s=60, ack_timeout_s=60))
FEWEST = {name: replace(small, max_returns=1) for name, small in SMALL.items()}
LONG = pytest.mark.long
ENDS = {
    "oci": {"COMPLETED", "FAILED"},
    "pdf": {"succeeded", "failed", "expired"},
    "optiplan": {"DONE", "HOLD", "FAILED"},
    "task": {"done", "failed"},
}


# People make ten times as many histories of an order.
WALKED = [(name, name != "optiplan") for name in FEWEST]


@pytest.fixture(scope="module", params=[*WALKED, pytest.param(("optiplan", True), marks=LONG)], ids=str)
def walked(request):
    """Every history of each lifecycle, and whether operators and producers act in it as well."""
    name, people = request.param
    return walk(FEWEST[name], REPORTS[name], people=people), people


# Whatever workers, crashes and clocks do


def test_the_longest_history_is_as_long_as_the_proof_says_and_every_promise_is_kept(walked):
    """No history is endless, whatever operators do; for the promises see ``History.faults``."""
    history, people = walked
    alone, name = history.without_people(), history.lifecycle.name
    assert history.longest() == prove(history.lifecycle).bound
    assert alone.states == set(history.lifecycle.state)
    assert alone.ends == ENDS[name]
    assert history.faults == {}
    reached_by_people = history.edges.keys() > alone.edges.keys()
    assert reached_by_people == (people and name != "pdf")


@pytest.mark.parametrize(
    ("name", "lifecycle", "reports"),
    [
        pytest.param("oci", REAL["oci"], [("SOME", "TRANSIENT")], id="oci", marks=LONG),
        pytest.param("pdf", REAL["pdf"], REPORTS["pdf"], id="pdf"),
        pytest.param("optiplan", HURRIED, REPORTS["optiplan"], id="optiplan", marks=LONG),
        pytest.param("task", REAL["task"], [("SOME", "TRANSIENT")], id="task"),
    ],
)
def test_the_longest_history_under_the_real_caps_is_as_long_as_the_proof_says(name, lifecycle, reports):
    assert walk(lifecycle, reports).longest() == prove(REAL[name]).bound


# What the prover calls broken is broken

# What these run into, another one does by default, in the same lifecycle and sooner.
LONG_WALKS = {
    *("a wait that re-arms its timer", "a wait that clears its timer", "a wake-up not cut by the timer"),
    *("a wait for Google without bound", "a revive that renews the budget", "a revive that waits for no timer"),
}


@pytest.mark.parametrize(
    ("name", "fault"),
    [pytest.param(n, m.meets, id=n, marks=[LONG] if n in LONG_WALKS else []) for n, m in MUTANTS.items() if m.meets],
)
def test_the_adversary_runs_into_what_the_proof_foresees(name, fault):
    mutant = MUTANTS[name]
    history = walk(mutant.change(SMALL[mutant.of]), REPORTS[mutant.of], until=fault)
    if fault == "endless":
        assert history.longest() is None
    else:
        assert getattr(history, fault.replace(" ", "_"))


# Lifecycles nobody thought of


CODES = [("KNOWN", "TRANSIENT"), ("OTHER", "PERMANENT")]
TAXONOMY = Taxonomy(
    channels=("worker",),
    rules=same_everywhere(("worker",), dict.fromkeys(Category, Verdict.FAIL)),
    moves=((Verdict.FAIL, "fail"),),
)
GIVEN_UP = Fixed("GIVEN_UP", Category.PERMANENT, "given up")
ENDED = ("finished_at",)
WORKER_GUARDS = [
    returns_left,
    retries_left(1),
    timer_not_over,
    timer_over,
    budget_left,
    flag_not_set("seen"),
    flag_set("seen"),
    code_in("KNOWN"),
    code_not_in("KNOWN"),
]
LINK_GUARDS = [budget_left, retries_left(1), code_in("KNOWN"), flag_not_set("seen")]
CLOCK_GUARDS = [timer_over, budget_spent, budget_left, flag_set("seen"), code_in("KNOWN")]


@st.composite
def lifecycles(draw):
    """A claim, an end and a clock, then whatever else the closed set allows.

    Jobs are claimed and counted in the first state and wake up in the later ones; worker moves
    lead onwards, stay, or lead back to the first.
    """
    working = ["a", "b", "c"][: draw(st.integers(1, 3))]
    marks = {name: State(name, initial=name == "a") for name in working}
    places = (*marks.values(), State("done", terminal=True, success=True), State("failed", resting=True))
    moves = [
        enqueue("a"),
        claim("a", STAY),
        complete(working[-1], "done", name="finish", error="keep", result="keep", timer="clear"),
    ]
    if draw(st.booleans()):
        moves += [fail(tuple(working), "failed", timer="clear", then="again")]
        moves += [draw(_link("again"))]
    else:
        moves += [fail(tuple(working), "failed", timer="clear")]
    if draw(st.integers(0, 9)):
        stays = draw(st.booleans())
        moves.append(recover(tuple(working), STAY if stays else "a", when=(lease_over,)))
    if draw(st.integers(0, 9)):
        moves.append(_aside("cap", ("a",), (unclaimed, budget_spent)))
    for here, there in pairwise(working):
        moves.append(
            Move(
                f"go_{there}",
                (here,),
                there,
                by=("worker",),
                when=(holds_claim,),
                timer=After(60) if draw(st.integers(0, 4)) else "keep",
                claim=draw(st.sampled_from(["keep", "drop"])),
            )
        )
    for later in working[1:]:
        cut = (timer_not_over,) if draw(st.integers(0, 4)) else ()
        if draw(st.integers(0, 4)):
            when = (due, unclaimed, *cut)
            moves.append(claim(later, STAY, name=f"wake_{later}", when=when, attempt="keep"))
        if draw(st.integers(0, 9)):
            moves.append(_aside(f"out_{later}", (later,), (unclaimed, timer_over)))
    more = draw(st.integers(0, 3))
    moves += [draw(_extra(f"extra_{number}", working)) for number in range(more)]
    return Lifecycle(
        "drawn",
        places,
        tuple(moves),
        TAXONOMY,
        max_attempts=draw(st.integers(1, 2)),
        max_returns=draw(st.integers(0, 1)),
        flags=("seen",),
    )


@st.composite
def _link(draw, name):
    """The second move of a chain: the failed job is queued again in the same transaction."""
    return Move(
        name,
        ("failed",),
        "a",
        by=("worker",),
        when=tuple(draw(_some(LINK_GUARDS))),
        retry=draw(st.sampled_from(["keep", "count"])),
        run_at="now",
        chained=True,
    )


def _aside(name, sources, when):
    return Move(
        name, sources, "failed", by=("clock",), when=when, error=GIVEN_UP, timer="clear", stamp=ENDED, stage="timeout"
    )


@st.composite
def _extra(draw, name, working):
    """One more move: of a worker, or of the clock, perhaps out of the resting state."""
    source = draw(st.sampled_from([*working, "failed"]))
    if source == "failed" or draw(st.integers(0, 2)) == 0:
        free = () if source == "failed" else (draw(st.sampled_from([unclaimed, lease_over])),)
        return Move(
            name,
            (source,),
            draw(st.sampled_from(["a", *(["failed"] if source != "failed" else [])])),
            by=("clock",),
            when=(*free, *draw(_some(CLOCK_GUARDS))),
            claim="drop",
            attempt=draw(st.sampled_from(["keep", "keep", "renew"])),
            retry=draw(st.sampled_from(["keep", "count"])),
            error=draw(st.sampled_from(["keep", "clear", GIVEN_UP])),
            timer=draw(st.sampled_from(["keep", "clear"])),
            flag=draw(st.sampled_from([(), ("seen",)])),
            run_at="now",
            stamp=ENDED,
            stage="revive",
        )
    claim = draw(st.sampled_from(["keep", "drop", "drop"]))
    attempts = ["keep", "keep", "return"] if claim == "drop" and source == "a" else ["keep"]
    later = working[working.index(source) + 1 :]
    return Move(
        name,
        (source,),
        draw(st.sampled_from([STAY, *later, "a"])),
        by=("worker",),
        when=(holds_claim, *draw(_some(WORKER_GUARDS))),
        claim=claim,
        attempt=draw(st.sampled_from(attempts)),
        retry=draw(st.sampled_from(["keep", "count"])),
        error=draw(st.sampled_from(["keep", "clear", "record"])),
        timer=draw(st.sampled_from(["keep", "keep", "clear", After(60)])),
        flag=draw(st.sampled_from([(), ("seen",)])),
        run_at="input",
    )


def _some(guards):
    return st.lists(st.sampled_from(guards), max_size=2, unique=True)


# What was found: a job that wakes up to tell now of one error, now of the other.
FICKLE = Lifecycle(
    "fickle",
    (State("a", initial=True), State("b"), State("done", terminal=True, success=True), State("failed", resting=True)),
    (
        enqueue("a"),
        claim("a", STAY),
        Move("go_b", ("a",), "b", by=("worker",), when=(holds_claim,), timer=After(60)),
        claim("b", STAY, name="wake_b", when=(due, unclaimed, timer_not_over), attempt="keep"),
        retry("b", STAY, "input", name="later", when=(holds_claim,)),
        complete("b", "done", name="finish", error="keep", result="keep", timer="clear"),
        fail(("a", "b"), "failed", timer="clear"),
        recover(("a", "b"), "a", when=(lease_over,)),
        _aside("cap", ("a",), (unclaimed, budget_spent)),
        _aside("out_b", ("b",), (unclaimed, timer_over)),
    ),
    TAXONOMY,
    max_attempts=1,
    max_returns=0,
)


@settings(max_examples=settings().max_examples // 2)
@given(lifecycle=lifecycles())
@example(FICKLE)
def test_a_drawn_lifecycle_that_is_proved_keeps_every_promise(lifecycle):
    proof = prove(lifecycle)
    if not proof:
        return
    history = walk(lifecycle, CODES)
    assert history.faults == {}
    longest = history.longest()
    assert longest is not None
    assert longest <= (proof.bound or 0)


def _waits(lifecycle):
    return any(move.claims and move.attempt == "keep" for move in lifecycle.moves)


def _breaks(rule):
    return lambda lifecycle: rule in {broken.rule for broken in prove(lifecycle).broken}


WORTH_FINDING = {
    "a proved one": lambda lifecycle: bool(prove(lifecycle)),
    "a proved one with a wake-up": lambda lifecycle: _waits(lifecycle) and bool(prove(lifecycle)),
    "a proved one with a fourth way": lambda lifecycle: (
        any(move.name.startswith("extra") and move.retry == "count" for move in lifecycle.moves)
        and bool(prove(lifecycle))
    ),
    **{f"one that breaks {rule}": _breaks(rule) for rule in ("R3", "R4", "R5")},
}


@pytest.mark.long
@pytest.mark.parametrize("what", WORTH_FINDING)
def test_among_the_drawn_lifecycles_is(what):
    unshrunk = settings(max_examples=1_000, phases=[Phase.generate], database=None)
    found = find(lifecycles(), WORTH_FINDING[what], settings=unshrunk)
    assert WORTH_FINDING[what](found)
