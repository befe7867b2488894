"""The small pictures over a queue's table: what came through, how fast, and what went wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kesin.engine.queue import Queue
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import DAY_S, HOUR_S, SECOND_US
from kesin.store.directory import Directory, Fact
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Filter
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.state_groups import families, needs_person

WORKLOAD: Final = "dashboard"
EVERY_S: Final = 60
KEEP: Final = 24 * 60  # notes: a day of minutes
BUCKETS: Final = 48
SLACK_S: Final = 600  # a stretch that lacks no more than this at its begin is whole


@dataclass(frozen=True, slots=True)
class Trend:
    """How many jobs ended well and badly in each stretch, oldest first."""

    done: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    failed_hour: int = 0  # within the last hour
    since: int | None = None  # what the numbers reach back to; None before the first note
    whole: bool = False  # they reach back as far as they were asked to

    @property
    def failed_share(self) -> float | None:
        """Of what ended; None while nobody knows."""
        ended = sum(self.done) + sum(self.failed)
        if self.since is None:
            return None
        return sum(self.failed) / ended if ended else 0.0


class Trends:
    """Notes and tells."""

    def __init__(self, directory: Directory, queues: Mapping[str, Queue]) -> None:
        self._directory = directory
        self._queues = queues

    def note(self) -> None:
        """Note every queue's sums, unless somebody did within the last minute."""
        for name, queue in self._queues.items():
            try:
                sums = _sums(queue)
            except StoreUnreachable:  # the others may live elsewhere
                continue
            now = queue.now()
            with self._directory.transaction():
                held = self._directory.hold_fact(WORKLOAD, "", name, now)
                notes = json.loads(held.value) or []
                if notes and now - notes[-1][0] < EVERY_S * SECOND_US * 0.9:
                    continue
                notes.append([now, *sums])
                value = canonical_json(notes[-KEEP:])
                self._directory.put_fact(Fact(WORKLOAD, "", name, value, now))

    def of(self, queue: Queue, span_s: int = DAY_S) -> Trend:
        """The last stretch of time in equal parts."""
        fact = self._directory.fact(WORKLOAD, "", queue.name)
        notes = (json.loads(fact.value) or []) if fact else []
        now = queue.now()
        notes = [*notes, [now, *_sums(queue)]]
        part_us = span_s * SECOND_US / BUCKETS
        begin = now - span_s * SECOND_US
        done, failed, failed_hour = [0] * BUCKETS, [0] * BUCKETS, 0
        for before, after in pairwise(notes):
            at = min(int((after[0] - begin) // part_us), BUCKETS - 1)
            if at >= 0:
                done[at] += max(after[1] - before[1], 0)
                failed[at] += max(after[2] - before[2], 0)
            if after[0] > now - HOUR_S * SECOND_US:
                failed_hour += max(after[2] - before[2], 0)
        since = max(notes[0][0], begin) if len(notes) > 1 else None
        whole = since is not None and since <= begin + SLACK_S * SECOND_US
        return Trend(tuple(done), tuple(failed), failed_hour, since, whole)


def _sums(queue: Queue) -> tuple[int, int]:
    found = families(queue.lifecycle)
    done = failed = 0
    for flow in queue.store.flows(queue.name):
        if flow.from_state == flow.to_state:
            continue
        family = found.get(flow.to_state)
        done += flow.n if family == "done" else 0
        failed += flow.n if family == "failed" else 0
    return done, failed


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


def charts_of(looking: PageContext, queue: Queue, site: str) -> Charts:
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
