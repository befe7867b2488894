"""What every drawing of a lifecycle shares: merged edges, families of states, the happy way.

A reader follows pairs of states, not single moves, so moves between the same two states are one
edge with several names. Nothing here knows a state by its name: what is *the* failure or *the*
success is read from the marks and from the error taxonomy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Verdict
from kesin.lifecycle.vocabulary import GONE, STAY, duration

Kind = Literal["worker", "clock", "person"]
Family = Literal["waiting", "working", "retrying", "resting", "done", "failed", "expired"]

KINDS: Final[tuple[Kind, ...]] = ("worker", "clock", "person")
FAMILIES: Final[tuple[Family, ...]] = (
    "waiting",
    "working",
    "retrying",
    "resting",
    "done",
    "failed",
    "expired",
)


@dataclass(frozen=True, slots=True)
class Edge:
    """Every move between two states. ``source`` is GONE for a birth, ``to`` for a prune."""

    source: str
    to: str
    groups: tuple[tuple[Kind, tuple[str, ...]], ...]  # the names, by who makes them

    @property
    def pair(self) -> tuple[str, str]:
        """How a caller names the edge."""
        return (self.source, self.to)

    @property
    def kind(self) -> Kind:
        """The line's style: the most usual of those who make it."""
        return self.groups[0][0]

    @property
    def names(self) -> tuple[str, ...]:
        """The moves' names."""
        return tuple(name for _, names in self.groups for name in names)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which state stands where: the happy way downwards, and at most one state on either side."""

    rows: tuple[str, ...]
    left: str | None
    right: str | None


def kind_of(move: Move) -> Kind:
    """Who makes the move, as the drawings tell it: operators and producers are both people."""
    if "worker" in move.by:
        return "worker"
    return "clock" if "clock" in move.by else "person"


def edges(lifecycle: Lifecycle) -> tuple[Edge, ...]:
    """One edge per pair of states, in the order of declaration."""
    found: dict[tuple[str, str], dict[Kind, dict[str, None]]] = {}
    for move in lifecycle.moves:
        for source in move.sources or (GONE,):
            kinds = found.setdefault((source, move.target(source)), {})
            kinds.setdefault(kind_of(move), {})[move.name] = None
    return tuple(
        Edge(source, to, tuple((kind, tuple(kinds[kind])) for kind in KINDS if kind in kinds))
        for (source, to), kinds in found.items()
    )


def family(lifecycle: Lifecycle, state: str) -> Family:
    """The family whose colour and icon a state wears."""
    here = lifecycle.state[state]
    if here.success:
        return "done"
    if not here.working:
        if state in _led_to(lifecycle, Verdict.HOLD):
            return "resting"
        if state in _led_to(lifecycle, Verdict.FAIL):
            return "failed"
        return "expired" if here.terminal else "resting"
    if here.initial:
        return "waiting"
    again = _led_to(lifecycle, Verdict.RETRY) | _led_to(lifecycle, Verdict.WAIT)
    return "retrying" if state in again else "working"


def _led_to(lifecycle: Lifecycle, verdict: Verdict) -> set[str]:
    moves = lifecycle.calls.get(lifecycle.errors.move_for(verdict) or "", ())
    return {move.to for move in moves}


def marks(state: State) -> tuple[str, ...]:
    """A state's marks in the words of the specification; a state without an end is working."""
    words = (
        ("initial", state.initial),
        ("working", state.working),
        ("success", state.success),
        ("resting", state.resting),
        ("terminal", state.terminal),
        ("exclusive", state.exclusive),
        ("holds key", state.holds_key),
    )
    return tuple(word for word, is_set in words if is_set)


def kept(lifecycle: Lifecycle, state: str) -> str | None:
    """How long a job stays in the store after it got here; None where nothing prunes it."""
    for move in lifecycle.moves:
        aged = move.guard("age_over")
        if move.prunes and aged and state in move.sources:
            return duration(aged.number)
    return None


def plan(lifecycle: Lifecycle) -> Plan:
    """Rows by the longest happy way; beside them the two busiest others, resting ones first.

    Whatever is left follows below, so that the happy way stays in one piece.
    """
    rows = _happy_way(lifecycle)
    rows += _afterwards(lifecycle, rows[-1])
    degree = dict.fromkeys((state.name for state in lifecycle.states), 0)
    for edge in edges(lifecycle):
        for end in {edge.source, edge.to} - {GONE}:
            degree[end] += edge.source != edge.to
    others = [state.name for state in lifecycle.states if state.name not in rows]
    others.sort(key=lambda name: (lifecycle.state[name].working, -degree[name]))
    aside, rest = others[:2], others[2:]
    aside.sort(key=lambda name: (family(lifecycle, name) != "failed", -degree[name]))
    right, left = (*aside, None, None)[:2]
    return Plan((*rows, *rest), left, right)


def _happy_way(lifecycle: Lifecycle) -> list[str]:
    """The longest way from birth to success on moves that report no trouble and rest nowhere."""
    start = lifecycle.initial.name
    goals = [state.name for state in lifecycle.states if state.success]
    aside = {state.name for state in lifecycle.states if not (state.working or state.success)}
    happy = (
        move
        for move in lifecycle.moves
        if "worker" in move.by and move.attempt in ("keep", "count") and not move.chained
        if move.error in ("keep", "clear") and move.to not in aside
    )
    automatic = (move for move in lifecycle.moves if move.automatic)
    for moves in (happy, automatic, lifecycle.moves):
        ways = _longest_ways(_forward(moves, start), start)
        reached = [ways[goal] for goal in goals if goal in ways]
        if reached:
            return max(reached, key=len)
    return [start]


def _forward(moves: Iterable[Move], start: str) -> dict[str, list[str]]:
    """The graph without the edges that lead back: a walk from ``start`` decides which do."""
    onward: dict[str, list[str]] = {}
    for move in moves:
        for source in move.sources:
            if move.to not in (STAY, GONE, source):
                onward.setdefault(source, []).append(move.to)
    kept_edges: dict[str, list[str]] = {}
    finished: list[str] = []

    def walk(here: str, above: frozenset[str]) -> None:
        kept_edges[here] = [to for to in dict.fromkeys(onward.get(here, ())) if to not in above]
        for to in kept_edges[here]:
            if to not in kept_edges:
                walk(to, above | {to})
        finished.append(here)

    walk(start, frozenset({start}))
    return {state: kept_edges[state] for state in reversed(finished)}


def _longest_ways(graph: Mapping[str, list[str]], start: str) -> dict[str, list[str]]:
    """The longest way to each state; ``graph`` lists every state before those it leads to."""
    ways = {start: [start]}
    for here, onward in graph.items():
        for to in onward:
            if len(ways[here]) >= len(ways.get(to, ())):
                ways[to] = [*ways[here], to]
    return ways


def _afterwards(lifecycle: Lifecycle, last: str) -> list[str]:
    """Where a success goes in the end, if it is not the end itself (an expired PDF)."""
    for move in lifecycle.moves:
        to = lifecycle.state.get(move.to)
        if last in move.sources and move.automatic and to and to.terminal:
            return [to.name]
    return []
