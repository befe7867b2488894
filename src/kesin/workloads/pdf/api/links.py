"""Routes for signed links: create one for a PDF, and follow it without signing in."""

from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from kesin.foundation.clock import iso
from kesin.foundation.ids import is_id
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Problem, RequestConflict
from kesin.lifecycle.budget import SECOND_US
from kesin.web.auth import PUBLIC_ROUTE, GuardedRouter, address_of
from kesin.web.dependencies import UNCACHED, SignedInActor, json_response
from kesin.web.schemas import Strict
from kesin.workloads.pdf import links
from kesin.workloads.pdf.api.common import FILE_SENT, find_owned_job, note_download, require_access
from kesin.workloads.pdf.api.download import Download, download_response, job_download
from kesin.workloads.pdf.jobs.store import UNFINISHED
from kesin.workloads.pdf.services import PdfServiceLoader

_FILE: Final = {"application/pdf": {"schema": {"type": "string", "format": "binary"}}}
_FOLLOWED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": _FILE, "description": "The PDF"},
    302: {"description": "Redirect to the PDF in its bucket; the address is valid for a minute"},
    410: {"description": "The link or its PDF has expired, or the link has no downloads left"},
}


class LinkRequest(Strict, frozen=True):
    """A request for a link to a PDF."""

    expires_in: int = Field(
        links.DEFAULT_LINK_S, ge=1, le=links.MAX_LINK_S, description="seconds, at most a week"
    )
    max_downloads: int | None = Field(
        None, ge=1, le=1_000_000, description="how many times the link works; unlimited if omitted"
    )


class LinkBody(BaseModel):
    """A link to a PDF."""

    url: str = Field(description="absolute if KESIN_PUBLIC_URL is set, otherwise a path")
    expires_at: str = Field(description="never after the PDF itself expires")
    max_downloads: int | None


def new_link(loader: PdfServiceLoader, actor: Actor, job_id: str, body: LinkRequest) -> LinkBody:
    """Create a link to the PDF of a job, and write it to the audit log; raises Problem."""
    require_access(loader.context, actor, "link", target=job_id)
    services = loader.services
    job = find_owned_job(services.jobs, actor, job_id)
    if job.status in UNFINISHED:
        raise RequestConflict("there is no PDF yet: wait until the job has succeeded")
    if isinstance(problem := job_download(job), Problem):
        raise problem
    now_s, most = services.jobs.queue.now() / SECOND_US, body.max_downloads
    url, ends_s = services.links.create(job, body.expires_in, most, since_s=now_s)
    link = LinkBody(url=url, expires_at=iso(ends_s * SECOND_US) or "", max_downloads=most)
    note, details = loader.context.commands.accounts.note, link.model_dump(exclude={"url"})
    note(actor, "pdf.link", queue="pdf", target=job_id, details=details)
    return link


def links_router(loader: PdfServiceLoader) -> APIRouter:
    router, context = GuardedRouter(tags=["pdf"]), loader.context

    @router.post("/pdf/jobs/{job_id}/links", status_code=201, response_model=LinkBody)
    def create_pdf_link(actor: SignedInActor, job_id: str, body: LinkRequest) -> Response:
        """Create a temporary link that anyone can use to download a job's PDF."""
        return json_response(new_link(loader, actor, job_id, body), 201, cache_control=UNCACHED)

    public: dict[str, Any] = {
        "response_class": Response, "responses": _FOLLOWED, "openapi_extra": PUBLIC_ROUTE,
    }  # fmt: skip

    @router.head(links.PATH, **public, name="look_at_pdf_link")
    @router.get(links.PATH, **public)
    def follow_pdf_link(
        request: Request, job_id: str, query: Annotated[links.LinkQuery, Query()]
    ) -> Response:
        """The PDF, without signing in; if the link has a download limit, always the whole file."""
        services, only_head = loader.services, request.method == "HEAD"
        found = services.jobs.get_job(job_id) if is_id(job_id) else None
        job = services.links.require_valid(found, query)
        part = request if only_head or not query.n else None
        download = job_download(job)
        if isinstance(download, Download):
            download = download._replace(redirect=True)
        response = download_response(services.artifacts, download, part)
        if query.n and not only_head and response.status_code in FILE_SENT:
            services.links.count(job_id, query.n)
        actor = replace(request.state.actor, address=address_of(request))
        note_download(context, actor, "follow_link", job_id, response, request.method)
        return response

    return router
