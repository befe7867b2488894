"""For machines that watch: is it alive, is it ready, what does it measure; and the cron caller."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from kesin.engine.sweeper import Sweeper
from kesin.foundation.problems import Refused, Unknown
from kesin.lifecycle.vocabulary import STAGES, Stage
from kesin.web.auth import OPEN, Asker, guarded_router, service_of
from kesin.web.metrics import CONTENT_TYPE

router = guarded_router(tags=["operations"])


class Part(BaseModel):
    """One part's health."""

    ok: bool
    detail: str


class Ready(BaseModel):
    """Whether requests are best sent here, and why not."""

    status: Literal["ok", "not_ready"]
    checks: dict[str, Part]


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class Swept(BaseModel):
    """What a sweep moved, by queue and move."""

    moved: dict[str, dict[str, int]]
    total: int
    away: list[str] = Field(default_factory=list, description="queues whose store was away")


@router.get("/health/live", openapi_extra=OPEN)
async def live() -> Alive:
    """The process answers. Asks nothing else."""
    return Alive(status="ok")


@router.get(
    "/health/ready",
    responses={503: {"model": Ready, "description": "Not ready"}},
    openapi_extra=OPEN,
)
async def ready(request: Request, response: Response) -> Ready:
    """The store answers, the workers and the sweeper are at it, the disk has room.

    Redis is told of, and not waited for: only PDFs need it.
    """
    # Not in the pool of the other routes: they may all be waiting for a store that is away.
    checks = await asyncio.to_thread(service_of(request).checks)
    well = all(one.ok or not one.needed for one in checks.values())
    response.status_code = 200 if well else 503
    parts = {name: Part(ok=one.ok, detail=one.detail) for name, one in checks.items()}
    return Ready(status="ok" if well else "not_ready", checks=parts)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request, actor: Asker) -> Response:
    """Prometheus' numbers; needs the scope ``metrics``."""
    service = service_of(request)
    service.accounts.require(actor, "metrics", "metrics.read")
    return Response(service.metrics.page(), media_type=CONTENT_TYPE)


@router.post("/api/cron/sweep")
def sweep(
    request: Request,
    queue: Annotated[str | None, Query(max_length=63)] = None,
    stage: Annotated[list[Stage] | None, Query(max_length=len(STAGES))] = None,
) -> Swept:
    """Make the clock's moves now, of one queue or all; needs the cron secret."""
    service = service_of(request)
    actor = request.state.actor
    if not actor.has("cron"):
        if actor.grants:  # nobody is not worth a line, and could fill the log
            service.accounts.note(actor, "cron.sweep", allowed=False, queue=queue)
        raise Refused("the cron secret is not set or not this one")
    if queue is not None and queue not in service.queues:
        raise Unknown(f"there is no queue {queue!r}")
    queues = [one for name, one in service.queues.items() if queue in (None, name)]
    sweeper = Sweeper(queues, chores=service.chores, errands=service.errands)
    swept = sweeper.sweep(stage or STAGES)
    service.metrics.swept(swept)
    service.accounts.note(actor, "cron.sweep", queue=queue, details={"moved": swept.total})
    moved: dict[str, dict[str, int]] = {}
    for (name, move), jobs in swept.moved.items():
        moved.setdefault(name, {})[move] = jobs
    return Swept(moved=moved, total=swept.total, away=swept.away)
