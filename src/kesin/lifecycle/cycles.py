"""Circles and longest paths in the walk. Plain graph theory, kept apart from the rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from kesin.lifecycle.explore import Configuration, Graph, Step

IsWait = Callable[[Step, frozenset[Configuration], Graph], bool]


def components(graph: Graph) -> Iterator[frozenset[Configuration]]:
    """The strongly connected parts that hold a circle (Tarjan, without recursion)."""
    for part in _all_components(graph):
        if len(part) > 1 or any(step.to in part for one in part for step in graph[one]):
            yield part


def _all_components(graph: Graph) -> Iterator[frozenset[Configuration]]:
    """Every part, sinks first."""
    index: dict[Configuration, int] = {}
    low: dict[Configuration, int] = {}
    on_stack: set[Configuration] = set()
    stack: list[Configuration] = []
    for root in graph:
        if root in index:
            continue
        work: list[tuple[Configuration, Iterator[Step]]] = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            here, steps = work[-1]
            for step in steps:
                if step.to not in index:
                    index[step.to] = low[step.to] = len(index)
                    stack.append(step.to)
                    on_stack.add(step.to)
                    work.append((step.to, iter(graph[step.to])))
                    break
                if step.to in on_stack:
                    low[here] = min(low[here], index[step.to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[here])
                if low[here] == index[here]:
                    part: set[Configuration] = set()
                    while here not in part:
                        part.add(stack.pop())
                    on_stack -= part
                    yield frozenset(part)


def shortest_circle(graph: Graph, is_wait: IsWait) -> tuple[Configuration, list[Step]] | None:
    """A circle that no wait cuts, the one reached soonest: where it starts, and its steps."""
    order = {here: place for place, here in enumerate(graph)}
    found: list[tuple[int, Configuration, Graph]] = []
    for inside in components(graph):
        left = _without_waits(graph, inside, is_wait)
        for part in components(left):
            start = min(part, key=order.__getitem__)
            circle = {here: tuple(step for step in left[here] if step.to in part) for here in part}
            found.append((order[start], start, circle))
    if not found:
        return None
    _, start, circle = min(found, key=lambda one: one[0])
    return start, _round_trip(circle, start)


def _round_trip(circle: Graph, start: Configuration) -> list[Step]:
    """The shortest way from ``start`` back to it."""
    came: dict[Configuration, tuple[Configuration, Step]] = {}
    ahead = deque([start])
    while ahead:
        here = ahead.popleft()
        for step in circle[here]:
            if step.to == start:
                trail = [step]
                while here != start:
                    here, taken = came[here]
                    trail.append(taken)
                return trail[::-1]
            if step.to not in came:
                came[step.to] = (here, step)
                ahead.append(step.to)
    raise AssertionError("a part that holds a circle leads back to each of its places")


def _without_waits(graph: Graph, inside: frozenset[Configuration], is_wait: IsWait) -> Graph:
    return {
        here: tuple(
            step for step in graph[here] if step.to in inside and not is_wait(step, inside, graph)
        )
        for here in inside
    }


def longest_path(graph: Graph, start: Configuration, is_wait: IsWait) -> int:
    """Moves on the longest automatic path from ``start``; in a waiting part one wake-up counts.

    Parts come sinks first, so each one's onward distance is known when it is reached.
    """
    onward: dict[Configuration, int] = {}
    for part in _all_components(graph):
        if len(part) == 1:
            (alone,) = part
            onward[alone] = _furthest(graph[alone], onward, part)
            continue
        left = _without_waits(graph, part, is_wait)
        out = {here: _furthest(graph[here], onward, part) for here in part}
        woken = _distances(left, out)
        wake = {
            here: max(
                (
                    len(step.moves) + woken[step.to]
                    for step in graph[here]
                    if step.to in part and step not in left[here]
                ),
                default=0,
            )
            for here in part
        }
        onward |= _distances(left, {here: max(out[here], wake[here]) for here in part})
    return onward[start]


def _furthest(
    steps: tuple[Step, ...], onward: dict[Configuration, int], part: frozenset[Configuration]
) -> int:
    return max(
        (len(step.moves) + onward[step.to] for step in steps if step.to not in part), default=0
    )


def _distances(graph: Graph, ends: dict[Configuration, int]) -> dict[Configuration, int]:
    """The longest way through an acyclic part from each place, counting what follows at its end."""
    known: dict[Configuration, int] = {}

    def measure(here: Configuration) -> int:
        if here not in known:
            inner = (len(step.moves) + measure(step.to) for step in graph[here])
            known[here] = max(ends[here], *inner) if graph[here] else ends[here]
        return known[here]

    for here in graph:
        measure(here)
    return known
