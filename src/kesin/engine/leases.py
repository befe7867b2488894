"""The leases a worker holds, renewed from a thread of their own at a third of their length.

A thread, because a handler that blocks must not cost the worker its claims. Only claims older
than a third of the lease are renewed: quick jobs never cost a statement.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.lifecycle.model import Job

log = Logger("kesin.leases")


class Leases:
    """What is claimed and not yet written back."""

    def __init__(self, queue: Queue, lease_s: float) -> None:
        self.lease_s = lease_s
        self._queue = queue
        self._held: dict[str, tuple[Job, float]] = {}
        self._lost: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, jobs: Iterable[Job]) -> None:
        """These were just claimed."""
        now = self._queue.clock.monotonic()
        with self._lock:
            for job in jobs:
                self._held[job.id] = (job, now)
                self._lost.discard(job.id)

    def drop(self, jobs: Iterable[Job]) -> None:
        """These were written back or given up."""
        with self._lock:
            for job in jobs:
                self._held.pop(job.id, None)
                self._lost.discard(job.id)

    def held(self) -> list[Job]:
        """Everything still claimed, lost ones excepted."""
        with self._lock:
            return [job for job, _ in self._held.values() if job.id not in self._lost]

    def is_lost(self, job_id: str) -> bool:
        """Whether a renewal found that the job is no longer ours."""
        with self._lock:
            return job_id in self._lost

    def renew(self) -> int:
        """Renew what is old enough; how many leases were extended."""
        now = self._queue.clock.monotonic()
        with self._lock:
            due = [
                job
                for job, renewed in self._held.values()
                if now - renewed >= self.lease_s / 3 and job.id not in self._lost
            ]
        if not due:
            return 0
        kept = self._queue.renew(due, lease_seconds=self.lease_s)
        with self._lock:
            for job in due:
                if job.id in kept and job.id in self._held:
                    self._held[job.id] = (job, now)
                elif job.id in self._held:
                    self._lost.add(job.id)
                    log.warning("lease_lost", queue=self._queue.name, job=job.id)
        return len(kept)

    def start(self) -> None:
        """Renew in the background until stopped."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="kesin-leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(max(self.lease_s / 6, 0.05)):
            try:
                self.renew()
            except Exception:  # the next round tries again, well before the end
                log.exception("renewal_failed", queue=self._queue.name)
