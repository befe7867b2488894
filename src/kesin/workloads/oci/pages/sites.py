"""All sites in one table: what waits, what needs a person, when a row last succeeded."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from fastapi.responses import HTMLResponse

from kesin.store.directory import Site
from kesin.store.history import PERIODS, read_tenants
from kesin.web.dashboard.frame.page import Context, page_router
from kesin.web.dashboard.queues.failures import failures_of
from kesin.workloads.oci.operations import ending_rows, expiring_before
from kesin.workloads.oci.pages.control import Word
from kesin.workloads.oci.pages.site_links import SITES_PATH, breaker_states, control_path
from kesin.workloads.oci.site import WORKLOAD

router = page_router()
FIRST_SITES: Final = 100  # at first: a browser takes long over a table of all
MAX_SITES: Final = 1_000  # in the table; a search finds the others


class SiteRow(NamedTuple):
    """A site at a glance."""

    site: Site
    path: str
    waiting: int
    needs_you: int
    retrying: int
    success_at: int
    breaker: str  # closed, open or half_open
    expiring: int
    completed: int  # in a day
    by_period: Sequence[int]  # the same by the half hour

    @property
    def sparkline(self) -> str:
        """A path in a box of 48 by 16: columns, the latest on the right."""
        top = max(self.by_period, default=0)
        columns = enumerate(self.by_period)
        return "".join(f"M{x} 16v-{16 * n / top:.1f}" for x, n in columns if n)


# Each with the order in which an operator wants it: the worst first.
_ORDERS: Final[dict[str, Callable[[SiteRow], Any]]] = {
    "needs": lambda row: (-row.needs_you, row.site.name.casefold()),
    "name": lambda row: row.site.name.casefold(),
    "waiting": lambda row: -row.waiting,
    "success": lambda row: row.success_at,
    "breaker": lambda row: (row.breaker == "closed", row.site.name.casefold()),
    "expiring": lambda row: -row.expiring,
    "completed": lambda row: -row.completed,
}


@router.get(SITES_PATH, response_class=HTMLResponse)
def oci_sites(
    ctx: Context, q: Word = "", sort: Word = "needs", every: Literal["", "1"] = ""
) -> HTMLResponse:
    """The sites that the user may see: the first of them in this order, or all."""
    context, wanted = ctx.workload(WORKLOAD), q.strip().casefold()
    ctx.commands.queue(ctx.actor, WORKLOAD)  # refuses who may not read it
    found = [s for s in ctx.sites(WORKLOAD) if wanted in s.name.casefold() or wanted in s.id]
    order = sort if sort.removeprefix("-") in _ORDERS else "needs"
    key, turned = _ORDERS[order.removeprefix("-")], order.startswith("-")
    rows = sorted(_rows(ctx, found), key=key, reverse=turned)
    shown = MAX_SITES if every else FIRST_SITES
    return ctx.page(
        "oci/sites.html",
        rows=rows[:shown],
        more=len(rows[shown:]),
        every=every,
        wanted=q,
        order=order,
        now=context.queue.now(),
    )


def _rows(ctx: Context, sites: Sequence[Site]) -> list[SiteRow]:
    context = ctx.workload(WORKLOAD)
    queue, store = context.queue, context.queue.store
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
    expiring = store.aging(queue.name, ("conversion_at", expiring_before(stats.now)))
    ending = ending_rows(queue, sites)
    done: dict[str, list[int]] = {}
    for part, tenants in enumerate(read_tenants(store, queue.name, stats.now)):
        for tenant, entered in tenants.items():
            done.setdefault(tenant, [0] * PERIODS)[part] = entered.get("COMPLETED", 0)
    return [
        SiteRow(
            site,
            control_path(site.id),
            sum(stats.tenants.get(site.id, {}).get(state, 0) for state in ("QUEUED", "RETRY")),
            needs[site.id],
            retrying[site.id],
            completed_at.get(site.id, 0),
            "closed" if site.channel == "script" else breakers.get(site.id, "closed"),
            max(expiring.get(site.id, 0), ending.get(site.id, 0)),
            sum(done.get(site.id, ())),
            done.get(site.id, ()),
        )
        for site in sites
    ]
