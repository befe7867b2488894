"""The reading half of a queue: jobs, pages, histories, counts, and what is shown beside a job."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kesin.engine.validation import BadInput, require_positive_limit
from kesin.foundation.clock import Clock, Duration, in_seconds, monotonic, wall_clock_us
from kesin.foundation.text import storable
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import FINISHED, RESTING
from kesin.store.contract import Store
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Backlog, Event, Filter, Note, Page, Progress, QueueStats

if TYPE_CHECKING:
    from kesin.engine.payload_type import PayloadType

FIRST_PAUSE_S = 0.02  # between two looks at a job that is waited for
LAST_PAUSE_S = 0.5


class QueueReader:
    """What can be read of a queue."""

    name: str
    lifecycle: Lifecycle
    store: Store
    clock: Clock
    _payloads: "PayloadType | None"

    def job(self, job_id: str) -> Job | None:
        """The job of this queue with this id; None if there is no such job."""
        job = self.store.job(job_id)
        if job is None or job.queue != self.name:
            return None
        return self._typed([job])[0]

    def wait(self, job_id: str, timeout: Duration) -> Job:
        """Wait until the job is at rest or has ended; raises TimeoutError after ``timeout``."""
        looks, pause = Looks(self, job_id, timeout), threading.Event()
        while True:
            notified = self.store.notification_count(self.name)
            if job := looks.ended(self.job(job_id)):
                return job
            pause.wait(min(FIRST_PAUSE_S, looks.pause_s()))  # a busy queue wakes it all the time
            self.store.wait(self.name, notified, looks.pause_s())

    def find(self, ids: Sequence[str]) -> dict[str, Job]:
        """The jobs of this queue with these ids; other ids are absent."""
        found = self.store.find(self.name, ids)
        return dict(zip(found, self._typed(list(found.values())), strict=True))

    def states(self, ids: Sequence[str]) -> dict[str, str]:
        """The states of this queue's jobs with these ids, without reading their payloads."""
        return self.store.states(self.name, ids)

    def holders(self, tenant: str, keys: Sequence[str]) -> dict[str, str]:
        """For each dedup key that is taken now, the id of the job that holds it."""
        return self.store.ids_by_key(self.name, tenant, keys)

    def jobs(self, where: Filter | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
        """A page of jobs, newest first unless the filter says otherwise."""
        page = self.store.jobs(self.name, where or Filter(), limit=limit, cursor=cursor)
        return Page(self._typed(page.jobs), page.cursor)

    def events(self, job_id: str) -> list[Event]:
        """A job's history."""
        return self.store.events(job_id)

    def notes(self, *job_ids: str) -> list[Note]:
        """The notes on these jobs; the notes on each job are in order, oldest first."""
        return self.store.notes(*job_ids)

    def stats(self) -> QueueStats:
        """Counts by state and tenant, the oldest due time and expired leases."""
        return self.store.stats(self.name, now=self.clock.now())

    def totals(self, *, oldest: bool = False) -> QueueStats:
        """Counts by state, without tenants; ``oldest`` adds the oldest due time."""
        return self.store.totals(self.name, now=self.clock.now(), oldest=oldest)

    def waiting(self, tenant: str, aged: tuple[str, int] | None = None) -> Backlog:
        """What a tenant's jobs are waiting for; also counts those stamped before ``aged[1]``."""
        return self.store.backlog(self.name, storable(tenant), aged=aged, now=self.clock.now())

    def parents(self, job_id: str) -> list[Job]:
        """The jobs that must succeed before this one runs, from any queue of the store."""
        found = page = self.store.parents(self.name, job_id, limit=MAX_PAGE)
        while len(page) == MAX_PAGE:
            page = self.store.parents(self.name, job_id, limit=MAX_PAGE, after=page[-1].id)
            found += page
        return found

    def children(self, job_id: str, *, limit: int = 100) -> list[Job]:
        """The first jobs that wait for this job, up to ``limit``, from any queue of the store."""
        require_positive_limit(limit)
        return self.store.children(self.name, job_id, limit=limit)

    def progress(self, ids: Sequence[str]) -> dict[str, Progress]:
        """The progress of these jobs; jobs that are unclaimed or have no report are absent."""
        return self.store.progress(self.name, ids)

    def now(self) -> int:
        """The current time, for calculations; the store's clock decides which time is written."""
        now = self.clock.now()
        return wall_clock_us() if now is None else now

    def _typed(self, jobs: list[Job]) -> list[Job]:
        return self._payloads.typed(jobs) if self._payloads else jobs


class Looks:
    """The looks at one job until it is at rest or over, with growing pauses, within a timeout."""

    def __init__(self, queue: QueueReader, job_id: str, timeout: Duration) -> None:
        self._what = f"job {job_id}"
        self._nowhere = f"{queue.name} has no job {job_id}"
        self._waiting = queue.lifecycle.waiting_states  # these end by themselves
        self._timeout_s = in_seconds(timeout, "timeout")
        self._ends_at = monotonic() + self._timeout_s
        self._pause_s = FIRST_PAUSE_S

    def ended(self, job: Job | None) -> Job | None:
        """The job, if it is at rest or over; raises TimeoutError after the timeout."""
        if job is None:
            raise BadInput("unknown_job", "job_id", self._nowhere)
        if job.phase in (RESTING, FINISHED) and job.state not in self._waiting:
            return job
        if monotonic() >= self._ends_at:
            raise TimeoutError(f"{self._what} is still {job.state} after {self._timeout_s:g} s")
        return None

    def pause_s(self) -> float:
        """How long to wait before the next look."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 1.5, LAST_PAUSE_S)
        return max(0.0, min(pause_s, self._ends_at - monotonic()))
