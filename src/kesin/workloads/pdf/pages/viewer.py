"""A finished PDF inside the page of its job, with the same permissions as the download."""

from __future__ import annotations

from typing import Final

from fastapi import Request, Response

from kesin.foundation.problems import NotFound
from kesin.web.auth import guarded_router
from kesin.web.dashboard.frame.page import Context
from kesin.workloads.pdf.api.common import find_owned_job, note_download, require_access
from kesin.workloads.pdf.api.download import DownloadConditions, download_response
from kesin.workloads.pdf.jobs.store import PdfJobStatus
from kesin.workloads.pdf.pages.page import workbench_of

router = guarded_router(include_in_schema=False)
# The browser's PDF viewer is a plug-in with inline styles; nothing else is allowed.
CSP: Final = (
    "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'self'"
)


@router.get("/dashboard/jobs/{job_id}/paper")
def show_pdf(ctx: Context, request: Request, job_id: str) -> Response:
    """The PDF, for its owner and for admins; for others the job does not exist."""
    require_access(ctx.workload("pdf"), ctx.actor, "download", target=job_id[:64])
    services = workbench_of(request.app, ctx.service).services
    job = find_owned_job(services.jobs, ctx.actor, job_id)
    if job.status is not PdfJobStatus.SUCCEEDED:
        raise NotFound("there is no PDF of this job")
    response = download_response(services.artifacts, job, DownloadConditions.from_request(request))
    note_download(ctx.workload("pdf"), ctx.actor, "download", job_id, response)
    response.headers["content-disposition"] = "inline"
    response.headers["x-frame-options"] = "SAMEORIGIN"
    response.headers["content-security-policy"] = CSP
    return response
