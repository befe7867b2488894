"""From counters to counts: how many jobs are in each state, of each tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from kesin.store.records import Flow


class Tally(NamedTuple):
    """What the counters add up to."""

    states: dict[str, int]
    tenants: dict[str, dict[str, int]]
    moves: Counter[str]  # tenant → moves ever made


def tallied(flows: Iterable[Flow], known: Iterable[str]) -> Tally:
    """Sum up; states that are known stand there even when they are empty."""
    names = tuple(known)
    tenants: dict[str, dict[str, int]] = {}
    moves: Counter[str] = Counter()
    states = dict.fromkeys(names, 0)
    for flow in flows:
        moves[flow.tenant] += flow.n
        counts = tenants.setdefault(flow.tenant, dict.fromkeys(names, 0))
        for state, n in ((flow.to_state, flow.n), (flow.from_state, -flow.n)):
            if state:
                counts[state] = counts.get(state, 0) + n
                states[state] = states.get(state, 0) + n
    return Tally(states, tenants, moves)
