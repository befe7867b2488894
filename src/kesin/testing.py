"""For the tests of your app: a queue in memory, whose time passes only when you say so."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from zlib import crc32

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.engine.worker_thread import BatchHandler, Handler
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import Duration, ManualClock, Time
from kesin.foundation.settings import Settings
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Job
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import READY
from kesin.store.directory import Directory
from kesin.store.sqlite.store import SqliteStore

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
MAX_SHOWN: Final = 20  # jobs in the message of a failed assertion


class MemoryQueue(Queue):
    """An in-memory queue with a manual clock.

    An app's queues share a store and a clock: ``MemoryQueue("mails", sharing=orders)``. The options
    are those of a queue: ``payload``, ``schedules``, ``max_payload_bytes``, ``title``, ``search``.
    """

    clock: ManualClock

    def __init__(
        self,
        name: str = "jobs",
        lifecycle: Lifecycle | None = None,
        *,
        sharing: "MemoryQueue | None" = None,
        start: Time = START,
        **options: Any,
    ) -> None:
        super().__init__(
            name,
            lifecycle or task_lifecycle(),
            sharing.store if sharing else SqliteStore(":memory:"),
            clock=sharing.clock if sharing else ManualClock(start),
            seed=crc32(name.encode()),
            **options,
        )

    def drain(self, handler: Handler | None = None, *, batch_handler: BatchHandler | None = None) -> Counter[str]:
        """Work until no job is due; return how many jobs reached each state."""
        worker = Worker(self, handler, batch_handler=batch_handler, name="tests", sweep=False)
        reached: Counter[str] = Counter()
        while worked := worker.run_once():
            reached += worked
        return reached

    def advance(self, by: Duration) -> None:
        """Advance the clock, then run scheduled moves: recover, time out, expire, prune."""
        self.clock.advance(by)
        Sweeper([self]).sweep()

    def drain_all(self, handler: Handler) -> Counter[str]:
        """Run all jobs, including retried, delayed and rate-limited ones, until all have ended."""
        reached = self.drain(handler)
        while (due_at := self._next_due()) is not None:
            self.advance((due_at - self.now()) / 1_000_000)
            reached += self.drain(handler)
        return reached

    def _next_due(self) -> int | None:
        times = [self.rate_opens_at(), *(j.run_at for j in self.all_jobs() if j.phase == READY)]
        return min((at for at in times if at is not None and at > self.now()), default=None)

    def all_jobs(self) -> list[Job]:
        """Every job, oldest first."""
        page = self.jobs()
        found = page.jobs
        while page.cursor is not None:
            page = self.jobs(cursor=page.cursor)
            found += page.jobs
        return found[::-1]

    # Assertions

    def assert_job(self, fields: Mapping[str, Any] | None = None, *, state: str | None = None, **more: Any) -> Job:
        """Assert that exactly one job has these payload fields and, if given, this state; return it."""
        __tracebackhide__ = True
        wanted = {**(fields or {}), **more}
        fitting = [job for job in self.all_jobs() if _has(job.payload, wanted)]
        found = [job for job in fitting if state in (None, job.state)]
        if len(found) != 1:
            where = f" in state {state!r}" if state else ""
            raise AssertionError(
                f"expected one job of {self.name} with {wanted}{where}, found {len(found)};"
                f" {_listed(fitting or self.all_jobs())}"
            )
        return found[0]

    def assert_no_job(self, fields: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Assert that no job's payload has these fields; without fields, that there is no job."""
        __tracebackhide__ = True
        wanted = {**(fields or {}), **more}
        if found := [job for job in self.all_jobs() if _has(job.payload, wanted)]:
            problem = f"expected no job of {self.name} with {wanted}"
            raise AssertionError(f"{problem}; {_listed(found)}")

    def assert_states(self, **counts: int) -> None:
        """Assert how many jobs are in each state; states that are not named must be empty."""
        __tracebackhide__ = True
        if unknown := counts.keys() - self.lifecycle.state.keys():
            raise ValueError(f"{self.name} has no state {min(unknown)!r}")
        jobs = self.all_jobs()
        if Counter(job.state for job in jobs) != Counter(counts):
            raise AssertionError(f"expected {counts} in {self.name}; {_listed(jobs)}")


def workload_context(queue: Queue, settings: Settings) -> WorkloadContext:
    """The context that a service would give the workload of this queue."""
    commands = Commands({queue.name: queue}, Accounts(Directory(queue.store)))
    return WorkloadContext(settings, commands, queue)


def _has(payload: Any, wanted: Mapping[str, Any]) -> bool:
    return not wanted or (isinstance(payload, dict) and wanted.items() <= payload.items())


def _listed(jobs: list[Job]) -> str:
    if not jobs:
        return "there are none"
    lines = [f"  {job.state} {job.payload} {_error(job)}".rstrip() for job in jobs[:MAX_SHOWN]]
    more = [f"  … {len(jobs) - MAX_SHOWN} more"] if len(jobs) > MAX_SHOWN else []
    return "\n".join(["there are:", *lines, *more])


def _error(job: Job) -> str:
    return f"({job.error_code}: {job.error_message})" if job.error_code else ""
