"""How jobs are listed and found: the title of each, and what a search looks at."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kesin.engine.access.masking import MASK, Masking
from kesin.engine.validation import bad_field
from kesin.foundation.ids import is_id
from kesin.foundation.permissions import Actor
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.failures import failure_states, ready_states
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import OWNED
from kesin.store.contract import Store
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Filter, Listing, Page
from kesin.store.search import MAX_SEARCH_FIELDS, field_of, fold, is_found

if TYPE_CHECKING:
    from kesin.engine.access.commands import Commands

MAX_TITLE: Final = 80  # characters of a title that are shown
MAX_TITLE_FORMAT: Final = 200
MAX_TITLES_SEARCHED: Final = 1_000  # of the newest jobs
_MAX_FOUND_TITLES: Final = 100
_FIELD: Final = re.compile(r"[^\W\d][\w-]*(\.[^\W\d][\w-]*)*")
_LOOSE: Final = " ·,;:–—-/|#"  # what joins fields and is left over where one is missing


def declare_listing(store: Store, queue: str, title: str | None, search: Sequence[str] | None) -> None:
    """Store how the jobs of a queue are listed; what is None stays as it is stored."""
    if title is not None:
        _title_parts(title)
    if search is not None:
        check_search(search)
    with suppress(StoreUnreachable):  # the next program declares it
        stored = store.listing(queue)
        fields = stored.search if search is None else tuple(dict.fromkeys(search))
        listing = Listing(stored.title if title is None else title, fields)
        if listing != stored:
            store.write_listing(queue, listing)


def check_search(search: Sequence[str], personal_fields: Iterable[str] = ()) -> None:
    """Refuse names that are no fields of a payload, and fields that are masked."""
    masking = Masking(personal_fields)
    if isinstance(search, str) or len(search) > MAX_SEARCH_FIELDS:
        raise bad_field("search", f"search must be a list of at most {MAX_SEARCH_FIELDS} fields")
    for name in search:
        if not _FIELD.fullmatch(str(name)):
            raise bad_field("search", f"search contains a name that is not a payload field: {name!r}")
        if any(map(masking.hides, name.split("."))):
            raise bad_field("search", f"search contains a masked field: {name!r}")


@lru_cache(maxsize=256)
def _title_parts(title: str) -> tuple[tuple[str, str | None], ...]:
    """The texts and fields of a title's format; raises BadInput if it is none."""
    if len(title) > MAX_TITLE_FORMAT:
        raise bad_field("title", f"title must be text of at most {MAX_TITLE_FORMAT} characters")
    try:
        parts = list(Formatter().parse(title))
    except ValueError as problem:
        raise bad_field("title", f"title is not a valid format: {problem}") from None
    for _, name, spec, conversion in parts:
        if name is not None and (spec or conversion or not _FIELD.fullmatch(name)):
            raise bad_field(
                "title",
                "title may contain names of payload fields, such as {to} or {order.number}, but no"
                f" conversions or format specifiers: {name!r}",
            )
    return tuple((text, name) for text, name, _, _ in parts)


def title_of(title: str, payload: Any) -> str:
    """A declared title, filled with fields; empty if none of them is there."""
    parts = [(text, _text(field_of(payload, name)) if name else "") for text, name in _title_parts(title)]
    return "".join(text + value for text, value in parts) if any(v for _, v in parts) else ""


def _text(value: Any) -> str:
    """A value of a title; a masked one does not distinguish jobs."""
    return str(value) if isinstance(value, str | int | float) and MASK not in str(value) else ""


def shown_title(text: str) -> str:
    """A title on one line and not too long; nothing masked is part of one."""
    line = "" if MASK in text else " ".join(text.split()).strip(_LOOSE)
    return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1].rstrip()}…"


def titles_in(store: Store, queue: str, own: str | Callable[[Any], str] = "") -> Callable[[Job], str]:
    """What lists call jobs: by the workload's function or declared format; '' is key or id."""
    title = own if callable(own) else partial(title_of, store.listing(queue).title)
    return lambda job: shown_title(title(job.payload))


def plain_key(job: Job) -> str:
    """The key of a job, unless it is masked."""
    return "" if MASK in (key := job.dedup_key or "") else key


