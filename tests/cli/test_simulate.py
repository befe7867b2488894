"""`kesin simulate`: its output, and a broken promise with its history."""

import re
from functools import partial

from kesin.cli.commands import simulate as command
from kesin.engine.simulation import simulate
from kesin.workloads import lifecycles
from tests.engine.mutants import MUTANTS, MutantStore

INVENTED = "tests.engine.simulation.random_lifecycle:invented"


def test_a_run_prints_each_lifecycle_and_the_trace_hash(kesin):
    how = ("simulate", "task", f"{INVENTED}_3", "--seed", "3", "--steps", "20")
    answer = kesin(*how)
    assert answer.code == 0
    head, *rows, last = answer.lines
    assert head.split()[0] == "LIFECYCLE"
    assert [row.split()[0] for row in rows] == ["task", "invented_3"]
    assert all(row.split()[-1] == "yes" for row in rows)
    again = kesin(*how, "--json").json
    assert last == f"seed 3, trace hash {again['hash']}"
    assert again["holds"] is True
    assert [run["lifecycle"] for run in again["runs"]] == ["task", "invented_3"]
    assert all(run["failure"] is None and run["steps"] >= 20 for run in again["runs"])


def test_every_registered_lifecycle_is_run_by_default(kesin, monkeypatch):
    ran = []

    def only_named(lifecycle, **how):
        ran.append(lifecycle.name)
        return simulate.SimulationResult(lifecycle.name, how["seed"])

    monkeypatch.setattr(command, "simulate_lifecycle", only_named)
    assert kesin("simulate", "--steps", "7", "--seed", "2").code == 0
    assert ran == [make().name for make in lifecycles().values()]


def test_an_unknown_name_is_refused(kesin):
    answer = kesin("simulate", "tusk")
    assert answer.code == 2
    assert "task" in answer.err


def test_a_broken_promise_is_printed_with_its_seed_and_its_history(kesin, monkeypatch):
    mutant = next(mutant for mutant in MUTANTS if mutant.bug == "a finish without its fence")
    # How far a history is shortened is tested with the simulator.
    shrunk_little = partial(simulate.simulate, shrink_attempts=1, make_store=lambda: MutantStore(mutant.edits, set()))
    monkeypatch.setattr(command, "simulate_lifecycle", shrunk_little)
    answer = kesin("simulate", "task", "--seed", "54", "--steps", "100")
    assert answer.code == 1
    assert "task broke a promise at step" in answer.err
    assert "kesin simulate task --seed 54 --steps" in answer.err
    assert re.search(r"(guard|fence): #\d+ made \w+ ", answer.err)
    assert "claim → #" in answer.err
