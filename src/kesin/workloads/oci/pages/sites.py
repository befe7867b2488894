"""All sites in one table: what waits, what needs a person, when a row last succeeded."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from fastapi.responses import HTMLResponse

from kesin.engine.queue import Queue
from kesin.store.directory import Site
from kesin.store.history import PERIODS, read_tenants
from kesin.web.dashboard.frame.page import Context, page_router
from kesin.web.dashboard.queues.failures import failures_of
from kesin.workloads.oci.lifecycle import WAITING
from kesin.workloads.oci.operations import ending_rows, expiring_before
from kesin.workloads.oci.pages.control import Word
from kesin.workloads.oci.pages.site_links import SITES_PATH, breaker_states, control_path
from kesin.workloads.oci.site import WORKLOAD

router = page_router()
FIRST_SITES: Final = 100  # at first: a browser takes long over a table of all
MAX_SITES: Final = 1_000  # in the table; a search finds the others

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
def oci_sites(
    ctx: Context, q: Word = "", sort: Word = "needs", every: Literal["", "1"] = ""
) -> HTMLResponse:
    """The sites that the user may see: the first of them in this order, or all."""
    wanted = q.strip().casefold()
    queue = ctx.commands.queue(ctx.actor, WORKLOAD)  # refuses who may not read it
    found = [s for s in ctx.sites(WORKLOAD) if wanted in s.name.casefold() or wanted in s.id]
    order = sort if sort.removeprefix("-") in _ORDERS else "needs"
    key, turned = _ORDERS[order.removeprefix("-")], order.startswith("-")
    rows = sorted(_rows(ctx, queue, found), key=key, reverse=turned)
    shown = MAX_SITES if every else FIRST_SITES
    return ctx.page(
        "oci/sites.html",
        rows=rows[:shown],
        more=len(rows[shown:]),
        every=every,
        wanted=q,
        order=order,
        now=queue.now(),
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
