"""Long polling: requests wait for a job to end without holding a thread each.

One thread polls the states for all waiting requests. It starts with the first waiter and ends with
the last.
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
from kesin.workloads.pdf.jobs.store import UNFINISHED

POLL_INTERVAL_S: Final = 0.05
MAX_WAITING: Final = 200
log = Logger("kesin.pdf")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A coroutine that waits for a job in an event loop."""

    job_id: str
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Event

    def wake(self) -> None:
        with suppress(RuntimeError):  # the event loop has ended together with its waiters
            self.loop.call_soon_threadsafe(self.ended.set)


class LongPoll:
    """The waiters of this process for jobs of one queue."""

    def __init__(
        self, queue: Queue, stopping: Callable[[], bool], *, max_waiting: int = MAX_WAITING
    ) -> None:
        self._queue = queue
        self._stopping = stopping
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._waiters: set[_Waiter] = set()
        self._thread: threading.Thread | None = None

    async def wait_for_end(self, job_id: str, seconds: float) -> None:
        """Return when the job has ended, the time has passed, or the service stops.

        Returns at once if too many requests wait already; the caller then sees the job as it is.
        """
        waiter = _Waiter(job_id, asyncio.get_running_loop(), asyncio.Event())
        if not self._add(waiter):
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await waiter.ended.wait()
        finally:
            self._remove(waiter)

    def _add(self, waiter: _Waiter) -> bool:
        with self._lock:
            if len(self._waiters) >= self._max_waiting or self._stopping():
                return False
            self._waiters.add(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._poll, name="kesin-wait", daemon=True)
                self._thread.start()
            return True

    def _remove(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiters.discard(waiter)

    def _poll(self) -> None:
        pause = threading.Event()
        while True:
            with self._lock:
                waiters = list(self._waiters)
                if not waiters:
                    self._thread = None
                    return
            for waiter in self._finished_waiters(waiters):
                self._remove(waiter)
                waiter.wake()
            pause.wait(POLL_INTERVAL_S)

    def _finished_waiters(self, waiters: list[_Waiter]) -> list[_Waiter]:
        """Return the waiters whose job has ended, or all of them when the service stops."""
        if self._stopping():
            return waiters
        try:
            states = self._queue.states(list({waiter.job_id for waiter in waiters}))
        except Exception as problem:  # noqa: BLE001  # the store is unreachable: the next poll retries
            log.warning("job_poll_failed", why=type(problem).__name__)
            return []
        return [waiter for waiter in waiters if states.get(waiter.job_id) not in UNFINISHED]
