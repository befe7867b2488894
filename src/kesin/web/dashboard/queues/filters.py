"""What of a queue somebody wants to see: read from the address, and written back into it.

An address can be kept, sent to a colleague and typed by hand, so whatever makes no sense in it is
left out instead of refused; only a site that is not one's own is refused, by the commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlencode

from kesin.foundation.ids import is_id
from kesin.lifecycle.budget import DAY_S, HOUR_S, MINUTE_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.limits import MAX_CODE, MAX_PAGE, MAX_TENANT
from kesin.store.records import Filter, Page, QueueStats
from kesin.web.dashboard.frame.page import PageContext

PAGE: Final = 50
MOST_SHOWN: Final = MAX_PAGE  # rows a page grows to; more is an export
MOST_NAMED: Final = 100  # ids an address holds
MOST_TEXT: Final = 200
AGES: Final[dict[str, int]] = {
    "within-1h": HOUR_S,
    "within-1d": DAY_S,
    "within-7d": 7 * DAY_S,
    "before-1h": HOUR_S,
    "before-1d": DAY_S,
    "before-7d": 7 * DAY_S,
    "still-5m": 5 * MINUTE_S,
    "still-1h": HOUR_S,
    "still-1d": DAY_S,
}
Fields = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filter of a queue page; empty is everything."""

    states: tuple[str, ...] = ()
    code: str = ""
    category: str = ""
    site: str = ""
    age: str = ""
    text: str = ""
    ids: tuple[str, ...] = ()

    @property
    def narrow(self) -> bool:
        """Whether it leaves anything out."""
        return self != Wanted()

    @property
    def counted(self) -> bool:
        """Whether the counters alone say how many match."""
        return not (self.code or self.category or self.age or self.text or self.ids)

    def pairs(self) -> list[tuple[str, str]]:
        """As fields of a form or of an address."""
        single = ("code", "category", "site", "age", "text")
        told = [("state", one) for one in self.states]
        told += [(name, getattr(self, name)) for name in single if getattr(self, name)]
        return told + ([("ids", ",".join(self.ids))] if self.ids else [])

    def query(self, **more: str) -> str:
        """The part of an address from the question mark on."""
        pairs = [*self.pairs(), *more.items()]
        return f"?{urlencode(pairs)}" if pairs else ""

    def with_state(self, state: str) -> Wanted:
        """What a click on a state's card shows: this state alone, or all again."""
        return replace(self, states=() if self.states == (state,) else (state,), ids=())

    def filter(self, now: int) -> Filter:
        """For the store, counting ages from ``now``."""
        kind, span_us = self.age.partition("-")[0], AGES.get(self.age, 0) * SECOND_US
        return Filter(
            states=self.states,
            tenants=(self.site,) if self.site else None,
            codes=(self.code,) if self.code else (),
            categories=(self.category,) if self.category else (),
            created_from=now - span_us if kind == "within" else None,
            created_before=now - span_us if kind == "before" else None,
            moved_before=now - span_us if kind == "still" else None,
            text=self.text or None,
        )


def wanted_of(fields: Fields, lifecycle: Lifecycle) -> Wanted:
    """Read it from the fields of an address or a form."""
    ids = ",".join(fields.get("ids", ()))
    known = [one for one in dict.fromkeys(fields.get("state", ())) if one in lifecycle.state]
    category, age = _one(fields, "category", 32), _one(fields, "age", 32)
    return Wanted(
        states=tuple(known),
        code=_one(fields, "code", MAX_CODE),
        category=category if category in Category.__members__ else "",
        site=_one(fields, "site", MAX_TENANT),
        age=age if age in AGES else "",
        text=_one(fields, "text", MOST_TEXT),
        ids=tuple(one for one in dict.fromkeys(ids.split(",")) if is_id(one))[:MOST_NAMED],
    )


def fields_of(looking: PageContext) -> dict[str, list[str]]:
    """The fields of the address."""
    asked = looking.request.query_params
    return {name: asked.getlist(name) for name in asked}


def _one(fields: Fields, name: str, longest: int) -> str:
    value = next(iter(fields.get(name, ())), "").strip()
    return value[:longest].strip() if value.isprintable() else ""


@dataclass(frozen=True, slots=True)
class Meant:
    """What a filter comes down to: certain jobs by their ids, or a filter of the store."""

    ids: tuple[str, ...] | None
    where: Filter


def meant(looking: PageContext, queue: str, wanted: Wanted, stats: QueueStats, now: int) -> Meant:
    """Resolve the text: an id, else a key that some job holds, else part of an error message."""
    where = wanted.filter(now)
    if wanted.ids:
        return Meant(wanted.ids, where)
    if not wanted.text:
        return Meant(None, where)
    if is_id(wanted.text.lower()):
        return Meant((wanted.text.lower(),), replace(where, text=None))
    tenants = (wanted.site,) if wanted.site else tuple(stats.tenants)
    by_key = replace(where, text=None, dedup_key=wanted.text, tenants=tenants)
    if tenants and looking.service.commands.jobs(looking.actor, queue, by_key, limit=1).jobs:
        return Meant(None, by_key)
    return Meant(None, where)


def rows(
    looking: PageContext, queue: str, sought: Meant, *, limit: int = PAGE, cursor: str | None = None
) -> Page:
    """A page of what is meant; jobs of others are not among them."""
    if sought.ids is not None:
        return Page(named(looking, queue, sought.ids, sought.where.states), None)
    return looking.service.commands.jobs(
        looking.actor, queue, sought.where, limit=limit, cursor=cursor
    )


def named(
    looking: PageContext, queue: str, ids: Sequence[str], states: Sequence[str] = ()
) -> list[Job]:
    """The jobs with these ids that the looker may see, the newest first."""
    commands, actor = looking.service.commands, looking.actor
    found = commands.queue(actor, queue).find(ids)
    seen = commands.visible(actor, queue)
    jobs = [
        job
        for job in found.values()
        if (seen is None or job.tenant in seen) and (not states or job.state in states)
    ]
    return sorted(jobs, key=lambda job: job.id, reverse=True)
