"""Wake-ups inside a process: who waits for a queue learns that something may have become ready."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Generator


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
