"""Renews leases a third old, in a thread: handlers may block, and quick jobs cost no statement."""

import threading
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import attrgetter

from kesin.engine.queue import Queue
from kesin.foundation.forks import ForkAware
from kesin.foundation.logs import Logger
from kesin.lifecycle.model import Job
from kesin.store.limits import MAX_BATCH

log = Logger("kesin.leases")


_Claim = tuple[str, int]  # the same worker may claim a job twice: the token tells them apart
_claim: Callable[[Job], _Claim] = attrgetter("id", "claim_seq")


class Leases(ForkAware):
    """The claims whose results are not written yet."""

    def __init__(self, queue: Queue, lease_s: float) -> None:
        self.lease_s = lease_s
        self._queue = queue
        self._held: dict[_Claim, tuple[Job, float]] = {}
        self.lost: set[_Claim] = set()  # read for every job, without the lock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.watch_forks()

    def after_fork_in_child(self) -> None:
        """The claims and the thread that renews them are the parent's."""
        self._held, self.lost, self._lock = {}, set(), threading.Lock()
        self._stop, self._thread = threading.Event(), None

    def take(self, jobs: Sequence[Job]) -> None:
        entries = zip(jobs, repeat(self._queue.clock.monotonic()), strict=False)
        with self._lock:
            self._held.update(zip(map(_claim, jobs), entries, strict=True))

    def drop(self, jobs: Sequence[Job]) -> None:
        """Remove jobs whose results were written, or whose claims were given up."""
        claims = list(map(_claim, jobs))
        with self._lock:
            for claim in claims:
                self._held.pop(claim, None)
            if self.lost:
                self.lost.difference_update(claims)

    def held(self) -> list[Job]:
        """The jobs still claimed, without lost claims."""
        with self._lock:
            return [job for claim, (job, _) in self._held.items() if claim not in self.lost]

    def lose(self, job: Job) -> None:
        """Renew this claim no more: its job was given up."""
        with self._lock:
            if _claim(job) in self._held:  # its result may have been written meanwhile
                self.lost.add(_claim(job))

    def is_lost(self, job: Job) -> bool:
        """Whether a renewal found that this worker no longer holds the claim."""
        return _claim(job) in self.lost

    def renew(self) -> int:
        """Renew the leases that are due; return how many were extended."""
        now = self._queue.clock.monotonic()
        with self._lock:
            due = [
                job
                for claim, (job, renewed_at) in self._held.items()
                if now - renewed_at >= self.lease_s / 3 and claim not in self.lost
            ]
        if not due:
            return 0
        renewed_ids: set[str] = set()
        for start in range(0, len(due), MAX_BATCH):
            batch = due[start : start + MAX_BATCH]
            renewed_ids |= self._queue.renew(batch, lease_seconds=self.lease_s)
        with self._lock:
            for job in due:
                if _claim(job) not in self._held:
                    continue
                if job.id in renewed_ids:
                    self._held[_claim(job)] = (job, now)
                else:
                    self.lost.add(_claim(job))
                    log.warning("lease_lost", queue=self._queue.name, job=job.id)
        return len(renewed_ids)

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="kesin-leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(max(self.lease_s / 6, 0.05)):
            try:
                self.renew()
            except Exception:  # the next round tries again, well before the leases end
                log.exception("renewal_failed", queue=self._queue.name)
