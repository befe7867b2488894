"""A finished PDF to look at inside its job's page: the same door as the download, framed by us."""

from __future__ import annotations

from typing import Final

from fastapi import Request, Response

from kesin.foundation.problems import Unknown
from kesin.web.auth import guarded_router
from kesin.web.dashboard.frame.page import Context
from kesin.workloads.pdf.pages.page import desk_of

router = guarded_router(include_in_schema=False)
# A browser's own viewer is a plug-in with styles of its own; nothing else of the page is let in.
CSP: Final = (
    "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'self'"
)


@router.get("/dashboard/jobs/{job_id}/paper")
def paper(looking: Context, request: Request, job_id: str) -> Response:
    """For its owner and for admins; whoever else asks learns nothing."""
    from kesin.workloads.pdf.api.common import admit, owners_job
    from kesin.workloads.pdf.api.download import Conditions, delivered
    from kesin.workloads.pdf.jobs.store import PdfJobStatus

    service = looking.service
    workload = service.workloads.get("pdf")
    if workload is None:
        raise Unknown("there is no such job")
    admit(service.house(workload), looking.actor, "download", target=job_id[:64])
    tools = desk_of(request.app, service).tools
    job = owners_job(tools.jobs, looking.actor, job_id)
    if job.status is not PdfJobStatus.SUCCEEDED:
        raise Unknown("there is no PDF of this job")
    answer = delivered(tools.artifacts, job, Conditions.of(request))
    answer.headers["content-disposition"] = "inline"
    answer.headers["x-frame-options"] = "SAMEORIGIN"
    answer.headers["content-security-policy"] = CSP
    return answer
