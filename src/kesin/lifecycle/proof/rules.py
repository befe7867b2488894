"""Every job ends: eight rules, each checked on every configuration a job can reach.

A rule that fails comes back with the shortest way a job gets there. A lifecycle with a broken
rule is refused by the queue; one without has a bound on how many automatic moves a job can make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.proof.graph import Part, circular, longest_path, parts, shortest_circle
from kesin.lifecycle.proof.walk import Configuration, Edge, Graph, Place, Step, Walk
from kesin.lifecycle.vocabulary import Guard


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that does not hold, why, and the path that shows it."""

    rule: str
    why: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.rule}: {self.why}", *(f"    {line}" for line in self.path)])


@dataclass(frozen=True, slots=True)
class Proof:
    """The outcome of ``prove``: truthy when every rule holds."""

    lifecycle: str
    broken: tuple[Broken, ...]
    configurations: int
    bound: int | None  # automatic moves from birth at the most, a wait counted once

    def __bool__(self) -> bool:
        return not self.broken

    def __str__(self) -> str:
        if self.broken:
            return "\n".join(str(one) for one in self.broken)
        return (
            f"{self.lifecycle}: proved over {self.configurations} configurations; "
            f"every job rests after at most {self.bound} automatic moves"
        )


class Unproved(ValueError):
    """A lifecycle that may not run; the message holds every broken rule with its path."""

    def __init__(self, proof: Proof) -> None:
        super().__init__(f"the lifecycle {proof.lifecycle!r} is not proved to end:\n{proof}")
        self.proof = proof


RULES: dict[str, str] = {
    "R1": "every state is reachable",
    "R2": "nothing leaves a terminal state, and no resting or terminal job is claimed",
    "R3": "a dead worker's job is always taken back by the clock",
    "R4": "an unclaimed working job can always be claimed or moved by the clock",
    "R5": "automatic moves never go round in a circle",
    "R6": "an exclusive state is left in bounded time and never under a live claim",
    "R7": "of the moves one call stands for, at most one fits a job",
    "R8": "every failure gets exactly one verdict",
}


SMALL_CAPS: Final = (1, 2)


def prove(lifecycle: Lifecycle) -> Proof:
    """Check all rules. Pure and quick: a second or two for the largest real lifecycle.

    A job may carry a cap of its own, so what its claims can lead to is walked again with caps of
    one and two: under the first the budget is spent by the first claim, under the second it is not.
    Where retries are counted, also with one so large that they run out while budget is left.
    """
    walk = Walk(lifecycle)
    automatic = automatic_graph(walk)
    found = list(parts(automatic))
    broken = [
        *_reachable(walk),
        *_on_the_way(walk, automatic, found),
        *_alternatives_are_disjoint(lifecycle),
        *_verdicts_are_unique(lifecycle),
    ]
    endless = any(one.rule == "R5" for one in broken)
    waits = partial(waits_of, walk, automatic)
    bound = None if endless else 1 + longest_path(automatic, found, walk.start, waits)
    for cap in () if broken else _other_caps(lifecycle):
        broken += _under_cap(lifecycle, cap)
    return Proof(lifecycle.name, tuple(broken), len(walk.places), bound)


def _other_caps(lifecycle: Lifecycle) -> list[int]:
    counted = [
        guard.number
        for move in lifecycle.moves
        for guard in move.when
        if guard.kind == "retries_left"
    ]
    large = [max(counted) + 2] if counted else []
    return [
        *(cap for cap in SMALL_CAPS if cap != lifecycle.max_attempts),
        *(cap for cap in large if cap > max(lifecycle.max_attempts, *SMALL_CAPS)),
    ]


def _on_the_way(walk: Walk, automatic: Graph, found: list[Part]) -> Iterator[Broken]:
    """The rules about where a job can get to and how it gets on from there."""
    circles = circular(automatic, found)
    waits = partial(waits_of, walk, automatic)
    yield from _ends_are_ends(walk)
    yield from _lost_claims_return(walk)
    yield from _work_goes_on(walk)
    yield from _no_circles(walk, shortest_circle(automatic, circles, waits))
    yield from _slots_are_left(walk, circles)


def _under_cap(lifecycle: Lifecycle, cap: int) -> Iterator[Broken]:
    walk = Walk(lifecycle.with_limits(max_attempts=cap))
    automatic = automatic_graph(walk)
    for one in _on_the_way(walk, automatic, list(parts(automatic))):
        yield replace(one, why=f"a job with a cap of {cap}: {one.why}")


