"""Hearing PostgreSQL's NOTIFY, on a connection of its own: a pooler cannot carry LISTEN."""

from __future__ import annotations

from collections.abc import Generator

import psycopg

from kesin.store.hearing import POLL_S, Hearing
from kesin.store.pulse import Pulses


class Listener(Hearing):
    """Listens on one channel; the message is the queue's name."""

    troubles = (psycopg.Error,)

    def __init__(self, url: str, channel: str, pulses: Pulses) -> None:
        super().__init__(pulses)
        self._url = url
        self._channel = channel

    def _heard(self) -> Generator[str | None, None, None]:
        with psycopg.connect(self._url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(f"LISTEN {self._channel}")
            while True:
                yield None
                for notice in connection.notifies(timeout=POLL_S, stop_after=1):
                    yield notice.payload
