"""What commands need of a store and its contract does not offer yet, in one place.

Each function here is a wish: once the contract has it, the function goes and its callers use the
contract. Nothing else in this folder reaches below it.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.parse import quote

from kesin.foundation.settings import Settings
from kesin.store.contract import Store
from kesin.store.errors import StoreError
from kesin.store.open import NO_PSYCOPG
from kesin.store.reach import CONNECT_TIMEOUT_S, check_reachable
from kesin.store.sqlite_trouble import trouble

__all__ = ["check_reachable", "damage", "database_time_us", "look", "outstanding"]

_STEPS: Final = 100_000  # of SQLite's machine between two looks at the clock


def look(store: Store, queue: str) -> None:
    """Make ``stats`` and ``jobs`` of a queue work without declaring anything to the database."""
    from kesin.cli.names import registry
    from kesin.lifecycle.declare import Lifecycle
    from kesin.store.sqlstore import SqlStore
    from kesin.store.statements import Statements

    home = store.home(queue)
    if not isinstance(home, SqlStore):
        home.open(queue, registry()[queue]())  # only queues of our own live elsewhere
        return
    sql: Any = home
    if queue in sql._queues:  # noqa: SLF001
        return
    known = store.definition(queue)
    states = SimpleNamespace(state=dict.fromkeys(known.states if known else ()))
    sql._queues[queue] = Statements(  # noqa: SLF001
        queue, cast("Lifecycle", states), sql.dialect, sql.schema
    )


def outstanding(settings: Settings) -> list[str]:
    """What ``migrate`` would apply, without applying it."""
    from kesin.store.migrate import migrations
    from kesin.store.migrate import outstanding as still_to_apply

    file = settings.database_file
    if file is None:
        dialect, applied = "postgres", _applied_on_server(settings.database)
    else:
        dialect, applied = "sqlite", {}
        if file.exists():
            applied = _applied_in_file(file.resolve())
    todo = still_to_apply(migrations(dialect), applied)
    return [f"{one.version:04d}_{one.name}" for one in todo]


def _applied_in_file(file: Path) -> dict[int, str]:
    try:
        with closing(_read_only(file)) as connection:
            rows = connection.execute("SELECT version, checksum FROM schema_migration").fetchall()
    except sqlite3.Error as problem:
        if "no such table" in str(problem):
            return {}
        unread = StoreError(f"cannot read the database: {problem}")
        raise trouble(problem, str(file)) or unread from problem
    return dict(rows)


def damage(file: Path, longest_s: float) -> str | None:
    """The first damage SQLite finds in its file; None if there is none, or none in that time."""
    until = time.monotonic() + longest_s
    try:
        with closing(_read_only(file)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as problem:
        if getattr(problem, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            return None
        found = str(problem)
    return None if found == "ok" else found.splitlines()[-1]


def _read_only(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)


def _applied_on_server(url: str) -> dict[int, str]:
    try:
        import psycopg
        from psycopg import errors
    except ImportError:
        raise StoreError(NO_PSYCOPG) from None
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S) as connection:
            rows = connection.execute(
                "SELECT version, checksum FROM kesin.schema_migration"
            ).fetchall()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return {}
    return dict(rows)


def database_time_us(store: Store) -> int | None:
    """The database server's clock; None where it is this machine's own."""
    sql = _sql(store)
    if sql.dialect.name != "postgres":
        return None
    rows = sql._read(  # noqa: SLF001
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", {}
    )
    return int(rows[0][0])


def _sql(store: Store) -> Any:
    from kesin.store.sqlstore import SqlStore

    main = store.home("")
    if not isinstance(main, SqlStore):
        raise StoreError("this command speaks with SQLite and PostgreSQL only")
    return main
