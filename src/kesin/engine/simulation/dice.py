"""The random choices of a simulation: every draw comes from the seed of the act at hand."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from kesin.engine.queue import New
from kesin.engine.results import Act, Answer, Done, Failed
from kesin.engine.simulation.checker import signed
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Asked, Job, failing_guard
from kesin.lifecycle.vocabulary import Role

TENANTS: Final = ("default", "ankara", "van")
KEYS: Final = 6

T = TypeVar("T")


class Dice:
    """Random values for one lifecycle."""

    def __init__(self, lifecycle: Lifecycle, seed: int) -> None:
        self._lifecycle = lifecycle
        self._random = random.Random(seed)
        self._options = {call: sorted(lifecycle.options_of(call)) for call in lifecycle.calls}

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Draw from this seed inside the block, and go on with the one before after it."""
        outer, self._random = self._random, random.Random(seed)
        try:
            yield
        finally:
            self._random = outer

    def maybe(self, share: float) -> bool:
        """True in this share of cases."""
        return self._random.random() < share

    def choice(self, values: Sequence[T]) -> T:
        """One of the values."""
        return self._random.choice(values)

    def sample(self, values: Sequence[T], most: int) -> list[T]:
        """So many of the values, or all of them."""
        return self._random.sample(values, min(len(values), most))

    def randint(self, least: int, most: int) -> int:
        """A whole number in this range."""
        return self._random.randint(least, most)

    def new_jobs(self, now_us: int) -> list[New]:
        """Jobs to enqueue."""
        dice = self._random
        news = []
        for _ in range(dice.choice((1, 1, 2, 4))):
            key = f"key-{dice.randrange(KEYS)}" if self.maybe(0.5) else None
            late = dice.choice((0, 0, -SECOND_US, 60 * SECOND_US))
            news.append(
                New(
                    {"n": dice.randrange(1_000)},
                    key,
                    dice.choice(TENANTS),
                    now_us + late if late else None,
                    dice.choice((None, 1, 2, 3)),
                )
            )
        return news

    def payload(self) -> str:
        """A payload that replaces another."""
        return f'{{"n":{self._random.randrange(1_000)}}}'

    def result(self, job: Job) -> Answer:
        """What a handler returns; now and then it raises instead."""
        dice = self._random
        if self.maybe(0.45):
            return Done(signed(job, dice.randrange(9)))
        codes = self._codes()
        if self.maybe(0.5) and codes:
            return Failed(dice.choice(codes))
        if self.maybe(0.2):
            raise ValueError("a handler's own mistake")
        return Failed("Surprise", category=dice.choice(list(Category)))

    def action(self, call: str, job: Job) -> Act:
        """The same for a handler that asks for this action."""
        dice = self._random
        return Act(
            call,
            result=signed(job, dice.randrange(9)),
            code=self.code(),
            category=dice.choice(list(Category)),
            run_in_s=dice.choice((None, 0.0, 30.0)),
            options=self.options(call),
            fenced=self.maybe(0.9),
        )

    def code(self) -> str:
        """An error code, declared or not."""
        return self._random.choice([*self._codes(), "Surprise"])

    def options(self, call: str) -> frozenset[str]:
        """Some of the options that a call has."""
        return frozenset(option for option in self._options[call] if self.maybe(0.5))

    def seconds(self) -> float:
        """How much time passes: most often a little, at times backwards."""
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


def lets_go(lifecycle: Lifecycle, call: str) -> bool:
    """Whether a move of this call gives up the claim."""
    return any(move.claim == "drop" for move in lifecycle.calls[call])


def calls_of(
    lifecycle: Lifecycle, role: Role, state: str | None = None, *, fenced: bool = False
) -> list[str]:
    """The calls a role can make, or those that leave this state."""
    passed_over = {"enqueue", *(move.call for move in lifecycle.claims)}
    return [
        call
        for call in lifecycle.calls_of(role)
        if call not in passed_over
        and (state is None or any(state in move.sources for move in lifecycle.calls[call]))
        and not (fenced and not all(move.guard("holds_claim") for move in lifecycle.calls[call]))
    ]


def moments(lifecycle: Lifecycle, move: Move, jobs: Collection[Job], now_us: int) -> Iterator[int]:
    """When, to the microsecond, a job's time for the move comes."""
    aged = move.guard("age_over")
    for job in jobs:
        times = [job.lease_until, job.timer_at, job.run_at]
        if aged:
            stamp = getattr(job, lifecycle.stamp_column(aged.names[0]))
            times.append(stamp and stamp + aged.number * SECOND_US)
        for at in times:
            if at and job.state in move.sources and abs(at - now_us) < 2 * DAY_S * SECOND_US:
                then = failing_guard(move, job, lifecycle, Asked(at, ""), None)
                just_before = failing_guard(move, job, lifecycle, Asked(at - 1, ""), None)
                if then is None and just_before:
                    yield at
