"""Hearing Redis' messages: every script that made something ready says which queue."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import redis

from kesin.store.hearing import ANSWER_S, CHECK_S, POLL_S, Hearing
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
        with client.pubsub() as heard:
            heard.subscribe(CHANNEL)
            if heard.get_message(timeout=ANSWER_S) is None:  # it says so once it listens
                raise redis.TimeoutError(f"no answer within {ANSWER_S:g} s")
            heard.connection.health_check_interval = CHECK_S  # then it asks at every poll
            while True:
                yield None
                message = heard.get_message(ignore_subscribe_messages=True, timeout=POLL_S)
                if heard.health_check_response_counter * POLL_S > ANSWER_S:
                    raise redis.TimeoutError(f"no answer within {ANSWER_S:g} s")
                if message is not None:
                    yield message["data"]
