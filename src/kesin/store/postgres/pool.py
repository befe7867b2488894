"""The connection pool for PostgreSQL, which reconnects and translates errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolTimeout

from kesin.foundation.clock import SystemClock
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.postgres.connection import CONNECTION, TimedConnection
from kesin.store.postgres.reachability import connection_failure

_CLOCK = SystemClock()
# Temporary errors: a failed connection; no resources; a lock timeout; a server that stops, starts,
# cancels a slow statement, is read-only, or closed an idle transaction.
_AWAY = (
    psycopg.OperationalError,
    errors.IdleInTransactionSessionTimeout,
    errors.ReadOnlySqlTransaction,
)
_AWAY_STATES = ("08", "25", "53", "55P03", "57")
_UNDONE_STATES = ("40",)
RECONNECT_TIMEOUT_S = 10.0  # then the pool starts over: its pauses double and would reach minutes
CONNECTION_POLL_S = 1.0  # a thread that waits for a connection repeats its request so often


class TransactionRolledBack(StoreUnreachable):
    """The server rolled this transaction back to resolve a deadlock or a conflict."""


class PostgresPool:
    """Up to ``size`` connections of one process, opened on demand."""

    def __init__(self, url: str, *, size: int, timeout_s: float, response_timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._response_timeout_s = response_timeout_s
        self._pool = ConnectionPool(
            url,
            connection_class=TimedConnection,
            kwargs={"prepare_threshold": None, **CONNECTION},
            configure=self._hurry,
            min_size=1,
            max_size=size,
            timeout=timeout_s,
            reconnect_timeout=RECONNECT_TIMEOUT_S,
            open=True,
        )

    def wait(self) -> None:
        """Return when the server is reached; raise StoreError with the reason if it is not."""
        timeout_s = self._timeout_s
        try:
            self._pool.wait(timeout_s)
        except PoolTimeout as problem:
            self.close()
            why = connection_failure(self._url) or "it answers now, try again"
            raise StoreError(f"cannot reach PostgreSQL within {timeout_s:g} s: {why}") from problem

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    def _hurry(self, connection: TimedConnection) -> None:
        connection.response_timeout_s = self._response_timeout_s

    @contextmanager
    def connection(self, bound: TimedConnection | None = None) -> Iterator[TimedConnection]:
        """A connection for the block, ``bound`` if given; its errors are raised as store errors."""
        try:
            with ExitStack() as ending:
                yield bound or self._pooled(ending)
        except PoolTimeout as problem:
            raise StoreUnreachable(
                f"no connection to PostgreSQL within {self._timeout_s:g} s"
            ) from problem
        except _AWAY as problem:
            if problem.sqlstate and problem.sqlstate.startswith(_UNDONE_STATES):
                raise TransactionRolledBack(
                    f"PostgreSQL undid it, try again: {problem}"
                ) from problem
            if problem.sqlstate and not problem.sqlstate.startswith(_AWAY_STATES):
                raise
            raise StoreUnreachable(f"PostgreSQL is not reachable: {problem}") from problem

    def _pooled(self, ending: ExitStack) -> TimedConnection:
        """Wait for a free connection; a pool that gave up reconnects only on the next request."""
        until = _CLOCK.monotonic() + self._timeout_s
        while True:
            left_s = until - _CLOCK.monotonic()
            try:
                return ending.enter_context(self._pool.connection(min(CONNECTION_POLL_S, left_s)))
            except PoolTimeout:
                if left_s <= CONNECTION_POLL_S:
                    raise
