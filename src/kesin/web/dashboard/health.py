"""What keeps a queue going: who works at it, when it is swept, and the lines to others."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kesin.engine.queue import Queue
from kesin.store.directory import Site
from kesin.store.records import Filter

if TYPE_CHECKING:
    from kesin.web.dashboard.frame.page import PageContext

MOST_HELD: Final = 100  # claimed jobs that are looked at for who holds them


def workers_alive(looking: PageContext, queue: Queue) -> int:
    """Workers known to live: of this process, renderers that say so, holders of fresh leases."""
    names = {
        one.name for one in looking.service.workers if one.queue.name == queue.name and one.alive
    }
    now = queue.now()
    for worker, lease_until in held(queue, MOST_HELD):
        if lease_until > now:
            names.add(worker)
    if queue.name == "pdf":
        names |= _renderers(looking, queue)
    workload = looking.service.workloads.get(queue.name)
    beside = workload is not None and workload.needs_own_process and looking.service.beside
    return max(len(names), 1 if beside else 0)


def held(queue: Queue, most: int) -> Iterator[tuple[str, int]]:
    """Who holds each of the newest claimed jobs, and until when."""
    claims = queue.lifecycle.claims
    states = tuple({move.target(source) for move in claims for source in move.sources})
    for job in queue.jobs(Filter(states=states), limit=most).jobs:
        if job.worker is not None and job.lease_until is not None:
            yield job.worker, job.lease_until


def _renderers(looking: PageContext, queue: Queue) -> set[str]:
    """Processes that say every few seconds that they live."""
    from kesin.workloads.pdf.jobs.heartbeat import signs_of

    return set(signs_of(queue.store).fresh(looking.service.accounts.now()))


def next_sweep_s(looking: PageContext, queue: Queue) -> int | None:
    """In how many seconds this process sweeps the queue again; None if another one does."""
    sweeper = looking.service.sweeper
    if sweeper is None or all(one.name != queue.name for one in sweeper.queues):
        return None
    due = sweeper.due_in_s()
    return math.ceil(max(min(due.values()), 0)) if due else 0


def open_breakers(looking: PageContext, queue: Queue) -> list[Site]:
    """The sites, among those the looker may see, whose line to Google is cut for now."""
    if queue.name != "oci":
        return []
    from kesin.workloads.oci.google.circuit_breaker import Breaker
    from kesin.workloads.oci.site import BREAKER, WORKLOAD

    accounts, actor, now = looking.service.accounts, looking.actor, queue.now()
    facts = accounts.directory.facts(WORKLOAD, name=BREAKER)
    cut = {one.site for one in facts if Breaker.of(json.loads(one.value)).state(now) != "closed"}
    if not cut:
        return []
    return [
        one
        for one in accounts.sites(actor)
        if one.id in cut and one.channel != "script" and actor.sees("oci", one.id)
    ]