def automatic_graph(walk: Walk) -> Graph:
    """The walk without the moves that need a person or a producer."""
    return {
        here: [step for step in steps if step[0].automatic] for here, steps in walk.graph.items()
    }


def _reachable(walk: Walk) -> Iterator[Broken]:
    reached = {here.state for here in walk.places}
    for state in walk.lifecycle.states:
        if state.name not in reached:
            yield Broken("R1", f"no path leads to {state.name}")


def _ends_are_ends(walk: Walk) -> Iterator[Broken]:
    states = walk.lifecycle.state
    for move in walk.lifecycle.moves:
        for source in move.sources:
            if states[source].terminal and not move.prunes:
                yield Broken("R2", f"{move.name} leaves the terminal state {source}")
    idle = {state.name for state in walk.lifecycle.states if not state.working}
    for state, path in _first_of_each(walk, lambda here, _: here.owned and here.state in idle):
        yield Broken("R2", f"a job rests in {state} under a claim", path)


def _lost_claims_return(walk: Walk) -> Iterator[Broken]:
    allowed = {"lease_over", "budget_left", "budget_spent"}

    @cache
    def takes_back(edge: Edge, state: str) -> bool:
        move = edge.first
        return (
            move.claim == "drop"
            and not _needs_key(walk.lifecycle, move, state)
            and "clock" in move.by
            and move.guard("lease_over") is not None
            and {guard.kind for guard in move.when} <= allowed
        )

    def kept(here: Configuration, steps: list[Step]) -> bool:
        return here.owned and not any(takes_back(edge, here.state) for edge, _ in steps)

    for state, path in _first_of_each(walk, kept):
        why = f"a worker that dies in {state} keeps the job: no clock move on lease_over alone"
        yield Broken("R3", why, path)


def _needs_key(lifecycle: Lifecycle, move: Move, state: str) -> bool:
    """Whether it needs the job's key back, which another job may hold for good."""
    to = lifecycle.state[move.target(state)]
    return to.holds_key and not lifecycle.state[state].holds_key


def _work_goes_on(walk: Walk) -> Iterator[Broken]:
    working = {state.name for state in walk.lifecycle.states if state.working}

    @cache
    def opens(edge: Edge, state: str, timer: bool) -> bool:  # noqa: FBT001  # a key of the cache
        """Whether its guards hold for sure once enough time has passed (an armed timer is over)."""
        if _needs_key(walk.lifecycle, edge.first, state):
            return False
        kinds = {guard.kind for guard in edge.first.when}
        shut = {"option", "age_over"} | ({"timer_not_over"} if timer else set())
        return (edge.first.claims or "clock" in edge.first.by) and not kinds & shut

    def stuck(here: Configuration, steps: list[Step]) -> bool:
        waits = not here.owned and here.state in working
        return waits and not any(opens(edge, here.state, here.timer) for edge, _ in steps)

    for state, path in _first_of_each(walk, stuck):
        why = f"a job waits in {state} for ever: no claim and no clock move opens"
        yield Broken("R4", why, path)


def waits_of(walk: Walk, graph: Graph, inside: Part) -> frozenset[Edge]:
    """The edges of a circle that are wake-ups, which an armed timer or a slot cuts off."""
    edges = {edge for here in inside for edge, to in graph[here] if to in inside}
    wakes = [edge for edge in edges if edge.first.claims and edge.first.attempt != "count"]
    if not wakes:
        return frozenset()
    here = [walk.places[place] for place in inside]
    one_state = len({one.state for one in here}) == 1
    timed = all(one.timer for one in here) and all(edge.keeps_timer for edge in edges)
    return frozenset(
        edge
        for edge in wakes
        if (one_state if edge.first.guard("slot_free") else timed and edge.is_timed)
    )


def _no_circles(walk: Walk, circle: tuple[Place, list[Step]] | None) -> Iterator[Broken]:
    if circle:
        start, round_trip = circle
        lines = (*walk.path(start), "and round:", *(walk.told(step) for step in round_trip))
        state = walk.places[start].state
        yield Broken("R5", f"a job can go round through {state} for ever", lines)
        return  # one circle is enough: the others mostly are its variations
    for place, steps in walk.graph.items():
        for edge, _ in steps:
            why = edge.counts and _miscount(walk.lifecycle, walk.places[place], edge)
            if why:
                yield Broken("R5", f"{edge.name} {why}", walk.path(place))
                return


