"""`kesin worker` in one process: what it takes, what it refuses, how it stops."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.programs import wait_until

HANDLERS = """
import threading
from pathlib import Path

from kesin import Done, Failed, task_lifecycle

def work(job):
    return Done({"n": job.data["n"]})

def work_together(jobs):
    with Path("batches").open("a") as file:
        file.write(f"{len(jobs)}\\n")
    return [None] * len(jobs)

def stumble(job):
    if job.attempt_count == 1:
        raise RuntimeError("a wire came loose")
    return None

def quick():
    from kesin.lifecycle.budget import Backoff
    return task_lifecycle("quick", backoff=Backoff((0,)), lease_seconds=1)

def brief(job):
    threading.Event().wait(0.002)

def stubborn(job):
    Path(f"started-{job.data['n']}").touch()
    while not Path("go").exists():
        threading.Event().wait(0.01)

number = 7
"""


@pytest.fixture
def own(module) -> str:
    return module(HANDLERS)


def test_until_idle_every_due_job_is_handled(kesin, database, fill, own, states):
    ids = fill("task", 50)
    answer = kesin("worker", "task", "--handler", f"{own}:work", "--until-idle", "--threads", "3")
    assert answer.code == 0
    assert states("task")["done"] == 50
    assert kesin("jobs", "show", ids[7], "--json").json["result"] == {"n": 7}


def test_what_it_did_is_logged_in_the_form_of_the_settings(kesin, fill, own, monkeypatch):
    fill("task", 5)
    monkeypatch.setenv("KESIN_LOG", "json")
    answer = kesin("worker", "task", "--handler", f"{own}:work", "--until-idle")
    lines = [json.loads(line) for line in answer.err.splitlines()]
    assert [line["event"] for line in lines] == ["worker_started", "worker_stopped"]
    assert (lines[1]["queues"], lines[1]["jobs"]) == (["task"], 5)
    assert answer.out == ""


def test_a_failure_is_tried_again(kesin, database, fill, own, states):
    fill("quick", 3, "--lifecycle", f"{own}:quick")
    words = ("--handler", f"{own}:stumble", "--lifecycle", f"{own}:quick", "--until-idle")
    assert kesin("worker", "quick", *words).code == 0
    assert states("quick")["done"] == 3


def test_a_failure_of_the_plain_lifecycle_waits_for_its_next_try(
    kesin, database, fill, own, states
):
    fill("task", 3)
    assert kesin("worker", "task", "--handler", f"{own}:stumble", "--until-idle").code == 0
    assert states("task")["ready"] == 3
    assert {
        job["error"]["code"] for job in kesin("jobs", "list", "task", "--json").json["jobs"]
    } == {"RuntimeError"}


@pytest.mark.usefixtures("database")
def test_a_batch_handler_takes_many_at_once(kesin, fill, own, tmp_path, states):
    fill("task", 25)
    words = ("--handler", f"{own}:work_together", "--batch-handler", "--batch", "10")
    assert kesin("worker", "task", *words, "--until-idle").code == 0
    assert (tmp_path / "batches").read_text().split() == ["10", "10", "5"]
    assert states("task")["done"] == 25


def test_several_queues_share_a_handler(kesin, fill, own, states):
    fill("task", 4)
    fill("mails", 6, "--lifecycle", "task")
    assert kesin("worker", "task", "mails", "--handler", f"{own}:work", "--until-idle").code == 0
    assert (states("task")["done"], states("mails")["done"]) == (4, 6)


def test_only_the_tenants_named_are_served(kesin, fill, own):
    for tenant in ("north", "south", "west"):
        fill("task", 2, "--tenant", tenant)
    words = ("--tenant", "north", "--tenant", "west")
    kesin("worker", "task", "--handler", f"{own}:work", "--until-idle", *words)
    tenants = kesin("stats", "task", "--json").json[0]["tenants"]
    assert {name: one["done"] for name, one in tenants.items()} == {
        "north": 2,
        "south": 0,
        "west": 2,
    }


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        ("no_such_module:work", "there is no module 'no_such_module'"),
        ("json:dumbs", "json has no 'dumbs': did you mean 'dumps'?"),
        ("work", "is no name of the form module:attribute"),
        ("os:sep", "os:sep is no function but a str"),
    ],
)
def test_a_handler_that_is_not_there_is_bad_usage_and_nothing_is_made(
    kesin, tmp_path, handler, sentence
):
    answer = kesin("worker", "task", "--handler", handler)
    assert answer.code == 2
    assert sentence in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_a_handler_whose_import_fails_is_told_in_a_sentence(kesin, module):
    answer = kesin("worker", "task", "--handler", f"{module('import no_such_thing')}:work")
    assert answer.code == 1
    assert "No module named 'no_such_thing'" in answer.err


def test_an_unproved_lifecycle_is_refused_with_the_rule_it_breaks(kesin, module):
    name = module(
        "from dataclasses import replace\n"
        "from kesin import task_lifecycle\n"
        "plain = task_lifecycle('endless')\n"
        "moves = tuple(move for move in plain.moves if move.name != 'recover')\n"
        "endless = replace(plain, moves=moves)\n"
        "def work(job): pass\n"
    )
    words = ("--handler", f"{name}:work", "--lifecycle", f"{name}:endless")
    answer = kesin("worker", "mails", *words)
    assert answer.code == 1
    assert "R3" in answer.err


def test_a_queue_named_twice_is_bad_usage(kesin, own):
    assert kesin("worker", "task", "task", "--handler", f"{own}:work").code == 2


def settled(kesin, states, total):
    """Every job is done or ready again, and the history says the same."""
    found = states("task")
    assert found["done"] + found["ready"] == total
    report = kesin("audit", "verify", "--json")
    assert report.code == 0, report.out
    return found


@pytest.mark.usefixtures("database")
def test_sigterm_loses_nothing(kesin, fill, own, programs, states):
    fill("task", 600)
    program = programs.start("worker", "task", "--handler", f"{own}:brief", "--threads", 2)
    program.hear("worker_started")
    wait_until(lambda: states("task")["done"] >= 20)
    program.signal(signal.SIGTERM)
    assert program.end() == 0
    done = settled(kesin, states, 600)["done"]
    assert program.hear("worker_stopped")["jobs"] == done
    assert kesin("worker", "task", "--handler", f"{own}:work", "--until-idle").code == 0
    assert states("task")["done"] == 600
    flows = kesin("audit", "export").lines
    completed = [line for line in map(json.loads, flows) if line["move"] == "complete"]
    assert len({line["job_id"] for line in completed}) == len(completed) == 600


def test_a_running_job_may_finish_within_the_grace_period(kesin, fill, own, programs, states):
    fill("task", 1)
    program = programs.start("worker", "task", "--handler", f"{own}:stubborn")
    wait_until(Path("started-0").exists)
    program.signal(signal.SIGTERM)
    program.hear("worker_stopping")
    Path("go").touch()
    assert program.end() == 0
    assert states("task")["done"] == 1


def test_what_does_not_finish_in_time_is_given_back(kesin, fill, own, programs, states):
    job = fill("task", 1)[0]
    words = ("--handler", f"{own}:stubborn", "--grace", "0.1")
    program = programs.start("worker", "task", *words)
    wait_until(Path("started-0").exists)
    program.signal(signal.SIGTERM)
    assert program.end() == 0
    assert settled(kesin, states, 1)["ready"] == 1
    shown = kesin("jobs", "show", job, "--json").json
    assert (shown["attempts_left"], shown["returns"]) == (5, 1)


@pytest.fixture
def stubborn(fill, own, programs):
    """Start a worker whose handler does not end."""

    def start(*words):
        fill("task", 1)
        return programs.start("worker", "task", "--handler", f"{own}:stubborn", *words)

    return start


@pytest.mark.parametrize("words", [(), ("--until-idle",)])
def test_a_second_signal_gives_everything_back_at_once(kesin, stubborn, states, words):
    program = stubborn(*words)
    wait_until(Path("started-0").exists)
    program.signal(signal.SIGINT)
    program.signal(signal.SIGINT)
    program.signal(signal.SIGTERM)
    assert program.end() == 0
    assert settled(kesin, states, 1)["ready"] == 1


def test_the_handler_is_looked_for_in_the_current_folder(kesin, fill, programs, tmp_path, states):
    fill("task", 1)
    (tmp_path / "beside.py").write_text("def work(job): pass\n")
    assert programs.run("worker", "task", "--handler", "beside:work", "--until-idle").code == 0
    assert states("task")["done"] == 1
