"""Dependencies and responses that the routes of the workload share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from kesin.engine.workload import WorkloadContext
from kesin.foundation.ids import ID_PATTERN, is_id
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import NotFound, NotSignedIn, Problem, TooLarge
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStore

MAX_BODY_BYTES: Final = 256 * 1024


async def current_actor(request: Request) -> Actor:
    """Return the signed-in actor of a request; raises NotSignedIn. Permissions are not checked."""
    actor: Actor = request.state.actor
    if not actor.grants:
        raise NotSignedIn("sign in, or send a key as x-api-key or Authorization: Bearer")
    return actor


CurrentActor = Annotated[Actor, Depends(current_actor)]
Cursor = Annotated[str | None, Query(pattern=ID_PATTERN)]


class SmallBody(APIRoute):
    """A route whose body holds at most 256 KiB; a larger one is rejected before it is parsed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, preceded by a check of the size."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if len(await request.body()) > MAX_BODY_BYTES:
                raise TooLarge(f"a request holds at most {MAX_BODY_BYTES} bytes here")
            return await handler(request)

        return handle


def require_access(
    context: WorkloadContext, actor: Actor, action: str, *, target: str | None = None
) -> None:
    """Raise Forbidden, and write it to the audit log, unless the actor may use the workload."""
    context.commands.accounts.require(actor, "pdf", f"pdf.{action}", queue="pdf", target=target)


def find_owned_job(jobs: PdfJobStore, actor: Actor, job_id: str) -> PdfJob:
    """Return a job of the actor, or any job for an admin; raises NotFound for all others."""
    job = jobs.get_job(job_id) if is_id(job_id) else None
    if job is None or not (actor.is_admin or job.owner == actor.name):
        raise NotFound("there is no such job")
    return job


def json_response(body: BaseModel, status: int = 200, **headers: str) -> Response:
    """Build a response; the body is serialised in the handler's thread and not validated again."""
    return Response(
        body.model_dump_json(by_alias=True),
        status,
        _header_names(headers),
        media_type="application/json",
    )


def problem_response(problem: Problem, **headers: str) -> Response:
    """Build the service's error response for a problem, with additional headers."""
    return JSONResponse(problem.body(), problem.status, _header_names(headers))


def _header_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
