"""A site as the oci workload sees it: access to it, its settings and its metadata."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, Self
from zoneinfo import ZoneInfo

from kesin.engine.queue import apply_changes
from kesin.engine.workload import WorkloadContext
from kesin.foundation.messages import Message
from kesin.foundation.permissions import Actor, Permission, require
from kesin.foundation.problems import Forbidden, Invalid
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.lifecycle.model import Change
from kesin.lifecycle.vocabulary import Role
from kesin.store.directory import MetadataEntry, Site
from kesin.store.records import Outcome
from kesin.workloads.oci.conversions.actions import MAX_NAME, ActionChanges, Actions, ConversionAction, parse_actions
from kesin.workloads.oci.conversions.conversion import CONSENTS, RowDefaults
from kesin.workloads.oci.conversions.identifiers import PHONE_COUNTRIES
from kesin.workloads.oci.conversions.parsing import LOCALES
from kesin.workloads.oci.lifecycle import limits_of

Details = Mapping[str, Any] | None  # of an audit line

WORKLOAD: Final = "oci"
HEARTBEAT: Final = "heartbeat"
BREAKER: Final = "breaker"
ACTIONS: Final = "actions"  # what is known of them beside the setting
NUMBERS: Final = {  # settings of a site, with their limits
    "recover_minutes": (1, 24 * 60),
    "silent_hours": (1, 720),
    "send_after_hours": (0, 7 * 24),
}
CHOICES: Final = {"phone_country": tuple(PHONE_COUNTRIES), "locale": tuple(LOCALES)}
FLAGS: Final = ("consent_required", "enhanced", "script_columns", "data_manager_counts")
_CUSTOMER_ID: Final = re.compile(r"[0-9]{3}-?[0-9]{3}-?[0-9]{4}")
UPLOADS: Final = "uploads"  # requests whose result Google reports later


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """The oci settings of one site."""

    recover_minutes: int = 15  # lease of a script's claim; 45 for slow scripts
    silent_hours: int | None = None  # before a warning; None: KESIN_OCI_SILENT_HOURS
    conversion_name: str = ""  # default for rows without a name
    consent_default: str = ""  # for rows that do not say it: granted, denied, or nothing
    consent_required: bool = False  # rows without consent are rejected
    send_after_hours: int = 0  # after the sale: Google does not know a young click
    enhanced: bool = False  # rows may have hashed identifiers, which are sent
    phone_country: str = ""  # of numbers without a country; "": they are refused
    script_columns: bool = False  # scripts get columns that no one has tried with Google yet
    data_manager_counts: bool = False  # copies Google's counts, which no one has tried yet
    actions: Actions = ()  # that rows may name; none: any name, and one action on API channels
    customer_id: str = ""  # its Google Ads account: the manager script serves those that have one
    locale: str = ""  # of dates and amounts in files; "": what reads two ways is refused

    @classmethod
    def of(cls, site: Site) -> Self:
        """Read the stored settings; fields of other versions are ignored."""
        stored = json.loads(site.settings).get(WORKLOAD, {})
        known = {name: stored[name] for name in cls.__dataclass_fields__ if name in stored}
        fields = ConversionAction.__dataclass_fields__
        entries = [{k: e[k] for k in fields if k in e} for e in known.get(ACTIONS, ())]
        return cls(**known | {ACTIONS: tuple(ConversionAction(**entry) for entry in entries)})

    @property
    def default_name(self) -> str:
        default = "".join(action.name for action in self.actions if action.default)
        return default if self.actions else self.conversion_name


def validate_settings(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes if each is a valid setting; raises Invalid naming the one that is not."""
    for name, value in changes.items():
        if name == ACTIONS and value is not None:
            parse_actions(value)
        elif value is not None:
            _check_setting(name, value)
    given_name, number = changes.get("conversion_name"), changes.get("customer_id")
    stripped = {"conversion_name": given_name.strip()} if given_name else {}
    return changes | stripped | ({"customer_id": number.replace("-", "")} if number else {})


