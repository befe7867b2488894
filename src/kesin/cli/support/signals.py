"""Signals as something to wait for.

A handler runs between two instructions of the main thread and must not take a lock the thread may
hold, so it only counts. Waits are for a pipe: the interpreter itself writes into it when a signal
comes, also in the moment before the wait begins, when a handler would come too late.
"""

import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Stop:
    """Whether and how often this process was requested to stop."""

    def __init__(self) -> None:
        self.times = 0
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        self._callbacks: list[Callable[[], None]] = []

    @property
    def requested(self) -> bool:
        return self.times > 0

    @property
    def forced(self) -> bool:
        """Whether it was requested again: then everything stops at once."""
        return self.times > 1

    @property
    def pipe(self) -> int:
        """A file descriptor; a byte written to it ends the current wait."""
        return self._writing.fileno()

    def request(self) -> None:
        """Request a stop, from a signal handler or another thread."""
        self.times += 1
        for callback in self._callbacks:
            callback()
        self.wake()

    def wake(self) -> None:
        """End the current wait without requesting a stop."""
        with suppress(OSError):  # a full pipe wakes as well, and with a closed one nothing waits
            self._writing.send(b"!")

    def on_request(self, callback: Callable[[], None]) -> None:
        """Call this at every request; it must take no lock that the main thread may hold."""
        self._callbacks.append(callback)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until requested or woken, or a timeout; return whether a stop was requested."""
        select.select([self._reading], [], [], timeout_s)
        with suppress(BlockingIOError):
            while self._reading.recv(512):
                pass
        return self.requested

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the condition holds, checked at each wake-up; whether it did in time."""
        until = time.monotonic() + timeout_s
        while not condition():
            left = until - time.monotonic()
            if left <= 0:
                return False
            self.wait(left)
        return True

    def close(self) -> None:
        self._reading.close()
        self._writing.close()


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Inside the block SIGTERM and SIGINT request a stop, where this is the main thread."""
    stop = Stop()
    before: dict[signal.Signals, Any] = {}
    pipe_before: int | None = None
    try:
        if threading.current_thread() is threading.main_thread():
            pipe_before = signal.set_wakeup_fd(stop.pipe, warn_on_full_buffer=False)
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, lambda *_: stop.request())
        yield stop
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)
        if pipe_before is not None:
            signal.set_wakeup_fd(pipe_before)
        stop.close()
