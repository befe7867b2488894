"""Wake-ups inside a process: who waits for a queue learns that something may have become ready."""

from __future__ import annotations

import threading
from collections import defaultdict


class Pulses:
    """A counter per queue that waiters watch. A missed pulse costs one poll, never a job."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count: defaultdict[str, int] = defaultdict(int)

    def read(self, queue: str) -> int:
        """The queue's counter now."""
        with self._changed:
            return self._count[queue]

    def beat(self, queue: str) -> None:
        """Wake everyone who waits for this queue."""
        with self._changed:
            self._count[queue] += 1
            self._changed.notify_all()

    def beat_all(self) -> None:
        """Wake everyone."""
        with self._changed:
            for queue in self._count:
                self._count[queue] += 1
            self._changed.notify_all()

    def wait(self, queue: str, since: int, timeout_s: float) -> None:
        """Return once the counter has left ``since``, or after the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._count[queue] != since, timeout_s)
