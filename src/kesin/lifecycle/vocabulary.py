"""The closed vocabulary of a declaration; a new word needs ``model``, ``proof``, SQL and Lua."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from kesin.lifecycle.budget import DAY_S
from kesin.lifecycle.errors import Category

Role = Literal["worker", "clock", "operator", "producer"]
Stage = Literal["settle", "cap", "recover", "expire", "revive", "timeout", "prune"]

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
STAY: Final = "="  # the target of a move that leaves the state as it is
GONE: Final = ""  # the source of enqueue and the target of a prune
BUILT_IN_STAMPS: Final = ("created_at", "moved_at", "finished_at")
MAX_STAMPS: Final = 4
MAX_FLAGS: Final = 31
MAX_SLOTS: Final = 10_000  # of a state
PRIORITIES: Final = range(-1, 3)  # low, normal, high, urgent
MAX_RATE: Final = 10_000  # claims of a tenant in one period

# The stores index jobs by phase, so that no index depends on the names of states.
READY: Final = 0  # unclaimed and claimable
OWNED: Final = 1
RESTING: Final = 2
FINISHED: Final = 3
WAITING: Final = 4  # unclaimed and working, but only a scheduled move continues it

GuardKind = Literal[
    "due",
    "unclaimed",
    "holds_claim",
    "lease_over",
    "timer_over",
    "timer_not_over",
    "budget_left",
    "budget_spent",
    "retries_left",
    "code_in",
    "code_not_in",
    "category_in",
    "returns_left",
    "was_claimed",
    "option",
    "flag_set",
    "flag_not_set",
    "age_over",
    "slot_free",
    "rate",
    "parents_done",
    "parents_failed",
]


class DeclarationError(ValueError):
    """The declaration contradicts itself; the message names the move and the contradiction."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One condition of a move. Use the constants and functions below to create one."""

    kind: GuardKind
    names: tuple[str, ...] = ()
    number: int = 0
    per_s: int = 0

    def __str__(self) -> str:
        arguments = [*self.names]
        if self.kind == "option":
            arguments[-1:] = [f"{self.names[0]}={'yes' if self.number else 'no'}"]
        elif self.kind == "age_over":
            arguments.append(duration(self.number))
        elif self.kind == "retries_left":
            arguments.append(f"< {self.number}")
        elif self.kind == "rate":
            arguments.append(f"{self.number} per tenant in {duration(self.per_s)}")
        return f"{self.kind}({', '.join(arguments)})" if arguments else self.kind


due: Final = Guard("due")  # run_at has come
unclaimed: Final = Guard("unclaimed")
holds_claim: Final = Guard("holds_claim")  # the caller's token is the job's claim_seq
lease_over: Final = Guard("lease_over")
timer_over: Final = Guard("timer_over")
timer_not_over: Final = Guard("timer_not_over")  # not armed, or armed and not yet over
budget_left: Final = Guard("budget_left")
budget_spent: Final = Guard("budget_spent")
returns_left: Final = Guard("returns_left")
was_claimed: Final = Guard("was_claimed")  # claimed since its payload was last replaced
parents_done: Final = Guard("parents_done")  # every job it comes after has succeeded
parents_failed: Final = Guard("parents_failed")  # one of them is at rest without success


def retries_left(limit: int) -> Guard:
    """``retry_count`` is below ``limit``."""
    return Guard("retries_left", number=limit)


def code_in(*codes: str) -> Guard:
    """The job's last error code is one of these."""
    return Guard("code_in", codes)


def code_not_in(*codes: str) -> Guard:
    """The job has no error code, or a code that is none of these."""
    return Guard("code_not_in", codes)


def category_in(*categories: Category) -> Guard:
    """The job's last error category is one of these."""
    return Guard("category_in", tuple(category.value for category in categories))


def option(name: str, *, is_set: bool) -> Guard:
    """The caller set, or did not set, this option of the action."""
    return Guard("option", (name,), int(is_set))


def flag_set(name: str) -> Guard:
    """The job's flag with this name is set."""
    return Guard("flag_set", (name,))


def flag_not_set(name: str) -> Guard:
    """The job's flag with this name is not set."""
    return Guard("flag_not_set", (name,))


def age_over(stamp: str, seconds: int) -> Guard:
    """The stamp with this name is at least this many seconds old."""
    return Guard("age_over", (stamp,), seconds)


def slot_free(state: str) -> Guard:
    """A slot of this state is free for the job."""
    return Guard("slot_free", (state,))


def rate(claims: int, per_s: int) -> Guard:
    """The tenant has claims left: ``claims`` per ``per_s`` seconds, after a burst of that size."""
    return Guard("rate", number=claims, per_s=per_s)


@dataclass(frozen=True, slots=True)
class Fixed:
    """An error that a move records by itself."""

    code: str
    category: Category
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "category", Category(self.category))


@dataclass(frozen=True, slots=True)
class After:
    """A timer that expires this many seconds after the move."""

    seconds: int

    def __str__(self) -> str:
        return f"after {duration(self.seconds)}"


def duration(seconds: int) -> str:
    """``5400`` → ``90 min``: in the largest unit that gives a whole number."""
    for size, unit in ((DAY_S, "d"), (3600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
