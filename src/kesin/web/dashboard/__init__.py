"""The dashboard: operators see every job and steer it. All of its pages are under /dashboard."""

from __future__ import annotations

from starlette.routing import BaseRoute

from kesin.web.dashboard import overview
from kesin.web.dashboard.admin import audit, keys, sites, users, workers
from kesin.web.dashboard.frame import routes as shell
from kesin.web.dashboard.jobs import page as job_page
from kesin.web.dashboard.queues import page as queue_page
from kesin.workloads.oci.pages import control, settings
from kesin.workloads.optiplan.pages import new_order, orders, setup
from kesin.workloads.pdf.pages import page as pdf_page
from kesin.workloads.pdf.pages import viewer


def dashboard_routes() -> list[BaseRoute]:
    """Every page."""
    parts = (
        shell,
        overview,
        queue_page,
        control,
        settings,
        pdf_page,
        orders,
        new_order,
        setup,
        job_page,
        viewer,
        workers,
        audit,
        users,
        keys,
        sites,
    )
    routers = (*(part.router for part in parts), shell.last)
    return [route for router in routers for route in router.routes]
