"""The proof that every job ends: nine rules, with counter-examples, and a bound on moves."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.proof.graph import Component, cyclic_components, longest_paths, shortest_cycle, strongly_connected
from kesin.lifecycle.proof.walk import Configuration, Node, Step, Transition, Walk
from kesin.lifecycle.vocabulary import Guard, GuardKind


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that does not hold, the reason, and the path of a counter-example."""

    rule: str
    why: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.rule}: {self.why}", *(f"    {line}" for line in self.path)])


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of ``prove``: true when every rule holds."""

    lifecycle: str
    broken: tuple[BrokenRule, ...]
    configurations: int
    bound: int | None  # most automatic moves from enqueue on, a wait counted once

    def __bool__(self) -> bool:
        return not self.broken

    def __str__(self) -> str:
        if self.broken:
            return "\n".join(str(rule) for rule in self.broken)
        return (
            f"{self.lifecycle}: proved over {self.configurations} configurations; "
            f"every job rests after at most {self.bound} automatic moves"
        )


class Unproved(ValueError):
    """The lifecycle must not run: the message lists each rule it breaks, with an example path."""

    def __init__(self, proof: Proof) -> None:
        super().__init__(f"the lifecycle {proof.lifecycle!r} could not be proved to end:\n{proof}")
        self.proof = proof


RULES: dict[str, str] = {
    "R1": "every state is reachable",
    "R2": "nothing leaves a terminal state, and no resting or terminal job is claimed",
    "R3": "a dead worker's job is always recovered by a scheduled move",
    "R4": "an unclaimed working job can always be claimed or moved by a scheduled move",
    "R5": "automatic moves never form a cycle",
    "R6": "jobs leave a state with slots in bounded time; no scheduled move ends live claims there",
    "R7": "at most one move of an action applies to a job",
    "R8": "every failure gets exactly one verdict",
    "R9": "a job that waits for others is moved automatically, however they end",
}


SMALL_ATTEMPT_CAPS: Final = (1, 2)


def prove(lifecycle: Lifecycle) -> Proof:
    """Check all rules. This pure function takes a second or two for the largest lifecycles.

    A job may have its own cap on attempts, so the walk over all configurations is repeated with a
    cap of one, where the first claim spends the budget, and of two, where it does not. If retries
    are counted, the walk is also repeated with a cap so large that they run out before the budget.
    """
    walk = Walk(lifecycle)
    broken = [
        *_check_reachable(walk),
        *check_walk(walk),
        *_check_alternatives(lifecycle),
        *_check_verdicts(lifecycle),
        *check_parents(lifecycle),
    ]
    endless = any(rule.rule == "R5" for rule in broken)
    onward = {} if endless else longest_from(walk)
    bound = None if endless else 1 + max(onward[start] for start in walk.starts)
    for cap in () if broken else _other_caps(lifecycle):
        found = check_walk(Walk(lifecycle.with_limits(max_attempts=cap)))
        broken += [replace(rule, why=f"a job with max_attempts={cap}: {rule.why}") for rule in found]
    return Proof(lifecycle.name, tuple(broken), len(walk.configurations), bound)


def _other_caps(lifecycle: Lifecycle) -> list[int]:
    counted = [guard.number for move in lifecycle.moves for guard in move.when if guard.kind == "retries_left"]
    large = [max(counted) + 2] if counted else []
    return [
        *(cap for cap in SMALL_ATTEMPT_CAPS if cap != lifecycle.max_attempts),
        *(cap for cap in large if cap > max(lifecycle.max_attempts, *SMALL_ATTEMPT_CAPS)),
    ]


def check_walk(walk: Walk) -> Iterator[BrokenRule]:
    """Check R2 to R6: where a job can get to and whether it gets on from there."""
    cyclic = cyclic_components(walk.automatic, list(strongly_connected(walk.automatic)))
    yield from _check_ends(walk)
    yield from _check_lost_claims(walk)
    yield from _check_progress(walk)
    yield from _check_cycles(walk, shortest_cycle(walk.automatic, cyclic, partial(find_waits_in, walk)))
    yield from _check_slots(walk, cyclic)


def longest_from(walk: Walk) -> dict[Node, int]:
    """The most automatic moves a job can make from each configuration on."""
    components = list(strongly_connected(walk.automatic))
    return longest_paths(walk.automatic, components, partial(find_waits_in, walk))


def _check_reachable(walk: Walk) -> Iterator[BrokenRule]:
    reached = {job.state for job in walk.configurations}
    for state in walk.lifecycle.states:
        if state.name not in reached and not state.retiring:
            yield BrokenRule("R1", f"no path leads to {state.name}")


def _check_ends(walk: Walk) -> Iterator[BrokenRule]:
    states = walk.lifecycle.state
    for move in walk.lifecycle.moves:
        for source in move.sources:
            if states[source].terminal and not move.prunes:
                yield BrokenRule("R2", f"{move.name} leaves the terminal state {source}")
    idle = {state.name for state in walk.lifecycle.states if not state.working}
    for state, path in _first_per_state(walk, lambda job, _: job.owned and job.state in idle):
        yield BrokenRule("R2", f"a job can rest in {state} while claimed", path)


def _check_lost_claims(walk: Walk) -> Iterator[BrokenRule]:
    allowed = {"lease_over", "budget_left", "budget_spent"}
    keyed: dict[str, list[Move]] = {}  # state → its recoveries, which all need the key

    def recovers(move: Move) -> bool:
        return (
            move.claim == "drop"
            and "clock" in move.by
            and move.guard("lease_over") is not None
            and {guard.kind for guard in move.when} <= allowed
        )

    @cache
    def takes_back(edge: Transition, state: str) -> bool:
        return recovers(edge.first) and not _needs_key(walk.lifecycle, edge.first, state)

    def stays_claimed(job: Configuration, steps: list[Step]) -> bool:
        if not job.owned or any(takes_back(edge, job.state) for edge, _ in steps):
            return False
        keyed.setdefault(job.state, [edge.first for edge, _ in steps if recovers(edge.first)])
        return True

    for state, path in _first_per_state(walk, stays_claimed):
        why = f"if a worker dies in {state}, its job is never recovered: "
        if keyed[state]:
            move = keyed[state][0]
            why += f"{move.name} must reacquire the job's key for {move.target(state)}, but another"
            why += f" job may hold it: let {state} hold the key as well"
        else:
            why += "no scheduled move has lease_over as its only guard"
        yield BrokenRule("R3", why, path)


def _needs_key(lifecycle: Lifecycle, move: Move, state: str) -> bool:
    """Whether the move takes the job's key back, which another job may hold for good."""
    return lifecycle.state[move.target(state)].holds_key and not lifecycle.state[state].holds_key


