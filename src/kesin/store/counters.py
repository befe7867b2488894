"""Job counts: per state and tenant from the counters of moves, and per error from jobs."""

from collections import Counter
from collections.abc import Iterable, Sequence

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.failures import failure_states, retried_at
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import READY, RESTING
from kesin.store.limits import FAILURE_PERIOD_US
from kesin.store.records import FailureCount, MoveCount, QueueStats

Overdue = tuple[int | None, int, int]  # the oldest due time, claims past their lease, now


def count_jobs(
    queue: str,
    move_counts: Sequence[MoveCount],
    known_states: Iterable[str] = (),
    overdue: Overdue = (None, 0, 0),
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


def count_failure(
    lifecycle: Lifecycle, job: Job, counts: dict[FailureKey, FailureCount], recent_from: int
) -> None:
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
