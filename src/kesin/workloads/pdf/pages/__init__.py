"""The dashboard pages for PDFs: making one by hand, and the viewer of a finished one."""

from __future__ import annotations

from typing import Final

from kesin.web.dashboard.frame.page import WorkloadPages
from kesin.workloads.pdf.pages import page
from kesin.workloads.pdf.pages.job_panel import check_health, heartbeats, job_panel, links

PAGES: Final = WorkloadPages(
    package=__name__,
    routers=(page.router,),
    links=links,
    job_panel=job_panel,
    heartbeats=heartbeats,
    health=check_health,
    polling_elements=frozenset({"pdf-jobs"}),
)
