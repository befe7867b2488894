"""Waiting for a job to end: one thread looks for everybody, and nobody holds a thread meanwhile.

The thread starts with the first who waits and ends with the last.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.workloads.pdf.jobs.store import ON_THE_WAY

LOOK_EVERY_S: Final = 0.05
MOST_WAITING: Final = 200
log = Logger("kesin.pdf")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """Somebody who waits in an event loop."""

    job_id: str
    loop: asyncio.AbstractEventLoop
    over: asyncio.Event

    def tell(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and who waited in it
            self.loop.call_soon_threadsafe(self.over.set)


class Waiting:
    """Everybody of this process who waits for a job of one queue."""

    def __init__(
        self, queue: Queue, stopping: Callable[[], bool], *, most: int = MOST_WAITING
    ) -> None:
        self._queue = queue
        self._stopping = stopping
        self._most = most
        self._lock = threading.Lock()
        self._waiters: set[_Waiter] = set()
        self._looking: threading.Thread | None = None

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._waiters)

    @property
    def looking(self) -> bool:
        """Whether the thread is at work."""
        return self._looking is not None

    async def ended(self, job_id: str, seconds: float) -> None:
        """Come back when the job has ended, when so long has passed, or when the service stops.

        Where too many wait already, at once: whoever asked finds the job as it is.
        """
        waiter = _Waiter(job_id, asyncio.get_running_loop(), asyncio.Event())
        if not self._joined(waiter):
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await waiter.over.wait()
        finally:
            self._leave(waiter)

    def _joined(self, waiter: _Waiter) -> bool:
        with self._lock:
            if len(self._waiters) >= self._most or self._stopping():
                return False
            self._waiters.add(waiter)
            if self._looking is None:
                self._looking = threading.Thread(target=self._look, name="kesin-wait", daemon=True)
                self._looking.start()
            return True

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiters.discard(waiter)

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            with self._lock:
                waiters = list(self._waiters)
                if not waiters:
                    self._looking = None
                    return
            for waiter in self._told(waiters):
                self._leave(waiter)
                waiter.tell()
            pause.wait(LOOK_EVERY_S)

    def _told(self, waiters: list[_Waiter]) -> list[_Waiter]:
        """Those who need not wait any longer."""
        if self._stopping():
            return waiters
        try:
            states = self._queue.states(list({one.job_id for one in waiters}))
        except Exception as problem:  # noqa: BLE001  # the store is away: the next look tells
            log.warning("look_failed", why=type(problem).__name__)
            return []
        return [one for one in waiters if states.get(one.job_id) not in ON_THE_WAY]
