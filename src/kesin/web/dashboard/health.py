"""What keeps a queue going: its workers."""

from collections.abc import Iterator
from typing import Final

from kesin.engine.queue import Queue
from kesin.store.records import Filter
from kesin.web.dashboard.frame.page import PageContext

MAX_CLAIMS: Final = 100  # claimed jobs that are read to find their workers


def count_workers(ctx: PageContext, queue: Queue) -> int:
    """Running workers: of this process, with a fresh heartbeat, or with an unexpired lease."""
    own = [worker for worker in ctx.service.workers if worker.queue.name == queue.name]
    names, now = {worker.name for worker in own if worker.alive}, queue.now()
    names |= {worker for worker, lease_until in leases(queue, MAX_CLAIMS) if lease_until > now}
    beats = ctx.pages_of(queue.name).heartbeats(ctx, queue)
    names |= {beat.worker for beat in beats if beat.is_fresh}
    workload = ctx.service.workloads.get(queue.name)
    beside = workload is not None and workload.needs_own_process and ctx.service.supervised_alive
    return max(len(names), 1 if beside else 0)


def leases(queue: Queue, limit: int) -> Iterator[tuple[str, int]]:
    """The worker and the end of the lease of each of the newest claimed jobs."""
    claims = queue.lifecycle.claims
    states = tuple({move.target(source) for move in claims for source in move.sources})
    for job in queue.jobs(Filter(states=states), limit=limit).jobs:
        if job.worker is not None and job.lease_until is not None:
            yield job.worker, job.lease_until
