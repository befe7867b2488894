import importlib
from contextlib import closing

import pytest

from kesin import Queue, open_store
from kesin.lifecycle.drawing.table import mermaid, page, svg
from kesin.lifecycle.proof.rules import prove
from kesin.lifecycle.task import task_lifecycle
from kesin.workloads import lifecycles

OWN = """
from kesin import task_lifecycle
from kesin.lifecycle.declare import Move, State
from dataclasses import replace
from functools import wraps

mine = task_lifecycle("mine", max_attempts=2)

def made():
    return task_lifecycle("made")

def needs(argument):
    return mine

def slips():
    return "1" + 1

@wraps(needs)
def given():
    return needs(7)

number = 7
aside = replace(
    mine,
    states=(*mine.states, State("aside", resting=True)),
    moves=(
        *mine.moves,
        Move("put_aside", ("ready",), "aside", by=("operator",), stamp=("finished_at",)),
        Move(
            *("take_back", ("aside",), "ready"),
            by=("operator",), run_at="now", unstamp=("finished_at",),
        ),
    ),
)
flagged = replace(mine, flags=("new", "old"))
reordered = replace(mine, flags=("old", "new"))
without_recovery = replace(
    mine, name="endless", moves=tuple(move for move in mine.moves if move.name != "recover")
)
"""


def test_the_list_names_every_registered_lifecycle(kesin):
    records = kesin("lifecycle", "list", "--json").json
    assert [record["name"] for record in records] == list(lifecycles())
    assert [line.split()[0] for line in kesin("lifecycle", "list").lines[1:]] == list(lifecycles())


def test_show_prints_tables_and_diagram_and_writes_the_page_and_the_svg(kesin, tmp_path):
    answer = kesin("lifecycle", "show", "task")
    assert answer.code == 0
    assert "claim taken, attempt counted" in answer.out
    diagram, picture = mermaid(task_lifecycle()), svg(task_lifecycle())
    assert diagram in answer.out
    assert kesin("lifecycle", "show", "task", "--mermaid").out == diagram
    assert kesin("lifecycle", "show", "task", "--svg").out == picture
    assert kesin("lifecycle", "show", "task", "--svg", "own.svg").out == "wrote own.svg\n"
    assert (tmp_path / "own.svg").read_text() == picture
    kesin("lifecycle", "show", "task", "--write", "docs/pages")
    assert (tmp_path / "docs" / "pages" / "task.md").read_text() == page(task_lifecycle())
    assert (tmp_path / "docs" / "pages" / "task.svg").read_text() == picture


def test_json_has_states_with_marks_and_moves_with_guards_and_its_action_under_the_old_key_too(kesin):
    shown = kesin("lifecycle", "show", "task", "--json").json
    assert shown["states"][0] == {"name": "ready", "marks": ["initial", "working", "holds key"]}
    claim = next(move for move in shown["moves"] if move["move"] == "claim")
    assert claim["when"] == ["due", "unclaimed", "budget_left"]
    assert (claim["from"], claim["to"], claim["by"]) == (["ready"], "running", ["worker"])
    assert all(move["call"] == move["action"] for move in shown["moves"])


def test_options_that_exclude_each_other_and_an_unknown_name_are_refused(kesin):
    for words in (("--svg", "--mermaid"), ("--json", "--svg"), ("a-file",), ("--write", "x", "--json")):
        assert kesin("lifecycle", "show", "task", *words).code == 2, words
    answer = kesin("lifecycle", "show", "tasc")
    assert answer.code == 2
    assert "there is no lifecycle 'tasc': did you mean 'task'?" in answer.err


def test_all_registered_lifecycles_are_proved_by_default_and_shown_with_bound_and_configurations(kesin):
    answer = kesin("lifecycle", "prove", "--json")
    assert answer.code == 0
    assert [proof["lifecycle"] for proof in answer.json] == list(lifecycles())
    assert all(proof["bound"] and not proof["broken"] for proof in answer.json)
    proof = prove(task_lifecycle())
    line = kesin("lifecycle", "prove", "task").lines[1]
    assert line.split() == ["task", "proved", str(proof.configurations), str(proof.bound)]


