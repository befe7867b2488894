"""Hearing PostgreSQL's NOTIFY: a thread that turns notifications into pulses.

It has a connection of its own, because a pooler cannot carry LISTEN. If it cannot connect, or the
connection breaks, workers fall back to polling and it tries again, ever more slowly.
"""

from __future__ import annotations

import threading

import psycopg

from kesin.store.pulse import Pulses

POLL_S = 1.0
LONGEST_PAUSE_S = 60.0


class Listener:
    """Started on first use; stops within a second of being asked."""

    def __init__(self, url: str, channel: str, pulses: Pulses) -> None:
        self._url = url
        self._channel = channel
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
                with psycopg.connect(self._url, autocommit=True, connect_timeout=10) as connection:
                    connection.execute(f"LISTEN {self._channel}")
                    pause_s = POLL_S
                    self._pulses.beat_all()  # whatever was missed while not listening
                    while not self._stopping.is_set():
                        for notice in connection.notifies(timeout=POLL_S, stop_after=1):
                            self._pulses.beat(notice.payload)
            except psycopg.Error:
                self._stopping.wait(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
