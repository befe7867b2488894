"""Graph algorithms of the prover: connected components, cycles and longest paths."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from kesin.lifecycle.proof.walk import Graph, Node, Step, Transition

Component = frozenset[Node]
FindWaits = Callable[[Component], frozenset[Transition]]  # the edges of a component that are waits


def strongly_connected(graph: Graph) -> Iterator[Component]:
    """The strongly connected components, sinks first (Tarjan, without recursion)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on_stack: set[Node] = set()
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, steps = work[-1]
            for _, to in steps:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, iter(graph[to])))
                    break
                if to in on_stack and index[to] < low[node]:
                    low[node] = index[to]
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component = {node}
                    while (last := stack.pop()) != node:
                        component.add(last)
                    on_stack -= component
                    yield frozenset(component)


def cyclic_components(graph: Graph, components: Sequence[Component]) -> list[Component]:
    return [
        component
        for component in components
        if len(component) > 1 or any(to in component for node in component for _, to in graph[node])
    ]


def shortest_cycle(
    graph: Graph, components: Sequence[Component], find_waits: FindWaits
) -> tuple[Node, list[Step]] | None:
    """The cycle without waits that is reached first: its start and its steps; None if none."""
    cycles: list[tuple[Node, Graph]] = []
    for component in components:
        left = _without_waits(graph, component, find_waits(component))
        for uncut in cyclic_components(left, list(strongly_connected(left))):
            cycle = {node: [step for step in left[node] if step[1] in uncut] for node in uncut}
            cycles.append((min(uncut), cycle))
    if not cycles:
        return None
    start, cycle = min(cycles, key=lambda candidate: candidate[0])
    return start, _shortest_return(cycle, start)


def _shortest_return(cycle: Graph, start: Node) -> list[Step]:
    predecessors: dict[Node, tuple[Node, Step]] = {}
    frontier = deque([start])
    while frontier:
        node = frontier.popleft()
        for step in cycle[node]:
            to = step[1]
            if to == start:
                trail = [step]
                while node != start:
                    node, taken = predecessors[node]
                    trail.append(taken)
                return trail[::-1]
            if to not in predecessors:
                predecessors[to] = (node, step)
                frontier.append(to)
    raise AssertionError("every node of a cyclic component lies on a cycle")


def _without_waits(graph: Graph, component: Component, waits: frozenset[Transition]) -> Graph:
    return {node: [step for step in graph[node] if step[1] in component and step[0] not in waits] for node in component}


def longest_paths(graph: Graph, components: Sequence[Component], find_waits: FindWaits) -> dict[Node, int]:
    """The moves on the longest path from each node, a wait once; components come sinks first."""
    onward: dict[Node, int] = {}
    for component in components:
        exits = {node: _longest_exit(graph[node], onward, component) for node in component}
        if len(component) == 1:
            onward |= exits
            continue
        waits = find_waits(component)
        left = _without_waits(graph, component, waits)
        woken = _longest_acyclic(left, exits)
        for node in component:
            for edge, to in graph[node]:
                if to in component and edge in waits:
                    exits[node] = max(exits[node], edge.length + woken[to])
        onward |= _longest_acyclic(left, exits)
    return onward


def _longest_exit(steps: list[Step], onward: dict[Node, int], component: Component) -> int:
    return max((edge.length + onward[to] for edge, to in steps if to not in component), default=0)


def _longest_acyclic(graph: Graph, exits: dict[Node, int]) -> dict[Node, int]:
    """The longest path from each node of an acyclic graph; ``exits`` is what follows its end."""
    lengths: dict[Node, int] = {}

    def measure(node: Node) -> int:
        if node not in lengths:
            inner = (edge.length + measure(to) for edge, to in graph[node])
            lengths[node] = max(exits[node], *inner) if graph[node] else exits[node]
        return lengths[node]

    for node in graph:
        measure(node)
    return lengths
