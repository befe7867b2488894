"""The simulator: its runs hold, are pure functions of their seed, and it catches what is wrong."""

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from kesin.engine.simulation.random_lifecycle import invent
from kesin.engine.simulation.schedule import acts
from kesin.engine.simulation.simulate import Simulated, simulate
from kesin.lifecycle.drawing.table import page
from kesin.lifecycle.proof.rules import prove
from kesin.store.contract import Store
from kesin.workloads import LIFECYCLES
from tests.engine.mutants import (
    DISARMED,
    MUTANTS,
    Edit,
    KeepsWhatWasRolledBack,
    Mutant,
    MutantStore,
)
from tests.store.conftest import opened

STEPS = 600
INVENTED_STEPS = 120
INVENTED = 10
SEED = 2026
TASK = LIFECYCLES["task"]


# What holds


@pytest.mark.parametrize("name", LIFECYCLES)
def test_the_promise_holds_under_the_adversary(name: str):
    run = simulate(LIFECYCLES[name](), seed=SEED, steps=STEPS)
    assert run, run.failure
    assert run.steps >= STEPS
    assert run.fates["died"]
    assert run.moves["claim"]


@pytest.mark.parametrize("number", range(INVENTED))
def test_what_the_prover_lets_through_comes_to_its_end(number: int):
    lifecycle = invent(number)
    run = simulate(lifecycle, seed=number, steps=INVENTED_STEPS)
    assert run, f"{run.failure}\n{page(lifecycle)}"


def test_invented_lifecycles_are_proved_and_differ():
    made = [invent(number) for number in range(INVENTED)]
    assert all(prove(one) for one in made)
    assert len({one.moves for one in made}) == len(made)
    assert invent(3) == invent(3)


# The same seed, the same history


def test_a_run_is_a_function_of_its_seed():
    first, again, other = (simulate(TASK(), seed=seed, steps=300) for seed in (5, 5, 6))
    assert first == again
    assert first.hash != other.hash


def test_another_process_sees_the_same_history():
    here = simulate(TASK(), seed=11, steps=200).hash
    program = (
        "from kesin.engine.simulation.simulate import simulate\n"
        "from kesin.workloads import LIFECYCLES\n"
        "print(simulate(LIFECYCLES['task'](), seed=11, steps=200).hash)"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    there = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert there.stdout.strip() == here


def test_acts_are_drawn_before_anything_happens():
    one, other = acts("a"), acts("a")
    assert [next(one) for _ in range(50)] == [next(other) for _ in range(50)]


# What is wrong is seen


def caught(mutant: Mutant, **how: int) -> Simulated:
    """The first of a few seeds that catches it, within the steps that are stated."""
    made: set[Edit] = set()

    def store() -> Store:
        return MutantStore(mutant.edits, made)

    run = simulate(
        mutant.lifecycle(), seed=1, steps=mutant.within, make_store=store, **{"tries": 0, **how}
    )
    assert {*mutant.edits, *DISARMED} <= made, "an edit did not find its place"
    return run


@pytest.mark.parametrize("mutant", MUTANTS, ids=[one.bug for one in MUTANTS])
def test_a_deliberate_bug_is_caught(mutant: Mutant):
    run = caught(mutant)
    assert run.failure is not None, "nobody saw it"
    assert run.failure.rule in mutant.seen_as, str(run.failure)
    assert run.failure.at_step <= mutant.within


def test_a_store_that_keeps_what_was_rolled_back_is_caught():
    run = simulate(TASK(), seed=1, steps=2_000, make_store=KeepsWhatWasRolledBack, tries=0)
    assert run.failure is not None
    assert run.failure.rule in {"change", "lost", "note"}


def test_a_store_with_its_guard_off_and_no_bug_holds():
    """Else the mutants would be caught for what they have in common."""
    run = simulate(TASK(), seed=1, steps=STEPS, make_store=lambda: MutantStore((), set()), tries=0)
    assert run, run.failure


def test_a_failure_shrinks_to_a_history_a_person_can_read():
    mutant = next(one for one in MUTANTS if one.bug == "a finish without its fence")
    long, short = caught(mutant), caught(mutant, tries=200)
    assert long.failure is not None
    assert short.failure is not None
    assert short.failure.rule == long.failure.rule
    assert sum(act.size for act in short.failure.acts) <= 6
    assert len(short.failure.acts) < len(long.failure.acts)
    assert any("claim → #1" in line for line in short.failure.trace)


# The same on the other stores: a long form


@pytest.mark.long
@pytest.mark.parametrize("name", LIFECYCLES)
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_the_promise_holds_on_the_other_stores(
    kind: str, name: str, request: pytest.FixtureRequest
):
    with ExitStack() as stores:

        def store() -> Store:
            return stores.enter_context(opened(kind, request))

        run = simulate(LIFECYCLES[name](), seed=SEED, steps=1_500, make_store=store, tries=20)
    assert run, run.failure
