"""The embedded store: one SQLite file, shared by several processes on one machine.

Each process has one writer connection, which its threads share; readers have their own connections
and never wait. Before a write, processes queue on a lock file: SQLite's own busy handler is unfair
and can starve a process.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from kesin.foundation.clock import wall_clock_us
from kesin.lifecycle.declare import Move
from kesin.lifecycle.model import Change, Job
from kesin.store.errors import StoreUnreachable
from kesin.store.ownership import Ownership
from kesin.store.records import Event, NewJobRow, Outcome, refusal
from kesin.store.sql.columns import event_columns, job_columns
from kesin.store.sql.inserter import NewNote
from kesin.store.sql.migrate import migrations, pending_migrations
from kesin.store.sql.statements import Statements
from kesin.store.sql.store import Conflict, SqlStore, moved_outcomes
from kesin.store.sql.templates import fill, template
from kesin.store.sqlite.connection import SQLITE, check_version, closed_after, connect
from kesin.store.sqlite.file import FileLock, as_disk_error, disk_errors_translated


class SqliteStore(SqlStore):
    """Jobs in a file, or with ``:memory:`` in memory (one process, lost at its end)."""

    dialect = SQLITE
    schema = ""

    def __init__(self, path: str | Path, *, busy_timeout_s: float = 10.0) -> None:
        super().__init__()
        check_version()
        self.path = str(path)
        self._in_memory = self.path == ":memory:"
        self._busy_timeout_s = busy_timeout_s
        self._lock = threading.RLock()
        self._depth = 0
        self._ownership = Ownership[sqlite3.Connection]()
        self._local = threading.local()
        self._readers: list[tuple[threading.Thread, sqlite3.Connection]] = []
        self._writer = self._connect()
        with ExitStack() as opened:
            opened.callback(self._writer.close)
            with disk_errors_translated(self.path):
                self._write_lock = FileLock(None if self._in_memory else Path(self.path + ".lock"))
            opened.callback(self._write_lock.close)
            self.migrate()
            opened.pop_all()  # success: keep both open

    def _connect(self, *, reader: bool = False) -> sqlite3.Connection:
        return connect(self.path, busy_timeout_s=self._busy_timeout_s, reader=reader)

    # Connections and transactions

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        if self._ownership.joined():
            yield from self._nested()
            return
        self._ownership.require_free()  # before the lock, which lets in every task of a thread
        with self._lock, self._write_lock.held():
            self._begin()
            self._depth = 1
            try:
                with self._ownership.held(self._writer):
                    yield self._writer
                self._writer.execute("COMMIT")
            except BaseException as problem:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                if isinstance(problem, sqlite3.Error) and (
                    disk_error := as_disk_error(problem, self.path)
                ):
                    raise disk_error from problem
                raise
            finally:
                self._depth = 0

    def _nested(self) -> Iterator[sqlite3.Connection]:
        name = f"nested_{self._depth}"
        self._writer.execute(f"SAVEPOINT {name}")
        self._depth += 1
        try:
            yield self._writer
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute(f"ROLLBACK TO {name}")
            raise
        finally:
            self._depth -= 1
            if self._writer.in_transaction:
                self._writer.execute(f"RELEASE {name}")

    def _begin(self) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except sqlite3.ProgrammingError:
            raise  # the store is closed
        except sqlite3.DatabaseError as problem:
            unreachable = StoreUnreachable(f"the database {self.path} cannot be written: {problem}")
            raise as_disk_error(problem, self.path) or unreachable from problem

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        try:
            with self.transaction():
                yield
        except sqlite3.IntegrityError as problem:
            # NOT NULL: two picked jobs had the same key, the first took it, and no move matches the
            # second.
            if "UNIQUE" in str(problem) or "NOT NULL" in str(problem):
                raise Conflict from problem
            raise

    @property
    def _reader(self) -> sqlite3.Connection:
        if self._ownership.joined():
            return self._writer
        reader: sqlite3.Connection | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._connect(reader=True)
            self._keep_reader(reader)
        return reader

    def _keep_reader(self, reader: sqlite3.Connection) -> None:
        """Register a thread's reader, and close the readers of threads that have ended."""
        with self._lock:
            for thread, old in self._readers:
                if not thread.is_alive():
                    old.close()
            self._readers = [entry for entry in self._readers if entry[0].is_alive()]
            self._readers.append((threading.current_thread(), reader))

    def _rows(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self.transaction():
            return self._writer.execute(sql, self._with_time(params)).fetchall()

    def _read(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        params = self._with_time(params)
        if self._in_memory:
            if not self._ownership.joined():
                self._ownership.require_free()
            with self._lock:
                return self._writer.execute(sql, params).fetchall()
        with disk_errors_translated(self.path):
            return self._reader.execute(sql, params).fetchall()

    def _with_time(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, "now": wall_clock_us()} if params.get("now", 0) is None else params

    def close(self) -> None:
        with self._lock:
            for _, reader in self._readers:
                reader.close()
            self._readers.clear()
            self._writer.close()
            self._write_lock.close()

    # Schema

    def migrate(self) -> list[str]:
        with self.transaction():
            self._writer.execute(
                "CREATE TABLE IF NOT EXISTS schema_migration (version INTEGER PRIMARY KEY,"
                " name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT"
            )
            rows = self._writer.execute("SELECT version, checksum FROM schema_migration")
            pending = pending_migrations(migrations("sqlite"), dict(rows.fetchall()))
            for migration in pending:
                for statement in _split(migration.text):
                    self._writer.execute(statement)
                self._writer.execute(
                    "INSERT INTO schema_migration VALUES (?, ?, ?, ?)",
                    (migration.version, migration.name, migration.checksum, wall_clock_us()),
                )
        return [f"{migration.version:04d}_{migration.name}" for migration in pending]

    def _known_declared(self, queue: str) -> dict[tuple[object, ...], tuple[object, ...]]:
        rows = self._read("SELECT * FROM declared WHERE queue = :queue", {"queue": queue})
        return {row[:4]: (*row[4:-1], bool(row[-1])) for row in rows}

    def _write_declared(self, queue: str, rows: list[tuple[object, ...]], definition: str) -> None:
        marks = ", ".join("?" * len(rows[0]))
        with self.transaction():
            self._writer.executemany(
                f"INSERT INTO declared VALUES ({marks}) ON CONFLICT DO UPDATE SET"
                " mask = declared.mask | excluded.mask",
                rows,
            )
            self._writer.execute(
                "INSERT INTO lifecycle VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET"
                " definition = excluded.definition",
                (queue, wall_clock_us(), definition),
            )

    # Statements

    def _array(self, values: Sequence[str] | None) -> Any:
        return None if values is None else json.dumps(list(values))

    def _is_in(self, column: str, name: str) -> str:
        return f"{column} IN (SELECT value FROM json_each(:{name}))"

    def _claim(self, statements: Statements, params: dict[str, Any]) -> list[Job]:
        """Read the due jobs as the claim sets them, then claim them, in one transaction."""
        with self.transaction():
            params = self._with_time(params)
            rows = self._due(statements, params)
            if rows:
                ids = json.dumps([row[0] for row in rows])
                self._writer.execute(statements.claim(), {**params, "ids": ids})
        return statements.claim_decoder.jobs(rows, params)

    def _due(self, statements: Statements, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The due jobs, shared fairly between tenants, in the order they are due."""
        if "ids" in params:
            return self._writer.execute(statements.claim_among, params).fetchall()
        tenants = statements.claim_tenants(named="tenants" in params)
        tenants_due = self._writer.execute(tenants, params).fetchall()
        if len(tenants_due) == 1:
            tenant_params = {**params, "tenant": tenants_due[0][0], "share": params["limit"]}
            return self._writer.execute(statements.claim_single_tenant, tenant_params).fetchall()
        share = -(-params["limit"] // max(len(tenants_due), 1))
        candidates: list[tuple[int, int, str, tuple[Any, ...]]] = []
        for (tenant,) in tenants_due:
            tenant_params = {**params, "tenant": tenant, "share": share}
            due = self._writer.execute(statements.claim_pick, tenant_params).fetchall()
            candidates += [(turn, row[-1], row[0], row[:-1]) for turn, row in enumerate(due)]
        picked = sorted(candidates, key=itemgetter(0, 1, 2))[: params["limit"]]
        return [row for *_, row in sorted(picked, key=itemgetter(1, 2))]

    def _judge(
        self,
        statements: Statements,
        moves: tuple[Move, ...],
        changes: Sequence[Change],
        params: dict[str, Any],
        chosen_moves: dict[str, int],
    ) -> dict[str, Outcome]:
        statement = statements.apply_uniform(moves, changes) or statements.apply(moves, changes)
        params = self._with_time(params)
        call_params = self._params_for(statements, statement, changes, params)
        with self.transaction():
            chosen = self._chosen(statements, moves, changes, params)
            rows = self._writer.execute(statement.sql, call_params).fetchall()
            outcomes = moved_outcomes(rows)
            if len(outcomes) < len(changes):
                unmoved = [change for change in changes if change.id not in outcomes]
                outcomes |= self._refusals(statements, moves, unmoved, params)
        chosen_moves |= {
            job_id: which for job_id, which in chosen.items() if outcomes[job_id].result == "moved"
        }
        return outcomes

    def _chosen(
        self,
        statements: Statements,
        moves: tuple[Move, ...],
        changes: Sequence[Change],
        params: dict[str, Any],
    ) -> dict[str, int]:
        """Which alternative each job will make, if a chained move depends on it."""
        if not any(move.then for move in moves):
            return {}
        statement = statements.chosen(moves)
        items = statements.items(statement, changes)
        rows = self._writer.execute(statement.sql, {**params, "items": items}).fetchall()
        return {changes[row[0]].id: row[1] for row in rows if row[1] is not None}

    def _refusals(
        self,
        statements: Statements,
        moves: tuple[Move, ...],
        unmoved: Sequence[Change],
        params: dict[str, Any],
    ) -> dict[str, Outcome]:
        statement = statements.reasons(moves)
        items = statements.items(statement, unmoved)
        rows = self._writer.execute(statement.sql, {**params, "items": items}).fetchall()
        outcomes: dict[str, Outcome] = {}
        notes: list[NewNote] = []
        for position, reason, state, seq, tenant in rows:
            job_id = unmoved[position].id
            outcomes[job_id] = refusal(reason, job_id, state, seq or 0)
            if reason == "stale":
                notes.append(NewNote(job_id, tenant, moves[0].action))
        if notes:
            self._add_notes(statements, "stale", notes, params["actor"], params["now"])
        return outcomes

    def _insert(
        self, statements: Statements, jobs: Sequence[NewJobRow], params: dict[str, Any]
    ) -> set[str]:
        params = self._with_time(params)
        rows, bodies = statements.enqueue("enqueue_jobs"), statements.enqueue("enqueue_bodies")
        with self.transaction():
            items = statements.items(rows, jobs)
            inserted = self._writer.execute(rows.sql, {**params, "items": items}).fetchall()
            items = statements.items(bodies, jobs)
            self._writer.execute(bodies.sql, {**params, "items": items})
        return {row[0] for row in inserted}

    # Notes, counters, pauses and health

    def add_note(
        self,
        queue: str,
        *,
        kind: str,
        actor: str,
        tenant: str = "default",
        job_id: str | None = None,
        details: str | None = None,
        now: int | None = None,
    ) -> None:
        at = wall_clock_us() if now is None else now
        with self.transaction():
            self._writer.execute(
                "INSERT INTO note (queue, tenant, job_id, at, kind, actor, details)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (queue, tenant, job_id, at, kind, actor, details),
            )

    def _overdue(self, queue: str, now: int | None) -> tuple[int | None, int, int]:
        at = wall_clock_us() if now is None else now
        sql = fill(template("sqlite", "overdue"), {"tenants": template("sqlite", "tenants_ready")})
        oldest, overdue = self._read(sql, {"queue": queue, "now": at})[0]
        return oldest, overdue, at

    def compact(self, queue: str) -> int:
        """Nothing to merge: SQLite's counters always have one row for each edge."""
        self.statements(queue)
        return 0

    def pause(
        self,
        queue: str,
        *,
        tenant: str = "",
        actor: str,
        reason: str | None = None,
        now: int | None = None,
    ) -> None:
        at = wall_clock_us() if now is None else now
        with self.transaction():
            self._writer.execute(
                "INSERT INTO paused VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (queue, tenant, at, actor, reason),
            )

    def resume(self, queue: str, *, tenant: str = "") -> bool:
        with self.transaction():
            deleted = self._writer.execute(
                "DELETE FROM paused WHERE queue = ? AND tenant = ?", (queue, tenant)
            ).rowcount
        self._notifier.notify(queue)
        return deleted > 0

    def scan(self, queue: str) -> Iterator[tuple[Job, list[Event]]]:
        connection = self._writer if self._in_memory else self._connect(reader=True)
        with (
            disk_errors_translated(self.path),
            self._lock if self._in_memory else closed_after(connection),
        ):
            connection.execute("BEGIN")
            try:
                jobs = connection.execute(
                    f"SELECT {job_columns(SQLITE)} FROM job j JOIN job_body b ON b.id = j.id"
                    " WHERE j.queue = ? ORDER BY j.id",
                    (queue,),
                )
                events = connection.execute(
                    f"SELECT {event_columns(SQLITE)} FROM event ORDER BY job_id, seq"
                )
                yield from self._join_events(iter(jobs), iter(events))
            finally:
                connection.execute("ROLLBACK")

    def health(self) -> dict[str, str | int]:
        pages = self._read("PRAGMA page_count", {})[0][0]
        size = self._read("PRAGMA page_size", {})[0][0]
        report: dict[str, str | int] = {
            "store": "sqlite",
            "version": sqlite3.sqlite_version,
            "path": self.path,
            "bytes": pages * size,
            "journal": self._read("PRAGMA journal_mode", {})[0][0],
        }
        log = Path(self.path + "-wal")
        if not self._in_memory and log.exists():
            report["wal_bytes"] = log.stat().st_size
        return report


def _split(script: str) -> Iterator[str]:
    """The statements of a script; trigger bodies contain semicolons of their own."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
