"""The size of bodies, and access to the workload and its jobs, for all of its routes and pages."""

from typing import Final

from fastapi import Response

from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import iso
from kesin.foundation.ids import is_id
from kesin.foundation.permissions import Actor, Scope
from kesin.foundation.problems import NotFound
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job
from kesin.web.dependencies import DirectRoute
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStore, parse_job

FILE_SENT: Final = (200, 206, 302)


def document_route(max_kib: int) -> type[DirectRoute]:
    """Build the class of routes whose body holds the data of one document."""
    return type("DocumentRoute", (DirectRoute,), {"max_body_bytes": max_kib * 1024})


def require_access(
    context: WorkloadContext, actor: Actor, action: str, *, target: str | None = None, scope: Scope = "pdf"
) -> None:
    """Raise Forbidden, and write it to the audit log, unless the actor may use the workload."""
    context.commands.accounts.require(actor, scope, f"pdf.{action}", queue="pdf", target=target)


def note_download(  # noqa: PLR0917  # who got what, how
    context: WorkloadContext, actor: Actor, action: str, target: str, sent: Response, method: str
) -> Response:
    """Write to the audit log that a file, or a part of it, goes out with this response."""
    has_file = sent.status_code in FILE_SENT and "content-disposition" in sent.headers
    if has_file and method != "HEAD":
        context.commands.accounts.note(actor, f"pdf.{action}", queue="pdf", target=target)
    return sent


def find_owned(queue: Queue, actor: Actor, job_id: str, kind: str) -> Job:
    """Return a job of the actor, or any job for an admin; raises NotFound for all others."""
    job = queue.job(job_id) if is_id(job_id) else None
    if job is None or not (actor.is_admin or job.tenant == actor.name):
        raise NotFound(f"there is no such {kind}")
    return job


def find_owned_job(jobs: PdfJobStore, actor: Actor, job_id: str) -> PdfJob:
    return parse_job(find_owned(jobs.queue, actor, job_id, "job"))


def format_time(seconds: float) -> str:
    """Format a job's time as ISO 8601, exact to the stored microsecond."""
    return iso(round(seconds * SECOND_US)) or ""
