"""What commands read of a store without changing it; some uses inner parts of the SQL stores."""

import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.parse import quote

from kesin.foundation.settings import Settings
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.errors import StoreError
from kesin.store.postgres.reachability import CONNECT_TIMEOUT_S
from kesin.store.sql.migrate import migrations, pending_migrations
from kesin.store.sql.statements import Statements
from kesin.store.sql.store import SqlStore
from kesin.store.sqlite.connections import as_disk_error
from kesin.workloads import lifecycles

_STEPS: Final = 100_000  # of SQLite's machine between two readings of the clock


def open_for_reading(store: Store, queue: str) -> None:
    """Make ``stats`` and ``jobs`` of a queue work without declaring anything to the database."""
    own_store = store.store_for(queue)
    if not isinstance(own_store, SqlStore):  # only queues of workloads live elsewhere
        own_store.open(queue, lifecycles()[queue]())
        return
    sql: Any = own_store
    if queue in sql._queues:  # noqa: SLF001
        return
    definition = store.definition(queue)
    states = SimpleNamespace(state=dict.fromkeys(definition.states if definition else ()), stamps=())
    sql._queues[queue] = Statements(  # noqa: SLF001
        queue, cast("Lifecycle", states), sql.dialect, sql.schema
    )


def outstanding_migrations(settings: Settings) -> list[str]:
    """The migrations that a database lacks, which is only read."""
    file, applied = settings.database_file, dict[int, str]()
    if file is None:
        import psycopg
        from psycopg.errors import InvalidSchemaName, UndefinedTable

        sql = "SELECT version, checksum FROM kesin.schema_migration"
        connecting = psycopg.connect(settings.database, connect_timeout=CONNECT_TIMEOUT_S)
        with suppress(InvalidSchemaName, UndefinedTable), connecting as connection:
            applied = dict(connection.execute(sql).fetchall())
    elif file.exists():
        try:
            with closing(_read_only(file.resolve())) as reader:
                applied = dict(reader.execute("SELECT version, checksum FROM schema_migration"))
        except sqlite3.Error as problem:
            if "no such table" not in str(problem):
                unread = StoreError(f"cannot read the database: {problem}")
                raise as_disk_error(problem, str(file)) or unread from problem
    todo = pending_migrations(migrations("postgres" if file is None else "sqlite"), applied)
    return list(map(str, todo))


def find_damage(file: Path, max_s: float) -> str | None:
    """The first damage SQLite finds in its file; None if there is none, or none in that time."""
    until = time.monotonic() + max_s
    try:
        with closing(_read_only(file)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            result = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as problem:
        if getattr(problem, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            return None
        result = str(problem)
    return None if result == "ok" else result.splitlines()[-1]


def _read_only(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)


def database_time_us(store: Store) -> int | None:
    """The database server's clock; None where it is this machine's own."""
    main = store.store_for("")
    if not isinstance(main, SqlStore):
        raise StoreError("this command works with SQLite and PostgreSQL only")
    if main.dialect.name != "postgres":
        return None
    sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    return int(main._read(sql, {})[0][0])  # noqa: SLF001
