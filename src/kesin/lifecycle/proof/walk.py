"""The state space of a lifecycle: every configuration a job can reach, and the moves between them.

A configuration holds what guards can see and nothing else. Time stays open: a lease or an armed
timer may or may not be over. One walk therefore covers every schedule of workers, crashes and
sweeps. Every process that opens a queue walks its lifecycle first, so it must be quick: nodes are
numbered as they are found, and the effects of a move are computed once, not at every node.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.vocabulary import Fixed, Guard

JobError = tuple[str | None, str | None]  # code ("*": any code that no guard names) and category
NO_ERROR: JobError = (None, None)


class Configuration(NamedTuple):
    """An abstract job: everything that decides which moves are open to it."""

    state: str
    owned: bool = False
    counted: bool = False  # the current claim counted an attempt
    used: int = 0
    returns: int = 0
    retries: int = 0
    timer: bool = False
    error: JobError = NO_ERROR
    flags: frozenset[str] = frozenset()
    claimed: bool = False  # claimed since its payload was last replaced

    def __str__(self) -> str:
        parts = ["claimed" if self.owned else "unclaimed", f"{self.used} used"]
        parts += [f"{self.retries} retries"] if self.retries else []
        parts += [f"{self.returns} returned"] if self.returns else []
        parts += ["timer armed"] if self.timer else []
        parts += [f"error {self.error[0]}/{self.error[1]}"] if self.error != NO_ERROR else []
        parts += sorted(self.flags)
        return f"{self.state} ({', '.join(parts)})"


class Transition:
    """An edge: a move, or two chained ones; there is one object for each, whatever the source."""

    def __init__(self, *moves: Move) -> None:
        self.moves = moves
        self.first = moves[0]
        self.length = len(moves)
        self.name = " + ".join(move.name for move in moves)  # as a path shows it
        self.automatic = self.first.automatic  # needs no operator or producer
        self.counts = any(move.attempt in ("count", "return") for move in moves)
        self.is_timed = self.first.guard("timer_not_over") is not None
        self.keeps_timer = all(move.timer == "keep" for move in moves)


Node = int  # the number of a configuration: a smaller number was reached by fewer moves
Step = tuple[Transition, Node]  # an outgoing edge and its target
Graph = dict[Node, list[Step]]


class Walk:
    """Every configuration reachable from enqueue, with the shortest path to each.

    With ``stored``, the rules of another version: every configuration that moves of both versions,
    mixed in any order, can leave a job in. The graph holds the moves of ``lifecycle`` alone.
    """

    def __init__(self, lifecycle: Lifecycle, stored: Lifecycle | None = None) -> None:
        self.lifecycle = lifecycle
        self.starts: list[Node] = []  # enqueue, and enqueue_after where there is one
        self.configurations: list[Configuration] = []
        self.graph: Graph = {}
        self._predecessors: list[tuple[Node | None, Transition]] = []
        self._explore(lifecycle, *(() if stored is None else (stored,)))

    def _explore(self, *versions: Lifecycle) -> None:
        shared = _Shared(versions)
        moves_by_state = [_moves_by_state(version, shared) for version in versions]
        configurations, predecessors = self.configurations, self._predecessors
        numbers: dict[Configuration, Node] = {}
        for move in (m for version in versions for m in version.moves if m.creates):
            start = Configuration(move.to)
            if start not in numbers:
                numbers[start] = len(configurations)
                self.starts.append(numbers[start])
                configurations.append(start)
                predecessors.append((None, Transition(move)))
        for node, job in enumerate(configurations):  # the list grows during the loop
            steps: list[Step] = []
            for index, moves in enumerate(moves_by_state):
                for prepared in moves.get(job.state, ()):
                    for edge, after in prepared.steps(job):
                        if after.state not in self.lifecycle.state:
                            continue  # retired: the stores let no job enter it
                        number = numbers.setdefault(after, len(configurations))
                        if number == len(configurations):
                            configurations.append(after)
                            predecessors.append((node, edge))
                        if index == 0:
                            steps.append((edge, number))
            self.graph[node] = steps

    @cached_property
    def automatic(self) -> Graph:
        """The graph of the moves that need no operator or producer."""
        return {node: [s for s in steps if s[0].automatic] for node, steps in self.graph.items()}

    def path(self, to: Node) -> tuple[str, ...]:
        """The shortest path from enqueue, one line a move."""
        lines: list[str] = []
        node: Node | None = to
        while node is not None:
            before, edge = self._predecessors[node]
            lines.append(f"{edge.name} → {self.configurations[node]}")
            node = before
        return tuple(reversed(lines))

    def format_step(self, step: Step) -> str:
        edge, to = step
        return f"{edge.name} → {self.configurations[to]}"


def _moves_by_state(lifecycle: Lifecycle, shared: "_Shared") -> dict[str, list["_PreparedMove"]]:
    prepared = {id(move): _PreparedMove(move, lifecycle, shared) for move in lifecycle.moves}
    for move in lifecycle.moves:
        prepared[id(move)].chain([prepared[id(link)] for link in lifecycle.chained_moves(move)])
    return {
        state.name: [
            prepared[id(move)]
            for move in lifecycle.moves
            if state.name in move.sources and not (move.prunes or move.chained)
        ]
        for state in lifecycle.states
    }


class _PreparedMove:
    """A move with its tests and effects computed in advance."""

    def __init__(self, move: Move, lifecycle: Lifecycle, shared: "_Shared") -> None:
        self.move = move
        self._edge = Transition(move)
        self._links: list[tuple[_PreparedMove, Transition]] = []
        tests = [_guard_test(guard, lifecycle) for guard in move.when]
        self._tests = [test for test in tests if test is not None]
        # A chained move that is possible is made for certain: no time, caller or slot decides.
        self.certain = None not in tests and not move.guard("timer_over")
        self._errors = shared.errors_after(move)
        self._flags = frozenset(move.flag)
        self._max_attempts = lifecycle.max_attempts
        self._max_returns = shared.max_returns
        self._max_retries = shared.max_retries
        self._counts_return = move.attempt == "return" and move.guard("returns_left") is not None
        self._counts_retry = move.retry == "count"

    def chain(self, links: list["_PreparedMove"]) -> None:
        """Set the moves that may follow in the same transaction."""
        self._links = [(link, Transition(self.move, link.move)) for link in links]

    def steps(self, job: Configuration) -> Iterator[tuple[Transition, Configuration]]:
        """The edges that leave this configuration by the move, alone or with a chained one."""
        for after in self.after(job):
            alone = True
            for link, edge in self._links:
                for last in link.after(after):
                    alone = alone and not link.certain
                    yield edge, last
            if alone:
                yield self._edge, after

    def after(self, job: Configuration) -> Iterator[Configuration]:
        """The configurations the move can lead to; none where a guard cannot hold."""
        for test in self._tests:
            if not test(job):
                return
        move = self.move
        claims = move.claim == "take"
        owned = claims or (move.claim == "keep" and job.owned)
        counted = (move.attempt == "count") if claims else (owned and job.counted)
        renews = move.attempt == "renew"
        used = self._used_after(job)
        returns = 0 if renews else min(job.returns + self._counts_return, self._max_returns)
        retries = min(job.retries + self._counts_retry, self._max_retries)
        flags = job.flags | self._flags if self._flags else job.flags
        claimed = (job.claimed or claims) and move.payload == "keep"
        state = move.target(job.state)
        for error in (job.error,) if self._errors is None else self._errors:
            armed = move.timer != "clear" and (not move.timer_for or error[1] in move.timer_for)
            timer = job.timer if move.timer == "keep" else armed
            yield Configuration(state, owned, counted, used, returns, retries, timer, error, flags, claimed)

    def _used_after(self, job: Configuration) -> int:
        match self.move.attempt:
            case "count":
                return min(job.used + 1, self._max_attempts)
            case "return":
                return max(job.used - 1, 0)
            case "renew":
                return 0
            case _:
                return job.used


GuardTest = Callable[[Configuration], bool]


def _guard_test(guard: Guard, lifecycle: Lifecycle) -> GuardTest | None:  # noqa: C901, PLR0911, PLR0912  # a table: one line a guard
    """A test whether the guard can hold in a configuration; None where time or others decide."""
    names, number = guard.names, guard.number
    max_attempts, max_returns = lifecycle.max_attempts, lifecycle.max_returns
    match guard.kind:
        case "unclaimed":
            return lambda job: not job.owned
        case "holds_claim" | "lease_over":
            return lambda job: job.owned
        case "timer_over":
            return lambda job: job.timer
        case "budget_left":
            return lambda job: job.used < max_attempts
        case "budget_spent":
            return lambda job: job.used >= max_attempts
        case "retries_left":
            return lambda job: job.retries < number
        case "code_in":
            return lambda job: job.error[0] in names
        case "code_not_in":
            return lambda job: job.error[0] not in names
        case "category_in":
            return lambda job: job.error[1] in names
        case "returns_left":
            return lambda job: job.returns < max_returns
        case "was_claimed":
            return lambda job: job.claimed
        case "flag_set":
            return lambda job: names[0] in job.flags
        case "flag_not_set":
            return lambda job: names[0] not in job.flags
        case "due" | "timer_not_over" | "option" | "age_over" | "slot_free" | "rate":
            return None
        case "parents_done" | "parents_failed":
            return None


class _Shared:
    """What versions agree on in one walk: largest counts, and errors that guards can tell apart."""

    def __init__(self, versions: tuple[Lifecycle, ...]) -> None:
        moves = [move for version in versions for move in version.moves]
        guards = [guard for move in moves for guard in move.when]
        self.max_returns = max(version.max_returns for version in versions)
        self.max_retries = max((g.number for g in guards if g.kind == "retries_left"), default=0)
        self._codes = [g.names for g in guards if g.kind in ("code_in", "code_not_in")]
        self._categories = [g.names for g in guards if g.kind == "category_in"]
        self._categories += [tuple(move.timer_for) for move in moves if move.timer_for]
        self._representatives: dict[tuple[bool, ...], JobError] = {}
        for version in versions:
            for code, category in _all_errors(version):
                self._representative(code, category)

    def _representative(self, code: str, category: str) -> JobError:
        """The representative of all errors that no guard tells apart from this one."""
        signature = (*(code in names for names in self._codes), *(category in names for names in self._categories))
        return self._representatives.setdefault(signature, (code, category))

    def errors_after(self, move: Move) -> tuple[JobError, ...] | None:
        """The errors a job can have after this move; None where it keeps its error."""
        if isinstance(move.error, Fixed):
            return (self._representative(move.error.code, move.error.category.value),)
        if move.error == "record":
            return tuple(self._representatives.values())
        return (NO_ERROR,) if move.error == "clear" else None


def _all_errors(lifecycle: Lifecycle) -> Iterator[tuple[str, str]]:
    """Every code that is declared, fixed or guarded, and ``*`` for others, in every category."""
    codes = ["*", *(code.name for code in lifecycle.errors.codes)]
    for move in lifecycle.moves:
        if isinstance(move.error, Fixed):
            codes.append(move.error.code)
        for guard in move.when:
            if guard.kind in ("code_in", "code_not_in"):
                codes += guard.names
    for code in dict.fromkeys(codes):
        for category in Category:
            yield (code, category.value)
