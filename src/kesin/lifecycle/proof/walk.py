"""The abstract job the prover walks with: all that guards can see, and nothing else.

Time is left open: a lease may or may not be over, a timer that is armed may or may not have gone
off. So one walk covers every schedule of workers, crashes and sweeps.

Every process that opens a queue walks its lifecycle first, so the walk is built to be quick: places
are numbered as they are found, and what a move does is worked out once and not at every place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.vocabulary import Fixed, Guard

Error = tuple[str | None, str | None]  # code ("*" for any that no guard names), category
NO_ERROR: Error = (None, None)


class Configuration(NamedTuple):
    """Everything about a job that decides which moves are open to it."""

    state: str
    owned: bool = False
    counted: bool = False  # the claim it is under counted an attempt
    used: int = 0
    returns: int = 0
    retries: int = 0
    timer: bool = False
    error: Error = NO_ERROR
    flags: frozenset[str] = frozenset()
    claimed: bool = False  # since its payload was last replaced

    def __str__(self) -> str:
        parts = ["claimed" if self.owned else "unclaimed", f"{self.used} used"]
        parts += [f"{self.retries} retries"] if self.retries else []
        parts += [f"{self.returns} returned"] if self.returns else []
        parts += ["timer armed"] if self.timer else []
        parts += [f"error {self.error[0]}/{self.error[1]}"] if self.error != NO_ERROR else []
        parts += sorted(self.flags)
        return f"{self.state} ({', '.join(parts)})"


class Edge:
    """A move, or a chain of two that nothing can come between. One object wherever it is made."""

    __slots__ = (
        "automatic",
        "counts",
        "first",
        "is_timed",
        "keeps_timer",
        "length",
        "moves",
        "name",
    )

    def __init__(self, *moves: Move) -> None:
        self.moves = moves
        self.first = moves[0]
        self.length = len(moves)
        self.name = " + ".join(move.name for move in moves)  # how a path shows it
        self.automatic = self.first.automatic  # no person is needed for it
        self.counts = any(move.attempt in ("count", "return") for move in moves)
        self.is_timed = self.first.guard("timer_not_over") is not None
        self.keeps_timer = all(move.timer == "keep" for move in moves)  # neither arms nor clears it


Place = int  # the number of a configuration: those found sooner have smaller ones
Step = tuple[Edge, Place]  # one way on, and where it leads
Graph = dict[Place, list[Step]]


class Walk:
    """Every configuration reachable from birth, with the shortest way to each."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.lifecycle = lifecycle
        self.start: Place = 0
        self.places: list[Configuration] = []
        self.graph: Graph = {}
        self._came: list[tuple[Place, Edge] | None] = []
        self._explore()

    def _explore(self) -> None:
        leaving = _leaving(self.lifecycle)
        start = Configuration(self.lifecycle.initial.name)
        places, came = self.places, self._came
        numbers: dict[Configuration, Place] = {start: self.start}
        places.append(start)
        came.append(None)
        for place, here in enumerate(places):  # it grows while it is walked along
            steps: list[Step] = []
            for act in leaving[here.state]:
                for edge, after in act.steps(here):
                    number = numbers.setdefault(after, len(places))
                    if number == len(places):
                        places.append(after)
                        came.append((place, edge))
                    steps.append((edge, number))
            self.graph[place] = steps

    def path(self, to: Place) -> tuple[str, ...]:
        """The shortest way from birth, as lines a person reads from top to bottom."""
        lines: list[str] = []
        at: Place | None = to
        while at is not None:
            came = self._came[at]
            lines.append(f"{came[1].name if came else 'enqueue'} → {self.places[at]}")
            at = came[0] if came else None
        return tuple(reversed(lines))

    def told(self, step: Step) -> str:
        """A step as a line."""
        edge, to = step
        return f"{edge.name} → {self.places[to]}"


def _leaving(lifecycle: Lifecycle) -> dict[str, list[_Act]]:
    """The moves that can be made in each state, ready for walking."""
    errors = _Errors(lifecycle)
    acts = {id(move): _Act(move, lifecycle, errors) for move in lifecycle.moves}
    for move in lifecycle.moves:
        acts[id(move)].chain([acts[id(link)] for link in lifecycle.chained(move)])
    return {
        state.name: [
            acts[id(move)]
            for move in lifecycle.moves
            if state.name in move.sources and not (move.prunes or move.chained)
        ]
        for state in lifecycle.states
    }


