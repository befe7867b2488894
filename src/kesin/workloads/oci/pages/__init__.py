"""The dashboard pages of a site: OCI Control and its settings."""

from typing import Final

from kesin.lifecycle.budget import HOUR_S
from kesin.web.dashboard.frame.page import WorkloadPages
from kesin.workloads.oci.lifecycle import WINDOW_S
from kesin.workloads.oci.pages import control, job_panel, settings, sites

PAGES: Final = WorkloadPages(
    package=__name__,
    icon="upload",
    routers=(sites.router, control.router, job_panel.router, settings.router),
    links=sites.links,
    site_path=sites.site_path,
    job_panel=job_panel.job_panel,
    job_actions=job_panel.job_actions,
    warnings=sites.breaker_warnings,
    stopped=sites.stopped_by_site,
    triage=sites.triage,
    masked_search=sites.click_id_search,
    overdue_after_s=3 * HOUR_S,  # Google's scripts come once an hour at most
    polling_elements=frozenset({"oci-rows", "oci-summary"}),
)
ADJUSTMENT_PAGES: Final = WorkloadPages(
    icon="upload",
    job_panel=job_panel.adjustment_panel,
    job_link=job_panel.sale_link,
    warnings=sites.breaker_warnings,
    stopped=sites.stopped_by_site,
    overdue_after_s=WINDOW_S,  # those of a script's site wait for a person
)
