"""The abstract job the prover walks with: all that guards can see, and nothing else.

Time is left open: a lease may or may not be over, a timer that is armed may or may not have gone
off. So one walk covers every schedule of workers, crashes and sweeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.words import Fixed, Guard

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


class Step(NamedTuple):
    """One edge of the walk: a move, or a chain of two that nothing can come between."""

    moves: tuple[Move, ...]
    to: Configuration

    @property
    def name(self) -> str:
        """How a path shows it."""
        return " + ".join(move.name for move in self.moves)

    @property
    def automatic(self) -> bool:
        """No person is needed for it."""
        return self.moves[0].automatic

    @property
    def keeps_timer(self) -> bool:
        """It neither arms nor clears the timer."""
        return all(move.timer == "keep" for move in self.moves)

    def __str__(self) -> str:
        return f"{self.name} → {self.to}"


Graph = dict[Configuration, tuple[Step, ...]]


class Walk:
    """Every configuration reachable from birth, with the shortest way to each."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.lifecycle = lifecycle
        self._errors = _Errors(lifecycle)
        self._retry_ceiling = max(
            (g.number for m in lifecycle.moves for g in m.when if g.kind == "retries_left"),
            default=0,
        )
        self._leaving = {
            state.name: [
                move
                for move in lifecycle.moves
                if state.name in move.sources and not (move.prunes or move.chained)
            ]
            for state in lifecycle.states
        }
        self.start = Configuration(lifecycle.initial.name)
        self.graph: Graph = {}
        self._came: dict[Configuration, tuple[Configuration, Step] | None] = {self.start: None}
        self._explore()

    def _explore(self) -> None:
        ahead = deque([self.start])
        while ahead:
            here = ahead.popleft()
            steps = tuple(self._steps(here))
            self.graph[here] = steps
            for step in steps:
                if step.to not in self._came:
                    self._came[step.to] = (here, step)
                    ahead.append(step.to)

    def path(self, to: Configuration) -> tuple[str, ...]:
        """The shortest way from birth, as lines a person reads from top to bottom."""
        lines: list[str] = []
        at: Configuration | None = to
        while at is not None:
            came = self._came[at]
            lines.append(f"{came[1].name if came else 'enqueue'} → {at}")
            at = came[0] if came else None
        return tuple(reversed(lines))

    def _steps(self, here: Configuration) -> Iterator[Step]:
        for move in self._leaving[here.state]:
            if all(possible(guard, here, self.lifecycle) for guard in move.when):
                for after in self._after(move, here):
                    linked = self._linked(move, after)
                    yield from linked
                    if not any(_certain(step.moves[1]) for step in linked):
                        yield Step((move,), after)

    def _linked(self, move: Move, after: Configuration) -> list[Step]:
        """The chain's second move, where its guards hold: it is made in the same transaction."""
        if not move.then:
            return []
        return [
            Step((move, link), last)
            for link in self.lifecycle.chained(move)
            if all(possible(guard, after, self.lifecycle) for guard in link.when)
            for last in self._after(link, after)
        ]

    def _after(self, move: Move, here: Configuration) -> Iterator[Configuration]:
        state = move.target(here.state)
        for error in self._errors_after(move, here):
            owned = move.claims or (move.claim == "keep" and here.owned)
            yield Configuration(
                state=state,
                owned=owned,
                counted=(move.attempt == "count") if move.claims else (owned and here.counted),
                used=self._used_after(move, here),
                returns=self._returns_after(move, here),
                retries=min(here.retries + (move.retry == "count"), self._retry_ceiling),
                timer=_timer_after(move, here, error),
                error=error,
                flags=here.flags | set(move.flag),
                claimed=(here.claimed or move.claims) and move.payload == "keep",
            )

    def _used_after(self, move: Move, here: Configuration) -> int:
        match move.attempt:
            case "count":
                return min(here.used + 1, self.lifecycle.max_attempts)
            case "return":
                return max(here.used - 1, 0)
            case "renew":
                return 0
            case _:
                return here.used

    def _returns_after(self, move: Move, here: Configuration) -> int:
        if move.attempt == "renew":
            return 0
        counts = move.attempt == "return" and move.guard("returns_left") is not None
        return min(here.returns + counts, self.lifecycle.max_returns)

    def _errors_after(self, move: Move, here: Configuration) -> tuple[Error, ...]:
        if isinstance(move.error, Fixed):
            return (self._errors.seen(move.error.code, move.error.category.value),)
        if move.error == "record":
            return self._errors.all
        return (NO_ERROR,) if move.error == "clear" else (here.error,)


def _certain(link: Move) -> bool:
    """Whether a link that is possible is made for sure: no moment, caller or slot decides."""
    open_kinds = {"due", "timer_over", "timer_not_over", "option", "age_over", "slot_free"}
    return not any(guard.kind in open_kinds for guard in link.when)


def possible(guard: Guard, here: Configuration, lifecycle: Lifecycle) -> bool:  # noqa: C901, PLR0911, PLR0912  # a table: one line a guard
    """Whether some moment and some caller satisfy the guard in this configuration."""
    match guard.kind:
        case "unclaimed":
            return not here.owned
        case "holds_claim" | "lease_over":
            return here.owned
        case "timer_over":
            return here.timer
        case "budget_left":
            return here.used < lifecycle.max_attempts
        case "budget_spent":
            return here.used >= lifecycle.max_attempts
        case "retries_left":
            return here.retries < guard.number
        case "code_in":
            return here.error[0] in guard.names
        case "code_not_in":
            return here.error[0] not in guard.names
        case "category_in":
            return here.error[1] in guard.names
        case "returns_left":
            return here.returns < lifecycle.max_returns
        case "was_claimed":
            return here.claimed
        case "flag_set":
            return guard.names[0] in here.flags
        case "flag_not_set":
            return guard.names[0] not in here.flags
        case "due" | "timer_not_over" | "option" | "age_over" | "slot_free":
            return True


def in_the_end(guard: Guard, here: Configuration, lifecycle: Lifecycle) -> bool:
    """Whether the guard holds for sure once enough time has passed (an armed timer is over)."""
    if guard.kind == "timer_not_over":
        return not here.timer
    return guard.kind != "option" and possible(guard, here, lifecycle)


def _timer_after(move: Move, here: Configuration, error: Error) -> bool:
    if move.timer == "keep":
        return here.timer
    if move.timer == "clear":
        return False
    return not move.timer_for or error[1] in move.timer_for


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

    @property
    def all(self) -> tuple[Error, ...]:
        """Every representative."""
        return tuple(self._known.values())


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
