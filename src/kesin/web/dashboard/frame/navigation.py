"""The trades' own pages in the navigation: offered to whoever may use them, and nobody else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode

from kesin.engine.queue import Queue
from kesin.foundation.text import canonical_json
from kesin.store.directory import Fact, Site
from kesin.store.limits import MAX_TENANT
from kesin.store.records import QueueStats
from kesin.web.dashboard.state_groups import ended_badly, waits_for_person

if TYPE_CHECKING:
    from kesin.web.dashboard.frame.page import PageContext

MOST_SITES: Final = 12  # beside the pages; the others are found on any site's page


class Link(NamedTuple):
    """A page of a trade."""

    title: str
    path: str
    queue: str  # whose trade it is


def links(looking: PageContext) -> list[Link]:
    """The pages of the trades that this service has and the looker may open."""
    service, actor = looking.service, looking.actor
    found = []
    if "oci" in service.workloads and actor.has("read"):
        seen = [one for one in service.accounts.sites(actor) if actor.sees("oci", one.id)]
        found += [
            Link(looking.say("OCI · %(site)s", site=one.name), control_path(one.id), "oci")
            for one in seen[:MOST_SITES]
        ]
    if "pdf" in service.workloads and actor.has("pdf"):
        found.append(Link(looking.say("Make a PDF"), "/dashboard/pdf", "pdf"))
    if "optiplan" in service.workloads and may_see_orders(looking):
        found.append(Link(looking.say("Cutting orders"), "/dashboard/optiplan", "optiplan"))
    return found


def may_see_orders(looking: PageContext) -> bool:
    """Whether somebody may look at the workshop's orders."""
    actor = looking.actor
    sees = looking.service.commands.visible(actor, "optiplan") is None
    return actor.has("optiplan") or (actor.has("read") and sees)


def control_path(site_id: str) -> str:
    """Where a site's OCI Control is; a site's id is plain, it needs no quoting."""
    return f"/dashboard/site/{site_id}/oci-control"


MOST_LISTED: Final = 200
_QUEUES: Final = "/dashboard/queues/"
_SITES: Final = "/dashboard/site/"


@dataclass(frozen=True, slots=True)
class Way:
    """A site, or all of them, and where it leads."""

    title: str
    path: str
    here: bool


@dataclass(frozen=True, slots=True)
class Switch:
    """What stands in the header, and what it opens."""

    title: str
    ways: tuple[Way, ...]


def switch_of(looking: PageContext) -> Switch | None:
    """For whoever has several sites; others have nothing to choose."""
    if not looking.actor.has("read"):
        return None
    path = looking.request.url.path
    queue = path.removeprefix(_QUEUES) if path.startswith(_QUEUES) else ""
    sites = _sites(looking, queue)
    if len(sites) < 2:  # noqa: PLR2004
        return None
    here = site_here(looking)
    every = looking.say("every site")
    chosen = next((one for one in sites if one.id == here), None)
    ways = [Way(one.name, _way(path, queue, one.id), one == chosen) for one in sites[:MOST_LISTED]]
    if queue:
        ways.insert(0, Way(every, path, not here))
    return Switch(chosen.name if chosen else every, tuple(ways))


def site_here(looking: PageContext) -> str:
    """The site that the page is about; empty when it is about all of them."""
    path = looking.request.url.path
    if path.startswith(_SITES):
        return path.removeprefix(_SITES).partition("/")[0]
    return looking.request.query_params.get("site", "").strip()[:MAX_TENANT]


def _sites(looking: PageContext, queue: str) -> list[Site]:
    """Those with something behind them: rows of this queue, or an OCI Control."""
    service, actor = looking.service, looking.actor
    there = service.queues if queue else service.workloads
    about = queue or "oci"
    if about not in there or about in service.commands.unsited:
        return []
    return [one for one in service.accounts.sites(actor) if actor.sees(about, one.id)]


def _way(path: str, queue: str, site: str) -> str:
    if queue:
        return f"{path}?{urlencode({'site': site})}"
    settings = path.startswith(_SITES) and path.endswith("/settings")
    return control_path(site) + ("/settings" if settings else "")


WORKLOAD: Final = "dashboard_looked"
Marks = Mapping[str, int]  # queue → how many moves had ever ended badly when it was last opened


def marks_of(looking: PageContext) -> Marks:
    """Where somebody has been; one read for all queues."""
    found = looking.service.accounts.directory.fact(WORKLOAD, "", looking.actor.name)
    return (json.loads(found.value) or {}) if found else {}


def mark(looking: PageContext, queue: Queue) -> None:
    """Somebody opened the queue's page: what failed until now has been looked at."""
    failures = _failures(looking, queue)
    if marks_of(looking).get(queue.name, 0) == failures:
        return
    directory, name, now = looking.service.accounts.directory, looking.actor.name, queue.now()
    with directory.transaction():
        held = json.loads(directory.hold_fact(WORKLOAD, "", name, now).value) or {}
        value = canonical_json(held | {queue.name: failures})
        directory.put_fact(Fact(WORKLOAD, "", name, value, now))


def wanting(looking: PageContext, queue: Queue, stats: QueueStats, marks: Marks) -> int:
    """How many jobs need a person: on hold, failed and not looked at, or stuck."""
    on_hold = sum(stats.states.get(one, 0) for one in waits_for_person(queue.lifecycle))
    failed = sum(stats.states.get(one, 0) for one in ended_badly(queue.lifecycle))
    if failed:
        since = _failures(looking, queue) - marks.get(queue.name, 0)
        failed = min(failed, max(since, 0))
    return on_hold + failed + stats.lease_over


def _failures(looking: PageContext, queue: Queue) -> int:
    """How many moves ever ended badly, among the rows the looker may see."""
    seen = looking.service.commands.visible(looking.actor, queue.name)
    bad = ended_badly(queue.lifecycle)
    return sum(
        flow.n
        for flow in queue.store.flows(queue.name)
        if flow.to_state in bad
        and flow.from_state != flow.to_state
        and (seen is None or flow.tenant in seen)
    )
