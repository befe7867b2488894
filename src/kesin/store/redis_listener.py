"""Hearing what other processes did: a thread that turns Redis' messages into pulses.

A message only shortens a wait. If the connection breaks, workers poll, and it tries again, ever
more slowly.
"""

from __future__ import annotations

import threading
from typing import Any

import redis

from kesin.store.pulse import Pulses

CHANNEL = "kesin:pulse"
POLL_S = 1.0
LONGEST_PAUSE_S = 60.0


class RedisListener:
    """Started on first use; stops within a second of being asked."""

    def __init__(self, client: redis.Redis, pulses: Pulses) -> None:
        self._client = client
        self._pulses = pulses
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to listen, once."""
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="kesin-listener", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        with self._lock:
            if self._thread is not None:
                self._thread.join()

    def _run(self) -> None:
        pause_s = POLL_S
        while not self._stopping.is_set():
            try:
                client: Any = self._client  # its types leave this call out
                with client.pubsub(ignore_subscribe_messages=True) as heard:
                    heard.subscribe(CHANNEL)
                    self._pulses.beat_all()  # whatever was missed while not listening
                    while not self._stopping.is_set():
                        message = heard.get_message(timeout=POLL_S)
                        pause_s = POLL_S
                        if message is not None:
                            self._pulses.beat(message["data"])
            except (redis.RedisError, OSError):
                self._stopping.wait(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
