"""Routes for jobs, which only creators and admins find, and for files that jobs use."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from kesin.engine.queue import Queue
from kesin.foundation.clock import iso
from kesin.foundation.logs import Logger
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import TooLarge
from kesin.foundation.settings import Settings
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Filter
from kesin.web.auth import GuardedRouter, service_of
from kesin.web.bodies import ANY_SIZE, SMALL_BODY_BYTES, announced_bytes, takes_large_bodies
from kesin.web.dependencies import MediaType, SignedInActor, json_response
from kesin.web.schemas import Cursor, Text
from kesin.workloads.pdf import schemas
from kesin.workloads.pdf.api import common
from kesin.workloads.pdf.api.common import find_owned_job, format_time, require_access
from kesin.workloads.pdf.api.download import download_response, download_responses, job_download
from kesin.workloads.pdf.jobs import store, submit
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStatus, PdfJobStore, Submitted
from kesin.workloads.pdf.schemas import PdfJobRequest, PdfJobResponse, PdfJobStatusResponse, UploadBody
from kesin.workloads.pdf.services import PdfServiceLoader, picture_limits

MAX_PAGE_JOBS: Final = 200
MAX_WAIT_S: Final = 60
MAX_WAITING: Final = 200  # requests at once
FIRST_PAUSE_S: Final = 0.005
LAST_PAUSE_S: Final = 0.05
TIMEOUT_MARGIN_S: Final = 2.0  # between the end of a wait and the time-out of a request
_SAME_FIELDS: Final = ("job_id", "status", "retry_count", "template_name")  # of job and body
_OF_FILES: Final = ("name", "media_type", "relationship")
_HIDDEN: Final = {"mac", "variables", "template_hash", "pinned"}  # of steps
_LISTS: Final = ("warnings", "missing_glyphs", "conformance")
log = Logger("kesin.pdf")
Waiter = asyncio.Future[None]

_DOWNLOAD: Final = download_responses("PDF", ["application/pdf"], PdfJobStatusResponse)
_HTML: Final[dict[str, Any]] = {"text/html": {"schema": {"type": "string"}}}
_CREATE_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "model": PdfJobResponse,
        "content": _DOWNLOAD["responses"][200]["content"] | _HTML,
        "description": "The existing job, the PDF (with `wait`), or HTML in place of the PDF",
    },
    202: {"model": PdfJobResponse, "description": "A new job, or one that was not ready in time"},
    410: {"description": "The job ended without a PDF during the wait"},
}


def jobs_router(loader: PdfServiceLoader) -> APIRouter:
    context, settings = loader.context, loader.context.settings
    route_class = common.document_route(max(settings.pdf_body_kb, settings.pdf_html_kb))
    router = GuardedRouter(prefix="/pdf", tags=["pdf"], route_class=route_class)
    long_poll = LongPoll(context.commands.queues["pdf"], context.stopping)

    @router.post("/jobs", status_code=202, response_model=PdfJobResponse, responses=_CREATE_RESPONSES)
    async def create_pdf_job(
        request: Request,
        actor: SignedInActor,
        body: PdfJobRequest,
        wait: Annotated[float | None, Query(gt=0, le=MAX_WAIT_S, allow_inf_nan=False)] = None,
    ) -> Response:
        """Request a PDF: 202 with a new job, or 200 with the existing job for an identical request.

        With `wait`, returns the PDF itself if it is ready within that many seconds.
        """
        _check_size(request, body, settings)
        submitted = await _submit(loader, request, actor, body)
        if not isinstance(submitted, Submitted):
            return submitted
        if wait is None:
            return accepted_response(submitted)
        if submitted.job.status in store.UNFINISHED:
            within_s = min(wait, settings.request_timeout_s - TIMEOUT_MARGIN_S)
            await long_poll.wait_for_end(submitted.job.job_id, within_s)
        return await run_in_threadpool(_response_after_wait, loader, actor, submitted)

    @router.delete("/jobs/{job_id}", response_model=PdfJobStatusResponse)
    def cancel_pdf_job(
        actor: SignedInActor, job_id: str, reason: Annotated[Text | None, Query(min_length=1, max_length=500)] = None
    ) -> Response:
        """Cancel a waiting job; repeating the request changes nothing."""
        require_access(context, actor, "cancel", target=job_id)
        jobs = loader.services.jobs
        job = find_owned_job(jobs, actor, job_id)
        cancelled = submit.cancel_job(context, jobs, actor, job, reason)
        return json_response(status_body(jobs, cancelled))

    @router.get("/jobs", response_model=schemas.PdfJobPage)
    def list_pdf_jobs(
        actor: SignedInActor,
        status: PdfJobStatus | None = None,
        cursor: Cursor = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_JOBS)] = 50,
    ) -> Response:
        """Your jobs, newest first; an admin gets the jobs of all users."""
        require_access(context, actor, "list")
        owners = None if actor.is_admin else (actor.name,)
        where = Filter(states=(status.value,) if status else (), tenants=owners)
        page = loader.services.jobs.queue.jobs(where, limit=limit, cursor=cursor)
        build = schemas.PdfJobBody.model_construct  # trusted values
        bodies = [build(**_fields(store.parse_job(job))) for job in page.jobs]
        return json_response(schemas.PdfJobPage(jobs=bodies, cursor=page.cursor))

    @router.get("/jobs/{job_id}", response_model=PdfJobStatusResponse)
    def get_pdf_job_status(actor: SignedInActor, job_id: str) -> Response:
        """The state of a job, and its position in the queue."""
        require_access(context, actor, "read", target=job_id)
        jobs = loader.services.jobs
        return json_response(status_body(jobs, find_owned_job(jobs, actor, job_id)))

    @router.head("/jobs/{job_id}/download", **_DOWNLOAD, name="look_at_pdf")
    @router.get("/jobs/{job_id}/download", **_DOWNLOAD)
    def download_pdf(request: Request, actor: SignedInActor, job_id: str) -> Response:
        """The PDF, or a range of it; 202 until it is ready."""
        require_access(context, actor, "download", target=job_id)
        services = loader.services
        job = find_owned_job(services.jobs, actor, job_id)
        if job.status in store.UNFINISHED:
            return json_response(status_body(services.jobs, job), 202, retry_after="2")
        sent = download_response(services.artifacts, job_download(job), request)
        return common.note_download(context, actor, "download", job_id, sent, request.method)

    return router


_FILE: Final[dict[str, Any]] = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
_BODY: Final = {"requestBody": {"required": True, "content": _FILE}}


def uploads_router(loader: PdfServiceLoader) -> APIRouter:
    router, context = GuardedRouter(tags=["pdf"]), loader.context

    @takes_large_bodies(context.settings.pdf_upload_mb * 1_000_000, "own_body_bytes")
    async def read_file(request: Request) -> bytes:
        return await request.body()

    @router.post("/pdf/uploads", status_code=201, response_model=UploadBody, openapi_extra=_BODY)
    async def upload_file(
        request: Request, actor: SignedInActor, media_type: MediaType, data: Annotated[bytes, Depends(read_file)]
    ) -> Response:
        """Upload a file; until it expires, requests can refer to it by the returned id.

        A PDF is checked, and its scripts, XFA forms, attachments and external links are removed.
        """
        return await service_of(request).imports.run(upload, actor, data, media_type)

    def upload(actor: Actor, data: bytes, media_type: str) -> Response:
        from kesin.workloads.pdf.uploads.checking import check_file  # it loads slowly

        require_access(context, actor, "upload")
        file = check_file(data, media_type, picture_limits(context.settings))
        upload_id, expires_at = loader.services.uploads.store(actor.name, file.data, file.kind)
        body = UploadBody(
            upload_id=upload_id,
            media_type=file.media_type,
            bytes=len(file.data),
            sha256=upload_id.rpartition("-")[2],
            pages=file.pages,
            expires_at=iso(expires_at) or "",
        )
        return json_response(body, 201)

    return router


def _check_size(request: Request, body: PdfJobRequest, settings: Settings) -> None:
    """Raise TooLarge for a body above its limit: the route takes the larger of both."""
    most = 1024 * (settings.pdf_body_kb if body.source is None else settings.pdf_html_kb)
    size = announced_bytes(request)
    if size == ANY_SIZE:  # it came in chunks
        size = len(body.model_dump_json(exclude_unset=True).encode())
    if size > most:
        raise TooLarge("a request may be at most %(most)s bytes", most=most)


async def _submit(
    loader: PdfServiceLoader, request: Request, actor: Actor, body: PdfJobRequest
) -> Submitted | Response:
    """As ``submit_request``, or the fallback; jobs that are enqueued together share a commit."""
    size, writes = announced_bytes(request), service_of(request).writes
    call, submitted = partial(_find_or_create, loader, actor, body), None
    with suppress(StoreUnreachable):
        alone = size > SMALL_BODY_BYTES or body.uses_storage
        if not alone:  # a thread for the checks alone would cost more than they do
            found = await writes.run(loader.context.queue, size, call, ask_storage=False)
            # Other writers wait for that commit, so it does not wait for the storage of files.
            alone = found is not None and found.job.status not in store.UNFINISHED
            submitted = None if alone else found
        if alone:
            slow = body.attachments or body.einvoice  # to check them takes long
            run = service_of(request).imports.run if slow else run_in_threadpool
            submitted = await run(call)
    if submitted is not None:
        return submitted
    checked = await run_in_threadpool(_check, loader, actor, body)
    return await run_in_threadpool(submit.fallback_response, loader.services, checked)


def _find_or_create(
    loader: PdfServiceLoader, actor: Actor, body: PdfJobRequest, *, ask_storage: bool = True
) -> Submitted | None:
    """The job of a request; none while no worker is running."""
    request, services = _check(loader, actor, body), loader.services
    found = submit.find_job(services, request, ask_storage=ask_storage)
    return found or submit.create_job(services, request, loader.context.settings)


def _check(loader: PdfServiceLoader, actor: Actor, body: PdfJobRequest) -> store.RenderRequest:
    require_access(loader.context, actor, "create")
    if body.source is not None:
        require_access(loader.context, actor, "html", scope="pdf:html")
    return submit.build_render_request(loader.services, body, actor.name)


def _response_after_wait(loader: PdfServiceLoader, actor: Actor, submitted: Submitted) -> Response:
    services = loader.services
    job = services.jobs.get_job(submitted.job.job_id) or submitted.job
    if job.status in store.UNFINISHED:
        return accepted_response(submitted._replace(job=job, new=True))
    location = f"/pdf/jobs/{job.job_id}"
    sent = download_response(services.artifacts, job_download(job), location=location)
    return common.note_download(loader.context, actor, "download", job.job_id, sent, "POST")


def accepted_response(submitted: Submitted) -> Response:
    job = submitted.job
    created_at = format_time(job.created_at)
    body = PdfJobResponse(job_id=job.job_id, status=job.status, created_at=created_at)
    return json_response(body, 202 if submitted.new else 200, location=f"/pdf/jobs/{job.job_id}")


def status_body(jobs: PdfJobStore, job: PdfJob) -> PdfJobStatusResponse:
    more = {"position": jobs.position(job), **requested_contents(job)}
    return PdfJobStatusResponse.model_construct(**_fields(job), **more)


def requested_contents(job: PdfJob) -> dict[str, Any]:
    """What was requested beside the document; files that are masked are left out."""
    about = job.metadata or {}
    entries = [file for file in job.payload.get("attachments") or () if isinstance(file, dict)]
    sized = zip(entries, about.get("sizes") or [None] * len(entries), strict=False)
    files = [{name: file.get(name) for name in _OF_FILES} | {"bytes": n} for file, n in sized]
    invoice, profile = about.get("einvoice"), entries[-1].get("level") if entries else None
    return {
        "attachments": files,
        "einvoice": {"format": invoice, "profile": profile} if invoice else None,
        "then": [
            {kind: {name: each for name, each in content.items() if name not in _HIDDEN}}
            for step in job.payload.get("then") or ()
            for kind, content in step.items()
        ],
    }


def _fields(job: PdfJob) -> dict[str, Any]:
    has_pdf = job.status is PdfJobStatus.SUCCEEDED
    ended_badly = job.status in {PdfJobStatus.FAILED, PdfJobStatus.EXPIRED}
    output = (job.result or {}) if has_pdf else {}
    name = (job.metadata or {}).get("file_name")
    return {
        **{each: getattr(job, each) for each in _SAME_FIELDS},
        "created_at": format_time(job.created_at),
        "started_at": None if job.started_at is None else format_time(job.started_at),
        "finished_at": None if job.finished_at is None else format_time(job.finished_at),
        "error_code": job.error_code if ended_badly else None,
        "error_message": job.public_message if ended_badly else None,
        "download_url": f"/pdf/jobs/{job.job_id}/download" if has_pdf else None,
        "file_name": name if isinstance(name, str) else None,
        "template_version": job.payload.get("version"),
        **{fact: output.get(fact) for fact in ("pages", "bytes", "sha256", "engine")},
        "reproducible": output.get("reproducible", True),
        **{texts: list(output.get(texts) or ()) for texts in _LISTS},
    }


class LongPoll:
    """Waits for all jobs with one task, which polls them; a tenth of a second late at most."""

    def __init__(self, queue: Queue, stopping: Callable[[], bool]) -> None:
        self._queue = queue
        self._stopping = stopping
        self._waiters: dict[Waiter, str] = {}  # and the job that each waits for
        self._polling: asyncio.Task[None] | None = None

    async def wait_for_end(self, job_id: str, seconds: float) -> None:
        """Return when the job has ended or time is up; at once if the service stops or is full."""
        if len(self._waiters) >= MAX_WAITING or self._stopping():
            return
        ended: Waiter = asyncio.get_running_loop().create_future()
        self._waiters[ended] = job_id
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            await asyncio.wait({ended}, timeout=seconds)
        finally:
            del self._waiters[ended]

    async def _poll(self) -> None:
        pause_s = FIRST_PAUSE_S
        while self._waiters:
            for ended in await asyncio.to_thread(self._finished_waiters, dict(self._waiters)):
                pause_s = FIRST_PAUSE_S
                if not ended.done():
                    ended.set_result(None)
            await asyncio.sleep(pause_s)
            pause_s = min(1.1 * pause_s, LAST_PAUSE_S)

    def _finished_waiters(self, waiters: Mapping[Waiter, str]) -> list[Waiter]:
        """Return the waiters whose job has ended, or all of them when the service stops."""
        if self._stopping():
            return list(waiters)
        try:
            states = self._queue.states(list(set(waiters.values())))
        except Exception as problem:  # noqa: BLE001  # the store is unreachable: the next poll retries
            log.warning("job_poll_failed", why=type(problem).__name__)
            return []
        return [ended for ended, job in waiters.items() if states.get(job) not in store.UNFINISHED]
