import pytest

from kesin.foundation.ids import first_id_at
from tests.cli.conftest import ON_BOTH


def state_of(kesin, job):
    return kesin("jobs", "show", job, "--json").json["state"]


@ON_BOTH
def test_named_jobs_are_moved_with_a_reason(kesin, either_database, fill):
    ids = fill("task", 3)
    answer = kesin("jobs", "act", "task", "cancel", *ids[:2], "--reason", "ordered twice")
    assert (answer.code, answer.out) == (0, "moved 2, already there 0, refused 0\n")
    assert [state_of(kesin, job) for job in ids] == ["failed", "failed", "ready"]
    last = kesin("jobs", "show", ids[0], "--json").json["events"][-1]
    assert last["note"] == {"reason": "ordered twice"}
    assert last["actor"].startswith("cli:")


@pytest.fixture
def done(kesin, fill, module) -> list[str]:
    """Two jobs that are done."""
    ids = fill("task", 2)
    handler = f"{module('def work(job): pass')}:work"
    kesin("worker", "task", "--handler", handler, "--until-idle")
    return ids


def test_refused_jobs_are_counted_by_reason(kesin, done, fill):
    ready, failed = fill("task", 2)
    kesin("jobs", "act", "task", "cancel", failed)
    jobs = (done[0], failed, ready, first_id_at(1), "not-an-id")
    answer = kesin("jobs", "act", "task", "requeue", *jobs, "--json")
    assert answer.code == 0
    assert answer.json == {"moved": 1, "already": 1, "refused": {"state": 1, "unknown": 2}}
    answer = kesin("jobs", "act", "task", "requeue", *done)
    assert answer.code == 1, "the command fails if every job is refused"
    assert answer.lines == [
        "moved 0, already there 0, refused 2",
        "  2 × state: the action does not apply to the job's state",
    ]


def test_without_a_terminal_a_filter_needs_yes_and_moves_all_that_match(kesin, fill):
    fill("task", 1_001, "--tenant", "north")
    fill("task", 5)
    answer = kesin("jobs", "act", "task", "cancel", "--all-matching", text="y\n")
    assert (answer.code, answer.err) == (2, "kesin: cancel of 1,006 jobs of task needs confirmation: add --yes\n")
    nothing = kesin("jobs", "act", "task", "requeue", "--all-matching", "--state", "failed")
    assert (nothing.code, nothing.out) == (0, "moved 0, already there 0, refused 0\n")
    answer = kesin("jobs", "act", "task", "cancel", "--all-matching", "--tenant", "north", "--yes")
    assert answer.out == "moved 1001, already there 0, refused 0\n"
    assert kesin("stats", "--json").json[0]["states"]["ready"] == 5


@pytest.mark.parametrize(("typed", "moved"), [("y\n", 3), ("\x03", 0)])
def test_on_a_terminal_a_filter_asks_for_confirmation(kesin, fill, programs, typed, moved):
    fill("task", 3)
    words = ("jobs", "act", "task", "cancel", "--all-matching")
    answer = programs.on_terminal(*words, after="cancel 3 jobs of task?", type_in=typed)
    assert (answer.code == 0) == bool(moved)
    assert "Traceback" not in answer.out
    assert kesin("stats", "--json").json[0]["states"]["failed"] == moved


def test_a_dry_run_counts_and_moves_nothing(kesin, fill):
    ids = fill("task", 3)
    kesin("jobs", "act", "task", "cancel", ids[0])
    answer = kesin("jobs", "act", "task", "cancel", "--all-matching", "--dry-run", "--json")
    assert answer.json == {
        "chosen": 3,
        "states": {"ready": {"jobs": 2, "fits": True}, "failed": {"jobs": 1, "fits": False}},
    }
    shown = kesin("jobs", "act", "task", "cancel", *ids, "--dry-run")
    assert "may move" in shown.out
    assert state_of(kesin, ids[1]) == "ready"


WRONG = {
    ("cancel",): "nothing was selected: name jobs, or use --all-matching",
    ("cancel", "--state", "ready"): "filters need --all-matching",
    ("cancel", first_id_at(1), "--all-matching"): "not by both",
    ("cancel", first_id_at(1), "--state", "ready"): "not by both",
    ("cancle", first_id_at(1)): "did you mean 'cancel'?",
    ("claim", first_id_at(1)): "is not an action that an operator can take on task",
    ("cancel", first_id_at(1), "--option", "x"): "there is no option of cancel 'x'",
    ("cancel", first_id_at(1), "--error-category", "x"): "there is no error category 'X'",
}


def test_arguments_that_do_not_fit_are_a_usage_error(kesin, fill):
    fill("task", 1)
    for words, sentence in WRONG.items():
        answer = kesin("jobs", "act", "task", *words)
        assert (answer.code, sentence in answer.err) == (2, True), words


def test_an_option_of_the_action_decides_which_move_is_made(kesin, fill):
    job = fill("oci", 1)[0]
    kesin("jobs", "act", "oci", "MARK_FAILED", job, "--error-code", "BY_HAND", "--reason", "why")
    shown = kesin("jobs", "show", job, "--json").json
    assert (shown["state"], shown["error"]["code"]) == ("FAILED", "BY_HAND")
    kesin("jobs", "act", "oci", "RESET_TO_QUEUED", job, "--option", "clearErrors")
    shown = kesin("jobs", "show", job, "--json").json
    assert (shown["state"], shown["error"]) == ("QUEUED", None)


RULES = """
from dataclasses import replace
from kesin import task_lifecycle
from kesin.lifecycle.moves import prioritize

RULES = task_lifecycle()
RULES = replace(RULES, moves=(*RULES.moves, prioritize("ready")))
"""


def test_an_action_that_sets_the_priority_takes_it_as_an_option(kesin, module):
    rules = ("--lifecycle", f"{module(RULES)}:RULES")
    job = kesin("enqueue", "prior", "{}", *rules, "--json").json["id"]
    act = ("jobs", "act", "prior", "prioritize", job, *rules)
    for given in ((), ("--priority", "3")):
        answer = kesin(*act, *given)
        assert (answer.code, "priority must be -1, 0, 1 or 2" in answer.err) == (2, True)
    assert kesin(*act, "--priority", "-1").code == 0
    shown = kesin("jobs", "show", job, "--json").json
    assert (shown["priority"], shown["events"][-1]["priority"]) == (-1, -1)
    assert "priority -1" in kesin("jobs", "show", job).out
