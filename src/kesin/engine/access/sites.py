"""Sites, and the audit log of every change to sites and users, with its counted refusals."""

import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from zoneinfo import available_timezones

from kesin.engine.validation import invalid_field
from kesin.foundation.clock import Clock, SystemClock, iso, wall_clock_us
from kesin.foundation.messages import Message
from kesin.foundation.permissions import Actor, Permission, require
from kesin.foundation.problems import Forbidden, NotFound, RequestConflict
from kesin.foundation.text import canonical_json, storable
from kesin.lifecycle.budget import SECOND_US
from kesin.store.audit_log import AuditLine, AuditPage
from kesin.store.directory import Directory, Site

WINDOW_S: Final = 60
MAX_LISTED_ACTIONS: Final = 20  # callers choose parts of an action's name
OTHER_ACTIONS: Final = "…"


@dataclass(slots=True)
class CountedRefusals:
    """The refusals of an actor that follow the one in the audit log."""

    actor: str
    began_at: int
    address: str | None
    actions: Counter[str] = field(default_factory=Counter)

    @property
    def details(self) -> dict[str, Any]:
        return {
            "refused": self.actions.total(),
            "since": iso(self.began_at),
            "actions": dict(sorted(self.actions.items())),
        }

    def add(self, action: str) -> None:
        if action not in self.actions and len(self.actions) >= MAX_LISTED_ACTIONS:
            action = OTHER_ACTIONS
        self.actions[action] += 1


