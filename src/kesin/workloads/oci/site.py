"""A site as this workload sees it: found by either name, with its settings and its facts."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Final, Self
from zoneinfo import ZoneInfo

from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor, Right
from kesin.foundation.problems import Invalid, Refused, Unknown
from kesin.foundation.text import canonical_json
from kesin.store.directory import Fact, Site
from kesin.workloads.oci.conversions.conversion import MAX_NAME, Defaults

WORKLOAD: Final = "oci"
HEARTBEAT: Final = "heartbeat"
BREAKER: Final = "breaker"
UPLOADS: Final = "uploads"  # requests whose end Google tells later


@dataclass(frozen=True, slots=True)
class Place:
    """What an agency decides for one site."""

    recover_minutes: int = 15  # a script's claim lasts so long; 45 where scripts run long
    silent_hours: int | None = None  # a script may be silent so long; None: the setting of all
    conversion_name: str = ""  # for rows that name none

    @classmethod
    def of(cls, site: Site) -> Self:
        """As it is kept; what another version kept is passed over."""
        kept = json.loads(site.settings).get(WORKLOAD, {})
        return cls(**{one.name: kept[one.name] for one in fields(cls) if one.name in kept})


def checked(changes: dict[str, Any]) -> dict[str, Any]:
    """Settings somebody wants; raises Invalid naming the one that is wrong."""
    for name, value in changes.items():
        if value is None:
            continue
        if name == "recover_minutes":
            _whole(name, value, 1, 24 * 60)
        elif name == "silent_hours":
            _whole(name, value, 1, 720)
        elif name != "conversion_name":
            raise Invalid(f"{name!r} is no setting of a site", details={"field": name})
        elif not isinstance(value, str) or len(value) > MAX_NAME or not value.isprintable():
            raise Invalid(
                f"{name} must be one line of 1…{MAX_NAME} characters", details={"field": name}
            )
    return changes


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Invalid(
            f"{name} must be a whole number in {least}…{most}, got {value!r}",
            details={"field": name},
        )


def admitted(
    house: WorkloadContext, actor: Actor, given: str | None, *rights: Right, action: str
) -> Site:
    """The site, if the actor has one of these rights on it.

    Whoever has single sites is told the same of a foreign site and of one that does not exist.
    """
    accounts = house.commands.accounts
    if given is None or not given:
        raise Invalid("name the site: siteId", code="missing_site", details={"field": "siteId"})
    if not any(actor.has(right) for right in rights):
        accounts.require(actor, rights[0], action, queue=WORKLOAD, site=given)
    site = accounts.find_site(given)
    if site is not None and actor.sees(WORKLOAD, site.id):
        return site
    if site is None and (actor.is_admin or actor.all_sites):
        raise Unknown(f"there is no site {given!r}: add it with `kesin site add`")
    accounts.note(actor, action, allowed=False, queue=WORKLOAD, site=given)
    raise Refused("this site is not yours")


def visible(house: WorkloadContext, actor: Actor) -> list[Site]:
    """Every site whose rows the actor may see."""
    everything = house.commands.accounts.directory.sites()
    return [one for one in everything if actor.sees(WORKLOAD, one.id)]


def zone_of(site: Site) -> ZoneInfo:
    """The site's time zone."""
    return ZoneInfo(site.timezone)


def defaults_of(site: Site) -> Defaults:
    """What the site adds to a row."""
    return Defaults(site.id, zone_of(site), site.currency, Place.of(site).conversion_name)


def is_paused(house: WorkloadContext, site: Site) -> bool:
    """Whether the site or the whole queue hands out nothing."""
    paused = house.queue.store.paused(house.queue.name)
    return any(one.tenant in {"", site.id} for one in paused)


# Facts


def fact(house: WorkloadContext, site: Site, name: str) -> dict[str, Any] | None:
    """What was last noted of a site under this name."""
    found = house.commands.accounts.directory.fact(WORKLOAD, site.id, name)
    value = json.loads(found.value) if found else None
    return value if isinstance(value, dict) else None


def put_fact(house: WorkloadContext, site: Site, name: str, value: dict[str, Any]) -> None:
    """Note something of a site in the place of what was noted before."""
    directory = house.commands.accounts.directory
    now = house.queue.now()
    directory.put_fact(Fact(WORKLOAD, site.id, name, canonical_json(value), now))
