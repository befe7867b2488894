"""Every route of the workload: jobs, templates, batches, webhooks."""

from __future__ import annotations

from fastapi import APIRouter

from kesin.engine.workload import WorkloadContext
from kesin.workloads.pdf.api.batches import batch_router
from kesin.workloads.pdf.api.jobs import jobs_router
from kesin.workloads.pdf.api.templates import templates_router
from kesin.workloads.pdf.api.webhooks import webhook_router
from kesin.workloads.pdf.services import PdfServiceLoader


def pdf_router(context: WorkloadContext) -> APIRouter:
    """Build the router; templates, storage and their libraries are loaded by the first request."""
    router = APIRouter()
    loader = PdfServiceLoader(context)
    for subrouter in (
        jobs_router(loader),
        templates_router(loader),
        batch_router(loader),
        webhook_router(context),
    ):
        router.routes.extend(subrouter.routes)  # include_router would build each route again
    return router
