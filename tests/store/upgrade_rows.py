"""An installation as its rows, kept in `upgrade_rows.json` and put into any schema there ever was.

The file is never made anew: it is what a user has who comes from then. A migration that changes
tables gets a file of its own for schemas from there on. This one was written by
``python -m tests.store.upgrade_rows``.
"""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.vault import Vault
from kesin.foundation.clock import ManualClock
from kesin.foundation.encryption import KeyRing
from kesin.foundation.permissions import system_actor
from kesin.lifecycle.task import task_lifecycle
from kesin.store.directory import Directory, MetadataEntry
from kesin.store.postgres.store import PostgresStore
from kesin.store.sql.migrate import migrations
from kesin.store.sqlite.store import SqliteStore, _split
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.store.scene import NOW, Scene, error

FILE = Path(__file__).with_suffix(".json")
RING = KeyRing({"k1": b"k" * 32})
PASSWORD = "a password of then"
TABLES = (
    *("declared", "lifecycle", "job", "job_body", "event", "note", "flow", "paused"),
    *("site", "person", "session", "api_key", "audit", "secret", "fact"),
)

Rows = dict[str, dict[str, Any]]  # table → columns and rows


def kept() -> tuple[Rows, str]:
    """The rows, and an API key of the service."""
    body = json.loads(FILE.read_text("utf-8"))
    return body["tables"], body["api_key"]


def put_into_file(path: Path, version: int, tables: Rows) -> list[str]:
    """A SQLite file at this version, with what fits into it; the tables that do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(
            "CREATE TABLE schema_migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL,"
            " checksum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT"
        )
        for step in migrations("sqlite")[:version]:
            for statement in _split(step.text):
                connection.execute(statement)
            row = (step.version, step.name, step.checksum, NOW)
            connection.execute("INSERT INTO schema_migration VALUES (?, ?, ?, ?)", row)
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        there = [table for table in tables if table in names]
        for table in there:
            columns, rows = tables[table]["columns"], tables[table]["rows"]
            marks = ", ".join("?" * len(columns))
            sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
            connection.executemany(sql, rows)
        for _, sql in triggers:
            connection.execute(sql)
    return there


def put_into_schema(store: PostgresStore, version: int, tables: Rows) -> list[str]:
    """The same in a schema of PostgreSQL."""
    store.migrate(up_to=version)
    sql = "SELECT relname FROM pg_class WHERE relnamespace = %(schema)s::regnamespace"
    names = {row[0] for row in store._rows(sql, {"schema": store.schema})}
    there = [table for table in tables if table in names]
    with store.transaction() as connection:
        for table in there:
            name = store.dialect.table(table)
            columns, rows = tables[table]["columns"], tables[table]["rows"]
            listed = ", ".join(columns)
            connection.execute(f"ALTER TABLE {name} DISABLE TRIGGER USER")
            connection.execute(
                f"INSERT INTO {name} ({listed}) OVERRIDING SYSTEM VALUE SELECT {listed}"
                f" FROM json_populate_recordset(NULL::{name}, %s)",
                (json.dumps([dict(zip(columns, row, strict=True)) for row in rows]),),
            )
            connection.execute(f"ALTER TABLE {name} ENABLE TRIGGER USER")
            if table in ("note", "audit"):
                last = f"(SELECT max(id) FROM {name})"
                connection.execute(
                    f"SELECT setval(pg_get_serial_sequence(%s, 'id'), {last})", (name,)
                )
    return there


def rows_of(store: Any, tables: Rows, names: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    """What the tables hold, in columns that are as they were, flags as numbers, in one order."""
    contents = {}
    for table in names:
        columns = ", ".join(tables[table]["columns"])
        rows = store._read(f"SELECT {columns} FROM {store.dialect.table(table)}", {})
        contents[table] = sorted((tuple(map(_plain, row)) for row in rows), key=repr)
    return contents


def expected(tables: Rows, names: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    """The same from the file."""
    return {name: sorted(map(tuple, tables[name]["rows"]), key=repr) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return value if value is None or isinstance(value, int | str) else str(value)


def fill(store: SqliteStore) -> str:
    """Let an installation live for a while; its API key."""
    task = Scene(store, "task", task_lifecycle())
    task.create_jobs(3, payload='{"n":1}')
    task.create_job(key="taken", tenant="acme")
    task.create_job(run_at=NOW + 3_600_000_000)
    task.clock.advance(1)
    done, failed, retried, held = task.claim(5, worker="then")
    assert held.tenant == "acme"  # as a worker left it that never came back
    task.move("complete", done, result='{"ok":true}')
    task.move("fail", failed, **error(category="PERMANENT"))
    task.move("retry", retried, **error())
    store.add_note("task", kind="stale", actor="then", job_id=done.id, details="late", now=NOW)
    oci = Scene(store, "oci", oci_lifecycle())
    oci.create_jobs(2, payload='{"gclid":"x"}', tenant="acme")
    store.pause("oci", tenant="acme", actor="then", reason="lunch", now=NOW)
    actor = system_actor("then")
    accounts = Accounts(Directory(store), clock=ManualClock(NOW))
    accounts.add_site(actor, "acme", name="Acme")
    accounts.add_user(actor, "ayse", PASSWORD, role="admin", all_sites=True)
    accounts.sign_in("ayse", PASSWORD, "127.0.0.1")
    key, _ = accounts.create_key(actor, "script", ["operate"])
    Vault(accounts, RING).put(actor, "token", "a secret of then")
    Directory(store).put_metadata(MetadataEntry("oci", "acme", "breaker", '{"open":false}', NOW))
    return key


def main() -> None:
    """Write the file."""
    with TemporaryDirectory() as folder, closing(SqliteStore(Path(folder) / "k.db")) as store:
        key = fill(store)
        tables = {}
        for table in TABLES:
            columns = [row[1] for row in store._read(f"PRAGMA table_info({table})", {})]
            rows = store._read(f"SELECT {', '.join(columns)} FROM {table}", {})
            tables[table] = {"columns": columns, "rows": rows}
    lines = [
        f'"{name}": {{"columns": {json.dumps(table["columns"])}, "rows": [\n'
        + ",\n".join(json.dumps(row) for row in table["rows"])
        + "]}"
        for name, table in tables.items()
    ]
    FILE.write_text(f'{{"api_key": "{key}", "tables": {{\n' + ",\n".join(lines) + "}}\n", "utf-8")


if __name__ == "__main__":
    if FILE.exists():
        sys.exit(f"{FILE} is never made anew")
    main()
