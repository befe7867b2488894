"""What went wrong, as data: code → category → verdict → move.

A handler reports a code. The category says what kind of trouble it is (five of them, for every
workload), the verdict what to do about it on this channel, and the verdict names the move.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class Category(StrEnum):
    """The kind of trouble; dashboards group by it, revival and alerts decide by it."""

    VALIDATION = "VALIDATION"  # the data is wrong: a person corrects it
    AUTH = "AUTH"  # credentials or configuration are wrong: a person mends them
    TRANSIENT = "TRANSIENT"  # may work later
    RATE_LIMIT = "RATE_LIMIT"  # will work later, and slower
    PERMANENT = "PERMANENT"  # will never work


class Verdict(StrEnum):
    """What to do about a failure, or about a success (``complete``)."""

    FAIL = "fail"
    RETRY = "retry"
    HOLD = "hold"
    COMPLETE = "complete"
    WAIT = "wait"  # only ever named by a code of its own


@dataclass(frozen=True, slots=True)
class Code:
    """A stable error code. ``verdict`` overrides the category's; ``move`` the verdict's.

    Where ``channels`` are named, it overrides only there.
    """

    name: str
    category: Category
    verdict: Verdict | None = None
    move: str | None = None
    channels: tuple[str, ...] = ()

    def speaks_on(self, channel: str) -> bool:
        """Whether its own verdict and move hold on this channel."""
        return not self.channels or channel in self.channels


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the verdict table: on this channel, this category gets this verdict."""

    channel: str
    category: Category
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Resolved:
    """A code looked up: what is stored, and the move that follows."""

    code: str
    category: Category
    verdict: Verdict
    move: str


@dataclass(frozen=True)
class Taxonomy:
    """A workload's whole error knowledge.

    ``moves`` maps each verdict to the call that carries it out. ``unknown`` is the category of a
    code nobody declared, an exception's class name for instance.
    """

    channels: tuple[str, ...]
    rules: tuple[Rule, ...]
    moves: tuple[tuple[Verdict, str], ...]
    codes: tuple[Code, ...] = ()
    unknown: Category = Category.TRANSIENT

    @cached_property
    def _by_name(self) -> dict[str, Code]:
        return {code.name: code for code in reversed(self.codes)}

    def code(self, name: str) -> Code | None:
        """The declared code of that name."""
        return self._by_name.get(name)

    def move_for(self, verdict: Verdict) -> str | None:
        """The call that carries out a verdict; None where this lifecycle has no such move."""
        return next((move for known, move in self.moves if known is verdict), None)

    def verdicts(self, channel: str, category: Category) -> Iterator[Verdict]:
        """Every verdict the table gives; the prover insists on exactly one (rule R8)."""
        for rule in self.rules:
            if rule.channel == channel and rule.category is category:
                yield rule.verdict

    def resolve(
        self, name: str, *, channel: str | None = None, category: Category | None = None
    ) -> Resolved:
        """Look a code up. A category given by the caller wins over ``unknown``, not over a code."""
        channel = channel or self.channels[0]
        known = self.code(name)
        kind = known.category if known else category or self.unknown
        own = known if known and known.speaks_on(channel) else None
        verdict = (own.verdict if own else None) or next(self.verdicts(channel, kind), None)
        if verdict is None:
            raise LookupError(f"no verdict for category {kind} on channel {channel!r}")
        move = (own.move if own else None) or self.move_for(verdict)
        if move is None:
            raise LookupError(f"no move carries out the verdict {verdict!r}")
        return Resolved(code=name, category=kind, verdict=verdict, move=move)


def same_everywhere(
    channels: tuple[str, ...], verdicts: dict[Category, Verdict]
) -> tuple[Rule, ...]:
    """The verdict table of a workload whose channels all judge alike."""
    return tuple(
        Rule(channel, category, verdict)
        for channel in channels
        for category, verdict in verdicts.items()
    )
