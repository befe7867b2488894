import json
from contextlib import closing

import pytest

from kesin.engine.queue import Queue
from kesin.foundation.clock import ManualClock
from kesin.foundation.ids import first_id_at
from kesin.foundation.settings import load_settings
from kesin.store.open import open_store
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle

HANDLERS = """
from kesin import Done, Failed
from kesin.lifecycle.errors import Category

def work(job):
    n = job.payload["n"]
    if n % 3 == 0:
        raise Failed("NO_STREET", f"no street {n}", category=Category.VALIDATION)
    if n % 3 == 1:
        raise Failed("NO_HOUSE", "the house is gone", category=Category.PERMANENT)
    return Done({"n": n})
"""
OWN = """
from dataclasses import replace
from kesin import task_lifecycle
from kesin.lifecycle.declare import Move

plain = task_lifecycle("mine")
renamed = {"failed": "given_up"}

def mine():
    states = tuple(replace(s, name=renamed.get(s.name, s.name)) for s in plain.states)
    moves = tuple(
        replace(m, sources=tuple(renamed.get(s, s) for s in m.sources), to=renamed.get(m.to, m.to))
        for m in plain.moves
    )
    return replace(plain, states=states, moves=moves)
"""


@pytest.fixture
def worked(kesin, fill, module) -> list[str]:
    """Nine jobs: a third with no street, a third with no house, a third done."""
    ids = fill("task", 9)
    name = module(HANDLERS)
    assert kesin("worker", "task", "--handler", f"{name}:work", "--until-idle").code == 0
    return ids


def listed(kesin, *words):
    return [job["payload"]["n"] for job in kesin("jobs", "list", *words, "--json").json["jobs"]]


def test_filters_narrow_the_list(kesin, database, worked):
    assert listed(kesin, "task", "--state", "done") == [8, 5, 2]
    assert listed(kesin, "task", "--code", "NO_STREET") == [6, 3, 0]
    assert listed(kesin, "task", "--category", "permanent") == [7, 4, 1]
    assert listed(kesin, "task", "--text", "STREET 3") == [3]
    assert listed(kesin, "task", "--tenant", "south") == []
    both = listed(kesin, "task", "--code", "NO_STREET", "--code", "NO_HOUSE", "--state", "failed")
    assert both == [7, 6, 4, 3, 1, 0]
    made = kesin("enqueue", "task", '{"n": 10}', "--tenant", "north", "--key", "a", "--json").json["id"]
    assert listed(kesin, "task", "--key", "a") == listed(kesin, "task", "--text", made, "--tenant", "north") == [10]
    assert listed(kesin, "task", "--text", made, "--tenant", "south") == []


def test_jobs_are_listed_in_pages_newest_first_and_without_json_each_in_a_line(kesin, worked):
    first = kesin("jobs", "list", "task", "--limit", "4", "--json").json
    second = kesin("jobs", "list", "task", "--limit", "9", "--cursor", first["cursor"], "--json").json
    assert [job["payload"]["n"] for job in first["jobs"] + second["jobs"]] == list(range(8, -1, -1))
    assert second["cursor"] is None
    lines = kesin("jobs", "list", "task", "--limit", "4").lines
    assert (len(lines), lines[-1]) == (6, f"more: --cursor {first['cursor']}")
    assert "NO_HOUSE" in lines[2]
    assert "1 of 5" in lines[2]


UNKNOWN = {
    ("--state", "readdy"): "there is no state 'readdy': did you mean 'ready'?",
    ("--category", "transiant"): "did you mean 'TRANSIENT'?",
    ("--cursor", "7"): "'7' is not a cursor",
    ("--limit", "0"): "'--limit'",
}


def test_unknown_filter_values_are_a_usage_error(kesin, fill):
    fill("task", 1)
    for words, sentence in UNKNOWN.items():
        answer = kesin("jobs", "list", "task", *words)
        assert (answer.code, sentence in answer.err) == (2, True), words