def _miscount(lifecycle: Lifecycle, here: Configuration, edge: Edge) -> str:
    """How this step would make the budget say something untrue; '' if it does not."""
    returned = sum(move.attempt == "return" for move in edge.moves)
    if returned and not here.counted:
        return "returns an attempt that this claim did not count"
    if returned > 1:
        return "returns one attempt twice"
    if edge.first.attempt == "count" and here.used >= lifecycle.max_attempts:
        return "counts an attempt beyond the budget"
    return ""


def _slots_are_left(walk: Walk, circles: list[Part]) -> Iterator[Broken]:
    exclusive = {state.name for state in walk.lifecycle.states if state.exclusive}
    for state in walk.lifecycle.states:
        if state.exclusive and not state.working:
            yield Broken("R6", f"the exclusive state {state.name} is not a working state")
    for move in walk.lifecycle.moves:
        for source in sorted(set(move.sources) & exclusive):
            yield from _leaves_slot_rightly(move, source, exclusive)
    waiting = {place: walk.places[place] for inside in circles for place in inside}
    untimed = [
        place for place, here in waiting.items() if here.state in exclusive and not here.timer
    ]
    if untimed:
        first = min(untimed)
        why = f"a job waits in the exclusive {waiting[first].state} with no timer armed"
        yield Broken("R6", why, walk.path(first))


def _leaves_slot_rightly(move: Move, source: str, exclusive: set[str]) -> Iterator[Broken]:
    if move.target(source) in exclusive - {source}:
        yield Broken("R6", f"{move.name} leads from one exclusive state to another")
    if move.stage and not (move.guard("lease_over") or move.guard("unclaimed")):
        yield Broken("R6", f"the clock's {move.name} may leave {source} under a live claim")
    if move.guard("slot_free"):
        yield Broken("R6", f"{move.name} waits for a slot while it holds one")


def _alternatives_are_disjoint(lifecycle: Lifecycle) -> Iterator[Broken]:
    for call, moves in lifecycle.calls.items():
        for index, one in enumerate(moves):
            for other in moves[index + 1 :]:
                shared = set(one.sources) & set(other.sources)
                if shared and set(one.by) & set(other.by) and not exclude(one, other):
                    state = min(shared)
                    why = f"in {state} the call {call} could be {one.name} or {other.name}"
                    yield Broken("R7", f"{why}: their guards overlap")


def exclude(one: Move, other: Move) -> bool:
    """Whether some guard of one contradicts some guard of the other."""
    return any(_contradict(a, b) or _contradict(b, a) for a in one.when for b in other.when)


_OPPOSITES = {
    ("budget_left", "budget_spent"),
    ("timer_over", "timer_not_over"),
    ("unclaimed", "holds_claim"),
    ("unclaimed", "lease_over"),
}


def _contradict(a: Guard, b: Guard) -> bool:
    if (a.kind, b.kind) in _OPPOSITES:
        return True
    if (a.kind, b.kind) in {("code_in", "code_in"), ("category_in", "category_in")}:
        return not set(a.names) & set(b.names)
    if (a.kind, b.kind) == ("code_in", "code_not_in"):
        return set(a.names) <= set(b.names)
    if (a.kind, b.kind) == ("flag_set", "flag_not_set"):
        return a.names == b.names
    return a.kind == b.kind == "option" and a.names == b.names and a.number != b.number


def _verdicts_are_unique(lifecycle: Lifecycle) -> Iterator[Broken]:
    errors = lifecycle.errors
    for channel in errors.channels:
        for category in Category:
            found = list(errors.verdicts(channel, category))
            if len(found) != 1:
                got = " and ".join(found) or "none"
                yield Broken(
                    "R8", f"channel {channel}, category {category}: one verdict, got {got}"
                )
    asked = {rule.verdict for rule in errors.rules}
    asked |= {code.verdict for code in errors.codes if code.verdict and not code.move}
    calls = [(verdict.value, errors.move_for(verdict)) for verdict in sorted(asked)]
    calls += [(code.name, code.move) for code in errors.codes if code.move]
    for what, call in calls:
        if call is None or not lifecycle.allows(call, "worker"):
            yield Broken("R8", f"{what} names {call!r}, which is no call a worker can make")
    names = [code.name for code in errors.codes]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Broken("R8", f"the code {name} is declared twice")


def _first_of_each(
    walk: Walk, is_bad: Callable[[Configuration, list[Step]], bool]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """One counter-example per state, with its path: the walk found the nearest one first."""
    seen: set[str] = set()
    for place, here in enumerate(walk.places):
        if here.state not in seen and is_bad(here, walk.graph[place]):
            seen.add(here.state)
            yield here.state, walk.path(place)
