"""The charts of a queue: throughput and durations."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from kesin.engine.queue import Queue
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.model import Job
from kesin.store.history import read_totals
from kesin.store.records import Filter, QueueStats
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.state_groups import states_in

BUCKETS: Final = 48
PERIODS_S: Final = (60, 120, 300, 600, 900, 1_800)  # of a trend that fits its data
MIN_PERIODS: Final = 10
MAX_JOBS_READ: Final = 100  # the newest ones
SLACK_S: Final = 600  # a period that lacks no more than this at its start is complete


class Trend(NamedTuple):
    """How many jobs succeeded and failed in each period, oldest first."""

    done: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    since: int | None = None  # the start of the numbers; None before the first note
    whole: bool = False  # the numbers cover the whole span
    begin: int = 0  # of the first period
    period_us: int = 1

    @property
    def end(self) -> int:
        return self.begin + self.period_us * len(self.done)

    @property
    def failed_share(self) -> float | None:
        """The failed share of all ended jobs; None before the first note."""
        ended = sum(self.done) + sum(self.failed)
        if self.since is None:
            return None
        return sum(self.failed) / ended if ended else 0.0


def trend_of(queue: Queue, stats: QueueStats, *, fitting: bool = False) -> Trend:
    """The trend of the last day in equal periods, or of the part of it in which jobs ended."""
    now = stats.now
    ends = states_in(queue.lifecycle, "done"), states_in(queue.lifecycle, "failed")
    notes = [
        (note.at, *(sum(note.entered.get(state, 0) for state in states) for states in ends))
        for note in read_totals(queue.store, queue.lifecycle, stats)
    ]
    part_us, parts = DAY_S * SECOND_US // BUCKETS, BUCKETS
    if fitting:
        part_us, parts = _fitting_periods(notes, now)
    begin = now - part_us * parts
    done, failed = [0] * parts, [0] * parts
    for before, after in pairwise(notes):
        at = min((after[0] - begin) // part_us, parts - 1)
        if at >= 0:
            done[at] += max(after[1] - before[1], 0)
            failed[at] += max(after[2] - before[2], 0)
    since = max(notes[0][0], begin) if len(notes) > 1 else None
    whole = since is not None and since <= begin + SLACK_S * SECOND_US
    return Trend(tuple(done), tuple(failed), since, whole, begin, part_us)


def _fitting_periods(notes: Sequence[Sequence[int]], now: int) -> tuple[int, int]:
    """The length of a period, and how many hold all that ended within a day."""
    day_ago = now - DAY_S * SECOND_US
    moved = (
        max(before[0], day_ago) for before, after in pairwise(notes) if after[0] > day_ago and before[1:] != after[1:]
    )
    span_us = now - next(moved, day_ago)
    fits = (period for period in PERIODS_S if span_us <= period * SECOND_US * BUCKETS)
    part_us = next(fits, PERIODS_S[-1]) * SECOND_US
    return part_us, max(-(-span_us // part_us), MIN_PERIODS)


def charts_of(ctx: PageContext, queue: Queue, site: str) -> dict[str, Any]:
    """The data of the charts: reads the newest jobs, so the cost does not grow with their number.

    The trend is for users who may see all jobs. Durations are from created to finished.
    """
    succeeded: Sequence[Job] = ()
    if states := states_in(queue.lifecycle, "done"):
        where = Filter(states=states, tenants=(site,) if site else None)
        # Their times alone are shown: nothing of them needs masking.
        narrowed = ctx.commands.narrow(ctx.actor, queue.name, where)
        succeeded = queue.jobs(narrowed, limit=MAX_JOBS_READ).jobs
    ended = sorted((job.finished_at, job.created_at) for job in succeeded if job.finished_at)
    spans = [max(finished_at - created_at, 0) for finished_at, created_at in ended]
    ordered = sorted(spans)
    whole = not site and ctx.sees_all(queue)
    return {
        "trend": trend_of(queue, ctx.stats(queue), fitting=True) if whole else None,
        "median_us": ordered[len(ordered) // 2] if ordered else None,
        "slowest_us": ordered[len(ordered) * 19 // 20] if ordered else None,
        "spans": spans,
        "ends": [finished_at for finished_at, _ in ended],
    }
