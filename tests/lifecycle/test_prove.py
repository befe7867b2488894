import os
import subprocess
import sys
from dataclasses import replace

import pytest

from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Verdict
from kesin.lifecycle.prove import RULES, Broken, Unproved, exclude
from kesin.lifecycle.words import (
    STAY,
    After,
    DeclarationError,
    Fixed,
    budget_left,
    budget_spent,
    category_in,
    code_in,
    code_not_in,
    due,
    flag_not_set,
    flag_set,
    holds_claim,
    lease_over,
    option,
    returns_left,
    slot_free,
    timer_not_over,
    timer_over,
    unclaimed,
)
from kesin.workloads.oci.lifecycle import Limits, oci_lifecycle
from tests.lifecycle.adversary import walk
from tests.lifecycle.broken import CATEGORIES, MUTANTS, REAL, SOUND, edit
from tests.lifecycle.broken import proved as prove

OCI, PDF, OPTIPLAN, TASK = (REAL[name] for name in ("oci", "pdf", "optiplan", "task"))
each_mutant = pytest.mark.parametrize("name", [pytest.param(n, id=n) for n in MUTANTS])


def proof_of(name):
    mutant = MUTANTS[name]
    return prove(mutant.change(SOUND[mutant.of]))


def rules(proof):
    return {one.rule for one in proof.broken}


def shown_in_order(words, lines):
    text, at = "\n".join(lines), 0
    for word in words:
        at = text.find(word, at)
        if at < 0:
            return False
        at += len(word)
    return True


# The real lifecycles


@pytest.mark.parametrize("name", REAL)
def test_a_real_lifecycle_proves(name):
    proof = prove(REAL[name])
    assert proof, str(proof)


@pytest.mark.parametrize(
    ("lifecycle", "bound"),
    [
        pytest.param(OCI, 37, id="oci"),
        pytest.param(OCI.with_limits(max_attempts=8), 46, id="oci with the cap of the API"),
        pytest.param(PDF, 16, id="pdf"),
        pytest.param(OPTIPLAN, 46, id="optiplan"),
        pytest.param(TASK, 15, id="task"),
    ],
)
def test_every_job_rests_after_this_many_moves_at_the_most(lifecycle, bound):
    assert prove(lifecycle).bound == bound


@pytest.mark.parametrize("returns", range(3))
@pytest.mark.parametrize(
    ("lifecycle", "base", "each"),
    [
        pytest.param(OCI, 33, 2, id="oci"),
        pytest.param(OCI.with_limits(max_attempts=8), 42, 2, id="oci with the cap of the API"),
        pytest.param(PDF, 10, 3, id="pdf"),
        pytest.param(OPTIPLAN, 40, 3, id="optiplan"),
        pytest.param(TASK, 11, 2, id="task"),
    ],
)
def test_each_returned_attempt_lengthens_the_bound_by_its_own_round(lifecycle, base, each, returns):
    assert prove(replace(lifecycle, max_returns=returns)).bound == base + each * returns


@pytest.mark.parametrize(("cap", "prototype"), [(5, 16), (8, 25)])
@pytest.mark.parametrize("returns", range(3))
def test_without_waits_for_google_oci_is_bound_as_the_prototype_was(cap, prototype, returns):
    unwaiting = oci_lifecycle(Limits(max_attempts_script=cap, too_recent_waits=0))
    enqueue = 1
    bound = prove(replace(unwaiting, max_returns=returns)).bound
    assert bound == enqueue + prototype + 2 * returns


@pytest.mark.parametrize("waits", range(4))
def test_each_wait_for_google_costs_a_claim_and_a_return(waits):
    few, none = (prove(oci_lifecycle(Limits(too_recent_waits=n))).bound for n in (waits, 0))
    assert few == none + 2 * waits


def test_a_revive_that_is_switched_off_shortens_the_way():
    off = prove(oci_lifecycle(Limits(revive=False)))
    assert off
    assert off.bound < prove(OCI).bound


def test_a_revive_without_budget_ends_all_the_same_for_the_cap_marks_the_row_permanent():
    assert prove(edit("revive", without=("budget_left",))(OCI))


def test_a_proof_says_what_it_found():
    assert str(prove(PDF)) == (
        f"pdf: proved over {prove(PDF).configurations} configurations; "
        "every job rests after at most 16 automatic moves"
    )


# The broken ones


@each_mutant
def test_a_broken_declaration_breaks_exactly_the_right_rules(name):
    assert rules(proof_of(name)) == MUTANTS[name].rules


@each_mutant
def test_a_broken_declaration_is_not_proved(name):
    assert not proof_of(name)


@each_mutant
def test_a_broken_declaration_is_told_with_its_reason(name):
    assert MUTANTS[name].says in str(proof_of(name))


