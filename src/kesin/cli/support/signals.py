"""Signals as something to wait for.

A handler runs between two instructions of the main thread and must not take a lock the thread may
hold, so it only counts. Who waits, waits for a pipe: the interpreter itself writes into it when a
signal comes, also in the moment before the wait begins, in which a handler would come too late.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


class Stop:
    """Whether and how often this process was asked to stop."""

    def __init__(self) -> None:
        self.times = 0
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        self._also: list[Callable[[], None]] = []

    @property
    def asked(self) -> bool:
        """It was, at least once."""
        return self.times > 0

    @property
    def insisted(self) -> bool:
        """It was asked again: whoever asks has no patience left."""
        return self.times > 1

    @property
    def pipe(self) -> int:
        """What is written here ends the wait at hand."""
        return self._writing.fileno()

    def ask(self) -> None:
        """Ask it to stop; from a signal handler or another thread."""
        self.times += 1
        for callback in self._also:
            callback()
        self.wake()

    def wake(self) -> None:
        """End the wait at hand without asking for anything."""
        with suppress(OSError):  # a full pipe wakes as well as any, and a closed one nobody
            self._writing.send(b"!")

    def also(self, callback: Callable[[], None]) -> None:
        """Call this whenever it is asked; it must take no lock the main thread may hold."""
        self._also.append(callback)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until asked or woken, at most so long; whether it was asked by now."""
        select.select([self._reading], [], [], timeout_s)
        with suppress(BlockingIOError):
            while self._reading.recv(512):
                pass
        return self.asked

    def wait_until(self, fact: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the fact holds, looking at each wake-up; whether it did in time."""
        until = time.monotonic() + timeout_s
        while not fact():
            left = until - time.monotonic()
            if left <= 0:
                return False
            self.wait(left)
        return True

    def close(self) -> None:
        """Let go of the pipe."""
        self._reading.close()
        self._writing.close()


@contextmanager
def stop_on_signals(*, children: bool = False) -> Iterator[Stop]:
    """Inside the block SIGTERM and SIGINT ask to stop, where this is the main thread.

    With ``children`` the death of a child process ends a wait.
    """
    stop = Stop()
    before: dict[signal.Signals, Any] = {}
    pipe_before: int | None = None

    def asked(_number: int, _frame: FrameType | None) -> None:
        stop.ask()

    def bereaved(_number: int, _frame: FrameType | None) -> None:
        stop.wake()

    try:
        if threading.current_thread() is threading.main_thread():
            pipe_before = signal.set_wakeup_fd(stop.pipe, warn_on_full_buffer=False)
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, asked)
            if children:
                before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, bereaved)
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        if pipe_before is not None:
            signal.set_wakeup_fd(pipe_before)
        stop.close()