class JobSearch(NamedTuple):
    """A resolved filter: certain jobs by id, or a filter of the store."""

    ids: tuple[str, ...] | None
    where: Filter

    def fits(self, job: Job) -> bool:
        """Whether the job fits the filter, except for payloads, which seldom change."""
        where = self.where
        chosen: tuple[tuple[Sequence[Any] | None, Any], ...] = (
            (where.states or None, job.state),
            (where.tenants, job.tenant),
            (where.codes or None, job.error_code),
            ((False,) if where.unclaimed else None, job.phase == OWNED),
            (where.categories or None, job.error_category),
            (self.ids, job.id),
            (None if where.dedup_key is None else (where.dedup_key,), job.dedup_key),
        )
        times: tuple[tuple[Any, int, bool], ...] = (
            (where.created_from, job.created_at, True),
            (where.created_before, job.created_at, False),
            (where.moved_before, job.moved_at, False),
        )
        return (
            all(values is None or value in values for values, value in chosen)
            and all(limit is None or (at >= limit) == from_it for limit, at, from_it in times)
            and (where.text or "").lower() in (job.error_message or "").lower()
        )

    def chosen(self, jobs: Iterable[Job]) -> list[Job]:
        """Those of these jobs that fit, in the order of the list."""
        newest_first = not self.where.oldest_first
        return sorted(filter(self.fits, jobs), key=lambda job: job.id, reverse=newest_first)


def in_trouble(lifecycle: Lifecycle, where: Filter) -> Filter:
    """A filter by error for jobs whose present trouble it is, not an old one; named states stay."""
    failing, ready = failure_states(lifecycle), ready_states(lifecycle)
    if not (where.codes or where.categories):
        return where
    states = where.states or (*failing, *ready)
    unclaimed = {*failing, *ready}.issuperset(states) and not set(ready).isdisjoint(states)
    return replace(where, states=states, unclaimed=unclaimed)


def resolve_text(
    where: Filter, tenants: Sequence[str], read: Callable[[Filter, int], Page], title: Callable[[Job], str]
) -> JobSearch:
    """The text as an id, a key, a field, a recent job's title, else part of an error message."""
    text, rest = where.text, replace(where, text=None)
    if not text:
        return JobSearch(None, where)
    if is_id(text.lower()):
        return JobSearch((text.lower(),), rest)
    by_key = replace(rest, dedup_key=text, tenants=tuple(tenants))
    if tenants and where.dedup_key is None and read(by_key, 1).jobs:
        return JobSearch(None, by_key)
    by_field = replace(rest, search=text)
    if read(by_field, 1).jobs:
        return JobSearch(None, by_field)
    newest = read(rest, MAX_TITLES_SEARCHED).jobs if fold(text) else []
    found = [job.id for job in newest if is_found({"title": title(job)}, ("title",), text)]
    return JobSearch(tuple(found[:_MAX_FOUND_TITLES]) if found else None, rest if found else where)


MAX_TITLES: Final = 300  # of the newest jobs, that are read at each letter typed


def titles_of(commands: Commands, name: str) -> Callable[[Job], str]:
    """What lists call the jobs of a queue, from as much of them as is shown."""
    return titles_in(commands.queues[name].store, name, commands.workload(name).job_title)


def search_jobs(
    commands: Commands, actor: Actor, name: str, where: Filter, tenants: Sequence[str] | None = None
) -> JobSearch:
    """What a filter's text is among the actor's jobs; keys are those of ``tenants``."""
    if not where.text:
        return JobSearch(None, where)
    where = commands.narrow(actor, name, where)
    if tenants is None:
        tenants = where.tenants or tuple(commands.stats(actor, name).tenants)

    def read(narrower: Filter, limit: int) -> Page:
        if not actor.has("reveal"):
            return commands.jobs(actor, name, narrower, limit=limit)
        return commands.queue(actor, name).jobs(narrower, limit=limit)  # found, but shown masked

    return resolve_text(where, tenants, read, titles_of(commands, name))


def titled_jobs(commands: Commands, actor: Actor, name: str, text: str, limit: int) -> list[Job]:
    """The newest jobs with this key, end of an id or word of a title, if titles may be shown."""
    queue, title = commands.queue(actor, name), titles_of(commands, name)
    jobs = queue.jobs(commands.narrow(actor, name, Filter()), limit=MAX_TITLES).jobs
    seen = jobs if actor.has("reveal") else map(commands.masking(name).job, jobs)
    found = [
        job
        for job in seen
        if text in {job.dedup_key, job.id[-8:], f"…{job.id[-8:]}"} or is_found({"title": title(job)}, ("title",), text)
    ][:limit]
    return commands.shown_list(actor, name, found, "everything", same_look=True)


def found_jobs(commands: Commands, actor: Actor, name: str, search: JobSearch, **reveal: Any) -> list[Job]:
    """Those of the jobs searched by id that the actor may see and that fit, in their order."""
    return search.chosen(commands.find(actor, name, search.ids or (), **reveal))
