"""The operator's API over all queues, derived from their lifecycles."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kesin.engine.access.commands import MAX_LISTED_OUTCOMES, Commands
from kesin.engine.access.companions import companions_of
from kesin.engine.access.listing import found_jobs, search_jobs, titles_of
from kesin.engine.new_job import NewJob
from kesin.engine.proof_cache import proof_of
from kesin.engine.validation import BadInput
from kesin.foundation.permissions import Actor
from kesin.lifecycle.drawing.table import mermaid
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Outcome, Page, QueueStats
from kesin.web import schemas, serialize
from kesin.web.auth import GuardedRouter, service_of, still_signed_in
from kesin.web.bodies import LargeBodyRoute, announced_bytes
from kesin.web.dependencies import DirectRoute, SignedInActor, json_response
from kesin.web.live import Watch
from kesin.web.service import Service

KEEPALIVE_S: Final = 15.0  # proxies close connections that are silent for longer
SESSION_CHECK_S: Final = 3.0  # how soon a session that ended elsewhere is noticed
OVER_EVENT: Final = "event: over\ndata: {}\n\n"  # no reconnecting: it would be refused


async def events(request: Request, service: Service, actor: Actor, watch: Watch) -> AsyncIterator[str]:
    """Send the counts on every change until the client leaves, signs out or the service stops."""
    number = 0
    last: QueueStats | None = None
    sent = checked = service.clock.monotonic()
    try:
        yield "retry: 2000\n\n"
        while not watch.over:
            now = service.clock.monotonic()
            quiet_in, check_in = sent + KEEPALIVE_S - now, checked + SESSION_CHECK_S - now
            with suppress(TimeoutError):
                await asyncio.wait_for(watch.changed.wait(), max(min(quiet_in, check_in), 0.01))
            woken = watch.changed.is_set()
            now = service.clock.monotonic()
            # Timed by what this client was sent: the pauses must not reveal other sites' moves.
            quiet = now - sent >= KEEPALIVE_S or not (woken or check_in < quiet_in)
            if quiet or not woken or now - checked >= SESSION_CHECK_S:
                if await request.is_disconnected():
                    return
                if not await still_signed_in(request, actor):
                    yield OVER_EVENT
                    return
                checked = now
            if quiet:
                sent = now
                yield ": still here\n\n"
            if not woken:
                continue
            watch.changed.clear()
            if watch.stats is None:
                continue
            visible = service.commands.visible_stats(actor, watch.stats)
            same = last is not None and replace(last, now=visible.now) == visible
            if last is not None and same and last.moves == visible.moves:
                continue  # only another site's rows moved, which this client may not see
            last = visible
            number += 1
            sent = service.clock.monotonic()
            lifecycle = service.commands.queues[visible.queue].lifecycle
            data = serialize.stats_body(visible, lifecycle).model_dump()
            yield f"id: {number}\nevent: stats\ndata: {json.dumps(data)}\n\n"
    finally:
        service.live.leave(watch)


class _EnqueueRoute(DirectRoute):
    def takes(self, request: Request) -> bool:
        return request.path_params["queue"] in _commands(request).queues


router = GuardedRouter(prefix="/api", tags=["operator"])
batch_router = GuardedRouter(prefix="/api", tags=["operator"], route_class=LargeBodyRoute)
enqueue_router = GuardedRouter(prefix="/api", tags=["operator"], route_class=_EnqueueRoute)
ROUTERS: Final = (router, enqueue_router, batch_router)

QueueName = Annotated[str, Path(max_length=63, pattern=r"^[a-z][a-z0-9_-]*$")]
JobId = Annotated[str, Path(min_length=36, max_length=36, pattern=r"^[0-9a-f-]+$")]
Site = Annotated[str | None, Query(min_length=1, max_length=128)]


def _commands(request: Request) -> Commands:
    return service_of(request).commands


@router.get("/queues")
def list_queues(request: Request, actor: SignedInActor) -> list[schemas.QueueBody]:
    """List the queues that you may see."""
    service = service_of(request)
    bodies = []
    for queue in service.commands.readable_queues(actor):
        workload = service.workloads.get(queue.name)
        paused = _paused_tenants(service.commands, actor, queue.name)
        bodies.append(
            schemas.QueueBody(
                name=queue.name,
                lifecycle=queue.lifecycle.name,
                summary=workload.summary if workload else "",
                sited=service.commands.workload(queue.name).has_sites,
                states=serialize.states_of(queue),
                actions=list(service.commands.offered_actions(queue)),
                paused=paused or [],
                reachable=paused is not None,
            )
        )
    return bodies


@router.get("/queues/{queue}/stats", response_model=schemas.Stats)
def queue_stats(request: Request, actor: SignedInActor, queue: QueueName, site: Site = None) -> Response:
    """Count jobs by state and site, and the slots in use.

    The cost does not grow with the number of jobs.
    """
    commands = _commands(request)
    stats = commands.stats(actor, queue, site=site)
    return json_response(serialize.stats_body(stats, commands.queues[queue].lifecycle))


@router.get("/queues/{queue}/jobs", response_model=schemas.JobPage)
def list_jobs(
    request: Request, actor: SignedInActor, queue: QueueName, wanted: Annotated[schemas.JobQuery, Query()]
) -> Response:
    """A page of jobs, newest first.

    ``text`` can be an id, a key, the beginning of a word in a searchable field or in a title, or
    part of an error message; Kesin tries them in this order. Unless you may reveal personal data,
    it is masked and not searched.
    """
    commands, limit, cursor = _commands(request), wanted.limit, wanted.cursor
    search = search_jobs(commands, actor, queue, wanted.filter())
    if search.ids is not None:
        page = Page(found_jobs(commands, actor, queue, search, reveal="texts")[:limit], None)
    else:
        page = commands.jobs(actor, queue, search.where, limit=limit, cursor=cursor, reveal="texts")
    title_of = titles_of(commands, queue)
    jobs = [serialize.job_body(job, title_of(job)) for job in page.jobs]
    return json_response(schemas.JobPage(jobs=jobs, cursor=page.cursor))


@enqueue_router.post("/queues/{queue}/jobs", status_code=201, response_model=schemas.EnqueueResults)
async def enqueue_jobs(request: Request, actor: SignedInActor, queue: QueueName, new: schemas.NewJobs) -> Response:
    """Enqueue jobs. Only admins may do so; producers use their workload's API.

    If a job names a parent that does not exist, the whole request is refused.
    """
    service = service_of(request)
    opened, enqueue = service.queues.get(queue), service.commands.enqueue
    if opened is None or len(new.jobs) > 1:  # a batch has a transaction of its own
        return await run_in_threadpool(_enqueue_jobs, enqueue, actor, queue, new)
    size = announced_bytes(request)
    return await service.writes.run(opened, size, _enqueue_jobs, enqueue, actor, queue, new)


def _enqueue_jobs(
    enqueue: Callable[..., list[Outcome | BadInput]], actor: Actor, queue: str, new: schemas.NewJobs
) -> Response:
    jobs = [NewJob(**vars(job)) for job in new.jobs]
    bodies = []
    for outcome in enqueue(actor, queue, jobs):
        if isinstance(outcome, BadInput):
            body = schemas.EnqueueResult(result="rejected", id=None, code=outcome.code, message=str(outcome))
        else:
            body = schemas.EnqueueResult(
                result="inserted" if outcome.result == "inserted" else "duplicate", id=outcome.id
            )
        bodies.append(body)
    return json_response(schemas.EnqueueResults(jobs=bodies), 201)


@router.get("/queues/{queue}/lifecycle")
def queue_lifecycle(request: Request, actor: SignedInActor, queue: QueueName) -> schemas.LifecycleBody:
    """The queue's rules: states, moves, the bound on automatic moves and a Mermaid diagram."""
    registered = _commands(request).queue(actor, queue)
    moves = [
        {
            "name": move.name,
            "call": move.action,  # deprecated: the name of `action` until the next release
            "action": move.action,
            "from": list(move.sources),
            "to": move.to,
            "by": list(move.by),
            "doc": move.doc,
        }
        for move in registered.lifecycle.moves
    ]
    return schemas.LifecycleBody(
        name=registered.lifecycle.name,
        states=serialize.states_of(registered),
        moves=moves,
        bound=proof_of(registered.lifecycle).bound,
        mermaid=mermaid(registered.lifecycle),
    )


