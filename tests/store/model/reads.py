"""What the plain store answers to readers: pages, counts, statistics."""

from collections import Counter
from typing import Any

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import OWNED, READY, WAITING
from kesin.store.counters import FailureKey, count_failure
from kesin.store.records import Backlog, FailureCount, Filter, MoveCount, QueueStats


class ReferenceReads:
    """The reading half of ``Reference``."""

    queue: str
    lifecycle: Lifecycle
    jobs: dict[str, Job]
    counts: Counter[tuple[str, str, str, str]]
    counted_at: dict[tuple[str, str, str, str], int]

    def list_jobs(self, where: Filter, *, limit: int, cursor: str | None = None) -> tuple[list[Job], str | None]:
        """A page, newest first."""
        matching = [
            job
            for job in sorted(self.jobs.values(), key=lambda job: job.id, reverse=True)
            if (cursor is None or job.id < cursor) and _matches(where, job)
        ]
        return matching[:limit], matching[limit - 1].id if len(matching) > limit else None

    def move_counts(self) -> list[MoveCount]:
        return [MoveCount(*edge, n, self.counted_at[edge]) for edge, n in sorted(self.counts.items())]

    def failures(self, tenants: list[str] | None, recent_from: int) -> list[FailureCount]:
        counts: dict[FailureKey, FailureCount] = {}
        for job in self.jobs.values():
            if tenants is None or job.tenant in tenants:
                count_failure(self.lifecycle, job, counts, recent_from)
        return sorted(counts.values())

    def backlog(self, tenant: str, now: int, aged_before: int) -> Backlog:
        """With ``aged_before``, by the first stamp."""
        mine = [job for job in self.jobs.values() if job.tenant == tenant]
        ready = [job for job in mine if job.phase == READY]
        first: dict[str, int] = {}
        for job in sorted(mine, key=lambda job: job.id):
            if job.phase in (READY, WAITING):
                first.setdefault(job.state, job.created_at)
        due = [job.run_at for job in ready if job.run_at is not None and job.run_at <= now]
        return Backlog(
            min(due, default=None),
            first,
            sum(job.phase == OWNED and (job.lease_until or 0) <= now for job in mine),
            sum(job.stamp_1 is not None and job.stamp_1 < aged_before for job in ready),
        )

    def stats(self, now: int) -> QueueStats:
        names = [state.name for state in self.lifecycle.states]
        tenants = {edge[0]: dict.fromkeys(names, 0) for edge in self.counts}
        for job in self.jobs.values():
            tenants[job.tenant][job.state] += 1
        ready = [job.run_at for job in self.jobs.values() if job.phase == READY]
        leases = [job.lease_until for job in self.jobs.values() if job.phase == OWNED]
        return QueueStats(
            queue=self.queue,
            states={name: sum(counts[name] for counts in tenants.values()) for name in names},
            tenants=tenants,
            oldest_due_at=min((at for at in ready if at is not None and at <= now), default=None),
            lease_over=sum(at is not None and at <= now for at in leases),
            now=now,
        )


def _matches(where: Any, job: Job) -> bool:  # a Filter whose times are numbers
    return (
        (not where.states or job.state in where.states)
        and (where.tenants is None or job.tenant in where.tenants)
        and (not where.codes or job.error_code in where.codes)
        and not (where.unclaimed and job.phase == OWNED)
        and (not where.categories or job.error_category in where.categories)
        and (where.created_from is None or job.created_at >= where.created_from)
        and (where.created_before is None or job.created_at < where.created_before)
        and (where.moved_before is None or job.moved_at < where.moved_before)
        and (where.dedup_key is None or job.dedup_key == where.dedup_key)
        and (not where.text or where.text.lower() in (job.error_message or "").lower())
        and (not where.contains or where.contains in job.payload_json)
    )
