"""The connections to PostgreSQL: a pool that reconnects, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolTimeout

from kesin.foundation.clock import SystemClock
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.postgres.connection import CONNECTION, TimedConnection
from kesin.store.postgres.reachability import why_not

_CLOCK = SystemClock()
# What may be over in a moment: connection trouble; no room; a lock not had in time; a server that
# stops, starts, cancels what takes long, does not let us write, or did not hear from us for long.
_AWAY = (
    psycopg.OperationalError,
    errors.IdleInTransactionSessionTimeout,
    errors.ReadOnlySqlTransaction,
)
_AWAY_STATES = ("08", "25", "53", "55P03", "57")
_UNDONE_STATES = ("40",)
RECONNECT_S = 10.0  # after it the pool begins anew: its pauses double, and would become minutes
ASK_S = 1.0  # a thread that waits for a connection asks for it anew after it


class Undone(StoreUnreachable):
    """The server gave this transaction up, in favour of one it was locked with."""


class Pool:
    """Up to ``size`` connections of one process, opened when they are needed."""

    def __init__(self, url: str, *, size: int, timeout_s: float, answer_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._answer_s = answer_s
        self._pool = ConnectionPool(
            url,
            connection_class=TimedConnection,
            kwargs={"prepare_threshold": None, **CONNECTION},
            configure=self._hurry,
            min_size=1,
            max_size=size,
            timeout=timeout_s,
            reconnect_timeout=RECONNECT_S,
            open=True,
        )

    def wait(self) -> None:
        """Return when the server is reached; raises StoreError that says why it is not."""
        timeout_s = self._timeout_s
        try:
            self._pool.wait(timeout_s)
        except PoolTimeout as problem:
            self.close()
            why = why_not(self._url) or "it answers now, try again"
            raise StoreError(f"cannot reach PostgreSQL within {timeout_s:g} s: {why}") from problem

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    def _hurry(self, connection: TimedConnection) -> None:
        connection.answer_s = self._answer_s

    @contextmanager
    def connection(self, bound: TimedConnection | None = None) -> Iterator[TimedConnection]:
        """A connection for the block, ``bound`` where it is given; its trouble as store errors."""
        try:
            with ExitStack() as ending:
                yield bound or self._pooled(ending)
        except PoolTimeout as problem:
            raise StoreUnreachable(
                f"no connection to PostgreSQL within {self._timeout_s:g} s"
            ) from problem
        except _AWAY as problem:
            if problem.sqlstate and problem.sqlstate.startswith(_UNDONE_STATES):
                raise Undone(f"PostgreSQL undid it, try again: {problem}") from problem
            if problem.sqlstate and not problem.sqlstate.startswith(_AWAY_STATES):
                raise
            raise StoreUnreachable(f"PostgreSQL is not reachable: {problem}") from problem

    def _pooled(self, ending: ExitStack) -> TimedConnection:
        """Wait for a free connection; a pool that gave up reconnects only on the next request."""
        until = _CLOCK.monotonic() + self._timeout_s
        while True:
            left_s = until - _CLOCK.monotonic()
            try:
                return ending.enter_context(self._pool.connection(min(ASK_S, left_s)))
            except PoolTimeout:
                if left_s <= ASK_S:
                    raise
