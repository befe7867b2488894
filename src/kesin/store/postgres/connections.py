"""Connections to PostgreSQL: with a response timeout, pooled, for claims, and for NOTIFY.

PostgreSQL takes longer to plan a small claim than to run it, and a job that wakes a worker waits
for both. So claims of workers that wait, or take jobs by the hundred, have connections of their
own, on which they are prepared, with plans in the order of indexes, however few rows there were.
Those are made again every few seconds; behind a pooler, where sessions change, there are none.
"""

import os
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolTimeout

from kesin.foundation.clock import monotonic
from kesin.foundation.forks import ForkAware, keep_for_ever
from kesin.store.errors import GuardRefused, StoreError, StoreUnreachable
from kesin.store.notify import LIVENESS_CHECK_S, POLL_S, RESPONSE_TIMEOUT_S, Notifier, QueueListener
from kesin.store.postgres.reachability import is_final, lasting_failure

APPLICATION = "kesin"  # a restore recognises other connections by it

CONNECTION: dict[str, Any] = {
    "autocommit": True,
    "fallback_application_name": APPLICATION,
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class TimedConnection(psycopg.Connection[TupleRow]):
    """A connection that closes when the server is silent for ``response_timeout_s`` in a call."""

    response_timeout_s: float | None = None  # None: no timeout

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._process = os.getpid()

    def close(self) -> None:
        """Close it, except in a child that was forked: that would end the parent's session."""
        if self._process == os.getpid():
            super().close()

    @contextmanager
    def without_timeout(self) -> Iterator[None]:
        """Disable the timeout for slow statements, such as an index over millions of rows."""
        before, self.response_timeout_s = self.response_timeout_s, None
        try:
            yield
        finally:
            self.response_timeout_s = before

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Wait as psycopg does, which resumes ``gen`` ten times a second, but with the timeout."""
        if self._process != os.getpid():
            raise psycopg.InterfaceError("this connection belongs to the parent process")
        if self.response_timeout_s is not None:
            gen = self._answered(gen, self.response_timeout_s)
        return super().wait(gen, *args, **kwargs)

    def _answered(self, gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
        heard = monotonic()
        try:
            wants = next(gen)
            while True:
                ready = yield wants
                if ready:
                    heard = monotonic()
                elif monotonic() - heard >= seconds:
                    self.close()  # a late response must not be taken for that of a later call
                    raise psycopg.OperationalError(f"no response within {seconds:g} s")
                wants = gen.send(ready)
        except StopIteration as ended:
            return ended.value


class PostgresListener(QueueListener):
    """Listens on one channel; the payload is the queue's name."""

    reconnect_errors = (psycopg.Error,)

    def __init__(self, url: str, channel: str, notifier: Notifier) -> None:
        super().__init__(notifier)
        self._url = url
        self._channel = channel

    def _messages(self) -> Generator[str | None, None, None]:
        with TimedConnection.connect(self._url, **CONNECTION) as connection:
            connection.response_timeout_s = RESPONSE_TIMEOUT_S
            connection.execute(f"LISTEN {self._channel}")
            checked = monotonic()
            while True:
                yield None
                for notice in connection.notifies(timeout=POLL_S, stop_after=1):
                    yield notice.payload
                if monotonic() - checked >= LIVENESS_CHECK_S:
                    connection.execute("SELECT 1")
                    checked = monotonic()


# Temporary errors: a failed connection; no resources; a lock timeout; a server that stops, starts,
# cancels a slow statement, is read-only, or closed an idle transaction.
_AWAY = (psycopg.OperationalError, errors.IdleInTransactionSessionTimeout, errors.ReadOnlySqlTransaction)
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
            raise StoreUnreachable(f"no connection to PostgreSQL within {self._timeout_s:g} s") from problem
        except errors.CheckViolation as problem:
            why = problem.diag.message_primary or ""
            if bound or not why.startswith("kesin: "):
                raise
            raise GuardRefused(why) from problem
        except _AWAY as problem:
            if problem.sqlstate and problem.sqlstate.startswith(_UNDONE_STATES):
                raise TransactionRolledBack(f"PostgreSQL rolled it back, try again: {problem}") from problem
            if problem.sqlstate and not problem.sqlstate.startswith(_AWAY_STATES):
                raise
            raise StoreUnreachable(f"PostgreSQL is not reachable: {problem}") from problem

    def _pooled(self, ending: ExitStack) -> TimedConnection:
        """Wait for a free connection; a pool that gave up reconnects only on the next request."""
        until = monotonic() + self._timeout_s
        while True:
            left_s = until - monotonic()
            try:
                return ending.enter_context(self._opened().connection(min(CONNECTION_POLL_S, left_s)))
            except PoolTimeout:
                if left_s <= CONNECTION_POLL_S:
                    raise


PLAN_S: Final = 10.0  # how long a plan is used
REOPEN_S: Final = 30.0  # a connection that failed is opened again no sooner
MOST_SESSIONS: Final = 2  # of a process, for claims at the same time
MANY_JOBS: Final = 100  # a claim of this many is worth a connection
_NEVER: Final = float("inf")
_SETTINGS: Final = (
    "SELECT set_config('plan_cache_mode', 'force_generic_plan', false),"
    " set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),"
    " set_config('jit', 'off', false)"
)


class PlannedClaims(ForkAware):
    """Runs one claim at a time, the next one another; other callers use the pool."""

    def __init__(self, url: str, most: int = MOST_SESSIONS) -> None:
        self._url = url
        self._next = PlannedClaims(url, most - 1) if most > 1 else None
        self._lock = threading.Lock()
        self._connection: TimedConnection | None = None
        self._open_from = 0.0  # monotonic seconds
        self._plans: dict[str, tuple[str, float]] = {}  # by statement: as prepared, until when
        self._made = 0  # plans so far
        self.watch_forks()

    def after_fork_in_child(self) -> None:
        """Leave the connection to the parent."""
        inherited, self._connection, self._lock = self._connection, None, threading.Lock()
        if inherited is not None:
            keep_for_ever(inherited)
            self._open_from = 0.0

    def open(self) -> None:
        """Connect, unless that was tried a moment ago; without a connection all use the pool."""
        if not self._may_open:  # the next one, while a claim is at work on this one
            if self._next and self._connection and self._lock.locked():
                self._next.open()
            return
        with self._lock, suppress(psycopg.Error):
            if self._may_open:  # no other thread has
                self._open_from = monotonic() + REOPEN_S
                self._connect()

    @property
    def _may_open(self) -> bool:
        return self._connection is None and monotonic() >= self._open_from

    def _connect(self) -> None:
        with ExitStack() as opened:
            connection = TimedConnection.connect(self._url, **CONNECTION)
            opened.callback(connection.close)
            connection.response_timeout_s = RESPONSE_TIMEOUT_S
            session = connection.execute("SELECT pg_backend_pid()").fetchone()
            if session != (connection.info.backend_pid,):
                self._open_from = _NEVER  # a pooler answered
                return
            connection.execute(_SETTINGS)
            self._connection, self._plans = connection, {}
            opened.pop_all()  # success: keep it open

    def rows(self, sql: str, params: dict[str, Any], *, alone: bool = False) -> list[tuple[Any, ...]] | None:
        """The rows of a claim; None if it was not made, or is not known: it ends with its lease."""
        # ``alone`` waits for another claim, beside which this one would find nothing.
        if not self._lock.acquire(blocking=alone):
            return self._next.rows(sql, params) if self._next else None
        try:
            return self._rows(self._connection, sql, params) if self._connection else None
        except psycopg.errors.UniqueViolation:
            raise  # another took the slot: the claim is repeated
        except psycopg.Error:
            self._disconnect()
            return None
        finally:
            self._lock.release()

    def _rows(self, connection: TimedConnection, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        now = monotonic()
        text, until = self._plans.get(sql, ("", 0.0))
        if now >= until:
            self._made += 1
            text = f"{sql}\n-- plan {self._made}"
            self._plans[sql] = text, now + PLAN_S
            connection.prepared_max = 2 * len(self._plans)  # those that are used, and their last
        return connection.execute(text, params, prepare=True).fetchall()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connections for good."""
        if self._next:
            self._next.close()
        with self._lock:
            self._open_from = _NEVER
            self._disconnect()
