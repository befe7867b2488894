"""The connection pool for PostgreSQL, which reconnects and translates errors."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolTimeout

from kesin.foundation.clock import SystemClock
from kesin.foundation.forks import ForkAware, keep_for_ever
from kesin.store.errors import GuardRefused, StoreError, StoreUnreachable
from kesin.store.postgres.connection import CONNECTION, TimedConnection
from kesin.store.postgres.reachability import is_final, lasting_failure

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
CONNECTION_POLL_S = 1.0  # how often a thread that waits for a connection asks again


class TransactionRolledBack(StoreUnreachable):
    """The server rolled this transaction back to resolve a deadlock or a conflict."""


class PostgresPool(ForkAware):
    """Up to ``size`` connections of one process, opened on demand."""

    def __init__(self, url: str, *, size: int, timeout_s: float, response_timeout_s: float) -> None:
        self._url = url
        self._size = size
        self._timeout_s = timeout_s
        self._response_timeout_s = response_timeout_s
        self._lock = threading.Lock()
        self._pool: ConnectionPool[TimedConnection] | None = None  # until its first use
        self.watch_forks()

    def wait(self, wait_s: float) -> None:
        """Reach the server, asked every second (a pool pauses for longer), or raise StoreError."""
        why = lasting_failure(self._url, wait_s)
        if why is None:
            with suppress(PoolTimeout):
                self._opened().wait(self._timeout_s)
                return
            why = "it responds now, try again"
        tried = "" if is_final(why) else f" within {wait_s:.3g} s"
        raise StoreError(f"cannot open the PostgreSQL database{tried}: {why}")

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def after_fork_in_child(self) -> None:
        """Leave the pool to the parent: to close it would wait for threads that are not here."""
        inherited, self._pool, self._lock = self._pool, None, threading.Lock()
        if inherited is not None:
            closed, inherited._closed = inherited.closed, True  # noqa: SLF001
            keep_for_ever(inherited)
            self._pool = inherited if closed else None

    def _opened(self) -> ConnectionPool[TimedConnection]:
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self._url,
                    connection_class=TimedConnection,
                    kwargs={"prepare_threshold": None, **CONNECTION},
                    configure=self._hurry,
                    min_size=1,
                    max_size=self._size,
                    timeout=self._timeout_s,
                    reconnect_timeout=RECONNECT_TIMEOUT_S,
                    open=True,
                )
            return self._pool

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
        except errors.CheckViolation as problem:
            why = problem.diag.message_primary or ""
            if bound or not why.startswith("kesin: "):
                raise
            raise GuardRefused(why) from problem
        except _AWAY as problem:
            if problem.sqlstate and problem.sqlstate.startswith(_UNDONE_STATES):
                raise TransactionRolledBack(
                    f"PostgreSQL rolled it back, try again: {problem}"
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
                return ending.enter_context(
                    self._opened().connection(min(CONNECTION_POLL_S, left_s))
                )
            except PoolTimeout:
                if left_s <= CONNECTION_POLL_S:
                    raise
