"""What the plain store knows of slots, rates and jobs that come after others."""

from collections import Counter

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Job, ParentMark, full_states, marked, meter_of, parents_mark


class ReferenceLimits:
    """The part of ``Reference`` that looks at other jobs."""

    lifecycle: Lifecycle
    jobs: dict[str, Job]
    meters: dict[str, int]
    parents: dict[str, dict[str, ParentMark]]
    news: set[str]

    def slots(self, job: Job) -> frozenset[str]:
        """The states that have no slot for this job."""
        return full_states(self.lifecycle, job, list(self.jobs.values()))

    def free_slots(self, move: Move, tenant: str) -> int:
        """How many jobs of this tenant, or of the queue, may still enter the move's target."""
        state = self.lifecycle.state[move.to]
        if not state.capacity or state.per_tenant != bool(tenant):
            return 1_000
        jobs = [job for job in self.jobs.values() if job.state == state.name]
        return state.capacity - sum(job.tenant == tenant or not tenant for job in jobs)

    def left(self, tenant: str, now: int) -> int:
        """How many jobs a claim may take of a tenant, beside its share."""
        limited = self.lifecycle.limited_claim
        if limited is None:
            return 1_000
        left, meter = self.free_slots(limited, tenant), meter_of(limited)
        return min(left, meter.left(self.meters.get(tenant, 0), now)) if meter else left

    def spend(self, taken: Counter[str], now: int) -> None:
        meter = meter_of(self.lifecycle.claims[0])
        for tenant, n in taken.items() if meter else ():
            self.meters[tenant] = meter.after(self.meters.get(tenant, 0), now, n)

    # Parents

    def tell(self, parent: Job) -> None:
        """Say to the jobs that wait for this one how it is."""
        for child, marks in self.parents.items():
            if parent.id in marks:
                marks[parent.id] = marked(self.lifecycle, parent, marks[parent.id])
                if marked(self.lifecycle, parent) != "pending":
                    self.news.add(child)

    def waits_for(self, job: Job) -> ParentMark:
        return parents_mark(self.parents.get(job.id, {}).values())

    def is_over(self, job: Job) -> bool:
        state = self.lifecycle.state[job.state]
        return not state.working and job.state not in self.lifecycle.waiting_states

    def is_awaited(self, job_id: str) -> bool:
        """Whether a job that is not over comes after this one."""
        return any(job_id in marks and not self.is_over(self.jobs[child]) for child, marks in self.parents.items())
