"""The random choices of a simulation: every draw comes from the seed of the current step."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from kesin.engine.new_job import NewJob
from kesin.engine.results import Act, Done, Failed, HandlerResult
from kesin.engine.simulation.checker import signed_result
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job, MoveContext, failing_guard
from kesin.lifecycle.vocabulary import Role

TENANTS: Final = (
    *("default", "ankara", "van", "adana", "bursa", "izmir"),
    *("kars", "konya", "mersin", "ordu", "rize", "sinop"),
)
FEW_TENANTS: Final = 3
KEY_COUNT: Final = 6

T = TypeVar("T")


class Dice:
    """Random values for one lifecycle."""

    def __init__(self, lifecycle: Lifecycle, seed: int) -> None:
        self._lifecycle = lifecycle
        self._random = random.Random(seed)
        # Every third history has more tenants than a claim has jobs.
        self.tenants = TENANTS if seed % 3 == 0 else TENANTS[:FEW_TENANTS]
        self._options = {
            action: sorted(lifecycle.options_of(action)) for action in lifecycle.actions
        }

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Draw from this seed inside the block, then continue with the previous generator."""
        previous, self._random = self._random, random.Random(seed)
        try:
            yield
        finally:
            self._random = previous

    def maybe(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def choice(self, values: Sequence[T]) -> T:
        """One of the values."""
        return self._random.choice(values)

    def sample(self, values: Sequence[T], limit: int) -> list[T]:
        """``limit`` of the values, or all if there are fewer."""
        return self._random.sample(values, min(len(values), limit))

    def randint(self, low: int, high: int) -> int:
        """A whole number in this range."""
        return self._random.randint(low, high)

    def new_jobs(self, now_us: int, known: Sequence[str], *, after: bool) -> list[NewJob]:
        """Jobs to enqueue; with ``after``, some come after known ones."""
        dice = self._random
        news = []
        for _ in range(dice.choice((1, 1, 2, 4))):
            key = f"key-{dice.randrange(KEY_COUNT)}" if self.maybe(0.5) else None
            offset_us = dice.choice((0, 0, -SECOND_US, 60 * SECOND_US))
            parents = self.sample(known, dice.randint(1, 3)) if after and self.maybe(0.5) else ()
            news.append(
                NewJob(
                    {"n": dice.randrange(1_000)},
                    key,
                    dice.choice(self.tenants),
                    now_us + offset_us if offset_us and not parents else None,
                    dice.choice((None, 1, 2, 3)),
                    once=bool(key and self._lifecycle.initial.holds_key and self.maybe(0.1)),
                    priority=dice.choice((0, 0, 0, -1, 1, 2)),
                    after=parents,
                )
            )
        return news

    def payload(self) -> str:
        """A payload for a move that replaces it."""
        return f'{{"n":{self._random.randrange(1_000)}}}'

    def result(self, job: Job) -> HandlerResult:
        """The result of a handler, which sometimes raises instead."""
        dice = self._random
        if self.maybe(0.45):
            return Done(signed_result(job, dice.randrange(9)))
        codes = self._codes()
        if self.maybe(0.5) and codes:
            return Failed(dice.choice(codes))
        if self.maybe(0.2):
            raise ValueError("a handler's own mistake")
        return Failed("Surprise", category=dice.choice(list(Category)))

    def action(self, action: str, job: Job) -> Act:
        """The result of a handler that asks for this action."""
        dice = self._random
        return Act(
            action,
            result=signed_result(job, dice.randrange(9)),
            code=self.code(),
            category=dice.choice(list(Category)),
            run_in_s=dice.choice((None, 0.0, 30.0)),
            options=self.options(action),
            fenced=self.maybe(0.9),
        )

    def code(self) -> str:
        """An error code, declared or not."""
        return self._random.choice([*self._codes(), "Surprise"])

    def options(self, action: str) -> frozenset[str]:
        """Some of the options of an action."""
        return frozenset(option for option in self._options[action] if self.maybe(0.5))

    def seconds(self) -> float:
        """How many seconds pass: usually few, sometimes a jump, sometimes backwards."""
        dice = self._random
        return dice.choices(
            (
                dice.random(),
                dice.uniform(1, 90),
                dice.uniform(60, 3_600),
                -dice.uniform(0, 7_200),
                dice.uniform(0.2, 1.5) * DAY_S,
                dice.choice((8, 91, 366)) * DAY_S,
            ),
            (30, 40, 15, 8, 3, 1),
        )[0]

    def _codes(self) -> list[str]:
        return [code.name for code in self._lifecycle.errors.codes]


def drops_claim(lifecycle: Lifecycle, action: str) -> bool:
    """Whether a move of this action drops the claim."""
    return any(move.claim == "drop" for move in lifecycle.actions[action])


def actions_of(
    lifecycle: Lifecycle, role: Role, state: str | None = None, *, fenced: bool = False
) -> list[str]:
    """The actions of a role, or those of them that leave this state."""
    excluded = {move.action for move in lifecycle.claims}
    return [
        action
        for action in lifecycle.actions_of(role)
        if action not in excluded
        and (state is None or any(state in move.sources for move in lifecycle.actions[action]))
        and not (
            fenced and not all(move.guard("holds_claim") for move in lifecycle.actions[action])
        )
    ]


def due_times(
    lifecycle: Lifecycle, move: Move, jobs: Collection[Job], now_us: int
) -> Iterator[int]:
    """The exact times, in microseconds, at which jobs become due for the move."""
    aged = move.guard("age_over")
    for job in jobs:
        times = [job.lease_until, job.timer_at, job.run_at]
        if aged:
            stamp = getattr(job, lifecycle.stamp_column(aged.names[0]))
            times.append(stamp and stamp + aged.number * SECOND_US)
        for at in times:
            if at and job.state in move.sources and abs(at - now_us) < 2 * DAY_S * SECOND_US:
                at_time = failing_guard(move, job, lifecycle, MoveContext(at, ""), None)
                just_before = failing_guard(move, job, lifecycle, MoveContext(at - 1, ""), None)
                if at_time is None and just_before:
                    yield at
