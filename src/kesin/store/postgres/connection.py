"""Whether a PostgreSQL answers, and what it says if it lets nobody in."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from kesin.foundation.clock import SystemClock
from kesin.store.notify import ANSWER_S, CHECK_S, POLL_S, Hearing, Pulses

APPLICATION = "kesin"  # by which a restore sees that somebody is there

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
    """Silent for ``answer_s`` in the middle of a call, it is closed."""

    answer_s: float | None = None  # None is for ever

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Wait for what takes its time, as an index over millions of rows does."""
        before, self.answer_s = self.answer_s, None
        try:
            yield
        finally:
            self.answer_s = before

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        """As psycopg waits: it wakes up ten times a second and asks ``gen`` again."""
        if self.answer_s is not None:
            gen = self._answered(gen, self.answer_s)
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
                    self.close()  # whatever it says later, nobody is to take it for an answer
                    raise psycopg.OperationalError(f"no answer within {seconds:g} s")
                wants = gen.send(ready)
        except StopIteration as ended:
            return ended.value


class Listener(Hearing):
    """Listens on one channel; the message is the queue's name."""

    troubles = (psycopg.Error,)

    def __init__(self, url: str, channel: str, pulses: Pulses) -> None:
        super().__init__(pulses)
        self._url = url
        self._channel = channel

    def _heard(self) -> Generator[str | None, None, None]:
        with TimedConnection.connect(self._url, **CONNECTION) as connection:
            connection.answer_s = ANSWER_S
            connection.execute(f"LISTEN {self._channel}")
            checked = _CLOCK.monotonic()
            while True:
                yield None
                for notice in connection.notifies(timeout=POLL_S, stop_after=1):
                    yield notice.payload
                if _CLOCK.monotonic() - checked >= CHECK_S:
                    connection.execute("SELECT 1")
                    checked = _CLOCK.monotonic()
