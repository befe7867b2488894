"""Sites, and the audit log that everything done to them and to people is written in."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final
from zoneinfo import available_timezones

from kesin.foundation.clock import Clock, SystemClock, wall_clock_us
from kesin.foundation.permissions import Actor, Right, require
from kesin.foundation.problems import Clash, Invalid, Refused, Unknown
from kesin.foundation.text import canonical_json, storable
from kesin.store.directory import AuditFound, AuditLine, Directory, Site

CHANNELS: Final = ("script", "api", "data_manager")
_SHOWN: Final = 20  # sites an error names
_SITE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_HEX: Final = re.compile(r"[0-9a-f]{32}")
_DASHED: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SPACE: Final = uuid.UUID("3d0f5a0e-5f0b-4d64-9a55-0d3c9f4b7a11")  # where sites get their uuid
_timezones: Final = cache(available_timezones)  # it walks a folder of six hundred files


class Sites:
    """The sites, and what everybody did."""

    def __init__(self, directory: Directory, clock: Clock | None = None) -> None:
        self.directory = directory
        self._clock = clock or SystemClock()

    def now(self) -> int:
        """Microseconds since 1970."""
        now = self._clock.now()
        return wall_clock_us() if now is None else now

    # The audit log

    def note(
        self,
        actor: Actor,
        action: str,
        *,
        allowed: bool = True,
        queue: str | None = None,
        site: str | None = None,
        target: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Write down that somebody did, or was not let do, something."""
        self.directory.add_audit(
            AuditLine(
                id=0,
                at=self.now(),
                actor=storable(actor.name),
                action=storable(action)[:128],
                allowed=allowed,
                queue=None if queue is None else storable(queue)[:128],
                site=None if site is None else storable(site)[:128],
                target=None if target is None else storable(target)[:200],
                details=canonical_json(dict(details)) if details else None,
                request_id=actor.request_id,
                address=actor.address,
            )
        )

    def require(
        self,
        actor: Actor,
        right: Right,
        action: str,
        *,
        queue: str | None = None,
        site: str | None = None,
        target: str | None = None,
    ) -> None:
        """Raise Refused, and note it, unless the actor has the right."""
        try:
            require(actor, right)
        except Refused:
            self.note(actor, action, allowed=False, queue=queue, site=site, target=target)
            raise

    def audit(self, actor: Actor, /, **wanted: Any) -> list[AuditLine]:
        """The audit log, for admins."""
        self.require(actor, "admin", "audit.read")
        return self.directory.audit(**wanted)

    def search_audit(self, actor: Actor, /, **wanted: Any) -> AuditFound:
        """The audit log by parts of words, for admins."""
        self.require(actor, "admin", "audit.read")
        return self.directory.search_audit(**wanted)

    # Sites

    def sites(self, actor: Actor) -> list[Site]:
        """The sites an actor may know of; a key for other things, like metrics, knows none."""
        about_sites = actor.has("read") or actor.has("cron")
        everyone = actor.is_admin or (actor.all_sites and about_sites)
        return [one for one in self.directory.sites() if everyone or one.id in actor.sites]

    def find_site(self, given: str) -> Site | None:
        """The site of this id, or else of this dashed uuid. Says nothing about who may know it."""
        found = self.directory.site(given)
        if found is None and _DASHED.fullmatch(given.lower()):
            known = self.directory.sites()
            found = next((one for one in known if site_uuid(one.id) == given.lower()), None)
        return found

    def add_site(
        self,
        actor: Actor,
        site_id: str,
        *,
        name: str | None = None,
        channel: str = "script",
        timezone: str = "Europe/Istanbul",
        currency: str = "TRY",
    ) -> Site:
        self.require(actor, "admin", "site.add", site=site_id)
        if not _SITE.fullmatch(site_id):
            raise Invalid(
                f"{site_id!r} is no site name: letters, digits, '.', '-' and '_', at most 128",
                details={"field": "site"},
            )
        now = self.now()
        site = _checked(Site(site_id, name or site_id, channel, timezone, currency, "{}", now, now))
        with self.directory.transaction():
            if not self.directory.add_site(site):
                raise Clash(f"there is a site {site_id!r} already: change it with `kesin site set`")
            self.note(actor, "site.add", site=site_id)
        return site

    def set_site(
        self,
        actor: Actor,
        site_id: str,
        *,
        name: str | None = None,
        channel: str | None = None,
        timezone: str | None = None,
        currency: str | None = None,
    ) -> Site:
        self.require(actor, "admin", "site.set", site=site_id)
        self._known_sites([site_id])
        with self.directory.transaction():
            known = self.directory.hold_site(site_id)
            if known is None:
                raise Unknown(f"there is no site {site_id!r}")
            site = _checked(
                known._replace(
                    name=name or known.name,
                    channel=channel or known.channel,
                    timezone=timezone or known.timezone,
                    currency=currency or known.currency,
                    changed_at=self.now(),
                )
            )
            self.directory.change_site(site)
            told = known._fields[1:5]
            changed = [one for one in told if getattr(known, one) != getattr(site, one)]
            self.note(actor, "site.set", site=site_id, details={"changed": changed})
        return site

    def set_site_settings(
        self, actor: Actor, site_id: str, workload: str, changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Change what a workload keeps of a site; None takes a setting away. All that is kept."""
        self.require(actor, "admin", "site.set", site=site_id)
        self._known_sites([site_id])
        with self.directory.transaction():
            known = self.directory.hold_site(site_id)
            if known is None:
                raise Unknown(f"there is no site {site_id!r}")
            everything = json.loads(known.settings)
            kept = {**everything.get(workload, {}), **changes}
            kept = {name: value for name, value in kept.items() if value is not None}
            everything[workload] = kept
            settings = canonical_json(everything)
            self.directory.change_site(known._replace(settings=settings, changed_at=self.now()))
            told = {"changed": [f"{workload}.{name}" for name in changes]}
            self.note(actor, "site.set", site=site_id, details=told)
        return kept

    def _known_sites(self, sites: Iterable[str]) -> tuple[str, ...]:
        """The sites, once it is sure that each is there; only for those who may know them all."""
        wanted = tuple(dict.fromkeys(sites))
        known = [one.id for one in self.directory.sites()] if wanted else []
        missing = [one for one in wanted if one not in known]
        if missing:
            rest = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
            there = f"there are: {', '.join(known[:_SHOWN])}{rest}" if known else "there is none"
            raise Unknown(
                f"there is no site {missing[0]!r} ({there}): add it with `kesin site add`"
            )
        return wanted


def site_uuid(site_id: str) -> str:
    """A site's other name: its own id with dashes where that is one, else made from it."""
    if _HEX.fullmatch(site_id):
        return str(uuid.UUID(site_id))
    return str(uuid.uuid5(_SPACE, site_id))


def _checked(site: Site) -> Site:
    if site.channel not in CHANNELS:
        raise Invalid(
            f"a channel is one of {', '.join(CHANNELS)}, got {site.channel!r}",
            details={"field": "channel"},
        )
    if site.timezone not in _timezones():
        raise Invalid(f"{site.timezone!r} is no time zone", details={"field": "timezone"})
    if not _CURRENCY.fullmatch(site.currency):
        raise Invalid(
            f"a currency has three capital letters, got {site.currency!r}",
            details={"field": "currency"},
        )
    if not storable(site.name).strip() or len(site.name) > 200:  # noqa: PLR2004
        raise Invalid("a site has a name of 1…200 characters", details={"field": "name"})
    return site._replace(name=storable(site.name))
