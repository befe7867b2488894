"""Long polling: requests wait for a job to end without holding a thread each.

One task polls the states for all waiting requests, in pauses that grow by a tenth until a job ends,
so that a request waits a tenth longer at most. It starts with the first waiter, ends with the last.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.workloads.pdf.jobs.store import UNFINISHED

FIRST_PAUSE_S: Final = 0.005
LAST_PAUSE_S: Final = 0.05
MAX_WAITING: Final = 200
log = Logger("kesin.pdf")
Waiter = asyncio.Future[None]


class LongPoll:
    """The waiters of this process for jobs of one queue."""

    def __init__(self, queue: Queue, stopping: Callable[[], bool]) -> None:
        self._queue = queue
        self._stopping = stopping
        self._waiters: dict[Waiter, str] = {}  # and the job that each waits for
        self._polling: asyncio.Task[None] | None = None

    async def wait_for_end(self, job_id: str, seconds: float) -> None:
        """Return when the job has ended, the time has passed, or the service stops.

        Returns at once if too many requests wait already; the caller then sees the job as it is.
        """
        if len(self._waiters) >= MAX_WAITING or self._stopping():
            return
        ended: Waiter = asyncio.get_running_loop().create_future()
        self._waiters[ended] = job_id
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            await asyncio.wait({ended}, timeout=seconds)
        finally:
            del self._waiters[ended]

    async def _poll(self) -> None:
        pause_s = FIRST_PAUSE_S
        while self._waiters:
            for ended in await asyncio.to_thread(self._finished_waiters, dict(self._waiters)):
                pause_s = FIRST_PAUSE_S
                if not ended.done():
                    ended.set_result(None)
            await asyncio.sleep(pause_s)
            pause_s = min(1.1 * pause_s, LAST_PAUSE_S)

    def _finished_waiters(self, waiters: Mapping[Waiter, str]) -> list[Waiter]:
        """Return the waiters whose job has ended, or all of them when the service stops."""
        if self._stopping():
            return list(waiters)
        try:
            states = self._queue.states(list(set(waiters.values())))
        except Exception as problem:  # noqa: BLE001  # the store is unreachable: the next poll retries
            log.warning("job_poll_failed", why=type(problem).__name__)
            return []
        return [ended for ended, job in waiters.items() if states.get(job) not in UNFINISHED]