@router.get("/jobs/{job_id}")
def show_job(
    request: Request,
    actor: SignedInActor,
    job_id: JobId,
    fold: Annotated[bool, Query(description="false: every event is a separate line")] = True,  # noqa: FBT002
) -> schemas.JobWhole:
    """A job with its history, its notes, advice on its error, and the actions that you may take.

    The response also contains the job's parents and children, and its progress while it is running.
    Personal data is masked unless you may reveal it; each reveal is recorded in the audit log.
    """
    service = service_of(request)
    history = service.commands.job(actor, job_id, reveal=True)
    workload = service.workloads.get(history.job.queue)
    code, category = history.job.error_code, history.job.error_category or ""
    advice = workload.advice(code, category) if workload and workload.advice and code else None
    beside = companions_of(service.commands, actor, history)
    title_of = titles_of(service.commands, history.job.queue)
    return serialize.whole_body(history, beside, advice, title_of=title_of, fold=fold)


@batch_router.post("/queues/{queue}/actions")
def act(request: Request, actor: SignedInActor, queue: QueueName, body: schemas.Action) -> schemas.ActionResultBody:
    """Apply an operator's action to jobs by id or by filter; with ``dry_run``, only count them.

    For ids, the response lists every outcome; for a filter, the first thousand and all totals.
    """
    commands, ids, where = _commands(request), body.ids, None
    if body.filter:
        commands.queue(actor, queue, "operate", body.action)
        search = search_jobs(commands, actor, queue, body.filter.filter())
        where = search.where if search.ids is None else None
        if search.ids is not None:
            ids = [job.id for job in found_jobs(commands, actor, queue, search)]
    chosen: dict[str, Any] = {"ids": ids, "where": where, "options": frozenset(body.options)}
    if body.dry_run:
        return serialize.preview_body(commands.preview(actor, queue, body.action, **chosen))
    recorded: dict[str, Any] = body.model_dump(include={"reason", "code", "category", "priority"})
    bulk = commands.act(actor, queue, body.action, **chosen, **recorded)
    return serialize.action_body(bulk, most=None if body.ids is not None else MAX_LISTED_OUTCOMES)