def test_a_custom_lifecycle_may_be_an_object_or_a_function(kesin, module):
    name = module(OWN)
    answer = kesin("lifecycle", "prove", f"{name}:mine", f"{name}:made", "--json")
    assert [proof["lifecycle"] for proof in answer.json] == ["mine", "made"]
    assert kesin("lifecycle", "show", f"{name}:given").code == 0  # a wrapped function
    with pytest.raises(TypeError, match="can only concatenate str"):
        kesin("lifecycle", "prove", f"{name}:slips")


def test_a_broken_lifecycle_fails_with_a_counterexample(kesin, module):
    name = module(OWN)
    answer = kesin("lifecycle", "prove", "task", f"{name}:without_recovery")
    assert answer.code == 1
    assert "BROKEN" in answer.out
    assert "R3: if a worker dies in running, its job is never recovered" in answer.out
    broken = kesin("lifecycle", "prove", f"{name}:without_recovery", "--json")
    assert broken.code == 1
    assert broken.json[0]["broken"][0]["rule"] == "R3"
    assert broken.json[0]["broken"][0]["path"]


WRONG = {
    "number": "must be or return a lifecycle, not a int",
    "needs": "cannot be called without arguments",
    "mime": "has no 'mime': did you mean 'mine'?",
}


def test_an_attribute_that_is_no_lifecycle_is_a_usage_error(kesin, module):
    name = module(OWN)
    for attribute, sentence in WRONG.items():
        answer = kesin("lifecycle", "prove", f"{name}:{attribute}")
        assert (answer.code, sentence in answer.err) == (2, True), attribute


BAD_MODULES = {
    "import no_such_thing": "No module named 'no_such_thing'",
    "1 / 0": "ZeroDivisionError",
    "def": "SyntaxError",
    "raise SystemExit(3)": "SystemExit",
    "from kesin import task_lifecycle\ndef x(): return task_lifecycle('bad', max_attempts=0)": "max_attempts",
}


def test_a_module_that_cannot_be_imported_or_contradicts_itself_is_a_one_line_error(kesin, module):
    for text, why in BAD_MODULES.items():
        answer = kesin("lifecycle", "prove", f"{module(text)}:x")
        assert (answer.code, answer.err.count("\n")) == (1, 1), text
        assert why in answer.err


# Rules that stored jobs do not fit


@pytest.mark.parametrize(
    "case", [("aside", "mine", "U2", "the state aside is gone"), ("flagged", "reordered", "U1", "flag")]
)
def test_check_refuses_rules_that_do_not_fit_those_of_a_file(kesin, module, tmp_path, case):
    before, after, rule, why = case
    name, file = module(OWN), tmp_path / "rules.json"
    against = ("--against", file)
    assert kesin("lifecycle", "check", f"{name}:{before}", *against, "--update").code == 0
    kept = file.read_text()
    answer = kesin("lifecycle", "check", f"{name}:{after}", *against, "--update")
    assert answer.code == 1
    assert answer.lines[0] == "mine: the stored jobs do not fit these rules:"
    assert answer.lines[1].startswith(f"{rule}: ")
    assert why in answer.lines[1]
    assert file.read_text() == kept, "rules that do not pass are not written"
    record = kesin("lifecycle", "check", f"{name}:{after}", *against, "--json")
    assert (record.code, record.json["proved"]) == (1, False)
    assert {broken["rule"] for broken in record.json["broken"]} == {rule}


def test_check_counts_the_jobs_of_the_store_that_the_rules_would_strand(kesin, module, database, tmp_path):
    name = module(OWN)
    rules = importlib.import_module(name).aside
    with closing(open_store(tmp_path / "data" / "kesin.db")) as store:
        queue = Queue("mine", rules, store)
        ids = [queue.enqueue({}).id for _ in range(3)]
        assert queue.act("put_aside", ids=ids[:2], actor="ada").moved == 2
    assert kesin("lifecycle", "check", f"{name}:aside").code == 0
    answer = kesin("lifecycle", "check", f"{name}:mine")
    assert answer.code == 1
    assert answer.lines[1].startswith("U2: the state aside is gone (it holds 2 jobs)")
