"""What commands need of a store and its contract does not offer yet, in one place.

Each function here is a wish: once the contract has it, the function goes and its callers use the
contract. Nothing else in this folder reaches below it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

from kesin.foundation.settings import Settings
from kesin.store.contract import Store, StoreError
from kesin.store.reach import CONNECT_TIMEOUT_S, check_reachable

__all__ = ["check_reachable", "database_time_us", "look", "outstanding"]


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
            applied = _applied_in_file(f"file:{quote(str(file.resolve()))}?mode=ro")
    todo = still_to_apply(migrations(dialect), applied)
    return [f"{one.version:04d}_{one.name}" for one in todo]


def _applied_in_file(uri: str) -> dict[int, str]:
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            rows = connection.execute("SELECT version, checksum FROM schema_migration").fetchall()
    except sqlite3.Error as problem:
        if "no such table" in str(problem):
            return {}
        raise StoreError(f"cannot read the database: {problem}") from problem
    return dict(rows)


def _applied_on_server(url: str) -> dict[int, str]:
    import psycopg
    from psycopg import errors

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