@pytest.mark.parametrize("name", [pytest.param(n, id=n) for n, m in MUTANTS.items() if m.shows])
def test_a_counter_example_names_the_states_on_the_way(name):
    first = proof_of(name).broken[0]
    assert first.path[0].startswith("enqueue → ")
    assert shown_in_order(MUTANTS[name].shows, first.path), str(first)


@pytest.mark.parametrize("name", [n for n, m in MUTANTS.items() if "and round:" in m.shows])
def test_a_circle_ends_where_it_began(name):
    circle = next(one for one in proof_of(name).broken if one.rule == "R5")
    turn = circle.path.index("and round:")
    began, ended = (line.split(" → ")[1] for line in (circle.path[turn - 1], circle.path[-1]))
    assert began == ended


@each_mutant
def test_a_broken_rule_reads_as_a_line_and_an_indented_path(name):
    for one in proof_of(name).broken:
        head, *path = str(one).splitlines()
        assert head == f"{one.rule}: {one.why}"
        assert path == [f"    {line}" for line in one.path]
        assert all(" → " in line or line == "    and round:" for line in path)


@pytest.mark.parametrize("name", [n for n, m in MUTANTS.items() if "R5" in m.rules])
def test_a_circle_has_no_bound(name):
    assert proof_of(name).bound is None


def test_every_rule_catches_some_mutant():
    assert set().union(*(mutant.rules for mutant in MUTANTS.values())) == set(RULES)


def test_two_things_wrong_are_both_told():
    twice = edit("hold", claim="keep")(edit("wait", timer=After(60))(SOUND["optiplan"]))
    assert rules(prove(twice)) == {"R2", "R3", "R5"}


def test_a_queue_that_may_not_start_tells_every_broken_rule():
    proof = proof_of("a claim kept into HOLD")
    refusal = Unproved(proof)
    assert "the lifecycle 'optiplan' is not proved to end" in str(refusal)
    assert all(str(one) in str(refusal) for one in proof.broken)
    assert refusal.proof is proof


def test_a_rule_broken_without_a_path_is_one_line():
    assert str(Broken("R1", "no path leads to LIMBO")) == "R1: no path leads to LIMBO"


def test_the_counter_example_of_a_circle_is_a_shortest_one():
    renewing = prove(MUTANTS["a revive that renews the budget"].change(OCI)).broken[0]
    before = renewing.path[: renewing.path.index("and round:")]
    assert [line.split(" (")[0] for line in before] == [
        "enqueue → QUEUED",
        "claim → PROCESSING",
        "ack_failed → FAILED",
    ]


