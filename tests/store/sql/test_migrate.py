"""Migrations: forward only, checksummed, safe to run twice and at the same time."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreError
from kesin.store.open import open_store
from kesin.store.postgres.reachability import connection_failure
from kesin.store.postgres.store import PostgresStore
from kesin.store.sql.migrate import MigrationRefused, migrations
from kesin.store.sqlite.store import SqliteStore
from tests.apart import crew
from tests.store.scene import Scene, rows


def migrate_when_told(place, pipe):
    """What each of several processes does."""
    pipe.recv()
    with opened(place) as store:
        pipe.send((store.migrate(), applied(store)))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """A place where nothing is yet: (kind, path or URL, schema)."""
    if request.param == "sqlite":
        return "sqlite", str(tmp_path / "k.db"), ""
    url = request.getfixturevalue("postgres_url")
    return "postgres", url, request.getfixturevalue("fresh_schema")()


def opened(place):
    kind, where, schema = place
    if kind == "sqlite":
        return closing(SqliteStore(where))
    return closing(PostgresStore(where, schema=schema, migrate=True, listen=False))


def applied(store):
    return rows(store, "SELECT version, name, checksum FROM {schema_migration} ORDER BY version")


def known(store):
    return [(step.version, step.name, step.checksum) for step in migrations(store.dialect.name)]


def write(store, sql):
    table = store.dialect.table("schema_migration")
    with store.transaction():
        store._rows(sql.replace("{schema_migration}", table), {})


def declare_newer(store):
    now = "now()" if store.dialect.name == "postgres" else "1"
    write(store, f"INSERT INTO {{schema_migration}} VALUES (9999, 'later', 'x', {now})")


# Running


def test_migrations_are_numbered_from_one_without_a_gap():
    for dialect in ("sqlite", "postgres"):
        versions = [step.version for step in migrations(dialect)]
        assert versions == list(range(1, len(versions) + 1))


def test_a_store_opened_again_has_every_migration_and_finds_its_jobs(place):
    with opened(place) as store:
        job = Scene(store, "task", task_lifecycle()).claim_new_job()
    with opened(place) as store:
        assert applied(store) == known(store)
        assert store.migrate() == []
        assert applied(store) == known(store)
        assert Scene(store, "task", task_lifecycle()).job(job.id) == job


def test_postgresql_is_not_migrated_unless_asked_and_then_tells_what_it_applied(postgres_url, fresh_schema):
    with closing(PostgresStore(postgres_url, schema=fresh_schema(), listen=False)) as store:
        with pytest.raises(StoreError, match="has no Kesin tables: run `kesin migrate` first"):
            store.open("task", task_lifecycle())
        expected = [f"{step.version:04d}_{step.name}" for step in migrations("postgres")]
        assert store.migrate() == expected


def test_two_schemas_of_one_database_do_not_meet(postgres_url, fresh_schema):
    schemas = fresh_schema(), fresh_schema()
    first, second = (PostgresStore(postgres_url, schema=schema, migrate=True, listen=False) for schema in schemas)
    with closing(first), closing(second):
        Scene(first, "task", task_lifecycle()).create_job()
        assert second.queues() == []


# At once


def test_stores_opened_at_once_apply_each_migration_once(place):
    def open_one(_):
        with opened(place) as store:
            return applied(store)

    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(open_one, range(6)))
    with opened(place) as store:
        assert tables == [known(store)] * 6


@pytest.mark.starts
def test_processes_that_migrate_at_once_apply_each_migration_once(place):
    with crew() as start:
        processes = [start(migrate_when_told, place) for _ in range(3)]
        for process in processes:
            process.go()
        answers = [process.hear() for process in processes]
    with opened(place) as store:
        assert answers == [([], known(store))] * 3


# Refusals


def test_a_newer_schema_is_refused_and_unchanged_and_the_store_free_for_others(place):
    with opened(place) as store:
        declare_newer(store)
        before = applied(store)
        with pytest.raises(MigrationRefused, match="at version 9999 but this version of Kesin supports only"):
            store.migrate()
        assert applied(store) == before
        with pytest.raises(MigrationRefused, match="upgrade Kesin"), opened(place):
            pass
        write(store, "DELETE FROM {schema_migration} WHERE version = 9999")
        write(store, "UPDATE {schema_migration} SET checksum = 'x' WHERE version = 1")
        with pytest.raises(MigrationRefused, match="0001_engine was changed after it was applied"):
            store.migrate()
    with pytest.raises(MigrationRefused, match="make the change in a new migration"), opened(place):
        pass


def test_a_file_that_is_not_opened_is_left_to_others(tmp_path):
    file = tmp_path / "k.db"
    with closing(SqliteStore(file)) as store:
        declare_newer(store)
    with pytest.raises(MigrationRefused) as refused:  # with what the store had open, if anything
        SqliteStore(file)
    files = {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}
    assert not [path for path in files if path.startswith(str(tmp_path))], refused


# Opening


def test_what_is_no_address_or_schema_is_refused(tmp_path):
    for schema in ("", "Upper", "with space", "a;b", 'a"b', "x" * 64, "ü", "1st"):
        with pytest.raises(StoreError, match="is not a schema name"):
            PostgresStore("postgresql://nowhere", schema=schema)
    with pytest.raises(StoreError, match="unknown database mysql://"):
        open_store("mysql://localhost/x")
    (tmp_path / "k.db").write_text("this is a letter, not a database" * 100)
    with pytest.raises(StoreError, match="is damaged \\(file is not a database\\)"):
        SqliteStore(tmp_path / "k.db")


def test_a_server_that_cannot_be_reached_is_a_clear_error(tmp_path):
    url = f"postgresql://nobody@/nothing?host={tmp_path}"
    with pytest.raises(StoreError, match=r"within 0\.3 s: .+ check the address and the"):
        PostgresStore(url, listen=False, timeout_s=0.3)


@pytest.mark.parametrize("login", ["u:hun%zzter", "u:p@hunter", "u:hunter@[::1"])
def test_an_address_that_cannot_be_read_is_told_without_its_password(login):
    url = f"postgresql://{login}@127.0.0.1:1/db"
    with pytest.raises(StoreError, match="the password written as %40") as refused:
        open_store(url)
    assert not {"hun", "zzter", "hunter"} & set(re.split(r"\W", str(refused.value)))
    assert connection_failure(url) == str(refused.value)


def test_a_new_file_and_its_folder_are_its_owners_alone_and_what_was_there_keeps_its_mode(tmp_path):
    file = tmp_path / "data" / "k.db"
    with closing(open_store(file)) as store:
        assert applied(store) == known(store), "the embedded store brings its own schema"
        store.open("task", task_lifecycle())  # something is written, so that all files are there
        modes = {path.name: path.stat().st_mode & 0o777 for path in file.parent.iterdir()}
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert {modes[name] for name in ("k.db", "k.db-wal", "k.db-shm")} == {0o600}
    there = tmp_path / "there.db"
    there.touch()
    there.chmod(0o660)
    tmp_path.chmod(0o770)
    open_store(there).close()
    assert there.stat().st_mode & 0o777 == 0o660
    assert tmp_path.stat().st_mode & 0o777 == 0o770
