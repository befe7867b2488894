"""The declaration language, a closed set without lambdas: it becomes SQL, proofs and tables."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from kesin.lifecycle.budget import DAY_S, Backoff
from kesin.lifecycle.consistency import check_consistency
from kesin.lifecycle.errors import Category, Taxonomy
from kesin.lifecycle.vocabulary import (
    BUILT_IN_STAMPS,
    FINISHED,
    GONE,
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
    """A state a job can be in. The marks are independent of each other."""

    name: str
    initial: bool = False
    terminal: bool = False  # no move but a prune leaves it
    resting: bool = False  # a job may stay here for good
    success: bool = False
    exclusive: bool = False  # the same as slots=1
    holds_key: bool = False  # a job in it holds its dedup key
    retiring: bool = False  # on its way out of the lifecycle: jobs leave it and none enters
    slots: int | None = None  # how many jobs may be in it at once; None: any number
    slots_per: Literal["queue", "tenant"] = "queue"

    @property
    def working(self) -> bool:
        """Whether an automatic move must follow this state."""
        return not (self.terminal or self.resting)

    @property
    def capacity(self) -> int:
        """How many jobs it may hold at once, in the queue or per tenant; 0 means unlimited."""
        return 1 if self.exclusive else self.slots or 0

    @property
    def per_tenant(self) -> bool:
        """Whether each tenant has its own slots."""
        return self.slots_per == "tenant"


@dataclass(frozen=True, slots=True)
class Move:
    """A declared transition: sources, target, who may make it, when, and what it changes.

    Moves with the same ``action`` are alternatives: the caller names the action, and the locked job
    decides which move is made. ``then`` names an action that follows in the same transaction, for
    the jobs whose guards allow it (a chain).
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
    timer_for: tuple[Category, ...] = ()  # arm the timer only for an error of these
    stamp: tuple[str, ...] = ()
    stamp_input: tuple[str, ...] = ()
    unstamp: tuple[str, ...] = ()
    result: Literal["record", "keep"] = "keep"
    flag: tuple[str, ...] = ()
    payload: Literal["replace", "keep"] = "keep"
    priority: Literal["input", "keep"] = "keep"
    action: str = ""
    then: str = ""
    chained: bool = False  # only made as the ``then`` of another move
    stage: Stage | None = None  # when the sweeper makes it; every scheduled move has one
    doc: str = ""

    def __post_init__(self) -> None:
        if not self.action:
            object.__setattr__(self, "action", self.name)

    def guard(self, kind: GuardKind) -> Guard | None:
        """The move's guard of that kind."""
        return next((guard for guard in self.when if guard.kind == kind), None)

    def target(self, source: str) -> str:
        """The state that the move leads to from ``source``."""
        return source if self.to == STAY else self.to

    @property
    def creates(self) -> bool:
        """Whether the move creates a job (enqueue)."""
        return not self.sources

    @property
    def callable(self) -> bool:
        """Whether callers can request it by name: it moves an existing job and is not chained."""
        return not (self.chained or self.creates)

    @property
    def prunes(self) -> bool:
        """Whether the move deletes the job."""
        return self.to == GONE

    @property
    def relocates(self) -> bool:
        """Whether the job changes its state, or its position among the tenant's jobs."""
        return self.to != STAY or self.priority == "input"

    @property
    def claims(self) -> bool:
        """Whether the move gives the job to a worker."""
        return self.claim == "take"

    @property
    def automatic(self) -> bool:
        """Whether workers or the sweeper make the move without an operator or producer."""
        return "worker" in self.by or "clock" in self.by


