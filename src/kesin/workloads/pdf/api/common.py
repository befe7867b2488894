"""Who stands at the door of the workload, and what its routes share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from kesin.engine.workload import WorkloadContext
from kesin.foundation.ids import ID_PATTERN, is_id
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import NotSignedIn, Problem, TooLarge, Unknown
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStore

MAX_BODY_BYTES: Final = 256 * 1024


async def asker(request: Request) -> Actor:
    """Whoever asks; nobody is refused here."""
    actor: Actor = request.state.actor
    if not actor.grants:
        raise NotSignedIn("sign in, or send a key as x-api-key or Authorization: Bearer")
    return actor


Asker = Annotated[Actor, Depends(asker)]
Cursor = Annotated[str | None, Query(pattern=ID_PATTERN)]


class SmallBody(APIRoute):
    """A route that reads no more than 256 KiB: what is larger is refused before it is parsed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, behind a look at the size."""
        handler = super().get_route_handler()

        async def measured(request: Request) -> Response:
            if len(await request.body()) > MAX_BODY_BYTES:
                raise TooLarge(f"a request holds at most {MAX_BODY_BYTES} bytes here")
            return await handler(request)

        return measured


def admit(house: WorkloadContext, actor: Actor, action: str, *, target: str | None = None) -> None:
    """Raise Refused, and note it, unless the actor may use the workload."""
    house.commands.accounts.require(actor, "pdf", f"pdf.{action}", queue="pdf", target=target)


def owners_job(jobs: PdfJobStore, actor: Actor, job_id: str) -> PdfJob:
    """The job, if it is the actor's or the actor is an admin; another's looks like none."""
    job = jobs.get_job(job_id) if is_id(job_id) else None
    if job is None or not (actor.is_admin or job.owner == actor.name):
        raise Unknown("there is no such job")
    return job


def sent(body: BaseModel, status: int = 200, **headers: str) -> Response:
    """The body as it is sent: written here, in the handler's thread, and not checked again."""
    spelled = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(
        body.model_dump_json(by_alias=True), status, spelled, media_type="application/json"
    )


def told(problem: Problem, **headers: str) -> Response:
    """A problem as the service tells it, with headers of our own."""
    spelled = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse(problem.body(), problem.status, spelled)
