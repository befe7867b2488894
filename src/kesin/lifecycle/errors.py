"""The error taxonomy: a code has a category; that and the channel give a verdict and an action."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Never


class Category(StrEnum):
    """The kind of error, which automatic retries, alerts and the dashboard depend on."""

    VALIDATION = "VALIDATION"  # the data is wrong and must be corrected
    AUTH = "AUTH"  # credentials or configuration are wrong and must be fixed
    TRANSIENT = "TRANSIENT"  # may work later
    RATE_LIMIT = "RATE_LIMIT"  # will work later, at a lower rate
    PERMANENT = "PERMANENT"  # will never work

    @classmethod
    def _missing_(cls, value: object) -> Never:
        raise ValueError(f"a category must be one of {', '.join(cls)}; got {value!r}")


class Verdict(StrEnum):
    """What to do about a failure, or about a success (``complete``)."""

    FAIL = "fail"
    RETRY = "retry"
    HOLD = "hold"
    COMPLETE = "complete"
    WAIT = "wait"  # only a code of its own gives it


@dataclass(frozen=True, slots=True)
class Code:
    """A stable error code.

    ``verdict`` overrides the category's verdict, and ``move`` overrides the verdict's action. If
    ``channels`` are named, both overrides apply only on these channels.
    """

    name: str
    category: Category
    verdict: Verdict | None = None
    move: str | None = None
    channels: tuple[str, ...] = ()
    decision: bool = False  # a person decided so: it is no failure, and needs no one

    def __post_init__(self) -> None:
        object.__setattr__(self, "category", Category(self.category))

    def applies_to(self, channel: str) -> bool:
        """Whether the code's own verdict and action apply on this channel."""
        return not self.channels or channel in self.channels


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the verdict table: on this channel, this category gets this verdict."""

    channel: str
    category: Category
    verdict: Verdict

    def __post_init__(self) -> None:
        object.__setattr__(self, "category", Category(self.category))


@dataclass(frozen=True, slots=True)
class ResolvedError:
    """A resolved error: what is stored, and the action that follows."""

    code: str
    category: Category
    verdict: Verdict
    move: str


@dataclass(frozen=True)
class Taxonomy:
    """All error codes and verdicts of a workload.

    ``moves`` maps each verdict to the action that carries it out. ``unknown`` is the category of an
    undeclared code, such as the class name of an exception.
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
        """The declared code with this name."""
        return self._by_name.get(name)

    def move_for(self, verdict: Verdict) -> str | None:
        """The action that carries out a verdict; None if the lifecycle has none."""
        return next((move for listed, move in self.moves if listed is verdict), None)

    def verdicts(self, channel: str, category: Category) -> Iterator[Verdict]:
        """Every verdict of this channel and category; `prove` requires exactly one (rule R8)."""
        for rule in self.rules:
            if rule.channel == channel and rule.category is category:
                yield rule.verdict

    def resolve(self, name: str, *, channel: str | None = None, category: Category | None = None) -> ResolvedError:
        """Resolve a code; a caller's category replaces ``unknown``, but not a declared category."""
        channel = channel or self.channels[0]
        declared = self.code(name)
        kind = declared.category if declared else category or self.unknown
        override = declared if declared and declared.applies_to(channel) else None
        verdict = (override.verdict if override else None) or next(self.verdicts(channel, kind), None)
        if verdict is None:
            raise LookupError(f"no verdict for category {kind} on channel {channel!r}")
        move = (override.move if override else None) or self.move_for(verdict)
        if move is None:
            raise LookupError(f"no move carries out the verdict {verdict!r}")
        return ResolvedError(code=name, category=kind, verdict=verdict, move=move)


def same_everywhere(channels: tuple[str, ...], verdicts: dict[Category, Verdict]) -> tuple[Rule, ...]:
    """The verdict table of a workload whose channels all have the same verdicts."""
    return tuple(Rule(channel, category, verdict) for channel in channels for category, verdict in verdicts.items())


def one_channel(
    channel: str,
    *codes: Code,
    verdicts: Mapping[Category, Verdict] | None = None,
    unknown: Category = Category.TRANSIENT,
    **moves: str,
) -> Taxonomy:
    """The taxonomy of a workload with one channel, where a category without a verdict fails.

    ``moves`` name the action of each verdict, as in ``fail="fail", complete="succeed"``.
    """
    rules = same_everywhere((channel,), {**dict.fromkeys(Category, Verdict.FAIL), **(verdicts or {})})
    actions = tuple((Verdict(verdict), action) for verdict, action in moves.items())
    return Taxonomy((channel,), rules, actions, codes, unknown)