@dataclass(frozen=True)
class Lifecycle:
    """A queue's states and moves, checked for contradictions when created and proved by ``prove``."""

    name: str
    states: tuple[State, ...]
    moves: tuple[Move, ...] = field(hash=False)  # caches find it by the rest a hundred times faster
    errors: Taxonomy = field(hash=False)
    max_attempts: int = 5
    max_returns: int = 2
    lease_seconds: int = 60
    max_run_seconds: int = DAY_S
    stamps: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    default_errors: tuple[tuple[str, Fixed], ...] = ()  # by action: if its caller gives no error
    doc: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_consistency(self)

    @cached_property
    def state(self) -> dict[str, State]:
        """States by name."""
        return {state.name: state for state in self.states}

    @cached_property
    def actions(self) -> dict[str, tuple[Move, ...]]:
        """What a caller can ask for: each action with its alternative moves."""
        grouped: dict[str, list[Move]] = {}
        for move in self.moves:
            grouped.setdefault(move.action, []).append(move)
        return {action: tuple(moves) for action, moves in grouped.items()}

    @property
    def initial(self) -> State:
        """The state in which a job is created."""
        return next(state for state in self.states if state.initial)

    @cached_property
    def claims(self) -> tuple[Move, ...]:
        """The moves that give a job to a worker."""
        return tuple(move for move in self.moves if move.claims)

    @cached_property
    def limited_claim(self) -> Move | None:
        """The only claim, where a rate or slots limit it; an exclusive state needs no counting."""
        [first, *others] = self.claims
        slots = self.state[first.to].slots if first.to in self.state else 0
        return first if (first.guard("rate") or slots) and not others else None

    def capacity_of(self, move: Move) -> int:
        """The number of slots in the state that the move enters; 0 means unlimited."""
        return self.state[move.to].capacity if move.to in self.state else 0

    @cached_property
    def enqueue_move(self) -> Move:
        """The move that creates a job."""
        return next(move for move in self.moves if move.creates and move.name == "enqueue")

    @cached_property
    def enqueue_after_move(self) -> Move | None:
        """The move that creates a job which comes after others; None where there is none."""
        return next((m for m in self.moves if m.creates and m.name == "enqueue_after"), None)

    @cached_property
    def waiting_states(self) -> frozenset[str]:
        """The states in which jobs wait for those that they come after."""
        settling = [move for move in self.moves if move.guard("parents_done")]
        return frozenset(source for move in settling for source in move.sources)

    @cached_property
    def scheduled_moves(self) -> tuple[Move, ...]:
        """The moves of the sweeper, in the order it makes them."""
        moves = [move for move in self.moves if move.stage is not None]
        return tuple(sorted(moves, key=lambda move: STAGES.index(move.stage or "prune")))

    def chained_moves(self, move: Move) -> tuple[Move, ...]:
        """The alternatives that follow ``move`` in the same transaction."""
        return tuple(other for other in self.moves if move.then and other.action == move.then)

    def allows(self, action: str, role: Role) -> bool:
        """Whether the role may take the action on an existing job."""
        return any(role in move.by for move in self.actions.get(action, ()) if move.callable)

    def options_of(self, action: str) -> frozenset[str]:
        """The options of an action."""
        return frozenset(
            guard.names[0] for move in self.actions.get(action, ()) for guard in move.when if guard.kind == "option"
        )

    def sets_priority(self, action: str) -> bool:
        """Whether the caller of the action sets the priority of the jobs."""
        return any(move.priority == "input" for move in self.actions.get(action, ()))

    def default_error(self, action: str) -> Fixed | None:
        """The error that an action records if its caller gives none."""
        return dict(self.default_errors).get(action)

    def actions_of(self, role: Role) -> tuple[str, ...]:
        """The actions that a role may take, in the order of declaration."""
        return tuple(action for action in self.actions if self.allows(action, role))

    def plain_actions_of(self, role: Role) -> tuple[str, ...]:
        """The actions that a role may take without a new payload for each job."""
        return tuple(
            action
            for action in self.actions_of(role)
            if not any(move.payload == "replace" for move in self.actions[action])
        )

    def unowned_phase(self, state: str) -> int:
        """The phase of an unclaimed job in ``state``: any but ``OWNED``."""
        declared = self.state[state]
        if declared.terminal:
            return FINISHED
        if declared.resting:
            return RESTING
        return READY if any(state in move.sources for move in self.claims) else WAITING

    def stamp_column(self, stamp: str) -> str:
        """The column that stores a stamp."""
        if stamp in BUILT_IN_STAMPS:
            return stamp
        return f"stamp_{self.stamps.index(stamp) + 1}"

    def flag_bit(self, flag: str) -> int:
        """The bit of a flag."""
        return int(1 << self.flags.index(flag))

    def with_limits(self, *, max_attempts: int | None = None) -> "Lifecycle":
        """The same lifecycle with a different cap on attempts."""
        cap = self.max_attempts if max_attempts is None else max_attempts
        return replace(self, max_attempts=cap)
