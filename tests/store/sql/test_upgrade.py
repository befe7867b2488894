"""Every schema there ever was, with data in it, brought to the newest one: nothing is lost."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.vault import Vault
from kesin.engine.replay import verify
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.task import task_lifecycle
from kesin.store.directory import Directory
from kesin.store.errors import StoreError
from kesin.store.postgres.store import PostgresStore
from kesin.store.records import Definition
from kesin.store.rules import UpgradeRefused
from kesin.store.sql.migrate import MigrationRefused, migrations
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.store.conftest import RAM, check_histories_and_counts
from tests.store.model.lifecycles import ferry_lifecycle
from tests.store.scene import HOUR, NOW, Scene, rows
from tests.store.upgrade_rows import PASSWORD, RING, expected, kept, put_into_file, put_into_schema, rows_of

TABLES, API_KEY = kept()
VERSIONS = [step.version for step in migrations("sqlite")]
RULES_SINCE = 8  # versions of rules are stored from this schema on
# The way from a schema in between is the end of the way from the first.
SHORT = (VERSIONS[0], RULES_SINCE, VERSIONS[-1])
LATER = NOW + HOUR
ADDED_SINCE = {  # tables and columns that no installation of then has
    "job": ["priority"],
    "event": ["priority"],
    "job_body": ["once"],
    "declared": ["slots", "slots_per", "min_age_us", "retired_at"],
    "rules": ["queue", "version", "fingerprint", "definition", "virtual_time", "declared_at"],
    "state": ["queue", "name", "phase", "success", "waits", "retired_at"],
    "parent": ["child", "parent", "queue", "done", "news"],
    "progress": ["job_id", "claim_seq", "at", "fraction", "message"],
    "schedule": ["queue", "name", "definition", "next_at"],
    "listing": ["queue", "title", "search"],
    "search_term": ["job_id", "term", "queue", "tenant"],
    "meter": ["queue", "tenant", "move", "free_at"],
    "counter": ["queue", "tenant", "move", "from_state", "to_state"],
    "audit": ["seq", "hash"],
    "audit_head": ["id", "seq", "hash"],
}


@pytest.fixture
def old(request):
    """Puts the rows into a schema of then; gives it, opened today, and the tables it had."""
    with ExitStack() as stack:

        def make(version):
            if request.param == "sqlite":
                folder = TemporaryDirectory(dir=RAM if RAM.is_dir() else None)
                file = Path(stack.enter_context(folder)) / "k.db"
                there = put_into_file(file, version, TABLES)
                return stack.enter_context(closing(SqliteStore(file))), there
            url = request.getfixturevalue("postgres_url")
            schema = request.getfixturevalue("fresh_schema")()
            store = stack.enter_context(closing(PostgresStore(url, schema=schema, listen=False)))
            there = put_into_schema(store, version, TABLES)
            if version < VERSIONS[-1]:
                with pytest.raises(StoreError, match=f"lacks {version + 1:04d}_.*run `kesin migr"):
                    store.open("task", task_lifecycle())
            assert len(store.migrate()) == VERSIONS[-1] - version
            return store, there

        yield make


@pytest.mark.parametrize("old", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("version", [pytest.param(n, marks=[] if n in SHORT else [pytest.mark.long]) for n in VERSIONS])
def test_an_installation_of_any_schema_goes_on_in_the_newest_one(old, version):
    store, there = old(version)
    applied = rows(store, "SELECT version FROM {schema_migration} ORDER BY version")
    assert [number for (number,) in applied] == VERSIONS
    assert rows_of(store, TABLES, there) == expected(TABLES, there)
    assert store.queues() == ["oci", "task"]
    for queue in ("task", "oci") if version < RULES_SINCE else ():
        rules_of_then_are_version_0(store, queue)
    task, oci = Scene(store, "task", task_lifecycle()), Scene(store, "oci", oci_lifecycle())
    for queue in ("task", "oci"):
        audit = verify(store, queue)
        assert (audit.different, audit.counters, audit.jobs > 0) == (0, "agree", True)
    jobs_go_on(task)
    assert [pause.tenant for pause in store.paused("oci")] == ["acme"]
    assert oci.claim(10) == []
    store.resume("oci", tenant="acme")
    oci.clock.time_us = LATER
    assert len(oci.claim(10)) == 2
    if "person" in there:
        users_sign_in(store)
    if "fact" in there:
        assert Directory(store).metadata_entry("oci", "acme", "breaker").value == '{"open":false}'
    check_histories_and_counts(store)


def rules_of_then_are_version_0(store, queue):
    (stored,) = store.rules(queue)
    declared = {(move, source, to) for name, move, source, to, *_ in TABLES["declared"]["rows"] if name == queue}
    definition = next(row[-1] for row in TABLES["lifecycle"]["rows"] if row[0] == queue)
    assert (stored.version, stored.fingerprint, stored.virtual_time) == (0, "", False)
    assert stored.edges == declared
    assert Definition.parse(stored.definition) == Definition.parse(definition)
    with pytest.raises(UpgradeRefused, match=r"U2: the state \w+ is gone \(it holds [1-9] job"):
        store.open(queue, ferry_lifecycle())
    assert store.rules(queue) == [stored]


def jobs_go_on(task):
    assert task.counts() == {"ready": 2, "running": 1, "done": 1, "failed": 1}
    held = next(job for job in task.all().values() if job.state == "running")
    task.clock.time_us = LATER
    (again,) = task.enqueue(task.new(key="taken", tenant="acme"))
    assert (again.result, again.id) == ("duplicate", held.id)
    failed = next(job for job in task.all().values() if job.state == "failed")
    task.move("requeue", failed.id, role="operator", actor="op")
    assert task.sweep("recover", to="ready") == 1  # nobody came back for it
    task.clock.advance(HOUR / 1_000_000)
    claimed = [*task.claim(10), *task.claim(10)]
    assert len(claimed) == 4
    assert {outcome.result for outcome in task.apply("complete", claimed)} == {"moved"}
    assert task.counts() == {"done": 5}
    assert [event.move for event in task.events(held)][-1] == "complete"


def users_sign_in(store):
    accounts = Accounts(Directory(store), clock=ManualClock(LATER))
    before = accounts.directory.audit()
    _, actor = accounts.sign_in("ayse", PASSWORD, "127.0.0.1")
    assert actor.name == "user:ayse"
    assert accounts.key_actor(API_KEY, "127.0.0.1").name.startswith("key:")
    assert [site.id for site in accounts.directory.sites()] == ["acme"]
    assert Vault(accounts, RING).get("token") == "a secret of then"
    assert len(accounts.directory.audit()) > len(before) > 0


def test_code_of_then_does_not_work_on_a_newer_schema(postgres_url, fresh_schema):
    """A worker that was not upgraded starts again after somebody else migrated."""
    where = {"schema": fresh_schema(), "listen": False}
    with closing(PostgresStore(postgres_url, migrate=True, **where)) as store:
        table = store.dialect.table("schema_migration")
        store._rows(f"INSERT INTO {table} VALUES (9999, 'later', 'x', now())", {})
    with closing(PostgresStore(postgres_url, **where)) as store:
        with pytest.raises(MigrationRefused, match="supports only versions up to"):
            store.open("task", task_lifecycle())
        assert store.queues() == []


def test_the_tables_of_then_are_all_in_the_file(tmp_path):
    """A migration that adds a table or a column says here what an installation has in it."""
    with closing(SqliteStore(tmp_path / "k.db")):
        pass
    with closing(sqlite3.connect(tmp_path / "k.db")) as connection:
        named = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        known = {
            name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            for (name,) in named
            if name not in ("schema_migration", "copying", "copying_over", "folding", "place")
        }
    then = {name: table["columns"] for name, table in TABLES.items()}
    assert {name: then.get(name, []) + ADDED_SINCE.get(name, []) for name in known} == known
    assert then.keys() <= known.keys()
