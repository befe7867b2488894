"""Connections to PostgreSQL with a response timeout, and the listener for NOTIFY."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from kesin.foundation.clock import SystemClock
from kesin.store.notify import LIVENESS_CHECK_S, POLL_S, RESPONSE_TIMEOUT_S, Notifier, QueueListener

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

_CLOCK = SystemClock()


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
        heard = _CLOCK.monotonic()
        try:
            wants = next(gen)
            while True:
                ready = yield wants
                if ready:
                    heard = _CLOCK.monotonic()
                elif _CLOCK.monotonic() - heard >= seconds:
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
            checked = _CLOCK.monotonic()
            while True:
                yield None
                for notice in connection.notifies(timeout=POLL_S, stop_after=1):
                    yield notice.payload
                if _CLOCK.monotonic() - checked >= LIVENESS_CHECK_S:
                    connection.execute("SELECT 1")
                    checked = _CLOCK.monotonic()
