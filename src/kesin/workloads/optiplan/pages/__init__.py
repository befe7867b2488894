"""The dashboard pages of the workshop: orders, a new order, customers and rules."""

from typing import Final

from kesin.web.dashboard.frame.page import WorkloadPages
from kesin.workloads.optiplan.pages import job_panel, new_order, orders, rack, scan, setup
from kesin.workloads.optiplan.pipeline.waiting import waiting_for

PAGES: Final = WorkloadPages(
    package=__name__,
    icon="board",
    routers=(orders.router, new_order.router, rack.router, scan.router, setup.router),
    links=job_panel.links,
    job_panel=job_panel.job_panel,
    job_actions=orders.job_actions,
    job_link=job_panel.job_link,
    waits_for=lambda job: waits.message if (waits := waiting_for(job)) else "",
    triage=job_panel.triage,
    health=job_panel.check_health,
    polling_elements=frozenset({"orders"}),
)