def _check_progress(walk: Walk) -> Iterator[BrokenRule]:
    working = {state.name for state in walk.lifecycle.states if state.working}

    @cache
    def opens(edge: Transition, state: str, timer: bool) -> bool:  # noqa: FBT001  # a key of the cache
        """Whether its guards hold for certain once enough time has passed (timers are over)."""
        if _needs_key(walk.lifecycle, edge.first, state):
            return False
        kinds = {guard.kind for guard in edge.first.when}
        shut = {"option", "age_over"} | ({"timer_not_over"} if timer else set())
        return (edge.first.claims or "clock" in edge.first.by) and not kinds & shut

    def is_stuck(job: Configuration, steps: list[Step]) -> bool:
        waits = not job.owned and job.state in working
        return waits and not any(opens(edge, job.state, job.timer) for edge, _ in steps)

    for state, path in _first_per_state(walk, is_stuck):
        why = f"a job can wait in {state} forever: neither a claim nor a scheduled move is possible"
        yield BrokenRule("R4", why, path)


def find_waits_in(walk: Walk, component: Component) -> frozenset[Transition]:
    """The edges of a component that are waits: claims that a timer or a slot bounds."""
    edges = {edge for node in component for edge, to in walk.automatic[node] if to in component}
    wakes = [edge for edge in edges if edge.first.claims and edge.first.attempt != "count"]
    if not wakes:
        return frozenset()
    jobs = [walk.configurations[node] for node in component]
    one_state = len({job.state for job in jobs}) == 1
    timed = all(job.timer for job in jobs) and all(edge.keeps_timer for edge in edges)
    return frozenset(
        edge for edge in wakes if (one_state if edge.first.guard("slot_free") else timed and edge.is_timed)
    )


def _check_cycles(walk: Walk, cycle: tuple[Node, list[Step]] | None) -> Iterator[BrokenRule]:
    if cycle:
        start, round_trip = cycle
        lines = (*walk.path(start), "and again:", *(walk.format_step(step) for step in round_trip))
        state = walk.configurations[start].state
        yield BrokenRule("R5", f"a job can loop through {state} forever", lines)
        return  # one cycle is enough: the others are mostly variations of it
    for node, steps in walk.graph.items():
        for edge, _ in steps:
            why = edge.counts and _miscount(walk.lifecycle, walk.configurations[node], edge)
            if why:
                yield BrokenRule("R5", f"{edge.name} {why}", walk.path(node))
                return


def _miscount(lifecycle: Lifecycle, job: Configuration, edge: Transition) -> str:
    """How this edge would miscount the budget; '' if it does not."""
    returned = sum(move.attempt == "return" for move in edge.moves)
    if returned and not job.counted:
        return "returns an attempt that this claim did not count"
    if returned > 1:
        return "returns one attempt twice"
    if edge.first.attempt == "count" and job.used >= lifecycle.max_attempts:
        return "counts an attempt beyond the budget"
    return ""