class RefusalCounter:
    """The refusals of each actor in its current minute; for all threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[str, CountedRefusals] = {}

    def count(self, actor: str, action: str, address: str | None, now: int) -> tuple[bool, CountedRefusals | None]:
        """Whether it was counted (else it is a line), and what to write of the minute before."""
        with self._lock:
            window = self._windows.get(actor)
            if window is not None and not _is_over(window, now):
                window.add(action)
                return True, None
            self._windows[actor] = CountedRefusals(actor, now, address)
        return False, window if window is not None and window.actions else None

    def undo(self, actor: str, action: str, *, counted: bool, earlier: CountedRefusals | None) -> None:
        """Forget a refusal whose transaction was undone: it is counted when its call runs again."""
        with self._lock:
            window = self._windows.get(actor)
            if window is None:  # it is written already
                return
            if counted:
                window.actions[action if action in window.actions else OTHER_ACTIONS] -= 1
                window.actions = +window.actions
            elif earlier is not None:
                earlier.actions += window.actions
                self._windows[actor] = earlier
            elif not window.actions:
                del self._windows[actor]

    def take(self, now: int | None = None) -> list[CountedRefusals]:
        """Remove and return the counts to write: those of past minutes, or with None all."""
        with self._lock:
            over = [w for w in self._windows.values() if now is None or _is_over(w, now)]
            for window in over:
                del self._windows[window.actor]
        return [window for window in over if window.actions]


def _is_over(window: CountedRefusals, now: int) -> bool:
    # Clocks may jump back: that ends a minute too.
    return not 0 <= now - window.began_at < WINDOW_S * SECOND_US


# Of ISO 4217, those that are legal tender today.
CURRENCIES: Final = frozenset(Path(__file__).with_name("currencies.txt").read_text("ascii").split())
CHANNELS: Final = ("script", "api", "data_manager")
_MAX_LISTED_SITES: Final = 20  # in an error message
_SITE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HEX_UUID: Final = re.compile(r"[0-9a-f]{32}")
_DASHED_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_NAMESPACE: Final = uuid.UUID("3d0f5a0e-5f0b-4d64-9a55-0d3c9f4b7a11")  # of site UUIDs
_REFUSALS: Final = "access.refused"  # the action of a line that counts refusals
# A sign-in: its addresses matter, and it is throttled.
_NOT_COUNTED: Final = frozenset({_REFUSALS, "session.start"})
_timezones: Final = cache(available_timezones)  # it reads a folder of six hundred files


class Sites:
    """The sites and the audit log."""

    def __init__(self, directory: Directory, clock: Clock | None = None) -> None:
        self.directory = directory
        self._clock = clock or SystemClock()
        self._refusals = RefusalCounter()
        # Runs what no answer waits for; a service gathers such calls for one commit.
        self.run_later: Callable[[Callable[[], object]], object] = lambda call: call()

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
        """Write to the audit log; after a refusal, those of the next minute become one line."""
        now = self.now()
        if not allowed and action not in _NOT_COUNTED:
            name, what = actor.name, storable(action)[:128]
            counted, earlier = self._refusals.count(name, what, actor.address, now)
            undo = partial(self._refusals.undo, name, what, counted=counted, earlier=earlier)
            self.directory.if_undone(undo)
            if earlier is not None:
                self._write_counted(earlier)
            if counted:
                return
        self.directory.add_audit(
            AuditLine(
                id=0,
                at=now,
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

    def write_counted_refusals(self, *, unfinished: bool = False) -> None:
        """Write the counts of past minutes, and on request those of unfinished minutes."""
        for counted in self._refusals.take(None if unfinished else self.now()):
            self._write_counted(counted)

    def _write_counted(self, counted: CountedRefusals) -> None:
        actor = Actor(counted.actor, frozenset(), address=counted.address)
        self.note(actor, _REFUSALS, allowed=False, details=counted.details)

    def require(
        self,
        actor: Actor,
        permission: Permission,
        action: str,
        *,
        queue: str | None = None,
        site: str | None = None,
        target: str | None = None,
    ) -> None:
        """Raise Forbidden, and write it to the audit log, unless the actor has the permission."""
        try:
            require(actor, permission)
        except Forbidden:
            self.note(actor, action, allowed=False, queue=queue, site=site, target=target)
            raise

    def audit(self, actor: Actor, /, **filters: Any) -> list[AuditLine]:
        """The audit log, for admins."""
        self.require(actor, "admin", "audit.read")
        return self.directory.audit(**filters)

    def search_audit(self, actor: Actor, /, **filters: Any) -> AuditPage:
        """The audit log lines that contain parts of words, for admins."""
        self.require(actor, "admin", "audit.read")
        return self.directory.search_audit(**filters)

    # Sites

    def sites(self, actor: Actor) -> list[Site]:
        """The sites an actor may see; a key without a site scope, such as metrics, sees none."""
        sees_all = actor.is_admin or (actor.all_sites and (actor.has("read") or actor.has("cron")))
        return [site for site in self.directory.sites() if sees_all or site.id in actor.sites]

    def site(self, actor: Actor, site_id: str) -> Site:
        """The site of this id, for admins; raises NotFound."""
        self.require(actor, "admin", "site.show", site=site_id)
        site = self.directory.site(site_id)
        if site is None:
            raise self.missing_site(site_id)
        return site

    def find_site(self, id_or_uuid: str) -> Site | None:
        """The site with this id, or else with this dashed UUID. Checks no permission."""
        site = self.directory.site(id_or_uuid)
        if site is None and _DASHED_UUID.fullmatch(id_or_uuid.lower()):
            sites = self.directory.sites()
            site = next((site for site in sites if site_uuid(site.id) == id_or_uuid.lower()), None)
        return site

    def add_site(
        self,
        actor: Actor,
        site_id: str,
        *,
        name: str | None = None,
        channel: str = "script",
        timezone: str = "Europe/Istanbul",
        currency: str = "TRY",
        settings: Mapping[str, Any] | None = None,
    ) -> Site:
        """Add a site; the settings are those of its workloads, by their names."""
        self.require(actor, "admin", "site.add", site=site_id)
        if not _SITE_ID.fullmatch(site_id):
            raise invalid_field(
                "site", "%(site)s is not a site id: use up to 128 letters, digits, '.', '-' or '_'", site=repr(site_id)
            )
        now, text = self.now(), canonical_json(dict(settings or {}))
        site = _validated_site(Site(site_id, name or site_id, channel, timezone, currency, text, now, now))
        with self.directory.transaction():
            if not self.directory.add_site(site):
                raise RequestConflict(
                    "the site %(site)s already exists: change it with `kesin site set`",
                    site=repr(site_id),
                    details={"field": "site"},
                )
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
        given: dict[str, Any] = {"name": name, "channel": channel}
        given |= {"timezone": timezone, "currency": currency}
        with self._locked_site(actor, site_id) as before:
            values = {field: value for field, value in given.items() if value}
            site = _validated_site(before._replace(**values, changed_at=self.now()))
            self.directory.update_site(site)
            changed = [field for field in given if getattr(before, field) != getattr(site, field)]
            self.note(actor, "site.set", site=site_id, details={"changed": changed})
        return site

    def set_site_settings(
        self, actor: Actor, site_id: str, workload: str, changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Change a workload's settings of a site; None deletes a setting. Returns all settings."""
        with self._locked_site(actor, site_id) as before:
            all_settings = json.loads(before.settings)
            merged = {**all_settings.get(workload, {}), **changes}
            merged = {name: value for name, value in merged.items() if value is not None}
            all_settings[workload] = merged
            settings = canonical_json(all_settings)
            self.directory.update_site(before._replace(settings=settings, changed_at=self.now()))
            details = {"changed": [f"{workload}.{name}" for name in changes]}
            self.note(actor, "site.set", site=site_id, details=details)
        return merged

    @contextmanager
    def kept_site(self, site_id: str) -> Iterator[None]:
        """A transaction during which the site is not removed; raises NotFound if it is gone."""
        with self.directory.transaction():
            if not self.directory.keep_site(site_id):
                raise NotFound("there is no site %(site)s", site=repr(site_id))
            yield

    @contextmanager
    def _locked_site(self, actor: Actor, site_id: str) -> Iterator[Site]:
        """A transaction that changes a site, with the site as it is before."""
        self.require(actor, "admin", "site.set", site=site_id)
        with self.directory.transaction():
            site = self.directory.lock_site(site_id)
            if site is None:
                raise self.missing_site(site_id)
            yield site

    def _keep_sites(self, sites: Iterable[str]) -> tuple[str, ...]:
        """The ids without repeats, or NotFound; none is removed before the transaction ends."""
        site_ids = tuple(dict.fromkeys(sites))
        for site_id in site_ids:
            if not self.directory.keep_site(site_id):
                raise self.missing_site(site_id)
        return site_ids

    def missing_site(self, site_id: str) -> NotFound:
        """The refusal of a site that is not there, for callers who see all sites."""
        known = [site.id for site in self.directory.sites()]
        unlisted = len(known) - _MAX_LISTED_SITES
        more = f", … (+{unlisted})" if unlisted > 0 else ""
        listed = f"{', '.join(known[:_MAX_LISTED_SITES])}{more}"
        none = Message("this database has none: check KESIN_DATABASE_URL")
        there = Message("existing sites: %(sites)s", sites=listed) if known else none
        why = "there is no site %(site)s (%(there)s): add it with `kesin site add`"
        return NotFound(why, site=repr(site_id), there=there)


def site_uuid(site_id: str) -> str:
    """A site's UUID: its id with dashes if the id is a UUID, else derived from the id."""
    if _HEX_UUID.fullmatch(site_id):
        return str(uuid.UUID(site_id))
    return str(uuid.uuid5(_UUID_NAMESPACE, site_id))


def _validated_site(site: Site) -> Site:
    if site.channel not in CHANNELS:
        raise invalid_field(
            "channel",
            "a channel must be one of %(channels)s, got %(channel)s",
            channels=", ".join(CHANNELS),
            channel=repr(site.channel),
        )
    if site.timezone not in _timezones():
        raise invalid_field("timezone", "%(zone)s is not a time zone", zone=repr(site.timezone))
    if site.currency not in CURRENCIES:
        raise invalid_field(
            "currency", "%(currency)s is not an ISO 4217 currency code; example: TRY", currency=repr(site.currency)
        )
    if not storable(site.name).strip() or len(site.name) > 200:  # noqa: PLR2004
        raise invalid_field("name", "a site's name must have 1…200 characters")
    return site._replace(name=storable(site.name))
