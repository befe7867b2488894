"""The doors for jobs: ask for a PDF, see how it stands, fetch it, or want it no more.

A job belongs to whoever asked for it. For anybody else but an admin there is no such job.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from kesin.foundation.clock import iso
from kesin.foundation.permissions import Actor
from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.pdf.advice import describe
from kesin.workloads.pdf.api.common import Asker, Cursor, SmallBody, admit, owners_job, sent
from kesin.workloads.pdf.api.download import Conditions, delivered
from kesin.workloads.pdf.api.long_poll import Waiting
from kesin.workloads.pdf.jobs.store import ON_THE_WAY, PdfJob, PdfJobStatus, PdfJobStore, Submitted
from kesin.workloads.pdf.jobs.submit import cancel_job, submit_job
from kesin.workloads.pdf.schemas import (
    PdfJobBody,
    PdfJobPage,
    PdfJobRequest,
    PdfJobResponse,
    PdfJobStatusResponse,
    Text,
)
from kesin.workloads.pdf.services import Shop


def accepted(submitted: Submitted) -> Response:
    """202 for a job that was made, 200 for one that was there."""
    job = submitted.job
    body = PdfJobResponse(job_id=job.job_id, status=job.status, created_at=spelled(job.created_at))
    return sent(body, 202 if submitted.new else 200, location=f"/pdf/jobs/{job.job_id}")


def job_body(job: PdfJob) -> PdfJobBody:
    """A job in a list."""
    return PdfJobBody.model_construct(**_fields(job))  # our own values


def status_body(jobs: PdfJobStore, job: PdfJob) -> PdfJobStatusResponse:
    """A job on its own, with its place in line."""
    return PdfJobStatusResponse.model_construct(**_fields(job), position=jobs.position(job))


def _fields(job: PdfJob) -> dict[str, Any]:
    made = (job.made or {}) if job.status is PdfJobStatus.SUCCEEDED else {}
    ended_badly = job.status in {PdfJobStatus.FAILED, PdfJobStatus.EXPIRED}
    there = job.status is PdfJobStatus.SUCCEEDED
    name = (job.manner or {}).get("file_name")
    return {
        "job_id": job.job_id,
        "status": job.status,
        "created_at": spelled(job.created_at),
        "started_at": None if job.started_at is None else spelled(job.started_at),
        "finished_at": None if job.finished_at is None else spelled(job.finished_at),
        "error_code": job.error_code if ended_badly else None,
        "error_message": _why(job) if ended_badly else None,
        "download_url": f"/pdf/jobs/{job.job_id}/download" if there else None,
        "retry_count": job.retry_count,
        "template_name": job.template_name,
        "file_name": name if isinstance(name, str) else None,
        "pages": made.get("pages"),
        "bytes": made.get("bytes"),
        "sha256": made.get("sha256"),
        "engine": made.get("engine"),
        "warnings": list(made.get("warnings") or ()),
    }


def _why(job: PdfJob) -> str | None:
    """An error in words; where the code is ours alone, in words that name nothing of the inside."""
    if job.internal_code is None or job.internal_code == job.error_code:
        return job.why
    told: str = describe(job.internal_code)["en"]["means"]
    return told


def spelled(seconds: float) -> str:
    """A time of a job; the stored microsecond comes back exactly."""
    return iso(round(seconds * SECOND_US)) or ""


MOST_JOBS: Final = 200
MOST_WAIT_S: Final = 60
SPARE_S: Final = 2.0  # between the end of a wait and the time-out of a request
SOON_S: Final = 2

_FILE: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}
_PDF: Final[dict[str, Any]] = {"application/pdf": _FILE}
_PAGE: Final[dict[str, Any]] = {"text/html": {"schema": {"type": "string"}}}
_ASKED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "model": PdfJobResponse,
        "content": {**_PDF, **_PAGE},
        "description": "The job there is already; with `wait` its PDF; or the HTML instead of it",
    },
    202: {"model": PdfJobResponse, "description": "A new job, or one that is not ready in time"},
    410: {"description": "It came to an end while it was waited for"},
}
_FETCHED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": _PDF, "description": "The PDF"},
    202: {"model": PdfJobStatusResponse, "description": "Not yet; Retry-After says when"},
    206: {"content": _PDF, "description": "The part that was asked for"},
    304: {"description": "The one you have is it"},
    410: {"description": "It is not there any more"},
    416: {"description": "It has no such part"},
}


def jobs_router(shop: Shop) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/pdf", tags=["pdf"], route_class=SmallBody)
    _asking(router, shop)
    _fetching(router, shop)
    return router


def _asking(router: APIRouter, shop: Shop) -> None:
    house = shop.house
    waiting = Waiting(house.commands.queues["pdf"], house.stopping)

    @router.post("/jobs", status_code=202, response_model=PdfJobResponse, responses=_ASKED)
    async def create_pdf_job(
        actor: Asker,
        asked: PdfJobRequest,
        wait: Annotated[float | None, Query(gt=0, le=MOST_WAIT_S, allow_inf_nan=False)] = None,
    ) -> Response:
        """Ask for a PDF: 202 and a new job, or 200 and the one that has it or will.

        With `wait`, the PDF itself if it is ready within so many seconds.
        """
        submitted = await run_in_threadpool(_submit, shop, actor, asked)
        if not isinstance(submitted, Submitted):
            return submitted
        if wait is None:
            return accepted(submitted)
        if submitted.job.status in ON_THE_WAY:
            within_s = min(wait, house.settings.request_timeout_s - SPARE_S)
            await waiting.ended(submitted.job.job_id, within_s)
        return await run_in_threadpool(_awaited, shop, submitted)

    @router.delete("/jobs/{job_id}", response_model=PdfJobStatusResponse)
    def cancel_pdf_job(
        actor: Asker,
        job_id: str,
        reason: Annotated[Text | None, Query(min_length=1, max_length=500)] = None,
    ) -> Response:
        """Want a waiting job no more; again is the same."""
        admit(house, actor, "cancel", target=job_id)
        jobs = shop.tools.jobs
        job = owners_job(jobs, actor, job_id)
        return sent(status_body(jobs, cancel_job(house, jobs, actor, job, reason)))


def _submit(shop: Shop, actor: Actor, body: PdfJobRequest) -> Submitted | Response:
    admit(shop.house, actor, "create")
    most = shop.house.settings.pdf_max_queued
    return submit_job(shop.tools, body, owner=actor.name, max_queued=most)


def _awaited(shop: Shop, submitted: Submitted) -> Response:
    """What became of it meanwhile."""
    tools = shop.tools
    job = tools.jobs.get_job(submitted.job.job_id) or submitted.job
    if job.status in ON_THE_WAY:
        return accepted(submitted._replace(job=job, new=True))
    return delivered(tools.artifacts, job, location=f"/pdf/jobs/{job.job_id}")


def _fetching(router: APIRouter, shop: Shop) -> None:
    house = shop.house

    @router.get("/jobs", response_model=PdfJobPage)
    def list_pdf_jobs(
        actor: Asker,
        status: PdfJobStatus | None = None,
        cursor: Cursor = None,
        limit: Annotated[int, Query(ge=1, le=MOST_JOBS)] = 50,
    ) -> Response:
        """Your jobs, newest first; an admin's list has everybody's."""
        admit(house, actor, "list")
        found, following = shop.tools.jobs.page(
            owner=None if actor.is_admin else actor.name,
            status=status,
            limit=limit,
            cursor=cursor,
        )
        return sent(PdfJobPage(jobs=[job_body(one) for one in found], cursor=following))

    @router.get("/jobs/{job_id}", response_model=PdfJobStatusResponse)
    def get_pdf_job_status(actor: Asker, job_id: str) -> Response:
        """How a job stands, and its place in line."""
        admit(house, actor, "read", target=job_id)
        jobs = shop.tools.jobs
        return sent(status_body(jobs, owners_job(jobs, actor, job_id)))

    def fetched(request: Request, actor: Asker, job_id: str) -> Response:
        """The PDF, whole or in part; 202 while there is none yet."""
        admit(house, actor, "download", target=job_id)
        tools = shop.tools
        job = owners_job(tools.jobs, actor, job_id)
        if job.status in ON_THE_WAY:
            body = status_body(tools.jobs, job)
            return sent(body, 202, retry_after=str(SOON_S))
        return delivered(tools.artifacts, job, Conditions.of(request))

    path = "/jobs/{job_id}/download"
    router.get(path, response_class=Response, responses=_FETCHED, name="download_pdf")(fetched)
    router.head(path, response_class=Response, responses=_FETCHED, name="look_at_pdf")(fetched)
