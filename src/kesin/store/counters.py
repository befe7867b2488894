"""Job counts per state and tenant, computed from the counters of moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from kesin.store.records import MoveCount


class JobCounts(NamedTuple):
    """The counts that the counters add up to."""

    states: dict[str, int]
    tenants: dict[str, dict[str, int]]
    moves: Counter[str]  # tenant → moves ever made


def count_jobs(move_counts: Iterable[MoveCount], known_states: Iterable[str]) -> JobCounts:
    """Sum the counters; known states are included even when they are empty."""
    names = tuple(known_states)
    tenants: dict[str, dict[str, int]] = {}
    moves: Counter[str] = Counter()
    states = dict.fromkeys(names, 0)
    for count in move_counts:
        moves[count.tenant] += count.n
        counts = tenants.setdefault(count.tenant, dict.fromkeys(names, 0))
        for state, n in ((count.to_state, count.n), (count.from_state, -count.n)):
            if state:
                counts[state] = counts.get(state, 0) + n
                states[state] = states.get(state, 0) + n
    return JobCounts(states, tenants, moves)