def _check_slots(walk: Walk, cyclic: list[Component]) -> Iterator[BrokenRule]:
    limited = {state.name for state in walk.lifecycle.states if state.capacity}
    for state in walk.lifecycle.states:
        if state.capacity and not state.working:
            yield BrokenRule("R6", f"{state.name} has slots but is not a working state")
    for move in walk.lifecycle.moves:
        for source in sorted(set(move.sources) & limited):
            yield from _check_slot_exit(move, source, limited)
    waiting = {node: walk.configurations[node] for component in cyclic for node in component}
    untimed = [node for node, job in waiting.items() if job.state in limited and not job.timer]
    if untimed:
        first = min(untimed)
        why = f"a job waits in {waiting[first].state}, which has slots, without a timer"
        yield BrokenRule("R6", why, walk.path(first))


def _check_slot_exit(move: Move, source: str, limited: set[str]) -> Iterator[BrokenRule]:
    if move.target(source) in limited - {source}:
        yield BrokenRule("R6", f"{move.name} leads from one state with slots to another")
    if move.stage and not (move.guard("lease_over") or move.guard("unclaimed")):
        yield BrokenRule("R6", f"the scheduled move {move.name} can leave {source} under a live claim")
    if move.guard("slot_free"):
        yield BrokenRule("R6", f"{move.name} waits for a slot while it holds one")


def _check_alternatives(lifecycle: Lifecycle) -> Iterator[BrokenRule]:
    for action, moves in lifecycle.actions.items():
        for index, move in enumerate(moves):
            for other in moves[index + 1 :]:
                shared = set(move.sources) & set(other.sources)
                if shared and set(move.by) & set(other.by) and not are_disjoint(move, other):
                    state = min(shared)
                    why = f"in {state}, the action {action} could be {move.name} or {other.name}"
                    yield BrokenRule("R7", f"{why}: their guards overlap")


def are_disjoint(first: Move, second: Move) -> bool:
    return any(_contradict(a, b) or _contradict(b, a) for a in first.when for b in second.when)


_OPPOSITES = {
    ("budget_left", "budget_spent"),
    ("timer_over", "timer_not_over"),
    ("unclaimed", "holds_claim"),
    ("unclaimed", "lease_over"),
    ("parents_done", "parents_failed"),
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


def check_parents(lifecycle: Lifecycle) -> Iterator[BrokenRule]:
    """R9: with its parents at rest, one move is open. They are older, so each comes to rest."""
    sources: dict[GuardKind, set[str]] = {"parents_done": set(), "parents_failed": set()}
    for move in lifecycle.moves:
        for guard in (guard for guard in move.when if guard.kind in sources):
            sources[guard.kind] |= set(move.sources)
            if move.by != ("clock",) or move.stage != "settle" or len(move.when) > 1:
                why = "it must be a scheduled move in the stage settle, without other guards"
                yield BrokenRule("R9", f"{move.name} has {guard.kind}: {why}")
            for source in move.sources:
                if _needs_key(lifecycle, move, source) or lifecycle.capacity_of(move):
                    why = f"leads from {source} to {move.to}, whose key or slot may be taken"
                    yield BrokenRule("R9", f"{move.name} {why}")
    for ours, left in sources.items():
        for other, also_left in sources.items():
            for state in sorted(left - also_left):
                why = f"a job can wait in {state} forever: a move with {ours} leaves it, but none with {other} does"
                yield BrokenRule("R9", why)


def _check_verdicts(lifecycle: Lifecycle) -> Iterator[BrokenRule]:
    errors = lifecycle.errors
    for channel in errors.channels:
        for category in Category:
            verdicts = list(errors.verdicts(channel, category))
            if len(verdicts) != 1:
                got = " and ".join(verdicts) or "none"
                yield BrokenRule("R8", f"channel {channel}, category {category}: expected one verdict, got {got}")
    used = {rule.verdict for rule in errors.rules}
    used |= {code.verdict for code in errors.codes if code.verdict and not code.move}
    actions = [(verdict.value, errors.move_for(verdict)) for verdict in sorted(used)]
    actions += [(code.name, code.move) for code in errors.codes if code.move]
    for origin, action in actions:
        if action is None or not lifecycle.allows(action, "worker"):
            yield BrokenRule("R8", f"{origin} names {action!r}, which is not a worker action")
    names = [code.name for code in errors.codes]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield BrokenRule("R8", f"the code {name} is declared twice")


def _first_per_state(
    walk: Walk, is_bad: Callable[[Configuration, list[Step]], bool]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The nearest counter-example in each state, with its path."""
    seen: set[str] = set()
    for node, job in enumerate(walk.configurations):
        if job.state not in seen and is_bad(job, walk.graph[node]):
            seen.add(job.state)
            yield job.state, walk.path(node)