def read_setting(name: str, text: str) -> Any:
    """The value of a setting as a form or a spreadsheet has it; raises Invalid."""
    value: Any = text.upper() if name == "phone_country" else text
    if name in FLAGS:
        value = {"yes": True, "no": False}.get(text.lower(), text)
    elif name in NUMBERS and text.isascii() and text.isdecimal():
        value = int(text[:9])
    return validate_settings({name: value})[name]


_CELLS: Final = SiteSettings.__dataclass_fields__.keys() - {ACTIONS}
SETTING_CELLS: Final = {name: partial(read_setting, name) for name in sorted(_CELLS)}


def _check_setting(name: str, value: Any) -> None:
    """Raise Invalid for a value that the setting cannot have."""
    least, most = NUMBERS.get(name, (1, MAX_NAME))
    values: dict[str, Any] = {"field": name, "least": least, "most": most, "given": repr(value)}
    if name in NUMBERS:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        why = "%(field)s must be a whole number in %(least)s…%(most)s, got %(given)s"
    elif name in FLAGS:
        fits, why = isinstance(value, bool), "%(field)s must be yes or no"
    elif name == "consent_default":
        fits, why = value in CONSENTS, "%(field)s must be granted or denied"
    elif name in CHOICES:
        fits, why = value in CHOICES[name], "%(field)s must be one of %(known)s"
        values["known"] = ", ".join(CHOICES[name])
    elif name == "customer_id":
        fits = isinstance(value, str) and bool(_CUSTOMER_ID.fullmatch(value))
        why = "%(field)s must be the ten digits of a Google Ads account, such as 123-456-7890"
    elif name == "conversion_name":
        fits = isinstance(value, str) and len(value) <= MAX_NAME and value.isprintable()
        why = "%(field)s must be one line of 1…%(most)s characters"
    else:
        fits, why, values["field"] = False, "%(field)s is not a site setting", repr(name)
    if not fits:
        raise Invalid(Message.fill(why, values), details={"field": name})


