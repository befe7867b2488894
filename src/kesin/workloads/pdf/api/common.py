"""The size of bodies, and access to the workload and its jobs, for all of its routes and pages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute

from kesin.engine.workload import WorkloadContext
from kesin.foundation.ids import is_id
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import NotFound, TooLarge
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStore

MAX_BODY_BYTES: Final = 256 * 1024


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
