"""The small pictures over a queue's table: what came through, how fast, and what went wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from kesin.engine.queue import Queue
from kesin.store.records import Filter
from kesin.web.dashboard.families import families, needs_person
from kesin.web.dashboard.trends import Trend, Trends
from kesin.web.dashboard.view import Looker

LOOKED_AT: Final = 100  # of the last rows
TOLD: Final = 5  # codes


@dataclass(frozen=True, slots=True)
class CodeShare:
    """How often a code is among the last failures."""

    code: str
    n: int
    percent: int


@dataclass(frozen=True, slots=True)
class Charts:
    """What they are drawn from."""

    trend: Trend | None  # of the whole queue: nobody sees it who sees some sites only
    codes: tuple[CodeShare, ...]
    failures: int  # how many rows the codes were counted among
    median_us: int | None  # from birth to end, of the last that ended well
    slowest_us: int | None  # all but one in twenty were faster
    spans: tuple[int, ...]


def charts_of(looking: Looker, queue: Queue, site: str) -> Charts:
    """Read the last rows; the cost does not grow with the number of jobs."""
    commands, actor = looking.service.commands, looking.actor
    tenants = (site,) if site else None
    bad = Filter(states=needs_person(queue.lifecycle), tenants=tenants)
    failed = commands.jobs(actor, queue.name, bad, limit=LOOKED_AT).jobs if bad.states else []
    counted = Counter(job.error_code for job in failed if job.error_code)
    most = max(counted.values(), default=1)
    found = families(queue.lifecycle)
    done = tuple(state for state, family in found.items() if family == "done")
    well = commands.jobs(actor, queue.name, Filter(states=done, tenants=tenants), limit=LOOKED_AT)
    ended = [job for job in well.jobs if job.finished_at is not None]
    spans = [max((job.finished_at or 0) - job.created_at, 0) for job in ended]
    ordered = sorted(spans)
    whole = not site and commands.visible(actor, queue.name) is None
    service = looking.service
    return Charts(
        Trends(service.accounts.directory, service.queues).of(queue) if whole else None,
        tuple(CodeShare(code, n, max(100 * n // most, 2)) for code, n in counted.most_common(TOLD)),
        len(failed),
        ordered[len(ordered) // 2] if ordered else None,
        ordered[min(len(ordered) * 19 // 20, len(ordered) - 1)] if ordered else None,
        tuple(reversed(spans)),
    )
