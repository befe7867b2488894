"""The random choices of a simulation: every draw comes from the seed of the current step."""

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeVar

from kesin.engine.new_job import NewJob
from kesin.engine.proof_cache import proof_of
from kesin.engine.queue import Queue
from kesin.engine.results import Act, Done, Failed, HandlerResult
from kesin.engine.simulation.checker import signed_result
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.codec import lifecycle_json
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.failures import allowed_from
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import DeclarationError, Role
from kesin.store.rules import proof_between

TENANTS: Final = (
    *("default", "ankara", "van", "adana", "bursa", "izmir"),
    *("kars", "konya", "mersin", "ordu", "rize", "sinop"),
)
FEW_TENANTS: Final = 3
KEY_COUNT: Final = 6

T = TypeVar("T")


class Dice(random.Random):
    """Random values for one lifecycle."""

    def __init__(self, lifecycle: Lifecycle, seed: int) -> None:
        super().__init__(seed)
        self._lifecycle = lifecycle
        self._codes = [code.name for code in lifecycle.errors.codes]
        # Every third history has more tenants than a claim has jobs.
        self.tenants = TENANTS if seed % 3 == 0 else TENANTS[:FEW_TENANTS]
        self._options = {name: sorted(lifecycle.options_of(name)) for name in lifecycle.actions}

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Draw from this seed inside the block, then go on as before."""
        previous = self.getstate()
        self.seed(seed)
        try:
            yield
        finally:
            self.setstate(previous)

    def maybe(self, probability: float) -> bool:
        return self.random() < probability

    def some(self, values: Sequence[T], limit: int) -> list[T]:
        """``limit`` of the values, or all if there are fewer."""
        return self.sample(values, min(len(values), limit))

    def new_jobs(self, queue: Queue, jobs: Iterable[str]) -> list[NewJob]:
        """Jobs to enqueue; where the rules let them, some come after these."""
        news, known = [], sorted(jobs)
        now_us, after = queue.now(), known and queue.lifecycle.enqueue_after_move
        for _ in range(self.choice((1, 1, 2, 4))):
            key = f"key-{self.randrange(KEY_COUNT)}" if self.maybe(0.5) else None
            offset_us = self.choice((0, 0, -SECOND_US, 60 * SECOND_US))
            parents = self.some(known, self.randint(1, 3)) if after and self.maybe(0.5) else ()
            news.append(
                NewJob(
                    {"n": self.randrange(1_000)},
                    key,
                    self.choice(self.tenants),
                    now_us + offset_us if offset_us and not parents else None,
                    self.choice((None, 1, 2, 3)),
                    once=bool(key and self._lifecycle.initial.holds_key and self.maybe(0.1)),
                    priority=self.choice((0, 0, 0, -1, 1, 2)),
                    after=parents,
                )
            )
        return news

    def result(self, job: Job) -> HandlerResult:
        """The result of a handler, which sometimes raises instead."""
        if self.maybe(0.45):
            return Done(signed_result(job, self.randrange(9)))
        if self.maybe(0.5) and self._codes:
            return Failed(self.choice(self._codes))
        if self.maybe(0.2):
            raise ValueError("a handler's own mistake")
        return Failed("Surprise", category=self.choice(list(Category)))

    def action(self, action: str, job: Job) -> Act:
        return Act(
            action,
            result=signed_result(job, self.randrange(9)),
            code=self.code(),
            category=self.choice(list(Category)),
            run_in_s=self.choice((None, 0.0, 30.0)),
            options=self.options(action),
            fenced=self.maybe(0.9),
        )

    def code(self) -> str:
        """An error code, declared or not."""
        return self.choice([*self._codes, "Surprise"])

    def options(self, action: str) -> frozenset[str]:
        return frozenset(option for option in self._options[action] if self.maybe(0.5))

    def seconds(self) -> float:
        """How many seconds pass: usually few, sometimes a jump, sometimes backwards."""
        return self.choices(
            (
                self.random(),
                self.uniform(1, 90),
                self.uniform(60, 3_600),
                -self.uniform(0, 7_200),
                self.uniform(0.2, 1.5) * DAY_S,
                self.choice((8, 91, 366)) * DAY_S,
            ),
            (30, 40, 15, 8, 3, 1),
        )[0]


@lru_cache(maxsize=16)
def earlier_rules(lifecycle: Lifecycle) -> Lifecycle | None:
    """Rules the lifecycle can be an upgrade of: a smaller cap, and one operator's action less."""
    cap = max(lifecycle.max_attempts - 1, 1)
    removable = [
        action
        for action, moves in lifecycle.actions.items()
        if all(move.by == ("operator",) and not move.chained for move in moves)
    ]
    for action in removable:
        moves = tuple(move for move in lifecycle.moves if move.action != action)
        try:
            earlier = replace(lifecycle, moves=moves, max_attempts=cap)
        except DeclarationError:  # other moves need it
            continue
        if proof_of(earlier) and proof_between(lifecycle_json(earlier), lifecycle, frozenset()):
            return earlier
    return None


def drops_claim(lifecycle: Lifecycle, action: str) -> bool:
    return any(move.claim == "drop" for move in lifecycle.actions[action])


def actions_of(lifecycle: Lifecycle, role: Role, state: str | None = None, *, fenced: bool = False) -> list[str]:
    """The actions of a role, or those of them that leave this state."""
    excluded = {move.action for move in lifecycle.claims}
    moves_of = {name: lifecycle.actions[name] for name in lifecycle.actions_of(role)}
    return [
        action
        for action, moves in moves_of.items()
        if action not in excluded
        and (state is None or any(state in move.sources for move in moves))
        and (not fenced or all(move.guard("holds_claim") for move in moves))
    ]


def due_times(rules: Lifecycle, move: Move, jobs: Collection[Job], now_us: int) -> Iterator[int]:
    """The exact times, in microseconds, at which jobs become due for the move."""
    for job in jobs:
        at = allowed_from(rules, move, job, 0) if job.state in move.sources else None
        if at and abs(at - now_us) < 2 * DAY_S * SECOND_US:
            yield at
