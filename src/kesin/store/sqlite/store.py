"""The embedded store. Processes queue on a lock file, as SQLite's own wait can starve one."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, cast

from kesin.foundation.clock import wall_clock_us
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import STAY
from kesin.store.errors import GuardRefused, StoreError, StoreUnreachable
from kesin.store.ownership import Ownership
from kesin.store.records import Event, NewJobRow, Outcome
from kesin.store.sql.columns import event_columns
from kesin.store.sql.migrate import migrations, pending_migrations
from kesin.store.sql.statements import Statements
from kesin.store.sql.store import ActionCall, Conflict, SqlStore, moved_outcomes
from kesin.store.sqlite.claims import Claim
from kesin.store.sqlite.connections import (
    SQLITE,
    CallersSqlite,
    SqliteConnections,
    as_disk_error,
    callers_connection,
    check_version,
    disk_errors_translated,
)
from kesin.store.sqlite.listener import SqliteListener


class _NotAllMovedError(Exception):
    """Some jobs did not move: nothing was written, and each is judged."""


class SqliteStore(SqlStore):
    """Jobs in a file, or with ``:memory:`` in memory (one process, lost at its end)."""

    dialect = SQLITE
    schema = ""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        check_version()
        self.path = str(path)
        self._in_memory = self.path == ":memory:"
        self._ownership = Ownership[sqlite3.Connection | CallersSqlite]()
        self._connections = SqliteConnections(self.path)
        self._listener = None if self._in_memory else SqliteListener(self, self._notifier)
        with ExitStack() as opened:
            opened.callback(self._connections.close)
            self.migrate()
            opened.pop_all()  # success: keep them open

    # Connections and transactions

    @property
    def _writer(self) -> sqlite3.Connection:
        """The connection of the caller's transaction, or that of this process."""
        return cast("sqlite3.Connection", self._ownership.joined() or self._connections.writer)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        if self._ownership.joined():
            yield from self._nested()
            return
        self._ownership.require_free()  # before the lock, which lets in every task of a thread
        with self._connections.lock, self._connections.write_lock.held():
            self._begin()
            try:
                with self._ownership.held(self._writer):
                    yield self._writer
                self._writer.execute("COMMIT")
            except BaseException as problem:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                if isinstance(problem, sqlite3.Error):
                    if str(problem).startswith("kesin: ") and "UNIQUE" not in str(problem):
                        raise GuardRefused(str(problem)) from problem
                    if disk_error := as_disk_error(problem, self.path):
                        raise disk_error from problem
                raise

    def _nested(self) -> Iterator[sqlite3.Connection]:
        writer = self._writer
        writer.execute("SAVEPOINT nested")  # of several, the innermost is meant
        try:
            yield writer
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK TO nested")
            raise
        finally:
            if writer.in_transaction:
                writer.execute("RELEASE nested")

    @contextmanager
    def _join(self, connection: Any) -> Iterator[None]:
        if self._ownership.joined():
            raise StoreError("within: the store's own transaction is open and has locked the file")
        with callers_connection(connection, self.path) as given, self._ownership.held(given, callers=True):
            yield

    def _begin(self) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except sqlite3.ProgrammingError:
            raise  # the store is closed
        except sqlite3.DatabaseError as problem:
            unreachable = StoreUnreachable(f"the database {self.path} cannot be written: {problem}")
            raise as_disk_error(problem, self.path) or unreachable from problem

    @contextmanager
    def _savepoint(self, *, single: bool = False) -> Iterator[None]:
        try:
            with nullcontext() if single and not self._ownership.joined() else self.transaction():
                yield
        except sqlite3.IntegrityError as problem:
            # NOT NULL: two picked jobs had the same key, the first took it, and no move matches the
            # second.
            if "UNIQUE" in str(problem) or "NOT NULL" in str(problem):
                raise Conflict from problem
            raise

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The caller's transaction, or this thread's reader; in memory all share one connection."""
        joined = self._ownership.joined()
        if self._in_memory:
            if not joined:
                self._ownership.require_free()
            with self._connections.lock:
                yield self._writer
        elif joined:
            yield self._writer
        else:
            with self._connections.reading() as connection:
                yield connection

    def _rows(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        joined = self._ownership.joined()  # there, a statement that fails is undone by itself
        with nullcontext(joined) if joined else self.transaction() as connection:
            rows = connection.execute(sql, self._with_time(params)).fetchall()
        return cast("list[tuple[Any, ...]]", rows)

    def _read(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        params = self._with_time(params)
        with disk_errors_translated(self.path), self._reading() as connection:
            return connection.execute(sql, params).fetchall()

    def _with_time(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, "now": wall_clock_us()} if params.get("now", 0) is None else params

    def close(self) -> None:
        if self._listener:
            self._listener.stop()
        self._connections.close()

    def data_version(self) -> int:
        """A number that changes when another connection commits; each thread has its own."""
        return int(self._read("PRAGMA data_version", {})[0][0])

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
        return list(map(str, pending))

    # Statements

    def _claim(self, statements: Statements, params: dict[str, Any]) -> list[Job]:
        """Read the due jobs as the claim sets them, and claim; others may write between tenants."""
        after, first = params["after"], params["after"]
        while True:
            with self.transaction():
                params = self._with_time({**params, "after": after})
                claim = Claim(statements, params, self._writer)
                if claim.rows:
                    self._writer.execute(statements.claim(), {**params, **claim.chosen()})
                    claim.spend()
            if not claim.goes_on(first):
                return statements.claim_decoder.jobs(claim.rows, params)
            after = claim.walked_to

    def _peek(self, statements: Statements, params: dict[str, Any]) -> list[Job]:
        params = self._with_time({**params, "worker": "", "actor": "", "lease_us": 0})
        first = params["after"]
        with self._reading() as connection:
            while (claim := Claim(statements, params, connection)).goes_on(first):
                params["after"] = claim.walked_to
        jobs = self.find(statements.queue, [row[0] for row in claim.rows])
        return [jobs[row[0]] for row in claim.rows if row[0] in jobs]

    def _judge(self, call: ActionCall, changes: Sequence[Change]) -> dict[str, Outcome]:
        with suppress(_NotAllMovedError):
            return self._move_all(call, changes)
        statements, moves, *_ = call
        statement = statements.apply_uniform(moves, changes) or statements.apply(moves, changes)
        call = call._replace(params=self._with_time(call.params))
        call_params = statements.params_for(statement, changes, call.params)
        with self.transaction():
            chosen = self._chosen(call, changes)
            outcomes = moved_outcomes(self._writer.execute(statement.sql, call_params).fetchall())
            if len(outcomes) < len(changes):
                unmoved = [change for change in changes if change.id not in outcomes]
                reasons = statements.reasons(moves)
                given = statements.params_for(reasons, unmoved, call.params)
                refused, lost = self._refusals(unmoved, self._writer.execute(reasons.sql, given))
                self._note_stale(call, lost)
                outcomes |= refused
        moved = (job_id for job_id in chosen if outcomes[job_id].result == "moved")
        call.chosen.update((job_id, chosen[job_id]) for job_id in moved)
        return outcomes

    def _move_all(self, call: ActionCall, changes: Sequence[Change]) -> dict[str, Outcome]:
        """Move jobs that made no move since the same claim: what would be read back is known."""
        statements, (move, *others), params, _ = call
        statement = statements.apply_uniform(call.moves, changes, "apply_fenced")
        token = None if others or move.then or move.to == STAY else changes[0].token
        if token is None or statement is None:
            raise _NotAllMovedError
        given = statements.params_for(statement, changes, self._with_time(params))
        with self.transaction() as writer:
            if writer.execute(statement.sql, given).rowcount != len(changes):
                raise _NotAllMovedError
        return moved_outcomes((change.id, move.to, token + 1) for change in changes)

    def _chosen(self, call: ActionCall, changes: Sequence[Change]) -> dict[str, int]:
        """Which alternative each job will make, if a chained move depends on it."""
        if not any(move.then for move in call.moves):
            return {}
        statement = call.statements.chosen(call.moves)
        params = call.statements.params_for(statement, changes, call.params)
        rows = self._writer.execute(statement.sql, params).fetchall()
        return {changes[row[0]].id: row[1] for row in rows if row[1] is not None}

    def _insert(self, statements: Statements, jobs: Sequence[NewJobRow], params: dict[str, Any]) -> set[str]:
        params = self._with_time(params)
        with self.transaction() as writer:
            rows = statements.enqueue(jobs, "enqueue_jobs")
            row_params = statements.params_for(rows, jobs, params)
            inserted = writer.execute(rows.sql, row_params).fetchall()
            bodies = statements.enqueue(jobs, "enqueue_bodies")
            writer.execute(bodies.sql, statements.params_for(bodies, jobs, params))
        return {row[0] for row in inserted}

    # Notes, counters, pauses and health

    def compact(self, queue: str) -> int:
        """Nothing to merge: SQLite's counters always have one row for each edge."""
        self.statements(queue)
        return 0

    def scan(self, queue: str) -> Iterator[tuple[Job, list[Event]]]:
        reader = self._reading() if self._in_memory else self._connections.scanning()
        with disk_errors_translated(self.path), reader as connection:
            connection.execute("BEGIN")
            try:
                sql = f"{self._whole_jobs} WHERE j.queue = ? ORDER BY j.id"
                jobs = connection.execute(sql, (queue,))
                events = connection.execute(f"SELECT {event_columns(SQLITE)} FROM event ORDER BY job_id, seq")
                yield from self._join_events(iter(jobs), iter(events))
            finally:
                connection.execute("ROLLBACK")

    def health(self) -> dict[str, str | int]:
        pages = self._read("PRAGMA page_count", {})[0][0]
        report: dict[str, str | int] = {
            "store": "sqlite",
            "version": sqlite3.sqlite_version,
            "path": self.path,
            "bytes": pages * self._read("PRAGMA page_size", {})[0][0],
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
