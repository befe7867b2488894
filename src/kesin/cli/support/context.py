"""Where every command begins: settings read, logs set up, the store open, queues found by name."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.parse import quote

from kesin.cli.support.errors import Failure, Usage, did_you_mean
from kesin.cli.support.lifecycles import find_lifecycle, registry
from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.foundation.logs import Level, set_up_logs
from kesin.foundation.permissions import Actor, system
from kesin.foundation.settings import Settings, load_settings
from kesin.foundation.terminal import typist
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.open import NO_PSYCOPG, open_stores
from kesin.store.postgres.reachability import CONNECT_TIMEOUT_S, check_reachable
from kesin.store.sqlite.file import trouble
from kesin.workloads import Workload, WorkloadContext, workloads

__all__ = ["check_reachable", "damage", "database_time_us", "look", "outstanding"]

_STEPS: Final = 100_000  # of SQLite's machine between two looks at the clock


def look(store: Store, queue: str) -> None:
    """Make ``stats`` and ``jobs`` of a queue work without declaring anything to the database."""
    from kesin.cli.support.lifecycles import registry
    from kesin.store.sql.statements import Statements
    from kesin.store.sql.store import SqlStore

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
    from kesin.store.sql.migrate import migrations
    from kesin.store.sql.migrate import outstanding as still_to_apply

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
    from kesin.store.sql.store import SqlStore

    main = store.home("")
    if not isinstance(main, SqlStore):
        raise StoreError("this command speaks with SQLite and PostgreSQL only")
    return main


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command works with."""

    settings: Settings
    store: Store

    @property
    def accounts(self) -> Accounts:
        """People, keys and sites of the store."""
        return Accounts(Directory(self.store))

    def readable(self, name: str) -> str:
        """The name, once it is sure that this queue exists and can be read."""
        if name not in self.store.queues() and name not in registry():
            raise self._unknown(name)
        look(self.store, name)
        return name

    def all_or(self, names: Sequence[str] | None) -> list[str]:
        """These queues, or all of the store, ready to be read."""
        return [self.readable(name) for name in names or self.store.queues()]

    def queue(self, name: str, lifecycle: str | None = None) -> Queue:
        """The queue, open for moves."""
        rules = self.rules(name, lifecycle)
        return Queue(name, rules, self.store)

    def house(self, workload: Workload) -> WorkloadContext:
        """What the service would give a workload; the queues of all are open."""
        known = workloads()
        unsited = frozenset(one.name for one in known.values() if not one.has_sites)
        queues = {name: self.queue(name) for name in known}
        own = {one.name: one.restricted_actions for one in known.values()}
        commands = Commands(queues, self.accounts, unsited, own)
        return WorkloadContext(self.settings, commands, queues[workload.name])

    def rules(self, name: str, lifecycle: str | None = None) -> Lifecycle:
        """The lifecycle that a queue runs under, or the one that is named."""
        if lifecycle is not None:
            return find_lifecycle(lifecycle)
        known = registry()
        try:
            stored = self.store.definition(name)
        except StoreUnreachable:
            if name not in known or self.store.home(name) is self.store.home(""):
                raise
            return known[name]()  # it is declared there as soon as that can be reached
        if stored is None:
            if name in known:
                return known[name]()
            raise self._unknown(name)
        if stored.lifecycle in known:
            rules = known[stored.lifecycle]()
            if [state.name for state in rules.states] == list(stored.states):
                return rules
        raise Usage(
            f"the queue {name!r} runs under a lifecycle of your own, {stored.lifecycle!r}: "
            "say where it is declared with --lifecycle module:attribute"
        )

    def _unknown(self, name: str) -> Usage:
        known = sorted({*self.store.queues(), *registry()})
        meant = did_you_mean(name, known) or f": there are {', '.join(known)}"
        return Usage(
            f"there is no queue {name!r}{meant} "
            "(a new queue is made by `kesin enqueue` or `kesin worker` with --lifecycle)"
        )


@contextmanager
def open_desk(*, make: bool = False, level: Level = "warning") -> Iterator[Desk]:
    """Open the store of the settings; a file that is not there is made only with ``make``."""
    settings = load_settings()
    set_up_logs(settings.log, level)
    file = settings.database_file
    if file is not None and not make and not file.exists():
        raise Failure(
            f"there is no database at {file}: enqueue a job or run `kesin migrate` to make it, "
            "or say with KESIN_DATA_DIR or KESIN_DATABASE_URL where it is"
        )
    check_reachable(settings)
    store = open_stores(settings)
    try:
        yield Desk(settings, store)
    finally:
        store.close()


def operator() -> Actor:
    """Whoever types: at the machine itself everything is allowed, and all of it is noted."""
    return system(typist())
