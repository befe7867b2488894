"""The filter of a queue's page, read from its URL: as people type URLs, bad values are ignored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

from kesin.engine.access.listing import JobSearch, found_jobs, in_trouble, search_jobs
from kesin.foundation.ids import is_id
from kesin.lifecycle.budget import DAY_S, HOUR_S, MINUTE_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.errors import Category
from kesin.store.limits import MAX_CODE, MAX_PAGE, MAX_TENANT
from kesin.store.records import Filter, Page, QueueStats
from kesin.web.bodies import first_value
from kesin.web.dashboard.frame.page import PageContext

PAGE: Final = 50
MAX_SHOWN: Final = MAX_PAGE  # rows of a page; for more there is the export
MAX_IDS: Final = 100  # in a URL
MAX_TEXT_CHARS: Final = 200
OLDEST: Final = "oldest"  # the order of a list in a URL; otherwise the newest comes first
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
class PageFilter:
    """The filter as the page shows it; empty matches everything."""

    states: tuple[str, ...] = ()
    code: str = ""
    category: str = ""
    site: str = ""
    age: str = ""
    text: str = ""
    order: str = ""
    ids: tuple[str, ...] = ()

    @property
    def narrow(self) -> bool:
        """Whether it excludes anything."""
        return replace(self, order="") != PageFilter()

    @property
    def counted(self) -> bool:
        """Whether the counters alone tell how many match."""
        return not (self.code or self.category or self.age or self.text or self.ids)

    def pairs(self) -> list[tuple[str, str]]:
        single = ("code", "category", "site", "age", "text", "order")
        pairs = [("state", state) for state in self.states]
        pairs += [(name, getattr(self, name)) for name in single if getattr(self, name)]
        return pairs + ([("ids", ",".join(self.ids))] if self.ids else [])

    def query(self, **more: str) -> str:
        """The query string, with the question mark and with some of it changed."""
        kept = [pair for pair in self.pairs() if pair[0] not in more]
        pairs = kept + [pair for pair in more.items() if pair[1]]
        return f"?{urlencode(pairs)}" if pairs else ""

    def with_state(self, state: str) -> "PageFilter":
        """The filter after a click on a state's card: this state alone, or all again."""
        return replace(self, states=() if self.states == (state,) else (state,), ids=())

    def filter(self, now: int) -> Filter:
        """The store's filter; ages count from ``now``."""
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


def read_filter(fields: Fields, lifecycle: Lifecycle) -> PageFilter:
    """Read the filter from a URL or a form; commands refuse a site that the user may not see."""
    ids = ",".join(fields.get("ids", ()))
    states = [value for value in dict.fromkeys(fields.get("state", ())) if value in lifecycle.state]
    category, age = _short_value(fields, "category", 32), _short_value(fields, "age", 32)
    return PageFilter(
        states=tuple(states),
        code=_short_value(fields, "code", MAX_CODE),
        category=category if category in Category.__members__ else "",
        site=_short_value(fields, "site", MAX_TENANT),
        age=age if age in AGES else "",
        text=_short_value(fields, "text", MAX_TEXT_CHARS),
        order=OLDEST if OLDEST in fields.get("order", ())[-1:] else "",
        ids=tuple(value for value in dict.fromkeys(ids.split(",")) if is_id(value))[:MAX_IDS],
    )


def fields_of(ctx: PageContext) -> dict[str, list[str]]:
    parameters = ctx.request.query_params
    return {name: parameters.getlist(name) for name in parameters}


def _short_value(fields: Fields, name: str, max_chars: int) -> str:
    value = first_value(fields, name)
    return value[:max_chars].strip() if value.isprintable() else ""


def resolve_search(ctx: PageContext, queue: str, page_filter: PageFilter, stats: QueueStats, now: int) -> JobSearch:
    """Resolve the text: an id, a key, a searchable field, a title, or part of an error message."""
    where = in_trouble(ctx.service.queues[queue].lifecycle, page_filter.filter(now))
    if page_filter.ids:
        return JobSearch(page_filter.ids, where)
    tenants = (page_filter.site,) if page_filter.site else tuple(stats.tenants)
    return search_jobs(ctx.commands, ctx.actor, queue, where, tenants)


def read_page(
    ctx: PageContext, queue: str, search: JobSearch, *, limit: int = PAGE, cursor: str | None = None, **look: Any
) -> Page:
    """A page of the jobs that match and that the user may see."""
    if search.ids is not None:
        return Page(found_jobs(ctx.commands, ctx.actor, queue, search, **look), None)
    return ctx.commands.jobs(ctx.actor, queue, search.where, limit=limit, cursor=cursor, **look)
