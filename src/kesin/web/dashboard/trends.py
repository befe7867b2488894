"""What the last day looked like: the counters, noted once a minute and kept for a day.

The store counts every move for ever but not when; so whoever runs a service notes the sums. They
lie in the store: every process shows the same picture, and a restart does not empty it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kesin.engine.queue import Queue
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import DAY_S, HOUR_S, SECOND_US
from kesin.store.directory import Directory, Fact
from kesin.store.errors import StoreUnreachable
from kesin.web.dashboard.families import families

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
