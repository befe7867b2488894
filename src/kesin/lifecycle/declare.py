"""The declaration language: a lifecycle is states and moves, and moves are plain data.

Guards and effects come from a closed set. That is what lets every store run a move as one
set-based statement, lets the prover reason about it, and lets a person read it as a table. There
is no place for a lambda, on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from kesin.lifecycle.budget import DAY_S, Backoff
from kesin.lifecycle.consistency import check
from kesin.lifecycle.errors import Category, Taxonomy
from kesin.lifecycle.vocabulary import (
    BUILT_IN_STAMPS,
    GONE,
    OVER,
    READY,
    RESTING,
    STAGES,
    STAY,
    WAITING,
    After,
    Fixed,
    Guard,
    GuardKind,
    Role,
    Stage,
)


@dataclass(frozen=True, slots=True)
class State:
    """A place a job can be in. The marks are independent of each other."""

    name: str
    initial: bool = False
    terminal: bool = False  # nothing leaves it but pruning
    resting: bool = False  # a job may stay for good
    success: bool = False
    exclusive: bool = False  # at most one job of the queue is in it
    holds_key: bool = False  # a job in it owns its dedup key

    @property
    def working(self) -> bool:
        """A job here is on its way: something automatic must take it on."""
        return not (self.terminal or self.resting)


@dataclass(frozen=True, slots=True)
class Move:
    """A named edge: from, to, who may make it, when, and what it changes.

    Moves with the same ``call`` are alternatives: the caller names the call, and the locked row
    decides which of them it is. ``then`` names a call made right after this one, in the same
    transaction, on the jobs whose guards let it (a chain).
    """

    name: str
    sources: tuple[str, ...]
    to: str
    by: tuple[Role, ...]
    when: tuple[Guard, ...] = ()
    claim: Literal["take", "drop", "keep"] = "keep"
    attempt: Literal["count", "return", "renew", "keep"] = "keep"
    retry: Literal["count", "keep"] = "keep"
    error: Literal["record", "clear", "keep"] | Fixed = "keep"
    run_at: Literal["now", "input", "clear", "keep"] | Backoff = "keep"
    timer: Literal["clear", "keep"] | After | Backoff = "keep"
    timer_for: tuple[Category, ...] = ()  # arm only when the error recorded is of these
    stamp: tuple[str, ...] = ()
    stamp_input: tuple[str, ...] = ()
    unstamp: tuple[str, ...] = ()
    result: Literal["record", "keep"] = "keep"
    flag: tuple[str, ...] = ()
    payload: Literal["replace", "keep"] = "keep"
    call: str = ""
    then: str = ""
    chained: bool = False  # only ever made as another move's ``then``
    stage: Stage | None = None  # when the sweeper makes it; every clock move has one
    doc: str = ""

    def __post_init__(self) -> None:
        if not self.call:
            object.__setattr__(self, "call", self.name)

    def guard(self, kind: GuardKind) -> Guard | None:
        """The move's guard of that kind."""
        return next((guard for guard in self.when if guard.kind == kind), None)

    def target(self, source: str) -> str:
        """The state it leads to from ``source``."""
        return source if self.to == STAY else self.to

    @property
    def births(self) -> bool:
        """It makes a job (enqueue)."""
        return not self.sources

    @property
    def prunes(self) -> bool:
        """It takes a job out of the store."""
        return self.to == GONE

    @property
    def claims(self) -> bool:
        """It gives the job to a worker."""
        return self.claim == "take"

    @property
    def automatic(self) -> bool:
        """Workers and the clock make it without being asked by a person."""
        return "worker" in self.by or "clock" in self.by


@dataclass(frozen=True)
class Lifecycle:
    """A queue's whole rule book. Checked for contradictions here; proved in ``prove``."""

    name: str
    states: tuple[State, ...]
    moves: tuple[Move, ...]
    errors: Taxonomy
    max_attempts: int = 5
    max_returns: int = 2
    lease_seconds: int = 60
    max_run_seconds: int = DAY_S
    stamps: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    unsaid: tuple[tuple[str, Fixed], ...] = ()  # what a call records where its caller says nothing
    doc: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check(self)

    @cached_property
    def state(self) -> dict[str, State]:
        """States by name."""
        return {state.name: state for state in self.states}

    @cached_property
    def calls(self) -> dict[str, tuple[Move, ...]]:
        """What a caller can ask for: each call with its alternatives."""
        grouped: dict[str, list[Move]] = {}
        for move in self.moves:
            grouped.setdefault(move.call, []).append(move)
        return {call: tuple(moves) for call, moves in grouped.items()}

    @property
    def initial(self) -> State:
        """Where a job is born."""
        return next(state for state in self.states if state.initial)

    @cached_property
    def claims(self) -> tuple[Move, ...]:
        """The moves that give a job to a worker."""
        return tuple(move for move in self.moves if move.claims)

    @cached_property
    def birth(self) -> Move:
        """The enqueue."""
        return next(move for move in self.moves if move.births)

    @cached_property
    def clock_moves(self) -> tuple[Move, ...]:
        """What the sweeper makes, in the order it makes them."""
        moves = [move for move in self.moves if move.stage is not None]
        return tuple(sorted(moves, key=lambda move: STAGES.index(move.stage or "prune")))

    def chained(self, move: Move) -> tuple[Move, ...]:
        """The alternatives that follow ``move`` in its transaction."""
        return tuple(one for one in self.moves if move.then and one.call == move.then)

    def allows(self, call: str, role: Role) -> bool:
        """Whether that role may ask for that call at all."""
        return any(role in move.by and not move.chained for move in self.calls.get(call, ()))

    def options_of(self, call: str) -> frozenset[str]:
        """The options a call takes."""
        return frozenset(
            guard.names[0]
            for move in self.calls.get(call, ())
            for guard in move.when
            if guard.kind == "option"
        )

    def said_for(self, call: str) -> Fixed | None:
        """The error a call records where its caller names none."""
        return dict(self.unsaid).get(call)

    def calls_of(self, role: Role) -> tuple[str, ...]:
        """The calls a role may make, in the order they are declared."""
        return tuple(call for call in self.calls if self.allows(call, role))

    def plain_calls_of(self, role: Role) -> tuple[str, ...]:
        """Those among them that need nothing said about each job: no new payload."""
        return tuple(
            call
            for call in self.calls_of(role)
            if not any(move.payload == "replace" for move in self.calls[call])
        )

    def unowned_phase(self, state: str) -> int:
        """The phase of an unclaimed job in ``state``: ``words.READY`` or one of its neighbours."""
        here = self.state[state]
        if here.terminal:
            return OVER
        if here.resting:
            return RESTING
        claimable = any(state in move.sources for move in self.claims)
        return READY if claimable else WAITING

    def stamp_column(self, stamp: str) -> str:
        """The store's column of a named stamp."""
        if stamp in BUILT_IN_STAMPS:
            return stamp
        return f"stamp_{self.stamps.index(stamp) + 1}"

    def flag_bit(self, flag: str) -> int:
        """The bit of a named flag."""
        return int(1 << self.flags.index(flag))

    def with_limits(self, *, max_attempts: int | None = None) -> Lifecycle:
        """The same rules under another cap."""
        cap = self.max_attempts if max_attempts is None else max_attempts
        return replace(self, max_attempts=cap)
