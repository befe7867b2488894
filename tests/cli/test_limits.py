"""What the command line says of slots, rates, jobs after others, and progress."""

import json

import pytest

from kesin.cli.support.context import find_lifecycle
from kesin.engine.queue import Queue
from kesin.foundation.settings import load_settings
from kesin.lifecycle.task import task_lifecycle
from kesin.store.open import open_store

RULES = """
from kesin import task_lifecycle

def steps():
    return task_lifecycle("steps", parents=True)

def per_queue():
    return task_lifecycle("mails", concurrency=3)

def per_tenant():
    return task_lifecycle("mails", concurrency=3, per="tenant", rate=(100, 60))

def both():
    return task_lifecycle("mails", concurrency=3, rate=(100, 60))

def slots_each():
    return task_lifecycle("mails", concurrency=3, per="tenant")

def two_a_day():
    return task_lifecycle("mails", rate=(2, 86_400))

def rated():
    return task_lifecycle("mails", rate=(100, 60))
"""
NO_JOB = "00000000-0000-7000-8000-000000000000"
STAY = "each stay ends within 1 d (the longest run) + 1 min (a lease) + 1 min (a sweep)"
STARTS = "starts after at most"
IN_QUEUE = f"the k-th waiting job of the queue {STARTS} ⌈k/3⌉ stays in running; {STAY}"
OF_TENANT = f"the k-th waiting job of a tenant {STARTS}"
IN_RATE = f"{OF_TENANT} ⌈k/100⌉ times 60 s"
IN_TENANT = f"{OF_TENANT} ⌈k/3⌉ stays in running and ⌈k/100⌉ times 60 s; {STAY}"


@pytest.fixture
def rules(module):
    return module(RULES)


@pytest.fixture
def enqueue(kesin, rules, either_database):
    """Enqueue a job into the queue steps; its id."""

    def run(payload, *words):
        name = ("steps", payload, "--lifecycle", f"{rules}:steps", "--json")
        answer = kesin("enqueue", *name, *words)
        assert answer.code == 0, answer.err
        return answer.json["id"]

    return run


# Jobs after others


def test_a_job_is_enqueued_after_others_and_shown_with_them(kesin, enqueue, rules):
    first, second = enqueue("1"), enqueue("2")
    child = enqueue("3", "--after", first, "--after", second)
    shown = kesin("jobs", "show", child, "--json").json
    assert shown["state"] == "blocked"
    assert shown["parents"] == [{"id": job_id, "queue": "steps", "state": "ready"} for job_id in (first, second)]
    assert (shown["children"], shown["more_children"]) == ([], False)
    [below] = kesin("jobs", "show", first, "--json").json["children"]
    assert below == {"id": child, "queue": "steps", "state": "blocked"}
    text = kesin("jobs", "show", child).out
    assert "blocked (waiting for other jobs)" in text
    assert "depends on" in text
    assert first in text
    assert "needed by" not in text
    assert "needed by" in kesin("jobs", "show", first).out
    answer = kesin(
        *("enqueue", "steps", "-", "--lifecycle", f"{rules}:steps", "--after", second, "--json"), text="1\n2\n"
    )
    lines = {json.loads(line)["id"] for line in answer.lines}
    assert {below["id"] for below in kesin("jobs", "show", second, "--json").json["children"]} == {child, *lines}


def test_a_job_after_one_that_is_not_there_is_refused(kesin, either_database, rules):
    answer = kesin("enqueue", "steps", "1", "--lifecycle", f"{rules}:steps", "--after", NO_JOB)
    assert answer.code == 2
    assert f"after names a job that is not in this store: {NO_JOB}" in answer.err


def test_the_result_of_a_parent_is_shown_in_short(kesin, enqueue, module, rules):
    name = module("from kesin import Done\n\ndef work(job):\n    return Done({'rows': 48211})\n")
    first = enqueue("1")
    words = ("--handler", f"{name}:work", "--lifecycle", f"{rules}:steps", "--until-idle")
    assert kesin("worker", "steps", *words).code == 0
    text = kesin("jobs", "show", enqueue("2", "--after", first)).out
    assert '{"rows":48211}' in text.replace(" ", "")


# Progress