class SiteContext:
    """A site, and the workload it is served by: what all work for one site is given."""

    def __init__(self, context: WorkloadContext, record: Site) -> None:
        self.context = context
        self.record = record
        self.id = record.id
        self.channel = record.channel
        self.queue = context.queue
        self.zone = ZoneInfo(record.timezone)
        self.max_attempts = limits_of(context.settings).max_attempts(record.channel)

    @property
    def settings(self) -> SiteSettings:
        return SiteSettings.of(self.record)

    @property
    def silent_hours(self) -> int:
        """How long its script may be silent before a warning."""
        return self.settings.silent_hours or self.context.settings.oci_silent_hours

    @property
    def only_name(self) -> str | None:
        """The conversion name that it takes: on API channels its own if there is one action."""
        given = self.settings
        return None if self.channel == "script" or given.actions else given.conversion_name

    @property
    def defaults(self) -> RowDefaults:
        """What it gives to rows that leave something out."""
        given = self.settings
        return RowDefaults(
            *(self.id, self.zone, self.record.currency, given.default_name, self.only_name),
            actions={action.name: action for action in given.actions},
            consent=given.consent_default,
            consent_required=given.consent_required,
            enhanced=given.enhanced,
            phone_country=given.phone_country,
            needs_click=self.channel == "script" or not given.enhanced,
            locale=given.locale,
        )

    @property
    def hold_us(self) -> int:
        """How long after the sale a new row waits before it is sent."""
        return self.settings.send_after_hours * HOUR_S * SECOND_US

    @property
    def is_paused(self) -> bool:
        """Whether the site or the whole queue is paused."""
        pauses = self.queue.store.paused(self.queue.name)
        return any(pause.tenant in {"", self.id} for pause in pauses)

    def payloads(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The payloads of those of these rows that are this site's, by id."""
        jobs = self.queue.find(ids) if ids else {}
        own = (job for job in jobs.values() if job.tenant == self.id)
        return {job.id: job.payload for job in own if isinstance(job.payload, dict)}

    def apply(self, action: str, changes: Sequence[Change], *, actor: str, role: Role = "worker") -> list[Outcome]:
        if not changes:
            return []
        return apply_changes(self.queue, action, changes, role=role, actor=actor, tenants=[self.id])

    def note(self, actor: Actor, action: str, details: Details = None, *, allowed: bool = True) -> None:
        """Write to the audit log what an actor did for this site, or was refused."""
        accounts = self.context.commands.accounts
        accounts.note(actor, action, allowed=allowed, queue=WORKLOAD, site=self.id, details=details)

    def note_event(self, kind: str, actor: str, job_id: str | None = None, **details: Any) -> None:
        """Add a note to the events of a job, or of the queue for this site."""
        self.queue.store.add_note(
            self.queue.name, kind=kind, actor=actor, tenant=self.id, job_id=job_id,
            details=canonical_json(details), now=self.queue.now(),
        )  # fmt: skip

    def read_metadata(self, name: str) -> dict[str, Any] | None:
        row = self.context.commands.accounts.directory.metadata_entry(WORKLOAD, self.id, name)
        value = json.loads(row.value) if row else None
        return value if isinstance(value, dict) else None

    def put_metadata(self, name: str, value: dict[str, Any]) -> None:
        """Store the metadata entry of this name, replacing the old one; none of a removed site."""
        entry = MetadataEntry(WORKLOAD, self.id, name, canonical_json(value), self.queue.now())
        directory = self.context.commands.accounts.directory
        with directory.transaction():
            if directory.keep_site(self.id):
                directory.put_metadata(entry)

    def change_actions(
        self, actor: Actor, source: str, change: Callable[[SiteSettings], ActionChanges]
    ) -> dict[str, list[str]]:
        """Store what becomes of the actions; returns it by names. If they stay, no audit line."""
        directory = self.context.commands.accounts.directory
        with directory.transaction():
            site = directory.lock_site(self.id) or self.record
            actions, *names = change(SiteSettings.of(site))
            known = dict(zip(ActionChanges._fields[1:], map(list, names), strict=True))
            settings, before = json.loads(site.settings), self.read_metadata(ACTIONS) or {}
            own = {**settings.get(WORKLOAD, {}), ACTIONS: [asdict(action) for action in actions]}
            settings[WORKLOAD] = {name: value for name, value in own.items() if value != []}
            if (text := canonical_json(settings)) != site.settings:
                directory.update_site(site._replace(settings=text, changed_at=self.queue.now()))
            if text != site.settings or known["gone"] != before.get("gone", []):
                self.note(actor, "oci.actions", {**known, "source": source})
            self.put_metadata(ACTIONS, {**known, "source": source, "at": self.queue.now()})
        return known

    @contextmanager
    def locked_metadata(self, name: str) -> Iterator[dict[str, Any]]:
        """Lock the metadata entry of this name, and store what the block makes of it."""
        directory = self.context.commands.accounts.directory
        with directory.transaction():
            if not directory.keep_site(self.id):  # it was removed, and nothing is stored
                yield {}
                return
            row = directory.lock_metadata(WORKLOAD, self.id, name, self.queue.now())
            value = json.loads(row.value) or {}
            yield value
            self.put_metadata(name, value)


def require_site(
    context: WorkloadContext, actor: Actor, name: str | None, *rights: Permission, action: str
) -> SiteContext:
    """Return the site, given one of these rights; a foreign site looks like an unknown one."""
    accounts = context.commands.accounts
    if not name:
        raise Invalid("name the site in siteId", code="missing_site", details={"field": "siteId"})
    if not any(actor.has(right) for right in rights):
        accounts.note(actor, action, allowed=False, queue=WORKLOAD, site=name)
        require(actor, *rights)
    site = accounts.find_site(name)
    if site is not None and actor.sees(WORKLOAD, site.id):
        return SiteContext(context, site)
    if site is None and (actor.is_admin or actor.all_sites):
        raise accounts.missing_site(name)
    accounts.note(actor, action, allowed=False, queue=WORKLOAD, site=name)
    raise Forbidden("you have no access to this site")


def visible_sites(context: WorkloadContext, actor: Actor) -> list[SiteContext]:
    sites = context.commands.accounts.directory.sites()
    return [SiteContext(context, site) for site in sites if actor.sees(WORKLOAD, site.id)]
