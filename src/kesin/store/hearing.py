"""A thread that hears what other processes did, and turns it into pulses.

It only shortens waits: if it cannot connect, or the connection breaks, workers poll, and it tries
again, ever more slowly.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Generator

from kesin.store.pulse import Pulses

POLL_S = 1.0
CHECK_S = 30.0  # a line gone dead sounds like one on which nothing is said: ask it
ANSWER_S = 10.0
LONGEST_PAUSE_S = 60.0


class Hearing(ABC):
    """Started on first use; stops within a second of being asked, on a line that answers."""

    troubles: tuple[type[Exception], ...]  # after which it connects again

    def __init__(self, pulses: Pulses) -> None:
        self._pulses = pulses
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def _heard(self) -> Generator[str | None, None, None]:
        """Connect, and say None; then, at least once a second, the queue that moved or None."""

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
                heard = self._heard()
                next(heard)
                pause_s = POLL_S
                self._pulses.beat_all()  # whatever was missed while not listening
                for queue in heard:
                    if queue is not None:
                        self._pulses.beat(queue)
                    if self._stopping.is_set():
                        heard.close()
                        return
            except self.troubles:
                self._stopping.wait(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
