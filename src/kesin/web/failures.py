"""What went wrong, by error code: what needs a person, what is retried; for pages and metrics."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kesin.engine.access.commands import stats_of_sites
from kesin.engine.queue import Queue
from kesin.engine.workload import Workload
from kesin.lifecycle.budget import DAY_S, MINUTE_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.failures import decided_codes, failure_states, ready_states
from kesin.store.limits import FAILURE_PERIOD_US
from kesin.store.records import FailureCount, QueueStats

DAY_US: Final = DAY_S * SECOND_US
PERIODS: Final = DAY_US // FAILURE_PERIOD_US
MAX_READS: Final = 3  # until no job moved between two of them
MAX_KEPT: Final = 256  # counts of a queue, or of some of its sites
NO_ONE: Final = "none"  # in a workload's advice: no one must act
PASSING: Final = (Category.TRANSIENT.value, Category.RATE_LIMIT.value)


class FailureGroup(NamedTuple):
    """Jobs in one state with the same error code; an empty code: they rest without an error."""

    queue: str
    state: str
    code: str
    category: str
    retries: bool  # they are tried again by themselves
    who: str  # must act, in the words of the workload's advice; empty if that is not known
    n: int
    since: int | None = None
    next_at: int | None = None
    latest: int = 0  # when the last of them came
    trend: tuple[int, ...] = ()  # how many of them came in each half hour of the last day
    tenants: Mapping[str, int] = MappingProxyType({})

    @property
    def recent(self) -> int:
        """How many came within the last hour."""
        return sum(self.trend[-2:])

    @property
    def needs_you(self) -> bool:
        return not self.retries and self.who != NO_ONE

    @property
    def futile(self) -> bool:
        """Whether a retry fails again until the data is corrected."""
        return self.category == Category.VALIDATION.value


class Failures(NamedTuple):
    """The groups of a queue, the largest first."""

    groups: tuple[FailureGroup, ...] = ()

    @property
    def needing(self) -> list[FailureGroup]:
        return [group for group in self.groups if group.needs_you]

    @property
    def needs_you(self) -> int:
        return sum(group.n for group in self.needing)

    @property
    def retries(self) -> int:
        """How many jobs are tried again by themselves."""
        return sum(group.n for group in self.groups if group.retries)

    @property
    def next_at(self) -> int | None:
        """When the first of them is tried again."""
        return min((g.next_at for g in self.groups if g.next_at is not None), default=None)


@dataclass(slots=True)
class FailureReader:
    """Reads the failures of queues; again when a job has moved, and each minute."""

    workloads: Mapping[str, Workload]
    _kept: dict[Any, tuple[Any, list[FailureGroup]]] = field(default_factory=dict)
    _settled: dict[Any, dict[str, int]] = field(default_factory=dict)  # state → jobs without a code

    def of(
        self, queue: Queue, stats: QueueStats, sites: Collection[str] | None = None, reads: int = MAX_READS
    ) -> Failures:
        """The failures of these sites; ``stats`` are theirs too, read just before."""
        key = (queue.name, None if sites is None else frozenset(sites))
        groups = self._counted(queue, stats, sites)
        rest = _without_code(queue, stats, groups)
        again = stats if not rest else queue.totals() if sites is None else stats_of_sites(queue, queue.stats(), sites)
        # A job that moves between two reads looks like one without a code: so both are read again,
        # and if jobs keep moving, no more are said to have none than when they did not.
        if again.moved == stats.moved:
            self._settled[key] = {group.state: group.n for group in rest}
        elif reads > 1:
            return self.of(queue, again, sites, reads - 1)
        settled = self._settled.get(key, {})
        rest = [group._replace(n=min(group.n, settled.get(group.state, 0))) for group in rest]
        found = [*groups, *(group for group in rest if group.n)]
        return Failures(tuple(sorted(found, key=lambda group: -group.n)))

    def _counted(self, queue: Queue, stats: QueueStats, sites: Collection[str] | None) -> list[FailureGroup]:
        """Those at rest are counted again when one came or went; the others with every move."""
        resting, found = failure_states(queue.lifecycle), list[FailureGroup]()
        moves = (c.n for c in stats.counts if c.from_state in resting or c.to_state in resting)
        parts = ((resting, sum(moves)), (ready_states(queue.lifecycle), stats.moved))
        asked: dict[str, Any] = {"tenants": None if sites is None else sorted(sites)}
        asked["recent_from"] = stats.now - DAY_US
        for states, moved in parts:
            key = (queue.name, None if sites is None else frozenset(sites), states)
            version = (moved, stats.now // (MINUTE_S * SECOND_US))
            kept = self._kept.get(key)
            if kept is None or kept[0] != version:
                if len(self._kept) >= MAX_KEPT:
                    self._kept.clear()
                    self._settled.clear()
                counts = queue.store.failures(queue.name, states=states, **asked)
                kept = self._kept[key] = (version, self._groups(queue, counts))
            found += kept[1]
        return found

    def _groups(self, queue: Queue, counts: list[FailureCount]) -> list[FailureGroup]:
        found: dict[tuple[str, str, str, bool], list[FailureCount]] = {}
        for count in counts:
            found.setdefault(count[1:5], []).append(count)
        decided = decided_codes(queue.lifecycle)
        return [
            FailureGroup(
                queue.name,
                *key,
                who=NO_ONE if key[1] in decided else self._who(queue.name, *key[1:]),
                n=sum(count.n for count in members),
                since=min(count.since for count in members),
                next_at=min((c.next_at for c in members if c.next_at is not None), default=None),
                latest=max(count.latest for count in members),
                trend=_trend(members),
                tenants={count.tenant: count.n for count in members},
            )
            for key, members in found.items()
        ]

    def _who(self, queue: str, code: str, category: str, retries: bool) -> str:  # noqa: FBT001
        """Who must act; an error that passes needs a person once its attempts are spent."""
        workload = self.workloads.get(queue)
        advice = workload.advice(code, category) if workload and workload.advice else {}
        who = str(advice.get("who", ""))
        return "you" if who == NO_ONE and category in PASSING and not retries else who


def _trend(counts: list[FailureCount]) -> tuple[int, ...]:
    """How many came in each half hour of the last day."""
    parts = [0] * PERIODS
    for part, n in chain.from_iterable(count.trend for count in counts):
        parts[min(part, PERIODS - 1)] += n
    return tuple(parts)


def _without_code(queue: Queue, stats: QueueStats, groups: list[FailureGroup]) -> list[FailureGroup]:
    """What rests beyond the counted groups: jobs without an error, or more than are counted."""
    rest = []
    for state in failure_states(queue.lifecycle):
        counted = sum(group.n for group in groups if group.state == state)
        if (n := stats.states.get(state, 0) - counted) > 0:
            rest.append(FailureGroup(queue.name, state, "", "", retries=False, who="", n=n))
    return rest
