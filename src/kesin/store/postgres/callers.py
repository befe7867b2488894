"""Transactions of the caller's own connection, psycopg's or an asynchronous one, for our calls."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from kesin.store.errors import StoreError
from kesin.store.ownership import driver_connection, no_transaction, not_ours
from kesin.store.records import NewJobRow, Outcome

# Which server, and which of its databases: the same through a pooler and under any name.
WHICH_DATABASE = (
    "SELECT oid::bigint, (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
    " FROM pg_database WHERE datname = current_database()"
)


class CallersPostgres:
    """Runs statements as the store needs them, whatever the connection's owner prefers."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, sql: str, params: dict[str, Any] | None = None) -> psycopg.Cursor[Any]:
        cursor = psycopg.Cursor(self._connection, row_factory=tuple_row)
        return cursor.execute(sql, params, prepare=False)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Its owner ends the transaction; an error in it undoes all of it."""
        yield


class Callers:
    """The callers' connections; each is asked once which database it leads to."""

    def __init__(self, read: Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]) -> None:
        self._read = read  # a statement on the store's own connection
        self.database: tuple[Any, ...] | None = None  # which one the store's is
        self._known: WeakSet[psycopg.Connection[Any]] = WeakSet()

    def learn_database(self) -> None:
        """Ask it before a caller holds what may be a pooler's last connection."""
        [self.database] = self._read(WHICH_DATABASE, {})

    def leads_here(self, found: tuple[Any, ...] | None) -> bool:
        """Whether this is the store's database; asks again if not: its server may be new."""
        if found != self.database:
            self.learn_database()
        return found == self.database

    def admit(self, given: Any) -> CallersPostgres:
        """The connection that was given, ready for statements of the store."""
        connection = driver_connection(given)
        if not isinstance(connection, psycopg.Connection):
            wanted = "give a psycopg 3 connection, or a SQLAlchemy or Django connection that uses psycopg 3"
            raise not_ours(connection, f"{wanted}, or call the SQL function enqueue")
        idle = connection.info.transaction_status == TransactionStatus.IDLE
        if connection.autocommit and idle:
            raise no_transaction("enqueue inside `with connection.transaction()`")
        if connection.pgconn.pipeline_status != PipelineStatus.OFF:
            raise StoreError("within: the connection is in pipeline mode: enqueue outside of it")
        if connection.info.encoding != "utf-8":
            raise StoreError("within: the connection's client_encoding must be UTF8")
        callers = CallersPostgres(connection)
        if connection not in self._known:
            if not self.leads_here(callers.execute(WHICH_DATABASE).fetchone()):
                if idle:
                    connection.rollback()  # the look began a transaction
                raise StoreError("within: the connection is to another database, not the queue's")
            self._known.add(connection)
        return callers


# Runs a statement whose places are {0}, {1} … with these values, and returns its only row.
_Fetch = Callable[[str, Sequence[Any]], Awaitable[Sequence[Any] | None]]
_TYPES = ("text", "text", "text", "boolean", "text", "integer", "bigint", "integer", "text")


def refuse_what_is_ignored(queue: str, job: NewJobRow, now: int | None) -> None:
    """Raise StoreError for what the SQL function has no parameter for."""
    if job.stamps or job.note:
        raise StoreError("within: an asynchronous connection supports neither stamps nor a note")
    if now is not None:
        raise StoreError(
            f"within: the queue {queue!r} has its own clock, but an asynchronous connection"
            " uses the database's time: use queue.enqueue(…, within=…) with a synchronous"
            " connection, or open the queue without clock=…"
        )


async def enqueue_within(
    schema: str, callers: Callers, queue: str, job: NewJobRow, given: Any, *, actor: str
) -> Outcome:
    """Enqueue in the transaction of ``given``, which must lead to the store's database."""
    fetch = await _fetcher(given)
    found = tuple(await fetch(WHICH_DATABASE, ()) or ())
    if found != callers.database and not await asyncio.to_thread(callers.leads_here, found):
        raise StoreError("within: the connection is to another database, not the queue's")
    places = [f"CAST({{{place}}} AS {kind})" for place, kind in enumerate(_TYPES)]
    places[6] = f"to_timestamp({places[6]} / 1000000.0)"
    values = (queue, job.payload, job.dedup_key, job.once, job.tenant, job.priority)
    row = await fetch(
        f"SELECT result, CAST(job_id AS text) FROM {schema}.enqueue({', '.join(places)})",
        (*values, job.run_at, job.max_attempts, actor),
    )
    assert row is not None  # noqa: S101  # a function has an answer
    return Outcome(row[0], row[1])


async def _fetcher(given: Any) -> _Fetch:
    """How to run a statement on what was given; raises StoreError unless it is in a transaction."""
    if hasattr(given, "sync_session"):  # SQLAlchemy
        given = await given.connection()
    if hasattr(given, "sync_connection"):
        raw = await given.get_raw_connection()
        if raw.dbapi_connection.autocommit:
            raise no_transaction("use another isolation level")
        return _by_sqlalchemy(given)
    if isinstance(given, AsyncConnection):
        if given.autocommit and given.info.transaction_status == TransactionStatus.IDLE:
            raise no_transaction("enqueue inside `async with connection.transaction()`")
        return _by_psycopg(given)
    if hasattr(given, "is_in_transaction"):  # asyncpg
        if not given.is_in_transaction():
            raise no_transaction("enqueue inside `async with connection.transaction()`")
        return lambda sql, values: given.fetchrow(_filled(sql, "${}", values, first=1), *values)
    raise not_ours(given, "give an asynchronous psycopg, asyncpg or SQLAlchemy connection")


def _by_psycopg(connection: AsyncConnection[Any]) -> _Fetch:
    async def fetch(sql: str, values: Sequence[Any]) -> Sequence[Any] | None:
        cursor = AsyncCursor(connection, row_factory=tuple_row)
        await cursor.execute(_filled(sql, "%s", values), values, prepare=False)
        return await cursor.fetchone()

    return fetch


def _by_sqlalchemy(connection: Any) -> _Fetch:
    from sqlalchemy import text  # installed, as the connection is one of it

    async def fetch(sql: str, values: Sequence[Any]) -> Sequence[Any] | None:
        params = {f"p{place}": value for place, value in enumerate(values)}
        result = await connection.execute(text(_filled(sql, ":p{}", values)), params)
        row: Sequence[Any] | None = result.fetchone()
        return row

    return fetch


def _filled(sql: str, place: str, values: Sequence[Any], *, first: int = 0) -> str:
    return sql.format(*(place.format(first + number) for number in range(len(values))))
