"""Hearing PostgreSQL's NOTIFY, on a connection of its own: a pooler cannot carry LISTEN."""

from __future__ import annotations

from collections.abc import Generator

import psycopg

from kesin.foundation.clock import SystemClock
from kesin.store.hearing import ANSWER_S, CHECK_S, POLL_S, Hearing
from kesin.store.pulse import Pulses
from kesin.store.timed import CONNECTION, TimedConnection

_CLOCK = SystemClock()


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
