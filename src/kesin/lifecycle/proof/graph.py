"""Circles and longest paths in the walk. Plain graph theory, kept apart from the rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from kesin.lifecycle.proof.walk import Edge, Graph, Place, Step

Part = frozenset[Place]
Waits = Callable[[Part], frozenset[Edge]]  # the edges of a part that are waits there


def parts(graph: Graph) -> Iterator[Part]:
    """The strongly connected parts, sinks first (Tarjan, without recursion)."""
    index: dict[Place, int] = {}
    low: dict[Place, int] = {}
    stack: list[Place] = []
    on_stack: set[Place] = set()
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            here, steps = work[-1]
            for _, to in steps:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, iter(graph[to])))
                    break
                if to in on_stack and index[to] < low[here]:
                    low[here] = index[to]
            else:
                work.pop()
                if work:
                    before = work[-1][0]
                    low[before] = min(low[before], low[here])
                if low[here] == index[here]:
                    part = {here}
                    while (last := stack.pop()) != here:
                        part.add(last)
                    on_stack -= part
                    yield frozenset(part)


def circular(graph: Graph, found: Sequence[Part]) -> list[Part]:
    """Those of the parts that hold a circle."""
    return [
        part
        for part in found
        if len(part) > 1 or any(to in part for here in part for _, to in graph[here])
    ]


def shortest_circle(
    graph: Graph, circles: Sequence[Part], waits: Waits
) -> tuple[Place, list[Step]] | None:
    """A circle that no wait cuts, the one reached soonest: where it starts, and its steps."""
    found: list[tuple[Place, Graph]] = []
    for inside in circles:
        left = _without_waits(graph, inside, waits(inside))
        for part in circular(left, list(parts(left))):
            circle = {here: [step for step in left[here] if step[1] in part] for here in part}
            found.append((min(part), circle))
    if not found:
        return None
    start, circle = min(found, key=lambda one: one[0])
    return start, _round_trip(circle, start)


def _round_trip(circle: Graph, start: Place) -> list[Step]:
    """The shortest way from ``start`` back to it."""
    came: dict[Place, tuple[Place, Step]] = {}
    ahead = deque([start])
    while ahead:
        here = ahead.popleft()
        for step in circle[here]:
            to = step[1]
            if to == start:
                trail = [step]
                while here != start:
                    here, taken = came[here]
                    trail.append(taken)
                return trail[::-1]
            if to not in came:
                came[to] = (here, step)
                ahead.append(to)
    raise AssertionError("a part that holds a circle leads back to each of its places")


def _without_waits(graph: Graph, inside: Part, waits: frozenset[Edge]) -> Graph:
    return {
        here: [step for step in graph[here] if step[1] in inside and step[0] not in waits]
        for here in inside
    }


def longest_path(graph: Graph, found: Sequence[Part], start: Place, waits: Waits) -> int:
    """Moves on the longest automatic path from ``start``; in a waiting part one wake-up counts.

    Parts come sinks first, so each one's onward distance is known when it is reached.
    """
    onward: dict[Place, int] = {}
    for part in found:
        out = {here: _furthest(graph[here], onward, part) for here in part}
        if len(part) == 1:
            onward |= out
            continue
        waiting = waits(part)
        left = _without_waits(graph, part, waiting)
        woken = _distances(left, out)
        for here in part:
            for edge, to in graph[here]:
                if to in part and edge in waiting:
                    out[here] = max(out[here], edge.length + woken[to])
        onward |= _distances(left, out)
    return onward[start]


def _furthest(steps: list[Step], onward: dict[Place, int], part: Part) -> int:
    return max((edge.length + onward[to] for edge, to in steps if to not in part), default=0)


def _distances(graph: Graph, ends: dict[Place, int]) -> dict[Place, int]:
    """The longest way through an acyclic part from each place, counting what follows at its end."""
    known: dict[Place, int] = {}

    def measure(here: Place) -> int:
        if here not in known:
            inner = (edge.length + measure(to) for edge, to in graph[here])
            known[here] = max(ends[here], *inner) if graph[here] else ends[here]
        return known[here]

    for here in graph:
        measure(here)
    return known
