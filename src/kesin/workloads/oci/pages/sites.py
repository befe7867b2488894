"""All sites in one table; where their pages are, and which of them the dashboard points to."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import HTMLResponse
from markupsafe import escape

from kesin.engine.queue import Queue
from kesin.lifecycle.model import Job
from kesin.store.directory import Site
from kesin.store.history import PERIODS, read_tenants
from kesin.web.dashboard.frame.page import Context, Link, PageContext, QueueWarning, page_router
from kesin.web.dashboard.queues.failures import failures_of
from kesin.web.failures import FailureGroup
from kesin.workloads.oci.conversions.conversion import CLICK_ID
from kesin.workloads.oci.google.circuit_breaker import Breaker, breaker_name
from kesin.workloads.oci.lifecycle import WAITING
from kesin.workloads.oci.operations import ending_rows, expiring_before
from kesin.workloads.oci.site import WORKLOAD

router = page_router()
Word = Annotated[str, Query(max_length=64)]
FIRST_SITES: Final = 100  # at first: a browser takes long over a table of all
MAX_SITES: Final = 1_000  # in the table; a search finds the others

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
        Link(ctx.say("OCI · %(site)s", site=site.name), control_path(site.id), "site") for site in sites[:MAX_LINKS]
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
        return ctx.say("It is due: the next run of the site's script will claim it.")
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


# Each with the order in which an operator wants it: the worst first.
_ORDERS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "needs": lambda row: (-row["needs_you"], row["site"].name.casefold()),
    "name": lambda row: row["site"].name.casefold(),
    "waiting": lambda row: -row["waiting"],
    "success": lambda row: row["success_at"],
    "breaker": lambda row: (row["breaker"] == "closed", row["site"].name.casefold()),
    "expiring": lambda row: -row["expiring"],
    "completed": lambda row: -row["completed"],
}


@router.get(SITES_PATH, response_class=HTMLResponse)
def oci_sites(ctx: Context, q: Word = "", sort: Word = "needs", every: Literal["", "1"] = "") -> HTMLResponse:
    """The sites that the user may see: the first of them in this order, or all."""
    wanted = q.strip().casefold()
    queue = ctx.commands.queue(ctx.actor, WORKLOAD)  # refuses who may not read it
    found = [s for s in ctx.sites(WORKLOAD) if wanted in s.name.casefold() or wanted in s.id]
    order = sort if sort.removeprefix("-") in _ORDERS else "needs"
    key, turned = _ORDERS[order.removeprefix("-")], order.startswith("-")
    rows = sorted(_rows(ctx, queue, found), key=key, reverse=turned)
    shown = MAX_SITES if every else FIRST_SITES
    return ctx.page(
        "oci/sites.html", rows=rows[:shown], more=len(rows[shown:]), every=every, wanted=q, order=order, now=queue.now()
    )


def _rows(ctx: Context, queue: Queue, sites: Sequence[Site]) -> list[dict[str, Any]]:
    """Each site at a glance; what it completed is of a day, and drawn by the half hour."""
    stats = ctx.stats(queue)
    needs, retrying = Counter[str](), Counter[str]()
    for group in failures_of(ctx, queue, stats).groups:
        if group.needs_you or group.retries:
            (needs if group.needs_you else retrying).update(group.tenants)
    completed_at: dict[str, int] = {}
    for count in stats.counts:
        if count.to_state == "COMPLETED":
            completed_at[count.tenant] = max(completed_at.get(count.tenant, 0), count.at)
    breakers = breaker_states(ctx, stats.now)
    expiring = queue.store.aging(queue.name, ("conversion_at", expiring_before(stats.now)))
    ending = ending_rows(queue, sites)
    done: dict[str, list[int]] = {}
    for part, tenants in enumerate(read_tenants(queue.store, queue.name, stats.now)):
        for tenant, entered in tenants.items():
            done.setdefault(tenant, [0] * PERIODS)[part] = entered.get("COMPLETED", 0)
    return [
        {
            "site": site,
            "path": control_path(site.id),
            "waiting": sum(stats.tenants.get(site.id, {}).get(s, 0) for s in WAITING),
            "needs_you": needs[site.id],
            "retrying": retrying[site.id],
            "success_at": completed_at.get(site.id, 0),
            "breaker": "closed" if site.channel == "script" else breakers.get(site.id, "closed"),
            "expiring": max(expiring.get(site.id, 0), ending.get(site.id, 0)),
            "completed": sum(done.get(site.id, ())),
            "sparkline": _sparkline(done.get(site.id, ())),
        }
        for site in sites
    ]


def _sparkline(by_period: Sequence[int]) -> str:
    """A path in a box of 48 by 16: columns, the latest on the right."""
    top = max(by_period, default=0)
    return "".join(f"M{x} 16v-{16 * n / top:.1f}" for x, n in enumerate(by_period) if n)
