"""Lists of jobs that hold still: a renewal moves, adds and removes no row, it counts new ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from kesin.engine.access.listing import JobSearch, resolve_text, titles_of
from kesin.engine.queue import Queue
from kesin.engine.validation import invalid_field
from kesin.foundation.ids import is_id
from kesin.lifecycle.model import Job
from kesin.store.records import Filter, JobCount, Page
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.queues import filters

NONE: Final[Mapping[str, str]] = MappingProxyType({})
MAX_EXAMINED: Final = 20_000  # jobs of a count
MAX_TOLD: Final = 10_000  # a larger count that is not exact is said to be more than this


class JobSource(NamedTuple):
    """Where the jobs of a list come from: only those that the user may see."""

    search: JobSearch
    page: Callable[..., Page]  # by limit and cursor
    find: Callable[[Sequence[str]], Iterable[Job]]
    count_jobs: Callable[..., JobCount]  # above and below certain ids
    total: int | None = None  # how many match, where the counters tell it


def visible_jobs(ctx: PageContext, queue: str, search: JobSearch, total: int | None = None, **look: Any) -> JobSource:
    """The jobs of a queue that the user may read; ``look``: what of them, see `Commands.jobs`."""
    commands, actor, where = ctx.commands, ctx.actor, search.where
    return JobSource(
        search,
        partial(filters.read_page, ctx, queue, search, **look),
        partial(commands.find, actor, queue, **look),
        partial(commands.count, actor, queue, where, limit=MAX_EXAMINED),
        total,
    )


def all_jobs(ctx: PageContext, queue: Queue, where: Filter, total: int | None = None) -> JobSource:
    """All jobs that match; what the user may see is for the caller to say in the filter."""
    tenants = where.tenants or tuple(queue.stats().tenants if where.text else ())
    titles = titles_of(ctx.commands, queue.name)
    search = resolve_text(where, tenants, lambda by, n: queue.jobs(by, limit=n), titles)
    count = partial(queue.store.count_matching, queue.name, search.where)

    def page(**part: Any) -> Page:
        if search.ids is None:
            return queue.jobs(search.where, **part)
        return Page(search.chosen(queue.find(search.ids).values()), None)

    return JobSource(search, page, lambda ids: queue.find(ids).values(), partial(count, limit=MAX_EXAMINED), total)


class ShownRows(NamedTuple):
    """The rows of a list; a shown job that was deleted meanwhile is an id."""

    jobs: Sequence[Job | str]
    cursor: str | None
    matching: JobCount
    shown: int  # with those above them
    stale: frozenset[str] = frozenset()  # shown, but no longer what is searched for
    news: JobCount = JobCount(0)  # what would be listed beside them now
    oldest: bool = False  # comes first
    step: int = 0  # rows that are read at a time
    most: int = 0

    @property
    def whole(self) -> bool:
        """Whether all that match are shown."""
        return self.cursor is None and not self.news.n


def shown_rows(ctx: PageContext, source: JobSource, sent: Mapping[str, str] = NONE, step: int = 0) -> ShownRows:
    """The first rows, or those that are ``sent`` as shown, or those that follow a ``sent`` one."""
    step, most = min(step or filters.PAGE, filters.PAGE), filters.MAX_SHOWN
    shown = [value for value in sent.get("ids", "").split(",") if is_id(value)][:most]
    last = cursor if is_id(cursor := sent.get("cursor", "")) else None
    if shown:
        rows = _renewed_rows(source, shown, last)
    elif last:
        page = source.page(limit=step, cursor=last)
        rows = ShownRows(page.jobs, page.cursor, JobCount(0), _number(ctx, "shown"))
    else:
        page = source.page(limit=min(max(_number(ctx, "rows"), step), most))
        known = JobCount(len(page.jobs), page.cursor is None)
        rows = ShownRows(page.jobs, page.cursor, _matching(source, known), 0)
    oldest = source.search.where.oldest_first
    return rows._replace(shown=rows.shown + len(rows.jobs), oldest=oldest, step=step, most=most)


def query_of(fields: Mapping[str, str], **changes: str) -> str:
    """The query string of a list, with the question mark and with some of it changed."""
    pairs = {name: value for name, value in {**fields, **changes}.items() if value}
    return f"?{urlencode(pairs)}" if pairs else ""


def text_of(given: Mapping[str, str], name: str, most: int = filters.MAX_TEXT_CHARS) -> str:
    """A text of an address or form; one that is too long is refused: cut, it would mean another."""
    value = given.get(name, "").strip()
    if len(value) > most:
        why = "String should have at most %(max_length)s characters"
        raise invalid_field(name, why, max_length=most)
    return value


def order_of(ctx: PageContext) -> str:
    """The order in the address: the oldest first, or empty."""
    return filters.OLDEST if ctx.request.query_params.get("order") == filters.OLDEST else ""


def _number(ctx: PageContext, name: str) -> int:
    """A number in the URL; 0 if it is none."""
    text = ctx.request.query_params.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0  # noqa: PLR2004


def _renewed_rows(source: JobSource, shown: Sequence[str], cursor: str | None) -> ShownRows:
    """The shown jobs as they are now, in the same order; jobs of other tenants were not shown."""
    search, tenants = source.search, source.search.where.tenants
    jobs = [job for job in source.find(shown) if tenants is None or job.tenant in tenants]
    found = {job.id: job for job in jobs}
    matching = frozenset(job.id for job in jobs if search.fits(job))
    news = _news(source, matching, cursor)
    known = JobCount(len(matching) + news.n, cursor is None and news.exact)
    rows = [found.get(job_id, job_id) for job_id in shown]
    return ShownRows(rows, cursor, _matching(source, known), 0, frozenset(shown) - matching, news)


def _matching(source: JobSource, known: JobCount) -> JobCount:
    """How many jobs match: from the counters if they tell it, else counted up to a bound."""
    if source.total is not None:
        return JobCount(source.total)
    if known.exact:
        return known
    counted = source.count_jobs()
    least = min(counted.n - 1, MAX_TOLD)
    return counted if counted.exact else JobCount(max(least, known.n), exact=False)


def _news(source: JobSource, matching: frozenset[str], cursor: str | None) -> JobCount:
    """How many matching jobs are not shown, up to the end of the list."""
    if source.search.ids is not None:
        return JobCount(0)
    bounds = {}
    if cursor is not None:
        bounds = {"below" if source.search.where.oldest_first else "above": cursor}
    above, below = bounds.get("above", ""), bounds.get("below", "g")
    counted = source.count_jobs(**bounds)
    if not counted.exact and not counted.n:  # a search in what is masked: only its list tells
        page = source.page(limit=filters.PAGE)
        unseen = [job for job in page.jobs if above < job.id < below and job.id not in matching]
        return JobCount(len(unseen), page.cursor is None)
    inside = sum(above < job_id < below for job_id in matching)
    return JobCount(max(counted.n - inside, 0), counted.exact)
