"""The dashboard: operators see every job and steer it. All of its pages are under /dashboard."""

from starlette.routing import BaseRoute

from kesin.web.dashboard import jump, overview
from kesin.web.dashboard.admin import accounts, workers
from kesin.web.dashboard.frame import routes as frame_routes
from kesin.web.dashboard.frame.page import Frame
from kesin.web.dashboard.jobs import page as job_page
from kesin.web.dashboard.queues import fix
from kesin.web.dashboard.queues import page as queue_page


def dashboard_routes(frame: Frame) -> list[BaseRoute]:
    """Every page: those of the dashboard, then those that workloads bring."""
    pages = (overview, jump, queue_page, fix, job_page)
    routers = [part.router for part in (frame_routes, *pages, workers, accounts)]
    routers += [router for brought in frame.pages.values() for router in brought.routers]
    return [route for router in (*routers, frame_routes.fallback_router) for route in router.routes]
