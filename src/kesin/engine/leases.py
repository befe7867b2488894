"""The leases a worker holds, renewed from a thread of their own at a third of their length.

A thread, because a handler that blocks must not cost the worker its claims. Only claims older
than a third of the lease are renewed: quick jobs never cost a statement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import attrgetter

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.lifecycle.model import Job
from kesin.store.limits import MAX_BATCH

log = Logger("kesin.leases")


_Claim = tuple[str, int]  # a job can be claimed again by the same worker: the token tells
_claim: Callable[[Job], _Claim] = attrgetter("id", "claim_seq")


class Leases:
    """What is claimed and not yet written back."""

    def __init__(self, queue: Queue, lease_s: float) -> None:
        self.lease_s = lease_s
        self._queue = queue
        self._held: dict[_Claim, tuple[Job, float]] = {}
        self._lost: set[_Claim] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, jobs: Sequence[Job]) -> None:
        """These were just claimed."""
        since = zip(jobs, repeat(self._queue.clock.monotonic()), strict=False)
        with self._lock:
            self._held.update(zip(map(_claim, jobs), since, strict=True))

    def drop(self, jobs: Sequence[Job]) -> None:
        """These were written back or given up."""
        claims = list(map(_claim, jobs))
        with self._lock:
            for claim in claims:
                self._held.pop(claim, None)
            if self._lost:
                self._lost.difference_update(claims)

    def held(self) -> list[Job]:
        """Everything still claimed, lost ones excepted."""
        with self._lock:
            return [job for claim, (job, _) in self._held.items() if claim not in self._lost]

    def is_lost(self, job: Job) -> bool:
        """Whether a renewal found that this claim is no longer ours."""
        with self._lock:
            return _claim(job) in self._lost

    def renew(self) -> int:
        """Renew what is old enough; how many leases were extended."""
        now = self._queue.clock.monotonic()
        with self._lock:
            due = [
                job
                for claim, (job, renewed) in self._held.items()
                if now - renewed >= self.lease_s / 3 and claim not in self._lost
            ]
        if not due:
            return 0
        kept: set[str] = set()
        for start in range(0, len(due), MAX_BATCH):
            part = due[start : start + MAX_BATCH]
            kept |= self._queue.renew(part, lease_seconds=self.lease_s)
        with self._lock:
            for job in due:
                if _claim(job) not in self._held:
                    continue
                if job.id in kept:
                    self._held[_claim(job)] = (job, now)
                else:
                    self._lost.add(_claim(job))
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