def test_a_counter_example_is_the_same_in_every_process():
    script = (
        "from tests.lifecycle.broken import MUTANTS, SMALL\n"
        "from kesin.lifecycle.prove import prove\n"
        "for name in ('a revive that renews the budget', 'a wait that clears its timer'):\n"
        "    print(prove(MUTANTS[name].change(SMALL[MUTANTS[name].of])))\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(told) == 1


# Guards that exclude each other


def move_when(*guards):
    return Move("move", ("ready",), "running", by=("worker",), when=guards)


EXCLUDING = [
    (budget_left, budget_spent),
    (timer_over, timer_not_over),
    (unclaimed, holds_claim),
    (unclaimed, lease_over),
    (code_in("A"), code_in("B")),
    (code_in("A"), code_not_in("A", "B")),
    (category_in(Category.AUTH), category_in(Category.TRANSIENT)),
    (flag_set("vip"), flag_not_set("vip")),
    (option("hard", is_set=True), option("hard", is_set=False)),
]
COMPATIBLE = [
    (budget_left, budget_left),
    (holds_claim, lease_over),
    (code_in("A", "B"), code_in("B", "C")),
    (code_in("A", "B"), code_not_in("A")),
    (code_not_in("A"), code_not_in("B")),
    (category_in(Category.AUTH), category_in(Category.AUTH, Category.TRANSIENT)),
    (flag_set("vip"), flag_not_set("fragile")),
    (option("hard", is_set=True), option("soft", is_set=False)),
    (due, returns_left),
]


@pytest.mark.parametrize(("one", "other"), EXCLUDING, ids=str)
def test_guards_that_contradict_each_other_keep_moves_apart(one, other):
    moves = move_when(due, one), move_when(other, due)
    assert exclude(*moves)
    assert exclude(*reversed(moves))


@pytest.mark.parametrize(("one", "other"), COMPATIBLE, ids=str)
def test_guards_that_can_hold_together_do_not(one, other):
    moves = move_when(due, one), move_when(other, due)
    assert not exclude(*moves)
    assert not exclude(*reversed(moves))


def test_alternatives_for_different_roles_may_overlap():
    assert [move.by for move in OPTIPLAN.calls["done"]] == [("worker",), ("clock",)]
    assert "R7" not in rules(prove(OPTIPLAN))


# Small declarations in which something is wrong that is easily overlooked


GIVEN_UP = Fixed("GIVEN_UP", Category.PERMANENT, "given up")
DONE = State("done", terminal=True, success=True)
FAILED = State("failed", resting=True)
TAXONOMY = replace(
    TASK.errors,
    moves=((Verdict.FAIL, "fail"), (Verdict.RETRY, "fail")),
    codes=(Code("GIVEN_UP", Category.PERMANENT),),
)


def claim(*sources, counted=True, when=()):
    """A claim that leaves the state as it is: counted, or a wake-up."""
    budget = (budget_left,) if counted else ()
    return Move(
        "claim",
        sources,
        STAY,
        by=("worker",),
        when=(due, unclaimed, *budget, *when),
        claim="take",
        attempt="count" if counted else "keep",
    )


def worker(name, sources, to, **changes):
    return Move(name, sources, to, by=("worker",), **{"when": (holds_claim,), **changes})


def clock(name, sources, to, *when, **changes):
    return Move(name, sources, to, by=("clock",), when=when, **{"stage": "timeout", **changes})


def ends(name, sources, to="done", **changes):
    changes = {"claim": "drop", "timer": "clear", "stamp": ("finished_at",), **changes}
    return worker(name, sources, to, **changes)


def lost(*sources, to=STAY, **changes):
    changes = {"claim": "drop", "run_at": "now", "stage": "recover", **changes}
    return clock("recover", sources, to, lease_over, **changes)


def gives_up(name, source, *when):
    return clock(name, (source,), "failed", *when, error=GIVEN_UP, stamp=("finished_at",))


def small(*moves, states, **header):
    enqueue = Move("enqueue", (), states[0], by=("producer",), run_at="input")
    places = tuple(
        name if isinstance(name, State) else State(name, initial=index == 0)
        for index, name in enumerate((states[0], *states[1:]))
    )
    return Lifecycle("small", (*places, DONE, FAILED), (enqueue, *moves), TAXONOMY, **header)


def looking_again(then=""):
    """A job that waits under a timer, and whose every look takes three steps."""
    return small(
        claim("new"),
        worker("start", ("new",), "waiting", claim="drop", timer=After(60), run_at="now"),
        claim("waiting", counted=False, when=(timer_not_over,)),
        worker("look", ("waiting",), "looking"),
        worker("check", ("looking",), "checking"),
        worker("back", ("checking",), "waiting", claim="drop", run_at="input"),
        ends("finish", ("checking",)),
        ends(
            "fail", ("new", "waiting", "looking", "checking"), "failed", error="record", then=then
        ),
        lost("new"),
        lost("waiting", "looking", "checking", to="waiting"),
        gives_up("time_out", "waiting", unclaimed, timer_over),
        gives_up("attempt_cap", "new", unclaimed, budget_spent),
        *(
            (
                Move(
                    then,
                    ("failed",),
                    "failed",
                    by=("worker",),
                    when=(returns_left,),
                    attempt="return",
                    chained=True,
                ),
            )
            if then
            else ()
        ),
        states=("new", "waiting", "looking", "checking"),
        max_attempts=1,
    )


def test_the_bound_counts_every_step_of_a_look_that_leads_out():
    lifecycle = looking_again()
    proof = prove(lifecycle)
    assert proof
    assert walk(lifecycle, CATEGORIES).longest() <= proof.bound


OVERLOOKED = {
    "a chain whose second move only time allows": (
        "R4",
        lambda: small(
            claim("new"),
            ends("finish", ("new",)),
            worker(
                "fail",
                ("new",),
                "limbo",
                claim="drop",
                error="record",
                run_at=Backoff((5,)),
                then="again",
            ),
            Move(
                "again",
                ("limbo",),
                "new",
                by=("worker",),
                when=(due, budget_left),
                run_at="now",
                chained=True,
            ),
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
            claim("new", counted=False, when=(slot_free("slot"),)),
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
                worker(
                    "give_back",
                    ("running",),
                    STAY,
                    when=(holds_claim, returns_left),
                    attempt="return",
                ),
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
            errors=replace(
                TASK.errors, codes=(*TASK.errors.codes, Code("BUSY", Category.PERMANENT))
            ),
        ),
    ),
    "a counting claim that needs no budget": (
        "R5",
        lambda: small(
            replace(claim("new"), when=(due, unclaimed)),
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
            claim("new"),
            worker("left", ("new",), "left", claim="drop", run_at="now"),
            worker("right", ("new",), "right", claim="drop", run_at="now"),
            clock(
                "cross", ("left",), "done", unclaimed, slot_free("right"), stamp=("finished_at",)
            ),
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
    assert rule in rules(prove(lifecycle))
