"""The trades' own pages in the navigation: offered to whoever may use them, and nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kesin.web.dashboard.view import Looker

MOST_SITES: Final = 12  # beside the pages; the others are found on any site's page


class Link(NamedTuple):
    """A page of a trade."""

    title: str
    path: str
    queue: str  # whose trade it is


def links(looking: Looker) -> list[Link]:
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


def may_see_orders(looking: Looker) -> bool:
    """Whether somebody may look at the workshop's orders."""
    actor = looking.actor
    sees = looking.service.commands.visible(actor, "optiplan") is None
    return actor.has("optiplan") or (actor.has("read") and sees)


def control_path(site_id: str) -> str:
    """Where a site's OCI Control is; a site's id is plain, it needs no quoting."""
    return f"/dashboard/site/{site_id}/oci-control"
