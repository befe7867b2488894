"""A site as the oci workload sees it: access to it, its settings and its metadata."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Final, Self
from zoneinfo import ZoneInfo

from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor, Permission
from kesin.foundation.problems import Forbidden, Invalid, NotFound
from kesin.foundation.text import canonical_json
from kesin.store.directory import MetadataEntry, Site
from kesin.workloads.oci.conversions.conversion import MAX_NAME, RowDefaults

WORKLOAD: Final = "oci"
HEARTBEAT: Final = "heartbeat"
BREAKER: Final = "breaker"
UPLOADS: Final = "uploads"  # requests whose result Google reports later


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """The oci settings of one site."""

    recover_minutes: int = 15  # lease of a script's claim; 45 for slow scripts
    silent_hours: int | None = None  # before a warning; None: KESIN_OCI_SILENT_HOURS
    conversion_name: str = ""  # default for rows without a name

    @classmethod
    def of(cls, site: Site) -> Self:
        """Read the stored settings; fields of other versions are ignored."""
        stored = json.loads(site.settings).get(WORKLOAD, {})
        return cls(
            **{field.name: stored[field.name] for field in fields(cls) if field.name in stored}
        )


def validate_settings(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes if each is a valid setting; raises Invalid naming the one that is not."""
    for name, value in changes.items():
        if value is None:
            continue
        if name == "recover_minutes":
            _check_whole_number(name, value, 1, 24 * 60)
        elif name == "silent_hours":
            _check_whole_number(name, value, 1, 720)
        elif name != "conversion_name":
            raise Invalid(
                "%(field)s is no setting of a site", details={"field": name}, field=repr(name)
            )
        elif not isinstance(value, str) or len(value) > MAX_NAME or not value.isprintable():
            raise Invalid(
                "%(field)s must be one line of 1…%(most)s characters",
                details={"field": name},
                field=name,
                most=MAX_NAME,
            )
    return changes


def _check_whole_number(name: str, value: Any, minimum: int, maximum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise Invalid(
            "%(field)s must be a whole number in %(least)s…%(most)s, got %(given)s",
            details={"field": name},
            field=name,
            least=minimum,
            most=maximum,
            given=repr(value),
        )


def require_site(
    context: WorkloadContext, actor: Actor, name: str | None, *rights: Permission, action: str
) -> Site:
    """Return the site if the actor has one of these rights on it.

    An actor limited to some sites gets the same answer for a foreign site and for an unknown one.
    """
    accounts = context.commands.accounts
    if name is None or not name:
        raise Invalid("name the site: siteId", code="missing_site", details={"field": "siteId"})
    if not any(actor.has(right) for right in rights):
        accounts.require(actor, rights[0], action, queue=WORKLOAD, site=name)
    site = accounts.find_site(name)
    if site is not None and actor.sees(WORKLOAD, site.id):
        return site
    if site is None and (actor.is_admin or actor.all_sites):
        raise NotFound("there is no site %(site)s: add it with `kesin site add`", site=repr(name))
    accounts.note(actor, action, allowed=False, queue=WORKLOAD, site=name)
    raise Forbidden("this site is not yours")


def visible_sites(context: WorkloadContext, actor: Actor) -> list[Site]:
    """The sites whose rows the actor may see."""
    sites = context.commands.accounts.directory.sites()
    return [site for site in sites if actor.sees(WORKLOAD, site.id)]


def zone_of(site: Site) -> ZoneInfo:
    """The site's time zone."""
    return ZoneInfo(site.timezone)


def defaults_of(site: Site) -> RowDefaults:
    """The defaults the site gives to its rows."""
    name = SiteSettings.of(site).conversion_name
    return RowDefaults(site.id, zone_of(site), site.currency, name, only_name_of(site))


def only_name_of(site: Site) -> str | None:
    """The conversion name that the site takes: on API channels its own, as there is one action."""
    return None if site.channel == "script" else SiteSettings.of(site).conversion_name


def is_paused(context: WorkloadContext, site: Site) -> bool:
    """Whether the site or the whole queue is paused."""
    pauses = context.queue.store.paused(context.queue.name)
    return any(pause.tenant in {"", site.id} for pause in pauses)


# Metadata


def read_metadata(context: WorkloadContext, site: Site, name: str) -> dict[str, Any] | None:
    """Read the site's metadata entry of this name."""
    row = context.commands.accounts.directory.metadata_entry(WORKLOAD, site.id, name)
    value = json.loads(row.value) if row else None
    return value if isinstance(value, dict) else None


def put_metadata(context: WorkloadContext, site: Site, name: str, value: dict[str, Any]) -> None:
    """Store the site's metadata entry of this name, replacing the old one."""
    directory = context.commands.accounts.directory
    now = context.queue.now()
    directory.put_metadata(MetadataEntry(WORKLOAD, site.id, name, canonical_json(value), now))
