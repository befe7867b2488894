"""The operator's API over all queues, derived from their lifecycles.

Routes read the request and write the answer. What may be asked, and by whom, is decided in
`engine/access/commands.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kesin.engine.access.commands import SHOWN_OUTCOMES, Commands
from kesin.engine.proof_cache import proof_of
from kesin.engine.queue import New, Queue
from kesin.engine.validation import BadInput
from kesin.foundation.permissions import Actor
from kesin.lifecycle.drawing.table import mermaid
from kesin.lifecycle.errors import Category
from kesin.store.errors import StoreUnreachable
from kesin.store.limits import MAX_PAGE
from kesin.store.records import QueueStats
from kesin.web import schemas, serialize
from kesin.web.auth import Asker, guarded_router, service_of, still
from kesin.web.live import Watch
from kesin.web.service import Service

QUIET_S: Final = 15.0  # proxies cut what is silent for longer
ASKED_S: Final = 3.0  # a session that was ended elsewhere is noticed after so long
OVER: Final = "event: over\ndata: {}\n\n"  # who comes back would be refused


async def events(
    request: Request, service: Service, actor: Actor, watch: Watch
) -> AsyncIterator[str]:
    """Counts whenever they change; ends when the watcher leaves, signs out or the service stops."""
    number = 0
    last: QueueStats | None = None
    sent = asked = service.clock.monotonic()
    try:
        yield "retry: 2000\n\n"
        while not watch.over:
            now = service.clock.monotonic()
            quiet_in, ask_in = sent + QUIET_S - now, asked + ASKED_S - now
            woken = await _changes(watch, min(quiet_in, ask_in))
            now = service.clock.monotonic()
            # Told by what was sent to this one: other sites' moves must not show in the pauses.
            quiet = now - sent >= QUIET_S or not (woken or ask_in < quiet_in)
            if quiet or not woken or now - asked >= ASKED_S:
                if await request.is_disconnected():
                    return
                if not await still(request, actor):
                    yield OVER
                    return
                asked = now
            if quiet:
                sent = now
                yield ": still here\n\n"
            if not woken:
                continue
            watch.changed.clear()
            if watch.stats is None:
                continue
            shown = service.commands.seen(actor, watch.stats)
            if last is not None and _same(last, shown):
                continue  # another site's rows moved, which is none of this watcher's business
            last = shown
            number += 1
            sent = service.clock.monotonic()
            data = serialize.stats_body(shown).model_dump()
            yield f"id: {number}\nevent: stats\ndata: {json.dumps(data)}\n\n"
    finally:
        service.live.leave(watch)


def _same(before: QueueStats, after: QueueStats) -> bool:
    return replace(before, now=after.now) == after and before.moves == after.moves


async def _changes(watch: Watch, within_s: float) -> bool:
    """Whether the watcher is told something in time."""
    try:
        await asyncio.wait_for(watch.changed.wait(), max(within_s, 0.01))
    except TimeoutError:
        return False
    return True


router = guarded_router(prefix="/api", tags=["operator"])

QueueName = Annotated[str, Path(max_length=63, pattern=r"^[a-z][a-z0-9_-]*$")]
JobId = Annotated[str, Path(min_length=36, max_length=36, pattern=r"^[0-9a-f-]+$")]
Site = Annotated[str | None, Query(min_length=1, max_length=128)]


def _commands(request: Request) -> Commands:
    return service_of(request).commands


@router.get("/queues")
def list_queues(request: Request, actor: Asker) -> list[schemas.QueueBody]:
    """Every queue you may look at."""
    service = service_of(request)
    told = []
    for queue in service.commands.readable(actor):
        workload = service.workloads.get(queue.name)
        paused = _paused(service.commands, actor, queue.name)
        told.append(
            schemas.QueueBody(
                name=queue.name,
                lifecycle=queue.lifecycle.name,
                summary=workload.summary if workload else "",
                sited=queue.name not in service.commands.unsited,
                states=serialize.states_of(queue),
                actions=list(service.commands.offered(queue)),
                paused=paused or [],
                reachable=paused is not None,
            )
        )
    return told


@router.get("/queues/{queue}/stats", response_model=schemas.Stats)
def queue_stats(request: Request, actor: Asker, queue: QueueName, site: Site = None) -> Response:
    """Counts by state and site; the cost does not grow with the number of jobs."""
    return serialize.sent(serialize.stats_body(_commands(request).stats(actor, queue, site=site)))


@router.get("/queues/{queue}/jobs", response_model=schemas.JobPage)
def list_jobs(  # noqa: PLR0917  # each one is a query parameter
    request: Request,
    actor: Asker,
    queue: QueueName,
    state: Annotated[list[schemas.Name] | None, Query(max_length=100)] = None,
    site: Annotated[list[schemas.Name] | None, Query(max_length=1_000)] = None,
    code: Annotated[list[schemas.Code] | None, Query(max_length=100)] = None,
    category: Annotated[list[Category] | None, Query(max_length=5)] = None,
    created_from: schemas.Time | None = None,
    created_before: schemas.Time | None = None,
    moved_before: schemas.Time | None = None,
    key: schemas.Key | None = None,
    text: Annotated[schemas.Text | None, Query(min_length=1, max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    cursor: schemas.Cursor = None,
) -> Response:
    """A page of jobs, newest first."""
    wanted = schemas.Wanted(
        states=state or [],
        sites=site,
        codes=code or [],
        categories=category or [],
        created_from=created_from,
        created_before=created_before,
        moved_before=moved_before,
        key=key,
        text=text,
    )
    page = _commands(request).jobs(actor, queue, wanted.filter(), limit=limit, cursor=cursor)
    return serialize.sent(serialize.page_body(page))


@router.post("/queues/{queue}/jobs", status_code=201, response_model=schemas.BornBody)
def enqueue_jobs(
    request: Request, actor: Asker, queue: QueueName, new: schemas.NewJobs
) -> Response:
    """Enqueue by hand, for admins. Producers use the door of their workload."""
    news = [
        New(one.payload, one.key, one.site, schemas.micros(one.run_at), one.max_attempts)
        for one in new.jobs
    ]
    born = []
    for one in _commands(request).enqueue(actor, queue, news):
        if isinstance(one, BadInput):
            told = schemas.Born(result="rejected", id=None, code=one.code, message=str(one))
        elif one.result == "inserted":
            told = schemas.Born(result="inserted", id=one.id)
        else:
            told = schemas.Born(result="duplicate", id=one.id)
        born.append(told)
    return serialize.sent(schemas.BornBody(jobs=born), 201)


@router.get("/queues/{queue}/lifecycle")
def queue_lifecycle(request: Request, actor: Asker, queue: QueueName) -> schemas.LifecycleBody:
    """The rules of the queue: states, moves, the bound of the proof, a picture in Mermaid."""
    found = _commands(request).queue(actor, queue)
    return schemas.LifecycleBody(
        name=found.lifecycle.name,
        states=serialize.states_of(found),
        moves=_moves(found),
        bound=proof_of(found.lifecycle).bound,
        mermaid=mermaid(found.lifecycle),
    )


@router.get("/jobs/{job_id}")
def show_job(request: Request, actor: Asker, job_id: JobId) -> schemas.JobWhole:
    """A job with its history, its remarks, what its error means and what you can do with it."""
    service = service_of(request)
    history = service.commands.job(actor, job_id)
    workload = service.workloads.get(history.job.queue)
    code = history.job.error_code
    told = workload.advice(code) if workload and workload.advice and code else None
    return serialize.whole_body(history, told)


@router.post("/queues/{queue}/actions")
def act(
    request: Request, actor: Asker, queue: QueueName, asked: schemas.Action
) -> schemas.ActionBody:
    """An operator's move of chosen jobs or of all that match; with ``dry_run`` only counted.

    By ids every outcome is told; by filter the first thousand, and the sums of all.
    """
    commands = _commands(request)
    where = asked.filter.filter() if asked.filter else None
    if asked.dry_run:
        chosen = commands.would(
            actor,
            queue,
            asked.action,
            ids=asked.ids,
            where=where,
            options=frozenset(asked.options),
        )
        return serialize.selection_body(chosen)
    bulk = commands.act(
        actor,
        queue,
        asked.action,
        ids=asked.ids,
        where=where,
        options=frozenset(asked.options),
        reason=asked.reason,
        code=asked.code,
        category=asked.category,
    )
    return serialize.action_body(bulk, most=None if asked.ids is not None else SHOWN_OUTCOMES)


@router.post("/queues/{queue}/pause")
def pause(
    request: Request, actor: Asker, queue: QueueName, asked: schemas.Steer
) -> schemas.Steered:
    """Hand out no more jobs of the queue, or of one site."""
    commands = _commands(request)
    commands.pause(actor, queue, site=asked.site, reason=asked.reason)
    return schemas.Steered(paused=_paused(commands, actor, queue) or [])


@router.post("/queues/{queue}/resume")
def resume(
    request: Request, actor: Asker, queue: QueueName, asked: schemas.Steer
) -> schemas.Steered:
    """Hand them out again."""
    commands = _commands(request)
    commands.resume(actor, queue, site=asked.site)
    return schemas.Steered(paused=_paused(commands, actor, queue) or [])


@router.get(
    "/queues/{queue}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def watch(request: Request, actor: Asker, queue: QueueName) -> StreamingResponse:
    """Live counts as server-sent events: one when they change, a comment every 15 s."""
    service = service_of(request)
    await run_in_threadpool(service.commands.queue, actor, queue)
    watching = service.live.watch(queue, actor.name)
    return StreamingResponse(
        events(request, service, actor, watching), media_type="text/event-stream"
    )


def _paused(commands: Commands, actor: Actor, queue: str) -> list[str] | None:
    """Who is paused there; None if its store is away: the others may live elsewhere."""
    try:
        return [one.tenant for one in commands.pauses(actor, queue)]
    except StoreUnreachable:
        return None


def _moves(queue: Queue) -> list[dict[str, Any]]:
    return [
        {
            "name": move.name,
            "call": move.call,
            "from": list(move.sources),
            "to": move.to,
            "by": list(move.by),
            "doc": move.doc,
        }
        for move in queue.lifecycle.moves
    ]
