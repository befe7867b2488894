"""Connections for claims, on which they stay planned.

PostgreSQL takes longer to plan a small claim than to run it, and a job that wakes a worker waits
for both. So claims of workers that wait, or take jobs by the hundred, have connections of their
own, on which they are prepared, with plans in the order of indexes, however few rows there were.
Those are made again every few seconds; behind a pooler, where sessions change, there are none.
"""

import threading
from contextlib import ExitStack, suppress
from typing import Any, Final

import psycopg

from kesin.foundation.clock import SystemClock
from kesin.foundation.forks import ForkAware, keep_for_ever
from kesin.store.notify import RESPONSE_TIMEOUT_S
from kesin.store.postgres.connection import CONNECTION, TimedConnection

PLAN_S: Final = 10.0  # how long a plan is used
REOPEN_S: Final = 30.0  # a connection that failed is opened again no sooner
MOST_SESSIONS: Final = 2  # of a process, for claims at the same time
MANY_JOBS: Final = 100  # a claim of this many is worth a connection
_NEVER: Final = float("inf")
_CLOCK: Final = SystemClock()
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
                self._open_from = _CLOCK.monotonic() + REOPEN_S
                self._connect()

    @property
    def _may_open(self) -> bool:
        return self._connection is None and _CLOCK.monotonic() >= self._open_from

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

    def rows(
        self, sql: str, params: dict[str, Any], *, alone: bool = False
    ) -> list[tuple[Any, ...]] | None:
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

    def _rows(
        self, connection: TimedConnection, sql: str, params: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        now = _CLOCK.monotonic()
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
