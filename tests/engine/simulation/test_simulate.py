"""The simulator: promises hold, a run is a pure function of its seed, and bugs are caught."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from io import StringIO
from itertools import product
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from kesin.engine import results
from kesin.engine.simulation.dice import Dice
from kesin.engine.simulation.schedule import FAULTS, ScheduledStep, scheduled_steps
from kesin.engine.simulation.simulate import SimulationResult, simulate
from kesin.engine.simulation.workers import Application, SimulatedWorker
from kesin.engine.simulation.world import World
from kesin.foundation.logs import silence
from kesin.lifecycle.drawing.table import page
from kesin.lifecycle.model import Job
from kesin.lifecycle.proof.rules import prove
from kesin.lifecycle.task import task_lifecycle
from kesin.store.contract import Store
from kesin.workloads import lifecycles
from tests.engine.mutants import DISARMED, MUTANTS, Edit, KeepsWhatWasRolledBack, Mutant, MutantStore
from tests.engine.simulation.random_lifecycle import random_lifecycle
from tests.store.conftest import opened

STEPS = 150
LONG_STEPS = 1_500
INVENTED_STEPS = 100
INVENTED = 2
SEED = 2026
# Bugs that a rule of the checker catches which catches another bug by default.
AGAIN = {
    "a finish that does not ask whether the job is claimed",
    "a sweep without its age",
    "a claim before its time",
    "a claim whose token is an old one",
    "a release without an end",
    "one job more than there are slots",
    "a job that runs before those it comes after",
    "a requeue that keeps the old budget",
    "a renewal beyond the longest run",
    "a claim that begins with the tenant served last",
    "a claim that ignores priorities",
    "a key held for good that is let go",
    "time that runs backwards",
}
TASK = lifecycles()["task"]


# Promises hold


# Batches, webhooks and adjustments say nothing that the others do not.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if "_" in name else name for name in lifecycles()]
)
def test_promises_hold_under_injected_faults(name: str):
    # An adjustment waits for a worker's word before its first claim: most of them expire first.
    steps = 4 * STEPS if name == "oci_adjustments" else STEPS
    run = simulate(lifecycles()[name](), seed=SEED, steps=steps)
    assert run, run.failure
    assert run.steps >= steps
    assert run.faults["died"]
    assert run.moves["claim"]


def test_random_lifecycles_are_proved_and_differ_and_their_jobs_end():
    drawn = [random_lifecycle(number) for number in range(INVENTED)]
    assert random_lifecycle(1) == drawn[1]
    assert len({lifecycle.moves for lifecycle in drawn}) == len(drawn)
    for number, lifecycle in enumerate(drawn):
        assert prove(lifecycle)
        run = simulate(lifecycle, seed=number, steps=INVENTED_STEPS)
        assert run, f"{run.failure}\n{page(lifecycle)}"


@pytest.mark.parametrize("kind", ["sqlite-memory", "postgres", "redis"])
def test_a_transaction_is_all_or_nothing_wherever_its_worker_fails(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    """At its claim, its effect, its follow-up jobs, the end of its job, the commit, or later."""

    async def complete(self: World, worker: SimulatedWorker, job: Job) -> None:
        self._complete(worker, job)

    monkeypatch.setattr(World, "_run_handler", complete)
    ended: dict[str, list[bool]] = {}
    with silence(), opened(kind, request) as store:
        for number, (fault, call) in enumerate(product(FAULTS, range(6))):
            # By an even seed, it does not begin under earlier rules, whose upgrade would be proved.
            world = World(task_lifecycle(f"task_{number}"), store, 2 * number, None, traced=False)
            del world._workers[1]  # it awaits, and its calls come in another order
            with world._process("producer", ScheduledStep("enqueue", 0)) as queue:
                job_id = queue.enqueue({}).id
            world.run_step(ScheduledStep("work", number, fault, call))
            assert world.checker.violation is None, (fault, call)
            job = store.job(job_id)
            assert job is not None
            effects = sum(note.kind == "effect" for note in store.notes(job_id))
            followed = len(world.checker.rows) > 1
            done = job.state == "done"
            assert (effects, followed, job.result is not None) == (done, done, done), (fault, call)
            ended.setdefault(fault, []).append(done)
    assert ended == {fault: [*[False] * 4, True, True] for fault in FAULTS}


# The same seed, the same history


SEEN = """
from dataclasses import replace
from kesin import prove, task_lifecycle
from kesin.engine.simulation.simulate import simulate

