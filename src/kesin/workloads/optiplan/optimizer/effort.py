"""How much may be tried. Work is counted, not timed, so that the same order gets the same plan.

The clock is a safety net for a machine that is far slower than ours: when it strikes, the best
plan so far is taken, and that plan alone may differ from the one another machine would make.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

LOOKS: Final = 1_600_000  # well under a second here
PIECES: Final = 100  # that so much is meant for; larger orders get more, up to six times


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of one plan. A look is one piece held against one free rectangle."""

    looks: int = LOOKS
    seconds: float = 60.0
    solver: bool = True  # use HiGHS where it is installed
    now: Callable[[], float] = time.monotonic

    def of(self, pieces: int) -> Effort:
        """What an order of this many pieces gets."""
        return replace(self, looks=round(self.looks * min(max(pieces / PIECES, 1), 6)))


@dataclass(slots=True)
class Budget:
    """What is left of an effort."""

    effort: Effort
    spent: int = 0
    ends: float = field(init=False)

    def __post_init__(self) -> None:
        self.ends = self.effort.now() + self.effort.seconds

    def spend(self, looks: int) -> None:
        self.spent += looks

    def left(self, share: float = 1.0) -> bool:
        """Whether less than this share of the work is done, and the clock has not struck."""
        return self.spent < self.effort.looks * share and self.effort.now() < self.ends
