import json
import sqlite3
from contextlib import closing

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.replay import fold
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Problem
from kesin.foundation.settings import load_settings
from kesin.store.directory import Directory
from kesin.store.open import open_store
from kesin.store.records import Event

HANDLER = """
from kesin import Done, Failed
from kesin.lifecycle.errors import Category

def work(job):
    if job.payload["n"] % 2:
        raise Failed("NO_LUCK", "not today", category=Category.PERMANENT)
    return Done({"n": job.payload["n"]})
"""


@pytest.fixture
def worked(kesin, fill, module) -> list[str]:
    ids = fill("task", 20)
    kesin("worker", "task", "--handler", f"{module(HANDLER)}:work", "--until-idle")
    return ids


def test_the_events_agree_with_the_rows(kesin, either_database, worked):
    answer = kesin("audit", "verify", "--json")
    assert answer.code == 0
    assert answer.json[:-1] == [  # the last one is about the audit log
        {"queue": "task", "jobs": 20, "events": 60, "different": 0, "differences": [], "counters": "agree"}
    ]
    assert kesin("audit", "verify", "task").lines[1].split() == ["task", "20", "60", "0", "agree"]


def tamper(path, statement) -> None:
    """Change rows without the guard: its triggers are dropped first."""
    with closing(sqlite3.connect(path)) as database, database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in names:
            database.execute(f"DROP TRIGGER {name}")
        assert database.execute(statement).rowcount > 0


def test_a_changed_row_and_a_changed_counter_are_found_in_their_queue(kesin, fill, tmp_path):
    job = fill("task", 3)[0]
    fill("pdf", 1)
    tamper(tmp_path / "data" / "kesin.db", f"UPDATE job SET error_code = 'X' WHERE id = '{job}'")
    answer = kesin("audit", "verify", "task")
    assert (answer.code, answer.err) == (1, f"kesin: {job}: error_code is 'X', expected None\n")
    report = kesin("audit", "verify", "--json")
    assert (report.code, [queue.get("different") for queue in report.json[:-1]]) == (1, [0, 1])
    [report] = kesin("audit", "verify", "pdf", "--json").json
    assert (report["queue"], report["different"]) == ("pdf", 0)
    tamper(tmp_path / "data" / "kesin.db", "UPDATE flow SET n = n + 1 WHERE queue = 'task'")
    assert "the count of default/ready is 3, expected 4" in kesin("audit", "verify").err


def test_every_event_is_exported_as_a_line_and_they_are_enough_to_replay_a_job(kesin, worked, tmp_path):
    exported = kesin("audit", "export")
    lines = [json.loads(line) for line in exported.lines]
    assert len(lines) == 60
    first = [line for line in lines if line["job_id"] == worked[0]]
    assert [line["move"] for line in first] == ["enqueue", "claim", "complete"]
    assert first[2]["result"] == '{"n":0}'
    assert {(line["queue"], line["tenant"]) for line in lines} == {("task", "default")}
    with closing(open_store(load_settings().database)) as store:
        job = store.job(worked[1])
    assert job is not None
    events = [Event(**{name: line.get(name) for name in Event._fields}) for line in lines if line["job_id"] == job.id]
    replayed = fold(job, events)
    for name in ("state", "error_code", "attempt_count", "seq"):
        assert replayed[name] == getattr(job, name)
    answer = kesin("audit", "export", "task", "--out", "events.ndjson")
    assert (answer.code, answer.out) == (0, "")
    assert "wrote 60 events to events.ndjson" in answer.err
    assert (tmp_path / "events.ndjson").read_text() == exported.out
    assert not (tmp_path / "events.ndjson.part").exists()


def test_on_a_terminal_there_is_a_progress_bar_with_grouped_numbers(kesin, fill, programs):
    fill("task", 1_001)
    shown = programs.on_terminal("audit", "verify").out
    assert "replaying" in shown
    assert "1,001 of 1,001" in shown


FILTERS = {
    ("--actor", "user:?"): ["session.start"],
    ("--action", "site.add"): ["site.add", "site.add"],
    ("--queue", "oci"): ["queue.requeue"],
    ("--site", "south"): ["site.add"],
    ("--target", "job-1"): ["queue.requeue"],
    ("--limit", "1"): ["queue.requeue"],
    ("--action", "site.add", "--site", "west"): [],
}


def test_the_log_shows_allowed_and_refused_actions_newest_first_and_is_filtered(kesin):
    missing = kesin("audit", "log")
    assert (missing.code, "there is no database at" in missing.err) == (1, True)
    kesin("migrate")
    assert kesin("audit", "log").out == "no line matches\n"
    kesin("site", "add", "north")
    kesin("site", "add", "south")
    store = open_store(load_settings().database, migrate=False)
    accounts = Accounts(Directory(store))
    with pytest.raises(Problem):
        accounts.sign_in("can", "no password at all", "10.0.0.7")
    viewer = Actor("user:ayse", frozenset({"viewer"}), request_id="r-1")
    with pytest.raises(Problem):
        accounts.require(viewer, "operate", "queue.requeue", queue="oci", target="job-1")
    store.close()
    lines = kesin("audit", "log", "--json").json
    assert [(line["action"], line["allowed"]) for line in lines] == [
        ("queue.requeue", False),
        ("session.start", False),
        ("site.add", True),
        ("site.add", True),
    ]
    assert (lines[0]["request_id"], lines[1]["address"]) == ("r-1", "10.0.0.7")
    rows = [line.split()[2:6] for line in kesin("audit", "log").lines[1:3]]
    assert rows == [["user:ayse", "queue.requeue", "refused", "oci"], ["user:?", "session.start", "refused", "—"]]
    for words, actions in FILTERS.items():
        assert [line["action"] for line in kesin("audit", "log", *words, "--json").json] == actions, words