task = task_lifecycle()
print(simulate(task, seed=11, steps=40).hash)
print(prove(replace(task, moves=tuple(replace(move, attempt="keep") for move in task.moves))))
"""


def test_another_process_sees_the_same_history_and_counter_examples_and_another_seed_another_history():
    with redirect_stdout(StringIO()) as here:
        exec(SEEN, {})
    assert "and again:" in here.getvalue()
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    there = subprocess.run([sys.executable, "-c", SEEN], env=env, capture_output=True, text=True, check=True)
    assert there.stdout == here.getvalue()
    assert simulate(TASK(), seed=12, steps=40).hash not in there.stdout


def test_how_python_prints_a_traceback_is_no_part_of_a_history(monkeypatch):
    monkeypatch.setattr(Dice, "result", Mock(side_effect=ValueError("a handler's mistake")))
    expected = simulate(TASK(), seed=2, steps=60).hash
    printed = Mock(return_value="another version's")
    monkeypatch.setattr(results, "_traceback", printed)
    assert simulate(TASK(), seed=2, steps=60).hash == expected
    assert printed.called


def test_steps_are_drawn_before_the_simulation_starts():
    first, second = scheduled_steps("a"), scheduled_steps("a")
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]


# Bugs are caught


def steps_in(step: ScheduledStep) -> int:
    """The number of steps, including those inside."""
    return 1 + sum(map(steps_in, step.meanwhile))


def run_mutant(mutant: Mutant, shrink_attempts: int = 0) -> SimulationResult:
    """Simulate the mutant store for its stated number of steps."""
    made: set[Edit] = set()

    def store() -> Store:
        return MutantStore(mutant.edits, made)

    run = simulate(
        mutant.lifecycle(), seed=mutant.seed, steps=mutant.within, make_store=store, shrink_attempts=shrink_attempts
    )
    assert {*mutant.edits, *DISARMED} <= made, "an edit did not match any statement"
    return run


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(mutant, id=mutant.bug, marks=[pytest.mark.long] * (mutant.bug in AGAIN)) for mutant in MUTANTS],
)
def test_a_deliberate_bug_is_caught(mutant: Mutant):
    run = run_mutant(mutant)
    assert run.failure is not None, "the bug was not caught"
    assert run.failure.rule in mutant.seen_as, str(run.failure)
    assert run.failure.at_step <= mutant.within


def test_a_store_that_keeps_what_was_rolled_back_is_caught():
    run = simulate(TASK(), seed=1, steps=2_000, make_store=KeepsWhatWasRolledBack, shrink_attempts=0)
    assert run.failure is not None
    assert run.failure.rule in {"change", "lost", "note"}


def test_a_store_with_its_guard_off_and_no_bug_holds():
    """Otherwise every mutant would be caught because its guard is off."""
    run = simulate(TASK(), seed=1, steps=STEPS, make_store=lambda: MutantStore((), set()), shrink_attempts=0)
    assert run, run.failure


def test_a_failure_shrinks_to_a_history_a_person_can_read():
    mutant = next(mutant for mutant in MUTANTS if mutant.bug == "a finish without its fence")
    long, short = run_mutant(mutant), run_mutant(mutant, shrink_attempts=12)
    assert long.failure is not None
    assert short.failure is not None
    assert short.failure.rule == long.failure.rule
    assert sum(map(steps_in, short.failure.history)) <= 6
    assert len(short.failure.history) < len(long.failure.history)
    assert any("claim → #" in line for line in short.failure.trace)


# The same on the other stores (long tests)


@contextmanager
def connected(application: Application, url: str | None) -> Iterator[Any]:
    """A transaction of an application's own connection, committed at the end."""
    store: Any = application._store
    if url:
        with psycopg.connect(url, options=f"-c search_path={store.schema}") as connection:
            yield connection
    else:
        with closing(sqlite3.connect(store.path)) as own, own:
            own.execute("BEGIN IMMEDIATE")
            yield own


def simulated_on(kind: str, name: str, request: pytest.FixtureRequest, *, steps: int) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    with ExitStack() as stores, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Application, "begin", lambda self: connected(self, url))

        def store() -> Store:
            return stores.enter_context(opened(kind, request))

        lifecycle = lifecycles()[name]()
        run = simulate(lifecycle, seed=SEED, steps=steps, make_store=store, shrink_attempts=20)
    assert run, run.failure


def test_an_application_on_a_connection_of_its_own_gets_all_or_nothing(request: Any):
    simulated_on("sqlite-file", "task", request, steps=STEPS)


@pytest.mark.long
@pytest.mark.parametrize("name", lifecycles())
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_promises_hold_on_the_other_stores(kind: str, name: str, request: Any):
    simulated_on(kind, name, request, steps=LONG_STEPS)
