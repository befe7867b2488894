"""The embedded store: one SQLite file, several processes on one machine.

One writer connection a process, taken in turn; readers have their own and never wait. Before a
write, processes queue on a lock file: SQLite's own busy handler lets one of them starve.
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
from kesin.store.records import Event, NewJob, Outcome, refusal
from kesin.store.sql.columns import event_columns, job_columns
from kesin.store.sql.inserter import Remark
from kesin.store.sql.migrate import migrations, outstanding
from kesin.store.sql.statements import Statements
from kesin.store.sql.store import Conflict, SqlStore, as_moved
from kesin.store.sql.templates import fill, template
from kesin.store.sqlite.connection import SQLITE, check_version, closed_after, connect
from kesin.store.sqlite.file import Turns, told, trouble


class SqliteStore(SqlStore):
    """Jobs in a file, or in memory with ``:memory:`` (one process, gone at the end)."""

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
        self._owner = 0  # the thread inside a transaction
        self._local = threading.local()
        self._readers: list[tuple[threading.Thread, sqlite3.Connection]] = []
        self._writer = self._connect()
        with ExitStack() as opened:
            opened.callback(self._writer.close)
            with told(self.path):
                self._turns = Turns(None if self._in_memory else Path(self.path + ".lock"))
            opened.callback(self._turns.close)
            self.migrate()
            opened.pop_all()  # all is well: they stay

    def _connect(self, *, reader: bool = False) -> sqlite3.Connection:
        return connect(self.path, busy_timeout_s=self._busy_timeout_s, reader=reader)

    # Connections and transactions

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._depth:
                yield from self._nested()
                return
            with self._turns.mine():
                self._begin()
                self._depth = 1
                self._owner = threading.get_ident()
                try:
                    yield self._writer
                    self._writer.execute("COMMIT")
                except BaseException as problem:
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")
                    if isinstance(problem, sqlite3.Error) and (
                        found := trouble(problem, self.path)
                    ):
                        raise found from problem
                    raise
                finally:
                    self._depth = self._owner = 0

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
            raise  # a store that was closed does not come back
        except sqlite3.DatabaseError as problem:
            away = StoreUnreachable(f"the database {self.path} cannot be written: {problem}")
            raise trouble(problem, self.path) or away from problem

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        try:
            with self.transaction():
                yield
        except sqlite3.IntegrityError as problem:
            # NOT NULL: of two jobs picked with one key the first took it, and no move is left for
            # the second.
            if "UNIQUE" in str(problem) or "NOT NULL" in str(problem):
                raise Conflict from problem
            raise

    @property
    def _reader(self) -> sqlite3.Connection:
        if self._in_memory or self._owner == threading.get_ident():
            return self._writer
        reader: sqlite3.Connection | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._connect(reader=True)
            self._keep_reader(reader)
        return reader

    def _keep_reader(self, reader: sqlite3.Connection) -> None:
        """Remember a thread's reader, and close those of threads that have ended."""
        with self._lock:
            for thread, old in self._readers:
                if not thread.is_alive():
                    old.close()
            self._readers = [one for one in self._readers if one[0].is_alive()]
            self._readers.append((threading.current_thread(), reader))

    def _rows(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self.transaction():
            return self._writer.execute(sql, self._timed(params)).fetchall()

    def _read(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        params = self._timed(params)
        if self._in_memory:
            with self._lock:
                return self._writer.execute(sql, params).fetchall()
        with told(self.path):
            return self._reader.execute(sql, params).fetchall()

    def _timed(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, "now": wall_clock_us()} if params.get("now", 0) is None else params

    def close(self) -> None:
        with self._lock:
            for _, reader in self._readers:
                reader.close()
            self._readers.clear()
            self._writer.close()
            self._turns.close()

    # Schema

    def migrate(self) -> list[str]:
        with self.transaction():
            self._writer.execute(
                "CREATE TABLE IF NOT EXISTS schema_migration (version INTEGER PRIMARY KEY,"
                " name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT"
            )
            rows = self._writer.execute("SELECT version, checksum FROM schema_migration")
            todo = outstanding(migrations("sqlite"), dict(rows.fetchall()))
            for one in todo:
                for statement in _split(one.text):
                    self._writer.execute(statement)
                self._writer.execute(
                    "INSERT INTO schema_migration VALUES (?, ?, ?, ?)",
                    (one.version, one.name, one.checksum, wall_clock_us()),
                )
        return [f"{one.version:04d}_{one.name}" for one in todo]

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
        """Read what is due, as the claim makes it, and claim it: nobody comes between."""
        with self.transaction():
            params = self._timed(params)
            rows = self._due(statements, params)
            if rows:
                ids = json.dumps([row[0] for row in rows])
                self._writer.execute(statements.claim(), {**params, "ids": ids})
        return statements.claim_row.jobs(rows, params)

    def _due(self, statements: Statements, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The due jobs, tenants taking turns, in the order they are due."""
        if "ids" in params:
            return self._writer.execute(statements.claim_among, params).fetchall()
        tenants = statements.claim_tenants(named="tenants" in params)
        open_ = self._writer.execute(tenants, params).fetchall()
        if len(open_) == 1:
            one = {**params, "tenant": open_[0][0], "share": params["limit"]}
            return self._writer.execute(statements.claim_alone, one).fetchall()
        share = -(-params["limit"] // max(len(open_), 1))
        turns: list[tuple[int, int, str, tuple[Any, ...]]] = []
        for (tenant,) in open_:
            one = {**params, "tenant": tenant, "share": share}
            due = self._writer.execute(statements.claim_pick, one).fetchall()
            turns += [(turn, row[-1], row[0], row[:-1]) for turn, row in enumerate(due)]
        served = sorted(turns, key=itemgetter(0, 1, 2))[: params["limit"]]
        return [row for *_, row in sorted(served, key=itemgetter(1, 2))]

    def _judge(
        self,
        statements: Statements,
        moves: tuple[Move, ...],
        changes: Sequence[Change],
        params: dict[str, Any],
        made: dict[str, int],
    ) -> dict[str, Outcome]:
        statement = statements.apply_alike(moves, changes) or statements.apply(moves, changes)
        params = self._timed(params)
        said = self._said(statements, statement, changes, params)
        with self.transaction():
            chosen = self._chosen(statements, moves, changes, params)
            answer = self._writer.execute(statement.sql, said).fetchall()
            judged = as_moved(answer)
            if len(judged) < len(changes):
                left = [one for one in changes if one.id not in judged]
                judged |= self._why_not(statements, moves, left, params)
        made |= {id_: which for id_, which in chosen.items() if judged[id_].result == "moved"}
        return judged

    def _chosen(
        self,
        statements: Statements,
        moves: tuple[Move, ...],
        changes: Sequence[Change],
        params: dict[str, Any],
    ) -> dict[str, int]:
        """Which alternative each job will make, where that decides what follows."""
        if not any(move.then for move in moves):
            return {}
        statement = statements.chosen(moves)
        items = statements.items(statement, changes)
        rows = self._writer.execute(statement.sql, {**params, "items": items}).fetchall()
        return {changes[row[0]].id: row[1] for row in rows if row[1] is not None}

    def _why_not(
        self,
        statements: Statements,
        moves: tuple[Move, ...],
        left: Sequence[Change],
        params: dict[str, Any],
    ) -> dict[str, Outcome]:
        statement = statements.reasons(moves)
        items = statements.items(statement, left)
        rows = self._writer.execute(statement.sql, {**params, "items": items}).fetchall()
        judged: dict[str, Outcome] = {}
        remarks: list[Remark] = []
        for position, why, state, seq, tenant in rows:
            id_ = left[position].id
            judged[id_] = refusal(why, id_, state, seq or 0)
            if why == "stale":
                remarks.append(Remark(id_, tenant, moves[0].call))
        if remarks:
            self._remark(statements, "stale", remarks, params["actor"], params["now"])
        return judged

    def _insert(
        self, statements: Statements, jobs: Sequence[NewJob], params: dict[str, Any]
    ) -> set[str]:
        params = self._timed(params)
        rows, bodies = statements.enqueue("enqueue_jobs"), statements.enqueue("enqueue_bodies")
        with self.transaction():
            items = statements.items(rows, jobs)
            born = self._writer.execute(rows.sql, {**params, "items": items}).fetchall()
            items = statements.items(bodies, jobs)
            self._writer.execute(bodies.sql, {**params, "items": items})
        return {row[0] for row in born}

    # The rest

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
        """Nothing to fold: SQLite's counters are one row an edge from the start."""
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
            gone = self._writer.execute(
                "DELETE FROM paused WHERE queue = ? AND tenant = ?", (queue, tenant)
            ).rowcount
        self._pulses.beat(queue)
        return gone > 0

    def scan(self, queue: str) -> Iterator[tuple[Job, list[Event]]]:
        connection = self._writer if self._in_memory else self._connect(reader=True)
        with told(self.path), self._lock if self._in_memory else closed_after(connection):
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
                yield from self._pair_up(iter(jobs), iter(events))
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
    """The statements of a script; trigger bodies hold semicolons of their own."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
