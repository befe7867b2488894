"""A transaction of the caller's own psycopg connection, in which the store makes its calls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from kesin.store.errors import StoreError
from kesin.store.within import driver_connection, no_transaction, not_ours

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
            wanted = "give a connection of psycopg 3, or of SQLAlchemy or Django on it"
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
