"""The header's way from one site to another: the same page for it, or its OCI Control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from kesin.store.directory import Site
from kesin.store.limits import MAX_TENANT
from kesin.web.dashboard.trades import control_path

if TYPE_CHECKING:
    from kesin.web.dashboard.view import Looker

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


def switch_of(looking: Looker) -> Switch | None:
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


def site_here(looking: Looker) -> str:
    """The site that the page is about; empty when it is about all of them."""
    path = looking.request.url.path
    if path.startswith(_SITES):
        return path.removeprefix(_SITES).partition("/")[0]
    return looking.request.query_params.get("site", "").strip()[:MAX_TENANT]


def _sites(looking: Looker, queue: str) -> list[Site]:
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
