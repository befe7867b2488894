"""Liveness, readiness and metrics for monitoring, and the sweep for cron."""

import asyncio
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from kesin.foundation.problems import NotFound
from kesin.lifecycle.vocabulary import STAGES, Stage
from kesin.web.auth import PUBLIC_ROUTE, GuardedRouter, service_of
from kesin.web.dependencies import SignedInActor, require_cron
from kesin.web.metrics import CONTENT_TYPE
from kesin.web.routing import load_routes

router = GuardedRouter(tags=["operations"])


class Part(BaseModel):
    """The health of one component."""

    ok: bool
    detail: str


class Ready(BaseModel):
    """Whether this process is ready for requests, and if not, why."""

    status: Literal["ok", "not_ready"]
    checks: dict[str, Part]


class Alive(BaseModel):
    """The process responds."""

    status: Literal["ok"]


class Swept(BaseModel):
    """How many jobs a sweep moved, by queue and move."""

    moved: dict[str, dict[str, int]]
    total: int
    away: list[str] = Field(default_factory=list, description="queues whose store was unreachable")


@router.get("/health/live", openapi_extra=PUBLIC_ROUTE)
async def live() -> Alive:
    """Whether the process responds; nothing else is checked."""
    return Alive(status="ok")


@router.get("/health/ready", responses={503: {"model": Ready, "description": "Not ready"}}, openapi_extra=PUBLIC_ROUTE)
async def ready(request: Request, response: Response) -> Ready:
    """Whether the store responds, workers and sweeper are running, and the disk has free space.

    Responds only after all pages and routes are loaded. Redis is optional: only PDFs need it.
    """
    await load_routes(request.app.routes)
    # Not in the thread pool of the other routes, which may all wait for an unreachable store.
    checks = await asyncio.to_thread(service_of(request).checks)
    is_ready = all(check.ok or not check.needed for check in checks.values())
    response.status_code = 200 if is_ready else 503
    parts = {name: Part(ok=check.ok, detail=check.detail) for name, check in checks.items()}
    return Ready(status="ok" if is_ready else "not_ready", checks=parts)


@router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
def metrics(request: Request, actor: SignedInActor) -> Response:
    """Prometheus metrics; needs the ``metrics`` scope."""
    service = service_of(request)
    service.accounts.require(actor, "metrics", "metrics.read")
    return Response(service.metrics.page(), media_type=CONTENT_TYPE)


@router.post("/api/cron/sweep")
def sweep(
    request: Request,
    queue: Annotated[str | None, Query(max_length=63)] = None,
    stage: Annotated[list[Stage] | None, Query(max_length=len(STAGES))] = None,
) -> Swept:
    """Run the scheduled moves of one queue or of all queues now; needs the cron secret."""
    service, actor = service_of(request), require_cron(request, "cron.sweep", queue)
    if queue is not None and queue not in service.queues:
        raise NotFound(f"there is no queue {queue!r}")
    queues = list(service.queues.values()) if queue is None else [service.queues[queue]]
    swept = service.sweeper_of(queues).sweep(stage or STAGES)
    service.metrics.record_sweep(swept)
    service.accounts.note(actor, "cron.sweep", queue=queue, details={"moved": swept.total})
    moved: dict[str, dict[str, int]] = {}
    for (name, move), jobs in swept.moved.items():
        moved.setdefault(name, {})[move] = jobs
    return Swept(moved=moved, total=swept.total, away=swept.unreachable)