def test_progress_is_shown_while_the_job_runs(kesin, fill):
    [job_id] = fill("task", 1)
    assert kesin("jobs", "show", job_id, "--json").json["progress"] is None
    assert "progress" not in kesin("jobs", "show", job_id).out
    assert "SLOTS" not in kesin("stats").lines[0]
    store = open_store(load_settings().database, migrate=False)
    queue = Queue("task", task_lifecycle(), store)
    [job] = queue.claim("one")
    store.report_progress("task", (job.id, job.token), 0.4, "page 12")
    store.close()
    said = kesin("jobs", "show", job_id, "--json").json["progress"]
    assert (said["fraction"], said["message"]) == (0.4, "page 12")
    assert "40%, page 12, at " in kesin("jobs", "show", job_id).out


# Slots in use


def claimed(kesin, rules, name, tenants):
    """Claim all that may be, of a job for each of these tenants; what `kesin stats` says then."""
    for tenant in tenants:
        words = ("--lifecycle", f"{rules}:{name}", "--tenant", tenant)
        assert kesin("enqueue", "mails", "1", *words).code == 0
    store = open_store(load_settings().database, migrate=False)
    queue = Queue("mails", find_lifecycle(f"{rules}:{name}"), store)
    while queue.claim("one", limit=9):
        pass
    store.close()
    return kesin("stats", "mails", "--json").json[0]["slots"], kesin("stats", "mails").lines


def test_stats_say_how_many_slots_are_in_use(kesin, rules, either_database):
    slots, (head, line) = claimed(kesin, rules, "per_queue", ["default"] * 4)
    assert slots == [{"state": "running", "slots": 3, "per": "queue", "used": 3, "fullest": {}}]
    assert head.endswith("SLOTS")
    assert line.endswith("running 3 of 3")


def test_stats_name_the_tenants_that_use_most(kesin, rules, database):
    tenants = ["a", "b", "b", "c", "d"]
    slots, (_, line) = claimed(kesin, rules, "slots_each", tenants)
    assert slots[0]["fullest"] == {"b": 2, "a": 1, "c": 1, "d": 1}
    assert line.endswith("running b 2 of 3, a 1 of 3, c 1 of 3, …")


def test_stats_say_what_a_rate_leaves(kesin, rules, either_database):
    _, (head, line) = claimed(kesin, rules, "two_a_day", ["a", "b", "b", "b"])
    assert head.endswith("RATE LEFT")
    assert line.endswith("b 0 of 2, a 1 of 2")
    [record] = kesin("stats", "mails", "--json").json
    assert record["rate"] == {"jobs": 2, "per_s": 86_400, "left": {"b": 0, "a": 1}}


@pytest.mark.parametrize(
    ("words", "shown"),
    [((), []), (("--key", "k", "--once", "--priority", "2"), ["k (held permanently)", "2 (urgent)"])],
)
def test_a_job_is_shown_with_its_key_and_priority(kesin, enqueue, words, shown):
    job_id = enqueue("1", *words)
    lines = kesin("jobs", "show", job_id).lines
    named = [line.split(maxsplit=1) for line in lines if line.startswith(("key ", "priority "))]
    assert [text.strip() for _, text in named] == shown
    record = kesin("jobs", "show", job_id, "--json").json
    assert (record["once"], record["priority"]) == ((True, 2) if words else (False, 0))


# Bounds


BOUNDS = {
    "per_queue": [IN_QUEUE],
    "per_tenant": [IN_TENANT],
    "both": [IN_QUEUE, f"{IN_RATE}, plus the wait for a slot"],
    "rated": [IN_RATE],
    "steps": ["a job leaves blocked within one sweep (1 min) after its last parent rests"],
}


def test_the_bounds_of_limits_are_printed_with_the_rules(kesin, rules, tmp_path):
    for name, sentences in BOUNDS.items():
        between, *bounds = kesin("lifecycle", "show", f"{rules}:{name}", "--json").json["bounds"]
        assert bounds == sentences, name
    assert "while T tenants wait" in between
    assert "a tenant's due jobs are ordered by priority, then by age" in kesin("lifecycle", "show", "task").out
    printed = f"mails: {IN_QUEUE}.\nmails: {IN_RATE}, plus the wait for a slot.\n"
    against = ("--against", tmp_path / "rules.json")
    kesin("lifecycle", "check", f"{rules}:both", *against, "--update")
    for word, *more in (("show",), ("prove",), ("check", *against)):
        assert printed in kesin("lifecycle", word, f"{rules}:both", *more).out
