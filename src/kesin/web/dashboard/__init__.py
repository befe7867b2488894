"""The dashboard: operators see every job and steer it. All of its pages are under /dashboard."""

from __future__ import annotations

from starlette.routing import BaseRoute

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


def dashboard_routes() -> list[BaseRoute]:
    """Every page."""
    parts = (
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
    )
    routers = (*(part.router for part in parts), shell.last)
    return [route for router in routers for route in router.routes]
