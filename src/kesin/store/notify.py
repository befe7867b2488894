"""Notifications: waiting threads learn that a job of a queue may have become ready."""

import threading
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Generator

from kesin.foundation.forks import ForkAware


class Notifier(ForkAware):
    """A counter per queue that threads watch; a missed notification delays a job until a poll."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._waiting: Counter[str] = Counter()
        self.watch_forks()

    def after_fork_in_child(self) -> None:
        """No thread waits in the child, and none would release the lock."""
        self._changed, self._waiting = threading.Condition(), Counter()

    def count(self, queue: str) -> int:
        with self._changed:
            return self._counts[queue]

    def notify(self, queue: str) -> None:
        with self._changed:
            self._counts[queue] += 1
            self._changed.notify_all()

    def notify_all(self) -> None:
        with self._changed:
            for queue in self._counts:
                self._counts[queue] += 1
            self._changed.notify_all()

    def wait(self, queue: str, since: int, timeout_s: float) -> None:
        """Return once the counter has left ``since``, or after the timeout."""
        with self._changed:
            self._waiting[queue] += 1
            try:
                self._changed.wait_for(lambda: self._counts[queue] != since, timeout_s)
            finally:
                self._waiting[queue] -= 1

    def waiting(self) -> list[str]:
        """The queues for which a thread waits now."""
        with self._changed:
            return [queue for queue, threads in self._waiting.items() if threads]


POLL_S = 1.0
LIVENESS_CHECK_S = 30.0  # a dead connection looks like an idle one until it is checked
RESPONSE_TIMEOUT_S = 10.0
MAX_RECONNECT_PAUSE_S = 60.0


class QueueListener(ForkAware, ABC):
    """A thread, from its first use on, that passes a database's notifications to a Notifier."""

    reconnect_errors: tuple[type[Exception], ...]  # errors after which it reconnects

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.watch_forks()

    def after_fork_in_child(self) -> None:
        """The thread, with its connection, stays with the parent; it starts on first use."""
        stopped = self._stopping.is_set()
        self._stopping, self._lock, self._thread = threading.Event(), threading.Lock(), None
        if stopped:
            self._stopping.set()

    @abstractmethod
    def _messages(self) -> Generator[str | None, None, None]:
        """Connect and yield None; then, at least once a second, a queue's name or None."""

    def start(self) -> None:
        """Start the thread unless it is already running."""
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                name = "kesin-listener"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stopping.set()
        with self._lock:
            if self._thread is not None:
                self._thread.join()

    def _run(self) -> None:
        pause_s = POLL_S
        while not self._stopping.is_set():
            try:
                messages = self._messages()
                next(messages)
                pause_s = POLL_S
                self._notifier.notify_all()  # notifications may have been missed while disconnected
                for queue in messages:
                    if queue is not None:
                        self._notifier.notify(queue)
                    if self._stopping.is_set():
                        messages.close()
                        return
            except self.reconnect_errors:
                self._stopping.wait(pause_s)
                pause_s = min(pause_s * 2, MAX_RECONNECT_PAUSE_S)


class Notified:
    """The waiting half of every store."""

    _notifier: Notifier
    _listener: QueueListener | None = None

    def notification_count(self, queue: str) -> int:
        """A number that changes when a job of the queue may have become ready."""
        return self._notifier.count(queue)

    def wait(self, queue: str, since: int, timeout_s: float) -> None:
        """Return when ``notification_count`` is no longer ``since``, or after the timeout."""
        if self._listener:
            self._listener.start()
        self._notifier.wait(queue, since, timeout_s)

    def wake(self, queue: str) -> None:
        """End the waits of this process; safe to call from a signal handler."""
        self._notifier.notify(queue)
