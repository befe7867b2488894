"""The closed set of words a declaration is written in: roles, stages, guards, errors, timers.

Everything here has a meaning in plain Python (``model``), in the prover's abstraction (``prove``)
and in SQL (the stores). A new word needs all three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kesin.lifecycle.budget import DAY_S
from kesin.lifecycle.errors import Category

Role = Literal["worker", "clock", "operator", "producer"]
Stage = Literal["cap", "recover", "expire", "revive", "timeout", "prune"]

STAGES: Final[tuple[Stage, ...]] = ("cap", "recover", "expire", "revive", "timeout", "prune")
STAY: Final = "="  # the target of a move that leaves the state as it is
GONE: Final = ""  # the source of a birth and the target of a prune
BUILT_IN_STAMPS: Final = ("created_at", "moved_at", "finished_at")
MAX_STAMPS: Final = 4
MAX_FLAGS: Final = 31

# A job's phase is what the stores index by, so that no index needs to know a state's name.
READY: Final = 0  # unclaimed, and a worker may claim it
OWNED: Final = 1
RESTING: Final = 2
OVER: Final = 3
WAITING: Final = 4  # unclaimed and on its way, but only the clock takes it on

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
]


class DeclarationError(ValueError):
    """The declaration contradicts itself; the message names the move and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One condition of a move. Made by the names below, never by hand."""

    kind: GuardKind
    names: tuple[str, ...] = ()
    number: int = 0

    def __str__(self) -> str:
        inside = [*self.names]
        if self.kind == "option":
            inside[-1:] = [f"{self.names[0]}={'yes' if self.number else 'no'}"]
        elif self.kind == "age_over":
            inside.append(duration(self.number))
        elif self.kind == "retries_left":
            inside.append(f"< {self.number}")
        return f"{self.kind}({', '.join(inside)})" if inside else self.kind


due: Final = Guard("due")  # run_at has come
unclaimed: Final = Guard("unclaimed")
holds_claim: Final = Guard("holds_claim")  # the caller's token is the job's claim_seq
lease_over: Final = Guard("lease_over")
timer_over: Final = Guard("timer_over")
timer_not_over: Final = Guard("timer_not_over")  # not armed, or not yet over
budget_left: Final = Guard("budget_left")
budget_spent: Final = Guard("budget_spent")
returns_left: Final = Guard("returns_left")
was_claimed: Final = Guard("was_claimed")  # claimed since its payload was last replaced


def retries_left(most: int) -> Guard:
    """``retry_count`` is still below ``most``."""
    return Guard("retries_left", number=most)


def code_in(*codes: str) -> Guard:
    """The job's last error code is one of these."""
    return Guard("code_in", codes)


def code_not_in(*codes: str) -> Guard:
    """The job has no error code, or one that is none of these."""
    return Guard("code_not_in", codes)


def category_in(*categories: Category) -> Guard:
    """The job's last error category is one of these."""
    return Guard("category_in", tuple(category.value for category in categories))


def option(name: str, *, is_set: bool) -> Guard:
    """The caller set, or did not set, this option of the call."""
    return Guard("option", (name,), int(is_set))


def flag_set(name: str) -> Guard:
    """The job's named flag is up."""
    return Guard("flag_set", (name,))


def flag_not_set(name: str) -> Guard:
    """The job's named flag is down."""
    return Guard("flag_not_set", (name,))


def age_over(stamp: str, seconds: int) -> Guard:
    """The named stamp lies at least this far in the past."""
    return Guard("age_over", (stamp,), seconds)


def slot_free(state: str) -> Guard:
    """No job of the queue is in that exclusive state."""
    return Guard("slot_free", (state,))


@dataclass(frozen=True, slots=True)
class Fixed:
    """An error the move itself records."""

    code: str
    category: Category
    message: str


@dataclass(frozen=True, slots=True)
class After:
    """A timer that goes off this many seconds after the move."""

    seconds: int

    def __str__(self) -> str:
        return f"after {duration(self.seconds)}"


def duration(seconds: int) -> str:
    """``5400`` → ``90 min``: the largest unit that stays whole."""
    for size, unit in ((DAY_S, "d"), (3600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
