"""What drawings share: an edge for each pair of states, families, the happy path; never by name."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from kesin.lifecycle.declare import Lifecycle, State
from kesin.lifecycle.errors import Verdict
from kesin.lifecycle.vocabulary import GONE, STAY, duration

Translate = Callable[[str], str]  # a text of the drawing, in the language of the viewer
Kind = Literal["worker", "clock", "person"]
Family = Literal["waiting", "working", "retrying", "resting", "done", "failed", "expired"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
FAMILIES: Final[tuple[Family, ...]] = get_args(Family)


@dataclass(frozen=True, slots=True)
class Edge:
    """All moves between two states. ``source`` is GONE for enqueue, ``to`` for a prune."""

    source: str
    to: str
    groups: tuple[tuple[Kind, tuple[str, ...]], ...]  # the names of the moves, by who makes them

    @property
    def pair(self) -> tuple[str, str]:
        """Source and target, which identify the edge."""
        return (self.source, self.to)

    @property
    def kind(self) -> Kind:
        """The kind that decides the style of the line: the first that makes the move."""
        return self.groups[0][0]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for _, names in self.groups for name in names)


@dataclass(frozen=True, slots=True)
class DrawingPlan:
    """The position of each state: the happy path downwards, at most one state on either side."""

    rows: tuple[str, ...]
    left: str | None
    right: str | None


def edges(lifecycle: Lifecycle) -> tuple[Edge, ...]:
    """One edge per pair of states, in the order of declaration; operators are persons."""
    grouped: dict[tuple[str, str], dict[Kind, dict[str, None]]] = {}
    for move in lifecycle.moves:
        kind: Kind = next((kind for kind in KINDS if kind in move.by), "person")
        for source in move.sources or (GONE,):
            kinds = grouped.setdefault((source, move.target(source)), {})
            kinds.setdefault(kind, {})[move.name] = None
    return tuple(
        Edge(source, to, tuple((kind, tuple(kinds[kind])) for kind in KINDS if kind in kinds))
        for (source, to), kinds in grouped.items()
    )


def family(lifecycle: Lifecycle, state: str) -> Family:
    """The family of a state, which decides its colour and icon."""
    declared = lifecycle.state[state]
    if declared.success:
        return "done"
    if state in lifecycle.waiting_states or (declared.initial and declared.working):
        return "waiting"
    if not declared.working:
        if state in _targets_of(lifecycle, Verdict.HOLD):
            return "resting"
        if state in _targets_of(lifecycle, Verdict.FAIL):
            return "failed"
        return "expired" if declared.terminal else "resting"
    retried = _targets_of(lifecycle, Verdict.RETRY) | _targets_of(lifecycle, Verdict.WAIT)
    return "retrying" if state in retried else "working"


def _targets_of(lifecycle: Lifecycle, verdict: Verdict) -> set[str]:
    return {move.to for move in lifecycle.actions.get(lifecycle.errors.move_for(verdict) or "", ())}


def marks(state: State, translate: Translate = str, skip: Collection[str] = ()) -> tuple[str, ...]:
    """The marks of a state; a state that is neither terminal nor resting is working."""
    names = ("initial", "working", "success", "resting", "terminal", "exclusive", "holds_key")
    held = [name for name in names if getattr(state, name) and name not in skip]
    slots = (slots_mark(state, translate),) if state.slots else ()
    return (*(translate(name.replace("_", " ")) for name in held), *slots)


def slots_mark(state: State, translate: Translate = str) -> str:
    """How many jobs a state takes at once, and of whom."""
    if state.per_tenant:
        sentence = "%(n)s slot per tenant" if state.slots == 1 else "%(n)s slots per tenant"
    else:
        sentence = "%(n)s slot per queue" if state.slots == 1 else "%(n)s slots per queue"
    return translate(sentence) % {"n": state.slots}


def retention(lifecycle: Lifecycle, state: str) -> str | None:
    """How long a job is kept in this state before it is pruned; None where nothing prunes it."""
    for move in lifecycle.moves:
        aged = move.guard("age_over")
        if move.prunes and aged and state in move.sources:
            return duration(aged.number)
    return None


def plan_drawing(lifecycle: Lifecycle) -> DrawingPlan:
    """The happy path in rows, the two busiest others beside it (resting first), the rest below."""
    rows = _happy_path(lifecycle)
    onward = [move.to for move in lifecycle.moves if move.automatic and rows[-1] in move.sources]
    terminal = {state.name for state in lifecycle.states if state.terminal}
    rows += [to for to in onward if to in terminal][:1]  # an expired PDF
    degree = dict.fromkeys((state.name for state in lifecycle.states), 0)
    for edge in edges(lifecycle):
        for end in {edge.source, edge.to} - {GONE}:
            degree[end] += edge.source != edge.to
    remaining = [state.name for state in lifecycle.states if state.name not in rows]
    remaining.sort(key=lambda name: (lifecycle.state[name].working, -degree[name]))
    aside, below = remaining[:2], remaining[2:]
    aside.sort(key=lambda name: (family(lifecycle, name) != "failed", -degree[name]))
    right, left = (*aside, None, None)[:2]
    return DrawingPlan((*rows, *below), left, right)


def _happy_path(lifecycle: Lifecycle) -> list[str]:
    """The longest path from enqueue to success whose moves record no error and do not rest."""
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
        onward: dict[str, dict[str, None]] = {}
        for move in moves:
            for source in set(move.sources) - {move.to} if move.to not in (STAY, GONE) else ():
                onward.setdefault(source, {})[move.to] = None
        path = _longest_path(onward, start, goals)
        if path:
            return path
    return [start]


def _longest_path(onward: Mapping[str, Iterable[str]], start: str, goals: Collection[str]) -> list[str]:
    """The longest path to a goal in the graph without the back edges of a depth-first search."""
    paths: dict[str, list[str]] = {}

    def walk(state: str, ancestors: frozenset[str]) -> list[str]:
        if state not in paths:
            steps = [to for to in onward.get(state, ()) if to not in ancestors]
            longest = max((walk(to, ancestors | {to}) for to in steps), key=len, default=[])
            paths[state] = [state, *longest] if longest or state in goals else []
        return paths[state]

    return walk(start, frozenset({start}))
