"""The store for several machines: PostgreSQL through psycopg 3 and a pool.

Every call is one statement in autocommit, a chain one transaction. No session state is kept, so a
transaction pooler may stand in between. NOTIFY only shortens a wait; polling alone is enough.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolTimeout

from kesin.lifecycle.declare import Move
from kesin.lifecycle.model import Change
from kesin.store.compile import Dialect
from kesin.store.contract import Event, Job, NewJob, StoreError
from kesin.store.listener import Listener
from kesin.store.migrate import migrations, outstanding
from kesin.store.sqlstore import CONFLICT_TRIES, Conflict, Judged, SqlStore
from kesin.store.statements import Statements, event_columns, fill, job_columns, template

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_NOW = "coalesce(%(now)s::bigint, (extract(epoch FROM now()) * 1000000)::bigint)"
_TRANSIENT = (errors.DeadlockDetected, errors.SerializationFailure)
SCAN_ROWS = 2_000  # fetched at a time when everything is read


def _dialect(schema: str) -> Dialect:
    return Dialect(
        name="postgres",
        greatest="greatest",
        now="(SELECT t FROM clock)",
        param=lambda name: f"%({name})s",
        table=lambda name: f"{schema}.{name}",
    )


class PostgresStore(SqlStore):
    """Jobs in a schema of a PostgreSQL database."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "kesin",
        pool_size: int = 10,
        timeout_s: float = 30.0,
        listen: bool = True,
        migrate: bool = False,
    ) -> None:
        super().__init__()
        if not _SCHEMA_NAME.fullmatch(schema):
            raise StoreError(f"{schema!r} is no schema name: lower-case letters, digits and _")
        self.schema = schema
        self.dialect = _dialect(schema)
        self._timeout_s = timeout_s
        self._local = threading.local()
        self._pool = ConnectionPool(
            url,
            min_size=1,
            max_size=pool_size,
            timeout=timeout_s,
            kwargs={"autocommit": True},
            check=None,
            open=True,
        )
        self._listener = Listener(url, schema, self._pulses) if listen else None
        try:
            self._pool.wait(timeout_s)
        except PoolTimeout as problem:
            self.close()
            raise StoreError(f"cannot reach PostgreSQL within {timeout_s:g} s") from problem
        if migrate:
            self.migrate()

    # Connections and transactions

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        bound: psycopg.Connection[Any] | None = getattr(self._local, "connection", None)
        if bound is not None:
            yield bound
            return
        try:
            with self._pool.connection() as connection:
                yield connection
        except PoolTimeout as problem:
            raise StoreError(
                f"no connection to PostgreSQL within {self._timeout_s:g} s"
            ) from problem
        except psycopg.OperationalError as problem:
            raise StoreError(f"PostgreSQL is not reachable: {problem}") from problem

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._connection() as connection, connection.transaction():
            before = getattr(self._local, "connection", None)
            self._local.connection = connection
            try:
                yield
            finally:
                self._local.connection = before

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        try:
            with self.transaction():
                yield
        except errors.UniqueViolation as problem:
            raise Conflict from problem

    @property
    def _in_transaction(self) -> bool:
        return getattr(self._local, "connection", None) is not None

    def _rows(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        for attempt in range(CONFLICT_TRIES):
            try:
                with self._connection() as connection:
                    cursor = connection.execute(sql, params)
                    return cursor.fetchall() if cursor.description else []
            except _TRANSIENT:
                if self._in_transaction or attempt == CONFLICT_TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _read(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._rows(sql, params)

    def close(self) -> None:
        if self._listener:
            self._listener.stop()
        self._pool.close()

    # Schema

    def migrate(self) -> list[str]:
        with self._connection() as connection, connection.transaction():
            connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"kesin:{self.schema}",)
            )
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self.schema}.schema_migration ("
                "version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,"
                " applied_at timestamptz NOT NULL DEFAULT now())"
            )
            table = f"{self.schema}.schema_migration"
            rows = connection.execute(f"SELECT version, checksum FROM {table}").fetchall()
            todo = outstanding(migrations("postgres"), dict(rows))
            for one in todo:
                text = fill(one.text, {"schema": self.schema})
                connection.execute(text)
                connection.execute(
                    f"INSERT INTO {table} (version, name, checksum) VALUES (%s, %s, %s)",
                    (one.version, one.name, one.checksum),
                )
        return [f"{one.version:04d}_{one.name}" for one in todo]

    def _write_declared(self, queue: str, rows: list[tuple[object, ...]], definition: str) -> None:
        table = self.dialect.table
        try:
            known = self._read(
                f"SELECT * FROM {table('declared')} WHERE queue = %(queue)s",
                {"queue": queue},
            )
        except errors.UndefinedTable:
            raise StoreError(
                f"the schema {self.schema} has no kesin tables: run `kesin migrate` first"
            ) from None
        if {tuple(row) for row in rows} == {tuple(row) for row in known}:
            return
        marks = ", ".join(["%s"] * len(rows[0]))
        with self.transaction(), self._connection() as connection:
            with connection.cursor() as cursor:
                cursor.executemany(
                    f"INSERT INTO {table('declared')} AS d VALUES ({marks})"
                    " ON CONFLICT (queue, move, from_state, to_state) DO UPDATE SET"
                    " phase = excluded.phase, mask = d.mask | excluded.mask",
                    sorted(rows, key=str),
                )
            self._rows(
                f"INSERT INTO {table('lifecycle')} VALUES (%(queue)s, "
                "(extract(epoch FROM now()) * 1000000)::bigint, %(definition)s)"
                " ON CONFLICT (queue) DO UPDATE SET definition = excluded.definition",
                {"queue": queue, "definition": definition},
            )

    def wait(self, queue: str, since: int, timeout_s: float) -> None:
        if self._listener:
            self._listener.start()
        super().wait(queue, since, timeout_s)

    # Statements

    def _sql(self, name: str) -> str:
        """A statement that needs no lifecycle."""
        parts = {"schema": self.schema, "clock": template("postgres", "clock")}
        parts["tenants"] = fill(template("postgres", "tenants_ready"), parts)
        return fill(template("postgres", name), parts)

    def _array(self, values: Sequence[str] | None) -> Any:
        return None if values is None else list(values)

    def _is_in(self, column: str, name: str) -> str:
        return f"{column} = ANY(%({name})s::text[])"

    def _judge(
        self,
        statements: Statements,
        moves: tuple[Move, ...],
        changes: Sequence[tuple[int, Change]],
        params: dict[str, Any],
    ) -> list[Judged]:
        items = [
            _change_item(statements, position, change)
            for position, (_, change) in enumerate(changes)
        ]
        answer = self._rows(statements.apply(moves), {**params, "items": _spell(items)})
        return [Judged(changes[row[0]][0], row[1], row[2], row[3] or 0) for row in answer]

    def _insert(
        self, statements: Statements, jobs: Sequence[NewJob], params: dict[str, Any]
    ) -> set[str]:
        in_order = sorted(jobs, key=lambda job: (job.tenant, job.dedup_key or "", job.id))
        items = [_birth_item(statements, job) for job in in_order]
        rows = self._rows(statements.enqueue(), {**params, "items": _spell(items)})
        return {row[0] for row in rows}

    def _holders(
        self, statements: Statements, jobs: Sequence[NewJob]
    ) -> dict[int, tuple[str, str, int]]:
        items = [
            {"ord": ord_, "tenant": job.tenant, "dedup_key": job.dedup_key}
            for ord_, job in enumerate(jobs)
        ]
        params = {"queue": statements.queue, "items": _spell(items)}
        return {row[0]: (row[1], row[2], row[3]) for row in self._rows(statements.holders, params)}

    def renew(
        self,
        queue: str,
        claims: Sequence[tuple[str, int]],
        *,
        lease_us: int,
        now: int | None = None,
    ) -> set[str]:
        statements = self.statements(queue)
        items = [{"id": job_id, "token": token} for job_id, token in sorted(claims)]
        params = {"queue": queue, "lease_us": lease_us, "now": now, "items": _spell(items)}
        return {row[0] for row in self._rows(statements.renew, params)}

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
        params = {
            "queue": queue,
            "tenant": tenant,
            "job_id": job_id,
            "kind": kind,
            "actor": actor,
            "details": details,
            "now": now,
        }
        self._rows(
            f"INSERT INTO {self.dialect.table('note')}"
            " (queue, tenant, job_id, at, kind, actor, details) VALUES (%(queue)s, %(tenant)s,"
            f" %(job_id)s, {_NOW}, %(kind)s, %(actor)s, %(details)s)",
            params,
        )

    def _overdue(self, queue: str, now: int | None) -> tuple[int | None, int, int]:
        row = self._read(self._sql("overdue"), {"queue": queue, "now": now})[0]
        return row[0], row[1], row[2]

    def compact(self, queue: str) -> int:
        """Fold the append-only counter rows; two at once fold different rows, never one twice."""
        self.statements(queue)
        rows = self._rows(self._sql("compact"), {"queue": queue})
        return int(rows[0][0])

    def pause(
        self,
        queue: str,
        *,
        tenant: str = "",
        actor: str,
        reason: str | None = None,
        now: int | None = None,
    ) -> None:
        self._rows(
            f"INSERT INTO {self.dialect.table('paused')} VALUES (%(queue)s, %(tenant)s, {_NOW},"
            " %(actor)s, %(reason)s) ON CONFLICT DO NOTHING",
            {"queue": queue, "tenant": tenant, "actor": actor, "reason": reason, "now": now},
        )

    def resume(self, queue: str, *, tenant: str = "") -> bool:
        gone = self._rows(
            f"DELETE FROM {self.dialect.table('paused')}"
            " WHERE queue = %(queue)s AND tenant = %(tenant)s RETURNING 1",
            {"queue": queue, "tenant": tenant},
        )
        self._pulses.beat(queue)
        return bool(gone)

    def scan(self, queue: str) -> Iterator[tuple[Job, list[Event]]]:
        table = self.dialect.table
        jobs = (
            f"SELECT {job_columns(self.dialect)} FROM {table('job')} j"
            f" JOIN {table('job_body')} b ON b.id = j.id WHERE j.queue = %(queue)s ORDER BY j.id"
        )
        events = f"SELECT {event_columns(self.dialect)} FROM {table('event')} ORDER BY job_id, seq"
        with self._connection() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            with (
                connection.cursor("kesin_jobs") as rows,
                connection.cursor("kesin_events") as history,
            ):
                rows.itersize = history.itersize = SCAN_ROWS
                rows.execute(jobs, {"queue": queue})
                history.execute(events)
                yield from self._pair_up(iter(rows), iter(history))

    def health(self) -> dict[str, str | int]:
        row = self._read(self._sql("health"), {"schema": self.schema})[0]
        return {
            "store": "postgres",
            "version": row[0],
            "schema": self.schema,
            "bytes": row[1],
            "oldest_snapshot_s": row[2],
            "dead_rows": row[3],
        }


def _change_item(statements: Statements, ord_: int, change: Change) -> dict[str, Any]:
    said = {name: getattr(change, name) for name in _CHANGE_FIELDS}
    item = {name: value for name, value in said.items() if value is not None}
    return {"ord": ord_, "id": change.id, **item, **_stamps(statements, change.stamps)}


_CHANGE_FIELDS = (
    "token",
    "error_code",
    "error_category",
    "error_message",
    "result",
    "run_at",
    "payload",
    "max_attempts",
    "note",
)


def _birth_item(statements: Statements, job: NewJob) -> dict[str, Any]:
    said = {name: getattr(job, name) for name in NewJob._fields if name != "stamps"}
    item = {name: value for name, value in said.items() if value is not None}
    return item | _stamps(statements, job.stamps)


def _stamps(statements: Statements, stamps: Mapping[str, int]) -> dict[str, int]:
    return {statements.lifecycle.stamp_column(name): at for name, at in stamps.items()}


def _spell(items: list[dict[str, Any]]) -> str:
    return json.dumps(items, separators=(",", ":"), ensure_ascii=False)
