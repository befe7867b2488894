"""A list of jobs that holds still: how many match, and the shown ones renewed in their places.

A renewal names the jobs that are shown. It moves none, adds none and removes none: jobs that would
be listed beside them now are only counted, until the user asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kesin.engine.access.counting import count_visible
from kesin.engine.access.listing import JobSearch
from kesin.lifecycle.model import Job
from kesin.store.records import JobCount, QueueStats
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.queues import filters
from kesin.web.dashboard.queues.filters import PageFilter

MAX_EXAMINED: Final = 20_000  # jobs of a count
MAX_TOLD: Final = 10_000  # a larger count that is not exact is said to be more than this


class Sought(NamedTuple):
    """The filter of a page, the counters of its site, and what it searches for."""

    page_filter: PageFilter
    stats: QueueStats
    search: JobSearch


class ShownRows(NamedTuple):
    """The rows of a list; a shown job that was deleted meanwhile is an id."""

    jobs: Sequence[Job | str]
    cursor: str | None
    matching: JobCount
    stale: frozenset[str] = frozenset()  # shown, but no longer what is searched for
    news: JobCount = JobCount(0)  # what would be listed beside them now


def first_rows(ctx: PageContext, queue: str, sought: Sought, *, limit: int) -> ShownRows:
    """The first jobs that match, and how many there are."""
    page = filters.read_page(ctx, queue, sought.search, limit=limit)
    known = JobCount(len(page.jobs), page.cursor is None)
    return ShownRows(page.jobs, page.cursor, _matching(ctx, queue, sought, known))


def renewed_rows(
    ctx: PageContext, queue: str, sought: Sought, *, shown: Sequence[str], cursor: str | None
) -> ShownRows:
    """The shown jobs as they are now, in the same order."""
    search = sought.search
    found = {job.id: job for job in ctx.commands.find(ctx.actor, queue, shown)}
    matching = frozenset(job.id for job in found.values() if matches(search, job))
    news = _news(ctx, queue, search, matching, cursor)
    known = JobCount(len(matching) + news.n, cursor is None and news.exact)
    total = _matching(ctx, queue, sought, known)
    jobs = [found.get(job_id, job_id) for job_id in shown]
    return ShownRows(jobs, cursor, total, frozenset(shown) - matching, news)


def matches(search: JobSearch, job: Job) -> bool:
    """Whether the job, as the user sees it, is among those that are searched for."""
    where = search.where
    chosen: tuple[tuple[Sequence[str] | None, str | None], ...] = (
        (where.states or None, job.state),
        (where.tenants, job.tenant),
        (where.codes or None, job.error_code),
        (where.categories or None, job.error_category),
        (search.ids, job.id),
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


def _matching(ctx: PageContext, queue: str, sought: Sought, known: JobCount) -> JobCount:
    """How many jobs match: from the counters if they tell it, else counted up to a bound."""
    if sought.page_filter.counted:
        states = sought.stats.states
        return JobCount(sum(states.get(name, 0) for name in sought.page_filter.states or states))
    if known.exact:
        return known
    counted = _count(ctx, queue, sought.search)
    least = min(counted.n - 1, MAX_TOLD)
    return counted if counted.exact else JobCount(max(least, known.n), exact=False)


def _news(
    ctx: PageContext, queue: str, search: JobSearch, matching: frozenset[str], cursor: str | None
) -> JobCount:
    """How many matching jobs are not shown, up to the end of the list."""
    if search.ids is not None:
        return JobCount(0)
    where, bounds = search.where, {}
    if cursor is not None:
        bounds = {"below" if where.oldest_first else "above": cursor}
    above, below = bounds.get("above", ""), bounds.get("below", "g")
    counted = _count(ctx, queue, search, **bounds)
    if not counted.exact and not counted.n:  # a search in what is masked: only its list tells
        page = filters.read_page(ctx, queue, search)
        unseen = [job for job in page.jobs if above < job.id < below and job.id not in matching]
        return JobCount(len(unseen), page.cursor is None)
    inside = sum(above < job_id < below for job_id in matching)
    return JobCount(max(counted.n - inside, 0), counted.exact)


def _count(ctx: PageContext, queue: str, search: JobSearch, **bounds: str) -> JobCount:
    where = search.where
    return count_visible(ctx.commands, ctx.actor, queue, where, limit=MAX_EXAMINED, **bounds)
