"""The workers page: running workers, the leases they hold, and the sweeps."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from fastapi.responses import HTMLResponse

from kesin.engine.queue import Queue
from kesin.lifecycle.budget import SECOND_US
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Filter
from kesin.web.dashboard.frame.page import Context, PageContext, page_router

router = page_router()
PATH: Final = "/dashboard/workers"
MAX_CLAIMS: Final = 500  # claimed jobs that are read for each queue
MAX_COUNTED: Final = 100  # of them, to count the workers alone


@dataclass(slots=True)
class WorkerRow:
    """A worker that holds claims or reports that it is running."""

    name: str
    queue: str
    title: str
    held: int = 0
    over: int = 0  # expired leases
    lease_until: int | None = None  # the earliest
    seen_at: int | None = None
    detail: str = ""
    here: bool = False  # in this process
    well: bool = True


@router.get(PATH, response_class=HTMLResponse)
def workers(ctx: Context) -> HTMLResponse:
    """For operators: the workers of the queues whose jobs they may all see."""
    ctx.accounts.require(ctx.actor, "operate", "workers.read")
    queues = [queue for queue in ctx.commands.readable_queues(ctx.actor) if ctx.sees_all(queue)]
    waiting = [_waiting(ctx, queue) for queue in queues]
    reachable = [queue for queue, waits in zip(queues, waiting, strict=True) if not waits["away"]]
    return ctx.page(
        "part_workers.html" if ctx.in_part else "workers.html",
        hands=_worker_rows(ctx, reachable),
        here=len(ctx.service.workers),
        waiting=waiting,
        checks=ctx.service.checks(),
        now=ctx.accounts.now(),
        **_sweeps(ctx),
    )


def count_workers(ctx: PageContext, queue: Queue) -> int:
    """Running workers: of this process, with a fresh heartbeat, or with an unexpired lease."""
    own = [worker for worker in ctx.service.workers if worker.queue.name == queue.name]
    names, now = {worker.name for worker in own if worker.alive}, queue.now()
    names |= {worker for worker, lease_until in _leases(queue, MAX_COUNTED) if lease_until > now}
    beats = ctx.pages_of(queue.name).heartbeats(ctx, queue)
    names |= {beat.worker for beat in beats if beat.is_fresh}
    workload = ctx.service.workloads.get(queue.name)
    beside = workload is not None and workload.needs_own_process and ctx.service.supervised_alive
    return max(len(names), 1 if beside else 0)


def _leases(queue: Queue, limit: int) -> Iterator[tuple[str, int]]:
    """The worker and the end of the lease of each of the newest claimed jobs."""
    claims = queue.lifecycle.claims
    states = tuple({move.target(source) for move in claims for source in move.sources})
    for job in queue.jobs(Filter(states=states), limit=limit).jobs:
        if job.worker is not None and job.lease_until is not None:
            yield job.worker, job.lease_until


def _worker_rows(ctx: PageContext, queues: list[Queue]) -> list[WorkerRow]:
    rows: dict[tuple[str, str], WorkerRow] = {}

    def row_of(queue: Queue, name: str) -> WorkerRow:
        title = ctx.title_of(queue.name)
        return rows.setdefault((queue.name, name), WorkerRow(name, queue.name, title))

    for queue in queues:  # a dead worker's claims last until a sweep recovers them
        now = queue.now()
        for name, lease_until in _leases(queue, MAX_CLAIMS):
            row = row_of(queue, name)
            row.held += 1
            row.over += lease_until <= now
            row.lease_until = min(row.lease_until or lease_until, lease_until)
            row.well = row.well and not row.over
    for worker in ctx.service.workers:
        if worker.queue in queues:
            row = row_of(worker.queue, worker.name)
            row.here, row.well = True, worker.alive
    for queue in queues:
        for beat in ctx.pages_of(queue.name).heartbeats(ctx, queue):
            row = row_of(queue, beat.worker)
            row.seen_at, row.detail = beat.seen_at, beat.detail
            row.well = row.well and beat.is_fresh
    # Processes that this one supervises: not all of them report by themselves.
    alive, name = ctx.service.supervised_alive, ctx.say("outside this process")
    working = {row.queue for row in rows.values() if row.well}
    for queue in queues if alive is not None else ():
        workload = ctx.service.workloads.get(queue.name)
        apart = workload is not None and workload.needs_own_process and workload.worker
        if apart and queue.name not in working:
            row_of(queue, name).well = bool(alive)
    return sorted(rows.values(), key=lambda row: (row.queue, row.name))


def _waiting(ctx: PageContext, queue: Queue) -> dict[str, Any]:
    values: dict[str, Any] = {"queue": queue.name, "title": ctx.title_of(queue.name), "away": False}
    try:
        stats = queue.stats()
        paused = bool(ctx.commands.pauses(ctx.actor, queue.name))
    except StoreUnreachable:  # other queues may live elsewhere
        return values | {"away": True, "oldest_us": None, "lease_over": 0, "paused": False}
    oldest_us = stats.now - stats.oldest_due_at if stats.oldest_due_at else None
    return values | {"oldest_us": oldest_us, "lease_over": stats.lease_over, "paused": paused}


def _sweeps(ctx: PageContext) -> dict[str, Any]:
    """The stages of the sweep: how often, when next; and how long ago the last one succeeded."""
    if (sweeper := ctx.service.sweeper) is None:
        return {"stretches": [], "swept_us": None}
    due, last, now_s = sweeper.due_in_s(), sweeper.last_success, ctx.service.clock.monotonic()
    stages = [
        (stage, _micros(every), _micros(due[stage]) if stage in due else None)
        for stage, every in sweeper.every_s.items()
    ]
    return {"stretches": stages, "swept_us": None if last is None else _micros(now_s - last)}


def _micros(seconds: float) -> int:
    return math.ceil(max(seconds, 0)) * SECOND_US
