"""An installation as its rows, kept in `upgrade_rows.json` and put into any schema there ever was.

The file is never made anew: it is what a user has who comes from then. A migration that changes
tables gets a file of its own for schemas from there on.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from kesin.foundation.encryption import KeyRing
from kesin.store.postgres.store import PostgresStore
from kesin.store.sql.migrate import migrations
from kesin.store.sqlite.store import _split
from tests.store.scene import NOW

FILE = Path(__file__).with_suffix(".json")
RING = KeyRing({"k1": b"k" * 32})
PASSWORD = "a password of then"
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
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
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
                connection.execute(f"SELECT setval(pg_get_serial_sequence(%s, 'id'), {last})", (name,))
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
