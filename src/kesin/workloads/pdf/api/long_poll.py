"""Long polling: requests wait for a job to end without holding a thread each.

One thread polls the states for all waiting requests. It starts with the first waiter and ends with
the last.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Final

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.workloads.pdf.jobs.store import UNFINISHED

POLL_INTERVAL_S: Final = 0.05
MAX_WAITING: Final = 200
log = Logger("kesin.pdf")


class LongPoll:
    """The waiters of this process for jobs of one queue."""

    def __init__(self, queue: Queue, stopping: Callable[[], bool]) -> None:
        self._queue = queue
        self._stopping = stopping
        self._lock = threading.Lock()
        self._waiters: dict[Future[None], str] = {}  # and the job that each waits for
        self._thread: threading.Thread | None = None

    async def wait_for_end(self, job_id: str, seconds: float) -> None:
        """Return when the job has ended, the time has passed, or the service stops.

        Returns at once if too many requests wait already; the caller then sees the job as it is.
        """
        ended: Future[None] = Future()
        if not self._add(ended, job_id):
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asyncio.wrap_future(ended)
        finally:
            self._remove(ended)

    def _add(self, ended: Future[None], job_id: str) -> bool:
        with self._lock:
            if len(self._waiters) >= MAX_WAITING or self._stopping():
                return False
            self._waiters[ended] = job_id
            if self._thread is None:
                self._thread = threading.Thread(target=self._poll, name="kesin-wait", daemon=True)
                self._thread.start()
            return True

    def _remove(self, ended: Future[None]) -> None:
        with self._lock:
            self._waiters.pop(ended, None)

    def _poll(self) -> None:
        pause = threading.Event()
        while True:
            with self._lock:
                waiters = dict(self._waiters)
                if not waiters:
                    self._thread = None
                    return
            for ended in self._finished_waiters(waiters):
                self._remove(ended)
                with suppress(InvalidStateError):  # its time has passed meanwhile
                    ended.set_result(None)
            pause.wait(POLL_INTERVAL_S)

    def _finished_waiters(self, waiters: Mapping[Future[None], str]) -> list[Future[None]]:
        """Return the waiters whose job has ended, or all of them when the service stops."""
        if self._stopping():
            return list(waiters)
        try:
            states = self._queue.states(list(set(waiters.values())))
        except Exception as problem:  # noqa: BLE001  # the store is unreachable: the next poll retries
            log.warning("job_poll_failed", why=type(problem).__name__)
            return []
        return [ended for ended, job in waiters.items() if states.get(job) not in UNFINISHED]
