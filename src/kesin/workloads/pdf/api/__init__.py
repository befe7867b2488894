"""Every route of the workload: jobs, templates, batches, webhooks."""

from __future__ import annotations

from fastapi import APIRouter

from kesin.engine.workload import WorkloadContext
from kesin.workloads.pdf.api.batches import batch_router
from kesin.workloads.pdf.api.jobs import jobs_router
from kesin.workloads.pdf.api.templates import templates_router
from kesin.workloads.pdf.api.webhooks import hook_router
from kesin.workloads.pdf.services import Shop


def pdf_router(house: WorkloadContext) -> APIRouter:
    """The routes; templates, storage and their libraries are loaded when somebody asks."""
    router = APIRouter()
    shop = Shop(house)
    for part in (
        jobs_router(shop),
        templates_router(shop),
        batch_router(shop),
        hook_router(house),
    ):
        router.routes.extend(part.routes)  # to include it would make each route anew
    return router
