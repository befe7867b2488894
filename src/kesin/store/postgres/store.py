"""The store for several machines: PostgreSQL through psycopg 3 and a pool.

Every call is one statement in autocommit; a chain is one transaction. If some jobs of a call do not
move, a second statement finds out why; a caller that is cut off in between repeats the call as
usual. No session state is needed, so a transaction pooler may be used. Statements are not prepared:
a plan made for an empty table would be kept while the table grows. Only claims are, for some
seconds, on connections of their own. NOTIFY only shortens a wait; polling alone is enough.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any, cast

import psycopg
from psycopg import errors

from kesin.lifecycle.model import Change, Job, meter_of
from kesin.store.declarations import Edge, Effects
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.ownership import Ownership
from kesin.store.postgres.callers import Callers, CallersPostgres, enqueue_within, refuse_what_is_ignored
from kesin.store.postgres.connections import (
    MANY_JOBS,
    PlannedClaims,
    PostgresListener,
    PostgresPool,
    TimedConnection,
    TransactionRolledBack,
)
from kesin.store.records import Event, NewJobRow, Outcome
from kesin.store.sql.columns import event_columns
from kesin.store.sql.dialect import Dialect, fill, template
from kesin.store.sql.inserter import MAX_CONFLICT_ATTEMPTS
from kesin.store.sql.migrate import migrations, pending_migrations
from kesin.store.sql.statements import Statements
from kesin.store.sql.store import ActionCall, Conflict, SqlStore, moved_outcomes

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_IN_INDEX_ORDER = (
    "SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true),"
    " set_config('enable_seqscan', 'off', true)"
)
METER_WAIT_MS = 1_000  # at most, for another claim of the same tenant
SCAN_ROWS = 2_000  # fetched at a time by a scan


def _dialect(schema: str) -> Dialect:
    return Dialect(
        name="postgres",
        greater=lambda left, right: f"greatest({left}, {right})",
        now="(SELECT t FROM clock)",
        modulo="%%",  # psycopg reads a single one as a placeholder
        param=lambda name: f"%({name})s",
        table=lambda name: f"{schema}.{name}",
        array=lambda values: None if values is None else list(values),
        is_in=lambda column, name: f"{column} = ANY(%({name})s::text[])",
        given_slot="(SELECT slots FROM chosen) ->> j.id::text",
        fragments={
            "as_text": "::text",
            "among_ids": "= ANY(%(ids)s::uuid[])",
            "among_names": "= ANY(%(names)s::text[])",
            "keep_lock": " FOR KEY SHARE",
            "news": "TRUE",  # a parent may end before this is committed
            "skip_locked": " FOR UPDATE SKIP LOCKED",
            "now": "coalesce(%(now)s::bigint, (extract(epoch FROM now()) * 1000000)::bigint)",
            "pairs": "(SELECT (v.value ->> 0)::uuid AS child, (v.value ->> 1)::uuid AS parent"
            " FROM jsonb_array_elements(%(pairs)s::jsonb) v)",
        },
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
        response_timeout_s: float = 60.0,
        wait_s: float | None = None,  # for the server to be reached; else timeout_s
        listen: bool = True,
        migrate: bool = False,
    ) -> None:
        super().__init__()
        if not _SCHEMA_NAME.fullmatch(schema):
            raise StoreError(f"{schema!r} is not a schema name: lower-case letters, digits and _")
        self.schema = schema
        self.dialect = _dialect(schema)
        self._ownership = Ownership[TimedConnection | CallersPostgres]()
        self._callers = Callers(self._read)
        self._schema_checked = False  # whether the schema is known to match this code
        self._pool = PostgresPool(url, size=pool_size, timeout_s=timeout_s, response_timeout_s=response_timeout_s)
        self._listener = PostgresListener(url, schema, self._notifier) if listen else None
        self._planned_claims = PlannedClaims(url) if listen else None
        with ExitStack() as opened:
            opened.callback(self.close)
            self._pool.wait(timeout_s if wait_s is None else wait_s)
            if migrate:
                self.migrate()
            opened.pop_all()  # success: keep it open

    # Connections and transactions

    def _connection(self) -> AbstractContextManager[TimedConnection]:
        """The connection of the caller's transaction, or a connection of the pool."""
        joined = self._ownership.joined()
        if isinstance(joined, CallersPostgres):  # its errors are the caller's
            return nullcontext(cast("TimedConnection", joined))
        return self._pool.connection(joined)

    @contextmanager
    def transaction(self) -> Iterator[TimedConnection]:
        with self._connection() as connection, connection.transaction(), self._ownership.held(connection):
            yield connection

    def _join(self, connection: Any) -> AbstractContextManager[None]:
        return self._ownership.held(self._callers.admit(connection), callers=True)

    async def enqueue_within(
        self, queue: str, job: NewJobRow, connection: Any, *, actor: str, now: int | None = None
    ) -> Outcome:
        refuse_what_is_ignored(queue, job, now)
        return await enqueue_within(self.schema, self._callers, queue, job, connection, actor=actor)

    @contextmanager
    def _savepoint(self, *, single: bool = False) -> Iterator[None]:
        try:
            with nullcontext() if single and not self._in_transaction else self.transaction():
                yield
        except errors.UniqueViolation as problem:
            raise Conflict from problem

    @contextmanager
    def _sweeping(self) -> Iterator[psycopg.Connection[Any]]:
        """Make the planner read candidates in index order, however few it expects."""
        with self.transaction() as connection:
            connection.execute(_IN_INDEX_ORDER)
            yield connection

    @property
    def _in_transaction(self) -> bool:
        return self._ownership.joined() is not None

    def _rows(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        for attempt in range(MAX_CONFLICT_ATTEMPTS):
            try:
                with self._connection() as connection:
                    cursor = connection.execute(sql, params)
                    return cursor.fetchall() if cursor.description else []
            except TransactionRolledBack:
                if self._in_transaction or attempt == MAX_CONFLICT_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _run_each(self, sql: str, rows: list[dict[str, Any]]) -> None:
        if isinstance(self._ownership.joined(), CallersPostgres):
            super()._run_each(sql, rows)
            return
        with self._connection() as connection:
            connection.cursor().executemany(sql, rows)  # without a wait after each

    def _read(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._rows(sql, params)

    def close(self) -> None:
        if self._listener:
            self._listener.stop()
        if self._planned_claims:
            self._planned_claims.close()
        self._pool.close()

    # Schema

    def lock_schema(self) -> None:
        """Block other migrations and restores until this transaction ends."""
        self._lock(f"kesin:{self.schema}")

    def _lock(self, name: str) -> None:
        self._rows("SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 0))", {"name": name})

    def migrate(self, *, up_to: int | None = None) -> list[str]:
        """Apply pending migrations; a restore first goes only up to the backup's version."""
        with self.transaction() as connection, connection.without_timeout():
            self.lock_schema()
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self.schema}.schema_migration ("
                "version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,"
                " applied_at timestamptz NOT NULL DEFAULT now())"
            )
            table = f"{self.schema}.schema_migration"
            rows = connection.execute(f"SELECT version, checksum FROM {table}").fetchall()
            pending = pending_migrations(migrations("postgres"), dict(rows))
            pending = [each for each in pending if up_to is None or each.version <= up_to]
            for migration in pending:
                connection.execute(fill(migration.text, {"schema": self.schema}))
                connection.execute(
                    f"INSERT INTO {table} (version, name, checksum) VALUES (%s, %s, %s)",
                    (migration.version, migration.name, migration.checksum),
                )
        return list(map(str, pending))

    def _require_schema(self) -> None:
        """Refuse a schema that is newer or older than this code."""
        if self._schema_checked:
            return
        rows = self._read(f"SELECT version, checksum FROM {self.schema}.schema_migration", {})
        pending = pending_migrations(migrations("postgres"), dict(rows))
        if pending:
            names = ", ".join(map(str, pending))
            raise StoreError(f"the schema {self.schema} lacks {names}: run `kesin migrate` first")
        self._callers.learn_database()
        self._schema_checked = True

    def declared(self, queue: str) -> dict[Edge, Effects]:
        try:
            self._require_schema()
            return super().declared(queue)
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            raise StoreError(f"the schema {self.schema} has no Kesin tables: run `kesin migrate` first") from None

    def _lock_rules(self, queue: str) -> None:
        self._lock(f"kesin:{self.schema}:rules:{queue}")

    def _lock_jobs(self) -> None:
        self._rows(f"LOCK TABLE {self.dialect.table('job')} IN SHARE ROW EXCLUSIVE MODE", {})

    # Statements

    def wait(self, queue: str, since: int, timeout_s: float) -> None:
        if self._planned_claims:
            self._planned_claims.open()
        super().wait(queue, since, timeout_s)

    def _claim(self, statements: Statements, params: dict[str, Any]) -> list[Job]:
        sql = statements.claim(named="tenants" in params, among="ids" in params)
        rows = self._planned_claim(statements, sql, params)
        if rows is None and any(state.per_tenant for state in statements.lifecycle.states):
            with self.transaction():  # it is long, and compiling it takes longer than it
                self._rows("SELECT set_config('jit', 'off', true)", {})
                rows = self._rows(sql, params)
        elif rows is None:
            rows = self._rows(sql, params)
        if not rows and "ids" not in params and not self._in_transaction:
            rows = self._claim_after_others(statements, sql, params)
        return statements.claim_decoder.jobs(rows, params)

    def _claim_after_others(self, statements: Statements, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Claim again where another claim had the rate of a tenant with due jobs."""
        rated = meter_of(statements.lifecycle.claims[0]) is not None
        for job in self._peek(statements, {**params, "limit": 1}) if rated else ():
            with suppress(StoreUnreachable), self.transaction():  # its timeout counts as that
                settings = f"set_config('lock_timeout', '{METER_WAIT_MS}', true)"
                self._rows(f"SELECT {settings}, set_config('jit', 'off', true)", {})
                self._rows(self._beside("await_meter"), {**params, "tenant": job.tenant})
                return self._rows(sql, params)
        return []

    def _planned_claim(self, statements: Statements, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]] | None:
        """The rows of a claim that is planned already; None if it was not made."""
        if self._planned_claims is None or "ids" in params or self._in_transaction:
            return None
        rated = bool(meter_of(statements.lifecycle.claims[0]))
        rows = self._planned_claims.rows(sql, params, alone=rated)
        if params["limit"] >= MANY_JOBS:
            self._planned_claims.open()
        return rows

    def _peek(self, statements: Statements, params: dict[str, Any]) -> list[Job]:
        rows = self._read(statements.peek(named="tenants" in params), params)
        return [Job._make(row) for row in rows]

    def _judge(self, call: ActionCall, changes: Sequence[Change]) -> dict[str, Outcome]:
        outcomes = self._move_uniform(call, changes)
        unmoved = [change for change in changes if change.id not in outcomes] if outcomes else changes
        if not unmoved:
            return outcomes
        verdicts, lost = self._judge_each(call, unmoved)
        outcomes |= verdicts
        if not lost:
            return outcomes
        # A statement that waited for a row's lock saw the events from before the wait: repeat it.
        unmoved = [change for change in unmoved if change.id in lost]
        second_outcomes, still_lost = self._judge_each(call, unmoved)
        self._note_stale(call, still_lost)
        return outcomes | second_outcomes

    def _move_uniform(self, call: ActionCall, changes: Sequence[Change]) -> dict[str, Outcome]:
        """Move jobs without judging each: for uniform input, with no chain and no contention."""
        statements, moves, params, _ = call
        if statements.contested(moves) or any(move.then for move in moves):
            return {}
        statement = statements.apply_uniform(moves, changes)
        if statement is None:
            return {}
        call_params = statements.params_for(statement, changes, params)
        return moved_outcomes(self._rows(statement.sql, call_params))

    def _judge_each(self, call: ActionCall, changes: Sequence[Change]) -> tuple[dict[str, Outcome], dict[str, str]]:
        """The outcomes, and the tenants of the jobs whose claim seems lost."""
        statement = call.statements.apply(call.moves, changes)
        call_params = call.statements.params_for(statement, changes, call.params)
        rows = self._rows(statement.sql, call_params)
        outcomes, lost = self._refusals(changes, [row for row in rows if not row[1].isdigit()])
        for position, verdict, state, seq, _ in [row for row in rows if row[1].isdigit()]:
            job_id = changes[position].id
            outcomes[job_id] = Outcome("moved", job_id, state, seq)
            call.chosen[job_id] = int(verdict)
        return outcomes, lost

    def _insert(self, statements: Statements, jobs: Sequence[NewJobRow], params: dict[str, Any]) -> set[str]:
        in_order = sorted(jobs, key=lambda job: (job.tenant, job.dedup_key or "", job.id))
        statement = statements.enqueue(in_order)
        call_params = statements.params_for(statement, in_order, params)
        return {row[0] for row in self._rows(statement.sql, call_params)}

    # Notes, counters, pauses and health

    def compact(self, queue: str) -> int:
        """Merge the append-only counter rows; concurrent calls never merge the same row twice."""
        return int(self._rows(self.statements(queue).plain("compact"), {"queue": queue})[0][0])

    def scan(self, queue: str) -> Iterator[tuple[Job, list[Event]]]:
        columns, table = event_columns(self.dialect), self.dialect.table("event")
        jobs = f"{self._whole_jobs} WHERE j.queue = %(queue)s ORDER BY j.id"
        events = f"SELECT {columns} FROM {table} ORDER BY job_id, seq"
        with self._connection() as connection, connection.without_timeout(), connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            with connection.cursor("kesin_jobs") as rows, connection.cursor("kesin_events") as history:
                rows.itersize = history.itersize = SCAN_ROWS
                rows.execute(jobs, {"queue": queue})
                history.execute(events)
                yield from self._join_events(iter(rows), iter(history))

    def health(self) -> dict[str, str | int]:
        sql = fill(template("postgres", "health"), {"schema": self.schema})
        row = self._read(sql, {"schema": self.schema})[0]
        names = ("store", "version", "schema", "bytes", "oldest_snapshot_s", "dead_rows")
        return dict(zip(names, ("postgres", row[0], self.schema, *row[1:]), strict=True))
