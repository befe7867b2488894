"""Job counts: per state and tenant, per error, and of slots and rates in use."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.failures import failure_states, retried_at
from kesin.lifecycle.model import Job, meter_of
from kesin.lifecycle.vocabulary import READY, RESTING
from kesin.store.contract import Store
from kesin.store.limits import FAILURE_PERIOD_US
from kesin.store.records import FailureCount, MoveCount, QueueStats

Overdue = tuple[int | None, int, int]  # the oldest due time, claims past their lease, now


def count_jobs(
    queue: str, move_counts: Sequence[MoveCount], known_states: Iterable[str] = (), overdue: Overdue = (None, 0, 0)
) -> QueueStats:
    """Sum the counters; known states are included even when they are empty."""
    names = tuple(known_states)
    tenants: dict[str, dict[str, int]] = {}
    moves: Counter[str] = Counter()
    states = dict.fromkeys(names, 0)
    for tenant, _, source, target, n, _ in move_counts:
        moves[tenant] = moves.get(tenant, 0) + n
        counts = tenants.get(tenant)
        if counts is None:
            counts = tenants[tenant] = dict.fromkeys(names, 0)
        if target:
            counts[target] = counts.get(target, 0) + n
        if source:
            counts[source] = counts.get(source, 0) - n
    for counts in tenants.values():
        for state, n in counts.items():
            states[state] = states.get(state, 0) + n
    return QueueStats(queue, states, tenants, *overdue, moves, move_counts)


FailureKey = tuple[str, str, str, str, bool]


def count_failure(lifecycle: Lifecycle, job: Job, counts: dict[FailureKey, FailureCount], recent_from: int) -> None:
    """Add a job to the counts, if it has an error and is not over."""
    waits = job.phase == READY or (job.phase == RESTING and job.state in failure_states(lifecycle))
    if job.error_code is None or not waits:
        return
    next_at = retried_at(lifecycle, job, job.moved_at)
    retries = job.phase == READY or next_at is not None
    key = (job.tenant, job.state, job.error_code, job.error_category or "", retries)
    before = counts.get(key) or FailureCount(*key, 0, job.moved_at, next_at)
    times = [at for at in (before.next_at, next_at) if at is not None]
    trend = dict(before.trend)
    if job.moved_at >= recent_from:
        part = (job.moved_at - recent_from) // FAILURE_PERIOD_US
        trend[part] = trend.get(part, 0) + 1
    counts[key] = before._replace(
        n=before.n + 1,
        since=min(before.since, job.moved_at),
        next_at=min(times, default=None),
        latest=max(before.latest, job.moved_at),
        trend=tuple(sorted(trend.items())),
    )


MAX_FULLEST: Final = 10  # tenants that are listed with the slots they use


class SlotUse(NamedTuple):
    """The slots of a state, and how many jobs are in it."""

    state: str
    slots: int
    per_tenant: bool
    used: int  # of all tenants together
    fullest: tuple[tuple[str, int], ...] = ()  # with slots per tenant: those that use most
    tenants: int = 0  # that use any


def slots_in_use(lifecycle: Lifecycle, stats: QueueStats) -> list[SlotUse]:
    """The states with slots, in the order of declaration."""
    return [
        SlotUse(
            state.name,
            state.capacity,
            state.per_tenant,
            stats.states.get(state.name, 0),
            *(_fullest(state.name, stats) if state.per_tenant else ()),
        )
        for state in lifecycle.states
        if state.capacity
    ]


def _fullest(state: str, stats: QueueStats) -> tuple[tuple[tuple[str, int], ...], int]:
    used = [(tenant, n) for tenant, counts in stats.tenants.items() if (n := counts.get(state, 0))]
    used.sort(key=lambda pair: (-pair[1], pair[0]))
    return tuple(used[:MAX_FULLEST]), len(used)


def states_without_slot(lifecycle: Lifecycle, stats: QueueStats, tenant: str) -> frozenset[str]:
    own = stats.tenants.get(tenant, {})
    return frozenset(
        state.name
        for state in lifecycle.states
        if state.capacity and (own if state.per_tenant else stats.states).get(state.name, 0) >= state.capacity
    )


def rate_left(lifecycle: Lifecycle, store: Store, stats: QueueStats) -> dict[str, int]:
    """How many jobs of these tenants may start now, where some of a rate is used: fewest first."""
    meter = meter_of(lifecycle.claims[0])  # a lifecycle with a rate has one claim
    if meter is None:
        return {}
    left = [(meter.left(at, stats.now), tenant) for tenant, at in store.meters(stats.queue).items()]
    used = sorted((n, tenant) for n, tenant in left if n < meter.claims and tenant in stats.tenants)
    return {tenant: n for n, tenant in used[:MAX_FULLEST]}
