"""`kesin simulate`: its output, and a broken promise with its history."""

import re

from kesin.workloads import lifecycles
from tests.engine.mutants import MUTANTS, MutantStore


def test_a_run_prints_each_lifecycle_and_the_trace_hash(kesin):
    answer = kesin("simulate", "--seed", "3", "--steps", "140")
    assert answer.code == 0
    head, *rows, last = answer.lines
    assert head.split()[0] == "LIFECYCLE"
    assert [row.split()[0] for row in rows] == [*lifecycles(), "1"]
    assert all(row.split()[-1] == "yes" for row in rows)
    assert "1 invented" in rows[-1]
    again = kesin("simulate", "--seed", "3", "--steps", "140", "--json").json
    assert last == f"seed 3, trace hash {again['hash']}"
    assert again["holds"] is True
    assert len(again["runs"]) == len(rows)
    assert all(run["failure"] is None and run["steps"] >= 20 for run in again["runs"])


def test_only_named_lifecycles_are_run_and_random_ones_have_numbers(kesin):
    answer = kesin("simulate", "task", "invented_4", "--steps", "80", "--json").json
    assert [run["lifecycle"] for run in answer["runs"]] == ["task", "invented_4"]


def test_an_unknown_name_is_refused(kesin):
    answer = kesin("simulate", "tusk")
    assert answer.code == 2
    assert "task" in answer.err


def test_a_broken_promise_is_printed_with_its_seed_and_a_short_history(kesin, monkeypatch):
    mutant = next(mutant for mutant in MUTANTS if mutant.bug == "a finish without its fence")
    monkeypatch.setattr(
        "kesin.engine.simulation.simulate.SqliteStore", lambda _: MutantStore(mutant.edits, set())
    )
    answer = kesin("simulate", "task", "--seed", "1", "--steps", "1500")
    assert answer.code == 1
    assert "task broke a promise at step" in answer.err
    assert "kesin simulate task --seed 1 --steps" in answer.err
    assert re.search(r"(guard|fence): #\d+ made \w+ ", answer.err)
    assert "claim → #" in answer.err