@router.post("/queues/{queue}/pause")
def pause(request: Request, actor: SignedInActor, queue: QueueName, body: schemas.PauseBody) -> schemas.PausesBody:
    """Pause the queue or one of its sites; no more of its jobs are claimed."""
    commands = _commands(request)
    commands.pause(actor, queue, site=body.site, reason=body.reason)
    return schemas.PausesBody(paused=_paused_tenants(commands, actor, queue) or [])


@router.post("/queues/{queue}/resume")
def resume(request: Request, actor: SignedInActor, queue: QueueName, body: schemas.PauseBody) -> schemas.PausesBody:
    """Resume the queue or one of its sites."""
    commands = _commands(request)
    commands.resume(actor, queue, site=body.site)
    return schemas.PausesBody(paused=_paused_tenants(commands, actor, queue) or [])


@router.get(
    "/queues/{queue}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def watch(request: Request, actor: SignedInActor, queue: QueueName) -> StreamingResponse:
    """Stream live counts as server-sent events: one per change, and a comment every 15 s."""
    service = service_of(request)
    await run_in_threadpool(service.commands.queue, actor, queue)
    watching = service.live.watch(queue, actor.name)
    return StreamingResponse(events(request, service, actor, watching), media_type="text/event-stream")


def _paused_tenants(commands: Commands, actor: Actor, queue: str) -> list[str] | None:
    """The paused tenants; None if the store of this queue is unreachable."""
    try:
        return [pause.tenant for pause in commands.pauses(actor, queue)]
    except StoreUnreachable:
        return None
