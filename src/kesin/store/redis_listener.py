"""Hearing Redis' messages: every script that made something ready says which queue."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import redis

from kesin.store.hearing import POLL_S, Hearing
from kesin.store.pulse import Pulses

CHANNEL = "kesin:pulse"


class RedisListener(Hearing):
    """Listens on one channel; the message is the queue's name."""

    troubles = (redis.RedisError, OSError)

    def __init__(self, client: redis.Redis, pulses: Pulses) -> None:
        super().__init__(pulses)
        self._client = client

    def _heard(self) -> Generator[str | None, None, None]:
        client: Any = self._client  # its types leave this call out
        with client.pubsub(ignore_subscribe_messages=True) as heard:
            heard.subscribe(CHANNEL)
            while True:
                yield None
                message = heard.get_message(timeout=POLL_S)
                if message is not None:
                    yield message["data"]
