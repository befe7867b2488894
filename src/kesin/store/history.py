"""How many jobs came to rest or ended lately: noted each minute from the counters of moves.

Every sweeper notes it, so that a service that starts later knows the past: the whole queue by the
minute, each tenant by the half hour, for a day. What happened while no sweeper ran is noted under
the time of its last move.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import DAY_S, MINUTE_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.failures import decided_moves
from kesin.lifecycle.vocabulary import FINISHED, RESTING
from kesin.store.contract import Store
from kesin.store.directory import MetadataEntry
from kesin.store.metadata import MetadataStore, metadata_for
from kesin.store.records import MoveCount, QueueStats

WORKLOAD: Final = "history"  # a stored name, with the queue as its site
TOTALS: Final = "totals"
TENANTS: Final = "tenants"
_EVERY_US: Final = MINUTE_S * SECOND_US
_PERIOD_US: Final = 30 * MINUTE_S * SECOND_US
PERIODS: Final = DAY_S * SECOND_US // _PERIOD_US
MAX_NOTES: Final = DAY_S // MINUTE_S
MAX_TENANTS: Final = 10_000  # noted one by one

Counts = Mapping[str, int]  # state → jobs that came into it


class TotalNote(NamedTuple):
    """How many jobs had ever come into each state of rest or end at a time."""

    at: int
    entered: Counts


def note_history(store: Store, queue: str, lifecycle: Lifecycle, now: int) -> None:
    """Note the counters, unless a sweeper did within the last minute."""
    metadata, counts = metadata_for(store), _endings(store.move_counts(queue), lifecycle)
    with metadata.transaction():
        entry = metadata.lock_metadata(WORKLOAD, queue, TOTALS, now)
        notes: list[Any] = json.loads(entry.value) or []
        if notes and now - notes[-1][0] < _EVERY_US * 0.9:
            return
        entered = dict(_entered(counts))
        last = max((count.at for count in counts), default=0)
        if notes and notes[-1][0] < last < now - _EVERY_US:  # no sweeper ran for a while
            notes.append([last, entered])
        notes.append([now, entered])
        _put(metadata, queue, TOTALS, notes[-MAX_NOTES:], now)
        _note_tenants(metadata, queue, counts, now)


def read_totals(store: Store, lifecycle: Lifecycle, stats: QueueStats) -> list[TotalNote]:
    """The notes of the last day, oldest first, and the counters as they are now."""
    entry = metadata_for(store).metadata_entry(WORKLOAD, stats.queue, TOTALS)
    notes = (json.loads(entry.value) or []) if entry else []
    current = TotalNote(stats.now, _entered(_endings(stats.counts, lifecycle)))
    return [*(TotalNote(*note) for note in notes), current]


def read_tenants(store: Store, queue: str, now: int) -> list[Mapping[str, Counts]]:
    """Tenant → what came into which state, in each half hour of the last day, oldest first."""
    stored = metadata_for(store).metadata_entries(WORKLOAD, site=queue)
    periods = {int(e.name): json.loads(e.value) for e in stored if e.name.isdecimal()}
    return [periods.get(now // _PERIOD_US - back, {}) for back in reversed(range(PERIODS))]


def _endings(counts: Sequence[MoveCount], lifecycle: Lifecycle) -> list[MoveCount]:
    """The counters of moves into states in which jobs rest or end, but for a person's decisions."""
    decided = decided_moves(lifecycle)
    names = (state.name for state in lifecycle.states)
    ends = {name for name in names if lifecycle.unowned_phase(name) in (RESTING, FINISHED)}
    ended = (c for c in counts if c.to_state in ends and c.from_state != c.to_state)
    return [count for count in ended if count.move not in decided]


def _entered(counts: list[MoveCount]) -> Counter[str]:
    entered: Counter[str] = Counter()
    for count in counts:
        entered[count.to_state] += count.n
    return entered


def _note_tenants(metadata: MetadataStore, queue: str, counts: list[MoveCount], now: int) -> None:
    """Add what came since the last note to the half hour of its last move."""
    entry = metadata.lock_metadata(WORKLOAD, queue, TENANTS, now)
    before: dict[str, dict[str, int]] | None = json.loads(entry.value)
    sums: dict[str, Counter[str]] = {}
    latest: dict[tuple[str, str], int] = {}
    for count in counts:
        sums.setdefault(count.tenant, Counter())[count.to_state] += count.n
        key = (count.tenant, count.to_state)
        latest[key] = max(latest.get(key, 0), min(count.at, now))
    if len(sums) > MAX_TENANTS:
        return
    if sums != before:
        _put(metadata, queue, TENANTS, sums, now)
    if before is None:  # what came earlier has no time
        return
    grown: dict[int, dict[str, dict[str, int]]] = {}
    for tenant, entered in sums.items():
        for state, n in entered.items():
            if more := n - before.get(tenant, {}).get(state, 0):
                period = latest[tenant, state] // _PERIOD_US
                grown.setdefault(period, {}).setdefault(tenant, {})[state] = more
    _add_periods(metadata, queue, grown, now)


def _add_periods(metadata: MetadataStore, queue: str, grown: dict[int, dict[str, dict[str, int]]], now: int) -> None:
    oldest = now // _PERIOD_US - PERIODS
    for period, tenants in grown.items():
        if period <= oldest:
            continue
        entry = metadata.metadata_entry(WORKLOAD, queue, str(period))
        if entry is None:  # a new half hour: the time to delete what is older than a day
            for stored in metadata.metadata_entries(WORKLOAD, site=queue):
                if stored.name.isdecimal() and int(stored.name) <= oldest:
                    metadata.delete_metadata(WORKLOAD, queue, stored.name)
        known: dict[str, dict[str, int]] = json.loads(entry.value) if entry else {}
        for tenant, entered in tenants.items():
            known[tenant] = dict(Counter(known.get(tenant, {})) + Counter(entered))
        _put(metadata, queue, str(period), known, now)


def _put(metadata: MetadataStore, queue: str, name: str, value: Any, now: int) -> None:
    metadata.put_metadata(MetadataEntry(WORKLOAD, queue, name, canonical_json(value), now))
