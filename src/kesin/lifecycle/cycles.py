"""Circles and longest paths in the walk. Plain graph theory, kept apart from the rules."""

from __future__ import annotations

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


def some_cycle(
    graph: Graph, inside: frozenset[Configuration], is_wait: IsWait
) -> tuple[Configuration, list[Step]] | None:
    """A circle in this part that no wait cuts: where it starts, and its steps."""
    left = _without_waits(graph, inside, is_wait)
    colour: dict[Configuration, int] = {}
    for root in left:
        if root in colour:
            continue
        trail: list[Step] = []
        work = [(root, iter(left[root]))]
        colour[root] = 1
        while work:
            here, steps = work[-1]
            for step in steps:
                if colour.get(step.to) == 1:
                    places = [one for one, _ in work]
                    first = places.index(step.to)
                    return step.to, [*trail[first:], step]
                if step.to not in colour:
                    colour[step.to] = 1
                    trail.append(step)
                    work.append((step.to, iter(left[step.to])))
                    break
            else:
                colour[here] = 2
                work.pop()
                if trail:
                    trail.pop()
    return None


def _without_waits(graph: Graph, inside: frozenset[Configuration], is_wait: IsWait) -> Graph:
    return {
        here: tuple(
            step for step in graph[here] if step.to in inside and not is_wait(step, inside, graph)
        )
        for here in graph
        if here in inside
    }


def longest_path(graph: Graph, start: Configuration, is_wait: IsWait) -> int:
    """Moves on the longest automatic path from ``start``; a waiting part is passed once.

    Parts come sinks first, so each one's onward distance is known when it is reached. Inside a
    waiting part the wake-ups are cut and one of them is counted.
    """
    onward: dict[Configuration, int] = {}
    for part in _all_components(graph):
        if len(part) == 1:
            (alone,) = part
            onward[alone] = max(
                (len(step.moves) + onward[step.to] for step in graph[alone] if step.to != alone),
                default=0,
            )
            continue
        left = _without_waits(graph, part, is_wait)
        out = {
            here: max(
                (len(step.moves) + onward[step.to] for step in graph[here] if step.to not in part),
                default=0,
            )
            for here in part
        }
        inner = _depths(left)
        far = max(out.values())
        for here in part:
            onward[here] = inner[here] + 1 + far
    return onward[start]


def _depths(graph: Graph) -> dict[Configuration, int]:
    """The longest path inside an acyclic part, from each of its configurations."""
    depth: dict[Configuration, int] = {}

    def measure(here: Configuration) -> int:
        if here not in depth:
            depth[here] = max(
                (len(step.moves) + measure(step.to) for step in graph[here]), default=0
            )
        return depth[here]

    for here in graph:
        measure(here)
    return depth