def test_a_job_is_shown_with_its_history_and_notes(kesin, database, fill, module):
    job = kesin("enqueue", "task", '{"n": 3}', "--key", "k", "--json").json["id"]
    kesin("enqueue", "task", '{"n": 3}', "--key", "k")
    kesin("worker", "task", "--handler", f"{module(HANDLERS)}:work", "--until-idle")
    shown = kesin("jobs", "show", job, "--json").json
    assert shown["state"] == "failed"
    assert shown["error"] == {"code": "NO_STREET", "category": "VALIDATION", "message": "no street 3"}
    assert [event["move"] for event in shown["events"]] == ["enqueue", "claim", "fail"]
    assert shown["events"][2]["from"] == "running"
    assert [note["kind"] for note in shown["notes"]] == ["duplicate"]
    text = kesin("jobs", "show", job).out
    for part in (job, "NO_STREET: no street 3 (VALIDATION)", '"n": 3', "history", "notes", "(new)"):
        assert part in text


def test_looks_that_found_nothing_new_are_one_line_flags_have_names_and_restricted_actions_are_refused(kesin, fill):
    job = fill("optiplan", 1)[0]
    with closing(open_store(load_settings().database, migrate=False)) as store:
        now = store.job(job).created_at
        queue = Queue("optiplan", optiplan_lifecycle(), store, clock=(clock := ManualClock(now)))
        for steps in (["prepare", "import", "wait"], ["wait"], ["wait"]):
            [claimed] = queue.claim("w")
            for move in steps:
                queue.move(claimed, move, run_in_s=1 if move == "wait" else None)
            clock.advance(1)
    text = kesin("jobs", "show", job).out
    assert (text.count("wait"), text.count("× 3 since")) == (1, 1)
    moves = [event["move"] for event in kesin("jobs", "show", job, "--json").json["events"]]
    assert moves == ["enqueue", "claim", "prepare", "import", "wait", *("claim", "wait") * 2]
    for more in ((), ("--dry-run",)):
        answer = kesin("jobs", "act", "optiplan", "cancel", job, *more)
        assert answer.code != 0
        assert "use the page, API or command of" in answer.err
    with closing(open_store(load_settings().database, migrate=False)) as store:
        Queue("optiplan", optiplan_lifecycle(), store, clock=clock).act("request_cancel", actor="tests", ids=[job])
    assert kesin("jobs", "show", job, "--json").json["flags"] == ["cancel_requested"]
    assert "cancel_requested" in kesin("jobs", "show", job).out


def test_control_characters_of_a_payload_are_escaped(kesin):
    payload = json.dumps({"n": "\x1b[2Jboo\u202e"})
    job = kesin("enqueue", "task", payload, "--key", "a\x1bb", "--json").json["id"]
    text = kesin("jobs", "show", job).out
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "a\\x1bb" in text


def test_a_bad_id_is_a_usage_error_and_an_unknown_job_is_not_found(kesin, fill):
    fill("task", 1)
    assert kesin("jobs", "show", "7").code == 2
    answer = kesin("jobs", "show", first_id_at(1))
    assert answer.code == 1
    assert "it never existed, or it was pruned" in answer.err


def test_a_queue_with_a_custom_lifecycle_can_be_read_without_it_and_is_moved_with_it(kesin, module):
    own = f"{module(OWN)}:mine"
    job = kesin("enqueue", "mails", '{"n": 1}', "--lifecycle", own, "--json").json["id"]
    assert listed(kesin, "mails", "--state", "ready") == [1]
    assert kesin("stats", "--json").json[0]["states"]["ready"] == 1
    assert kesin("jobs", "list", "mails", "--state", "failed").code == 2
    assert kesin("jobs", "show", job).code == 0
    assert kesin("audit", "verify", "mails").code == 0
    refused = kesin("jobs", "act", "mails", "cancel", job)
    assert (refused.code, "--lifecycle module:attribute" in refused.err) == (2, True)
    assert kesin("jobs", "act", "mails", "cancel", job, "--lifecycle", own).code == 0
    assert kesin("jobs", "show", job, "--json").json["state"] == "given_up"
