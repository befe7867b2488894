"""Where a site's pages are, and which of them the navigation and the overview point to."""

import json
from typing import Final
from urllib.parse import urlencode

from markupsafe import escape

from kesin.engine.queue import Queue
from kesin.lifecycle.model import Job
from kesin.web.dashboard.frame.page import Link, PageContext, QueueWarning
from kesin.web.failures import FailureGroup
from kesin.workloads.oci.conversions.conversion import CLICK_ID
from kesin.workloads.oci.google.circuit_breaker import Breaker, breaker_name
from kesin.workloads.oci.site import WORKLOAD

SITES_PATH: Final = "/dashboard/oci"
MAX_LINKS: Final = 12  # in the navigation; the table has all sites
GOOGLE_ADMIN: Final = "google_admin"  # in the advice: the account or the site's settings are wrong
MAX_NAMES: Final = 3  # sites in a sentence


def control_path(site_id: str) -> str:
    """The path of a site's OCI Control; a site's id needs no quoting."""
    return f"/dashboard/site/{site_id}/oci-control"


def site_path(site_id: str, open_path: str) -> str:
    """The page about another site that shows what the open page shows."""
    pages = ("/settings", "/reconciliation") if open_path.startswith("/dashboard/site/") else ()
    return control_path(site_id) + "".join(page for page in pages if open_path.endswith(page))


def links(ctx: PageContext) -> list[Link]:
    """All sites in one table, and the OCI Control of the first of them."""
    if not ctx.actor.has("read"):
        return []
    sites = ctx.sites(WORKLOAD)
    every = [Link(ctx.say("All sites"), SITES_PATH, "site")] if len(sites) > 1 else []
    return every + [
        Link(ctx.say("OCI · %(site)s", site=site.name), control_path(site.id), "site")
        for site in sites[:MAX_LINKS]
    ]


def triage(ctx: PageContext, group: FailureGroup) -> Link | None:
    """Where rows with bad data are corrected, or the site's conversion action: each site's page."""
    if not group.futile or not ctx.actor.has("operate"):
        return None
    [site, *others] = group.tenants or [""]
    of_site = group.who == GOOGLE_ADMIN and "CONVERSION_ACTION" in group.code
    label = ctx.say("Open site settings" if of_site else "Fix data")
    if others or not site:
        return Link(label, "")
    if of_site:
        return Link(label, f"{control_path(site)}/settings")
    query = urlencode({"status": group.state, "code": group.code})
    return Link(label, f"{control_path(site)}?{query}#correct")


def click_id_search(ctx: PageContext, text: str) -> list[Link]:
    """The OCI Control of each site, which finds the rows of a click id."""
    sites = ctx.sites(WORKLOAD)[:MAX_LINKS] if CLICK_ID.fullmatch(text) else []
    titles = [ctx.say("Search click ids for %(site)s", site=site.name) for site in sites]
    paths = [f"{control_path(site.id)}?{urlencode({'q': text})}" for site in sites]
    return list(map(Link, titles, paths))


def breaker_states(ctx: PageContext, now: int, queue: str = WORKLOAD) -> dict[str, str]:
    """Closed, open or half_open: the circuit breaker of each site that ever had a problem."""
    entries = ctx.accounts.directory.metadata_entries(WORKLOAD, name=breaker_name(queue))
    return {entry.site: Breaker.from_dict(json.loads(entry.value)).state(now) for entry in entries}


def stopped_by_site(ctx: PageContext, job: Job) -> str:
    """Why no worker takes a row that is due: its site has a script, or an open breaker."""
    site = ctx.accounts.directory.site(job.tenant)
    if site is None:
        return ""
    if site.channel == "script":
        return ctx.say("It is due: the next run of the site's script will take it.")
    now = ctx.workload(WORKLOAD).queue.now()
    states = [breaker_states(ctx, now, queue).get(site.id) for queue in {WORKLOAD, job.queue}]
    why = "It is due, but uploads for its site are suspended after errors."
    return ctx.say(why) if "open" in states else ""


def breaker_warnings(ctx: PageContext, queue: Queue) -> list[QueueWarning]:
    """Sites of the user whose circuit breaker is open: nothing is uploaded for them now."""
    states = breaker_states(ctx, queue.now(), queue.name)
    open_for = {site for site, state in states.items() if state != "closed"}
    sites = ctx.sites(WORKLOAD) if open_for else []
    names = [site.name for site in sites if site.id in open_for and site.channel != "script"]
    if not names:
        return []
    some = ", ".join(names[:MAX_NAMES]) + (" …" if len(names) > MAX_NAMES else "")
    text = escape(ctx.say("uploads are suspended for %(sites)s")) % {"sites": some}
    return [QueueWarning(text, ctx.say("the breaker is open"))]
