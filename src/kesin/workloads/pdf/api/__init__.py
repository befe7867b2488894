"""Every route of the workload: jobs, links, templates, versions, batches, uploads, webhooks."""

from typing import Final

from fastapi import APIRouter

from kesin.engine.workload import WorkloadContext
from kesin.web.auth import GuardedRouter
from kesin.workloads.pdf.api.batches import batch_router
from kesin.workloads.pdf.api.download import links_router
from kesin.workloads.pdf.api.jobs import jobs_router, uploads_router
from kesin.workloads.pdf.api.versions import templates_router, versions_router
from kesin.workloads.pdf.api.webhooks import webhook_router
from kesin.workloads.pdf.services import PdfServiceLoader

_ROUTERS: Final = (
    *(jobs_router, links_router, templates_router, versions_router),
    *(batch_router, uploads_router, webhook_router),
)


def pdf_router(context: WorkloadContext) -> APIRouter:
    """Build the router; templates, storage and their libraries are loaded by the first request."""
    router = GuardedRouter()
    loader = PdfServiceLoader(context)
    for build in _ROUTERS:
        router.routes.extend(build(loader).routes)  # include_router would build each route again
    return router