class _Act:
    """A move with everything worked out that is the same wherever it is made."""

    def __init__(self, move: Move, lifecycle: Lifecycle, errors: _Errors) -> None:
        self.move = move
        self._edge = Edge(move)
        self._links: list[tuple[_Act, Edge]] = []
        tests = (_test(guard, lifecycle) for guard in move.when)
        self._tests = [test for test in tests if test is not None]
        # As a link that is possible it is made for sure: no moment, caller or slot decides.
        self.certain = not any(guard.kind in OPEN_KINDS for guard in move.when)
        self._errors = errors.after(move)
        self._flags = frozenset(move.flag)
        self._max_attempts = lifecycle.max_attempts
        self._max_returns = lifecycle.max_returns
        self._most_retries = max(
            (g.number for m in lifecycle.moves for g in m.when if g.kind == "retries_left"),
            default=0,
        )
        self._returns = move.attempt == "return" and move.guard("returns_left") is not None
        self._retries = move.retry == "count"

    def chain(self, links: list[_Act]) -> None:
        """Say what follows it in its transaction."""
        self._links = [(link, Edge(self.move, link.move)) for link in links]

    def steps(self, here: Configuration) -> Iterator[tuple[Edge, Configuration]]:
        """Where it leads, alone or with the second move of its chain."""
        for after in self.after(here):
            alone = True
            for link, edge in self._links:
                for last in link.after(after):
                    alone = alone and not link.certain
                    yield edge, last
            if alone:
                yield self._edge, after

    def after(self, here: Configuration) -> Iterator[Configuration]:
        """What can become of a job; nothing, where a guard is never met."""
        for test in self._tests:
            if not test(here):
                return
        move = self.move
        claims = move.claim == "take"
        owned = claims or (move.claim == "keep" and here.owned)
        counted = (move.attempt == "count") if claims else (owned and here.counted)
        renews = move.attempt == "renew"
        used = self._used_after(here)
        returns = 0 if renews else min(here.returns + self._returns, self._max_returns)
        retries = min(here.retries + self._retries, self._most_retries)
        flags = here.flags | self._flags if self._flags else here.flags
        claimed = (here.claimed or claims) and move.payload == "keep"
        state = move.target(here.state)
        for error in (here.error,) if self._errors is None else self._errors:
            timer = here.timer if move.timer == "keep" else _armed(move, error)
            yield Configuration(
                state, owned, counted, used, returns, retries, timer, error, flags, claimed
            )

    def _used_after(self, here: Configuration) -> int:
        match self.move.attempt:
            case "count":
                return min(here.used + 1, self._max_attempts)
            case "return":
                return max(here.used - 1, 0)
            case "renew":
                return 0
            case _:
                return here.used


def _armed(move: Move, error: Error) -> bool:
    """Whether a move that touches the timer leaves it armed."""
    return move.timer != "clear" and (not move.timer_for or error[1] in move.timer_for)


# Guards that a moment, a caller or a slot decides: a link under one of them may not be made.
OPEN_KINDS = frozenset({"due", "timer_not_over", "option", "age_over", "slot_free", "timer_over"})

Test = Callable[[Configuration], bool]


def _test(guard: Guard, lifecycle: Lifecycle) -> Test | None:  # noqa: C901, PLR0911, PLR0912  # a table: one line a guard
    """Whether some moment and some caller satisfy the guard in a configuration; None: always."""
    names, number = guard.names, guard.number
    most_attempts, most_returns = lifecycle.max_attempts, lifecycle.max_returns
    match guard.kind:
        case "unclaimed":
            return lambda here: not here.owned
        case "holds_claim" | "lease_over":
            return lambda here: here.owned
        case "timer_over":
            return lambda here: here.timer
        case "budget_left":
            return lambda here: here.used < most_attempts
        case "budget_spent":
            return lambda here: here.used >= most_attempts
        case "retries_left":
            return lambda here: here.retries < number
        case "code_in":
            return lambda here: here.error[0] in names
        case "code_not_in":
            return lambda here: here.error[0] not in names
        case "category_in":
            return lambda here: here.error[1] in names
        case "returns_left":
            return lambda here: here.returns < most_returns
        case "was_claimed":
            return lambda here: here.claimed
        case "flag_set":
            return lambda here: names[0] in here.flags
        case "flag_not_set":
            return lambda here: names[0] not in here.flags
        case "due" | "timer_not_over" | "option" | "age_over" | "slot_free":
            return None


class _Errors:
    """Error codes grouped by what guards can tell apart: one representative each is enough."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        guards = [guard for move in lifecycle.moves for guard in move.when]
        self._codes = [g.names for g in guards if g.kind in ("code_in", "code_not_in")]
        self._categories = [g.names for g in guards if g.kind == "category_in"]
        self._categories += [tuple(move.timer_for) for move in lifecycle.moves if move.timer_for]
        self._known: dict[tuple[bool, ...], Error] = {}
        for code, category in _all_errors(lifecycle):
            self.seen(code, category)

    def seen(self, code: str, category: str) -> Error:
        """The representative of every error that no guard tells from this one."""
        signature = (
            *(code in names for names in self._codes),
            *(category in names for names in self._categories),
        )
        return self._known.setdefault(signature, (code, category))

    def after(self, move: Move) -> tuple[Error, ...] | None:
        """The errors a job can have after this move; None: the one it had."""
        if isinstance(move.error, Fixed):
            return (self.seen(move.error.code, move.error.category.value),)
        if move.error == "record":
            return tuple(self._known.values())
        return (NO_ERROR,) if move.error == "clear" else None


def _all_errors(lifecycle: Lifecycle) -> Iterator[tuple[str, str]]:
    """Every code that is declared, fixed or named by a guard, and any other, in each category.

    A caller may send a declared code under another category.
    """
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
