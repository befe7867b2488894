"""The dashboard: operators see every job and steer it. All of its pages are under /dashboard."""

from __future__ import annotations

from fastapi import APIRouter

from kesin.web.dashboard import (
    admin_keys,
    admin_people,
    admin_sites,
    audit_page,
    job_page,
    job_paper,
    oci_page,
    oci_settings,
    optiplan_new,
    optiplan_page,
    optiplan_setup,
    overview,
    pdf_page,
    queue_page,
    shell,
    workers_page,
)


def dashboard_router() -> APIRouter:
    """Every page."""
    router = APIRouter(include_in_schema=False)
    for part in (
        shell,
        overview,
        queue_page,
        oci_page,
        oci_settings,
        pdf_page,
        optiplan_page,
        optiplan_new,
        optiplan_setup,
        job_page,
        job_paper,
        workers_page,
        audit_page,
        admin_people,
        admin_keys,
        admin_sites,
    ):
        router.include_router(part.router)
    router.include_router(shell.last)
    return router
