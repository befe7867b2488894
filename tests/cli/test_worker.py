"""`kesin worker` in a single process: its options, its errors and how it stops."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.programs import wait_until

HANDLERS = """
import threading
from pathlib import Path

from kesin import Done

def work(job):
    return Done({"n": job.payload["n"]})

def work_together(jobs):
    with Path("batches").open("a") as file:
        file.write(f"{len(jobs)}\\n")
    return [None] * len(jobs)

def brief(job):
    threading.Event().wait(0.002)

def stubborn(job):
    Path(f"started-{job.payload['n']}").touch()
    while not Path("go").exists():
        threading.Event().wait(0.01)"""


@pytest.fixture
def own(module) -> str:
    return module(HANDLERS)


def test_until_idle_every_due_job_is_handled(kesin, either_database, fill, own, states):
    ids = fill("task", 50)
    answer = kesin("worker", "task", "--handler", f"{own}:work", "--until-idle", "--threads", "3")
    assert answer.code == 0
    assert states("task")["done"] == 50
    assert kesin("jobs", "show", ids[7], "--json").json["result"] == {"n": 7}


def test_several_queues_share_a_handler_and_serve_the_named_tenants(kesin, fill, own, monkeypatch):
    fill("mails", 6, "--lifecycle", "task", "--tenant", "west")
    for tenant in ("north", "south", "west"):
        fill("task", 2, "--tenant", tenant)
    monkeypatch.setenv("KESIN_LOG", "json")
    words = ("--until-idle", "--tenant", "north", "--tenant", "west")
    answer = kesin("worker", "task", "mails", "--handler", f"{own}:work", *words)
    lines = [json.loads(line) for line in answer.err.splitlines()]
    assert [line["event"] for line in lines] == ["worker_started", "worker_stopped"]
    assert (answer.code, answer.out, lines[1]["queues"], lines[1]["jobs"]) == (0, "", ["task", "mails"], 10)
    [mails, task] = kesin("stats", "--json").json
    done = {name: states["done"] for name, states in task["tenants"].items()}
    assert (done, mails["states"]["done"]) == ({"north": 2, "south": 0, "west": 2}, 6)


def test_a_batch_handler_gets_whole_batches(kesin, fill, own, tmp_path, states):
    fill("task", 25)
    words = ("--handler", f"{own}:work_together", "--batch-handler", "--batch", "10")
    assert kesin("worker", "task", *words, "--until-idle").code == 0
    assert (tmp_path / "batches").read_text().split() == ["10", "10", "5"]
    assert states("task")["done"] == 25


UNKNOWN = {
    "no_such_module:work": "there is no module 'no_such_module'",
    "json:dumbs": "json has no 'dumbs': did you mean 'dumps'?",
    "work": "is not of the form module:attribute",
    "os:sep": "os:sep is not a function but a str",
    "os:getpid": "the handler 'getpid' has the wrong number of parameters: write `def handler(job)`",
}


def test_an_unknown_handler_or_a_queue_named_twice_is_a_usage_error_and_creates_no_database(kesin, tmp_path):
    for handler, sentence in UNKNOWN.items():
        answer = kesin("worker", "task", "--handler", handler)
        assert (answer.code, answer.err.count("\n")) == (2, 1), handler
        assert sentence in answer.err
    assert kesin("worker", "task", "task", "--handler", "json:dumps").code == 2
    assert not (tmp_path / "data").exists()


AWAITING = """
import asyncio

running = []

async def work(job):
    running.append(job.id)
    while len(running) < 3:
        await asyncio.sleep(0.001)
"""


def test_an_async_handler_gets_as_many_jobs_at_once_as_there_are_threads(kesin, fill, module):
    own = module(AWAITING)
    fill("task", 3)
    words = ("worker", "task", "--handler", f"{own}:work", "--until-idle")
    refused = kesin(*words, "--batch", "5")
    assert refused.code == 2
    assert "--batch is for plain handlers" in refused.err
    assert kesin(*words, "--threads", "3").code == 0
    assert kesin("stats", "task", "--json").json[0]["states"]["done"] == 3


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


def check_settled(kesin, states, total):
    """Every job is done or ready, and the history agrees; the number of jobs in each state."""
    counts = states("task")
    assert counts["done"] + counts["ready"] == total
    report = kesin("audit", "verify", "--json")
    assert report.code == 0, report.out
    return counts


@pytest.mark.usefixtures("database")
def test_sigterm_loses_nothing(kesin, fill, own, programs, states):
    fill("task", 300)
    program = programs.start("worker", "task", "--handler", f"{own}:brief", "--threads", 2)
    program.hear("worker_started")
    wait_until(lambda: states("task")["done"] >= 20)
    program.signal(signal.SIGTERM)
    assert program.end() == 0
    done = check_settled(kesin, states, 300)["done"]
    assert program.hear("worker_stopped")["jobs"] == done
    assert kesin("worker", "task", "--handler", f"{own}:work", "--until-idle").code == 0
    assert states("task")["done"] == 300
    flows = kesin("audit", "export").lines
    completed = [line for line in map(json.loads, flows) if line["move"] == "complete"]
    assert len({line["job_id"] for line in completed}) == len(completed) == 300


def test_a_job_running_after_the_grace_period_is_released(kesin, fill, own, programs, states):
    job = fill("task", 1)[0]
    words = ("--handler", f"{own}:stubborn", "--grace", "0.1")
    program = programs.start("worker", "task", *words)
    wait_until(Path("started-0").exists)
    program.signal(signal.SIGTERM)
    assert program.end() == 0
    assert check_settled(kesin, states, 1)["ready"] == 1
    shown = kesin("jobs", "show", job, "--json").json
    assert (shown["attempts_left"], shown["returns"]) == (5, 1)


@pytest.mark.parametrize("words", [("--until-idle",), pytest.param((), marks=pytest.mark.long)])
def test_a_second_signal_releases_everything_at_once(kesin, own, programs, states, words):
    assert kesin("enqueue", "task", '{"n": 0}').code == 0
    program = programs.start("worker", "task", "--handler", f"{own}:stubborn", *words)
    wait_until(Path("started-0").exists)
    program.signal(signal.SIGINT)
    program.signal(signal.SIGINT)
    program.signal(signal.SIGTERM)
    assert program.end() == 0
    assert check_settled(kesin, states, 1)["ready"] == 1
