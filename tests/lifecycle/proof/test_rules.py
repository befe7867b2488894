"""The proofs: what is sound proves, what is broken breaks exactly its rules."""

from dataclasses import replace

import pytest

from kesin.lifecycle.declare import Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.proof.rules import RULES, BrokenRule, Unproved, are_disjoint
from kesin.lifecycle.vocabulary import (
    After,
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
    timer_not_over,
    timer_over,
    unclaimed,
)
from kesin.workloads.oci.lifecycle import OciLimits, oci_lifecycle
from tests.lifecycle.broken import MUTANTS, REAL, SOUND
from tests.lifecycle.broken import proved as prove
from tests.lifecycle.mutations import edit
from tests.tables import table

OCI, PDF, OPTIPLAN, TASK = (REAL[name] for name in ("oci", "pdf", "optiplan", "task"))


LONG = pytest.mark.long


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


@pytest.mark.parametrize(
    ("lifecycle", "base", "each", "returns"),
    [
        pytest.param(OCI, 33, 2, 2, id="oci"),
        pytest.param(OCI.with_limits(max_attempts=8), 42, 2, 0, id="oci with the cap of the API", marks=LONG),
        pytest.param(PDF, 10, 3, 0, id="pdf without returns"),
        pytest.param(PDF, 10, 3, 2, id="pdf"),
        pytest.param(OPTIPLAN, 40, 3, 2, id="optiplan"),
        pytest.param(TASK, 11, 2, 0, id="task without returns"),
        pytest.param(TASK, 11, 2, 2, id="task"),
    ],
)
def test_every_job_rests_after_this_many_moves_and_those_of_its_returned_attempts(lifecycle, base, each, returns):
    proof = prove(replace(lifecycle, max_returns=returns))
    assert proof, str(proof)
    assert proof.bound == base + each * returns


def test_without_waits_for_google_oci_is_bound_as_the_prototype_was_and_each_wait_costs_a_claim_and_a_return():
    bounds = {}
    for cap, prototype, returns in ((5, 16, 2), (8, 25, 0)):
        unwaiting = oci_lifecycle(OciLimits(max_attempts_script=cap, too_recent_waits=0))
        enqueue = 1
        bounds[cap] = prove(replace(unwaiting, max_returns=returns)).bound
        assert bounds[cap] == enqueue + prototype + 2 * returns
    none = bounds[OCI.max_attempts]
    assert none is not None
    assert prove(SOUND["oci"]).bound == none + 2
    assert prove(OCI).bound == none + 2 * OciLimits().too_recent_waits


def test_a_revive_that_is_switched_off_shortens_the_way_and_ends_without_budget_for_the_cap_marks_the_row_permanent():
    on = prove(SOUND["oci"])
    off = prove(oci_lifecycle(OciLimits(too_recent_waits=1, revive=False)))
    assert (on.bound or 0) > (off.bound or 10_000)
    assert prove(edit("revive", without=("budget_left",))(SOUND["oci"]))


def test_a_proof_says_what_it_found():
    assert str(prove(PDF)) == (
        f"pdf: proved over {prove(PDF).configurations} configurations; every job rests after at most 16 automatic moves"
    )


def test_every_process_proves_all_real_lifecycles_by_a_short_walk():
    """Measured: 16 448 configurations, two seconds."""
    assert sum(prove(lifecycle).configurations for lifecycle in REAL.values()) < 17_000


# The broken ones


@pytest.mark.parametrize("name", MUTANTS, ids=str)
def test_a_broken_declaration_breaks_exactly_the_right_rules_and_shows_how(name):
    mutant, proof = MUTANTS[name], proof_of(name)
    assert not proof
    assert rules(proof) == mutant.rules
    assert mutant.says in str(proof)
    assert "R5" not in rules(proof) or proof.bound is None
    for one in proof.broken:
        head, *path = str(one).splitlines()
        assert head == f"{one.rule}: {one.why}"
        assert path == [f"    {line}" for line in one.path]
        assert all(" → " in line or line == "    and again:" for line in path)
    first = proof.broken[0]
    if mutant.shows:
        assert first.path[0].startswith("enqueue → ")
        assert shown_in_order(mutant.shows, first.path), str(first)
    if "and again:" in mutant.shows:
        circle = next(one.path for one in proof.broken if one.rule == "R5")
        turn = circle.index("and again:")
        began, ended = (line.split(" → ")[1] for line in (circle[turn - 1], circle[-1]))
        assert began == ended, "a circle ends where it began"


def test_every_rule_catches_some_mutant():
    assert set().union(*(mutant.rules for mutant in MUTANTS.values())) == set(RULES)


def test_two_things_wrong_are_both_told():
    twice = edit("hold", claim="keep")(edit("wait", timer=After(60))(SOUND["optiplan"]))
    assert rules(prove(twice)) == {"R2", "R3", "R5"}


def test_a_queue_that_may_not_start_tells_every_broken_rule():
    proof = proof_of("a claim kept into HOLD")
    refusal = Unproved(proof)
    assert "the lifecycle 'optiplan' could not be proved to end" in str(refusal)
    assert all(str(one) in str(refusal) for one in proof.broken)
    assert refusal.proof is proof
    assert str(BrokenRule("R1", "no path leads to LIMBO")) == "R1: no path leads to LIMBO", "without a path, one line"


def test_the_counter_example_of_a_circle_is_a_shortest_one():
    renewing = proof_of("a revive that renews the budget").broken[0]
    before = renewing.path[: renewing.path.index("and again:")]
    assert [line.split(" (")[0] for line in before] == ["enqueue → QUEUED", "claim → PROCESSING", "ack_failed → FAILED"]


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


@table(("one", "other", "apart"), [(*pair, pair in EXCLUDING) for pair in (*EXCLUDING, *COMPATIBLE)])
def test_guards_that_contradict_each_other_keep_moves_apart_and_others_do_not(one, other, apart):
    moves = move_when(due, one), move_when(other, due)
    assert are_disjoint(*moves) == are_disjoint(*reversed(moves)) == apart


def test_alternatives_for_different_roles_may_overlap():
    assert [move.by for move in OPTIPLAN.actions["done"]] == [("worker",), ("clock",)]
    assert "R7" not in rules(prove(OPTIPLAN))
