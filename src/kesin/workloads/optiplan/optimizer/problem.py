"""A demand as the strategies see it: the kerf folded into every size, equal parts made one kind.

A piece and the blade behind it take ``size + kerf``; the board's far edge needs no blade, so the
room is a kerf larger too. n pieces then need ``sum + (n - 1) × kerf``, exactly as at the saw, and
no strategy thinks of the kerf again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kesin.workloads.optiplan.optimizer.model import Demand, Hundredths, ways


class Drop(NamedTuple):
    """One piece in the lower left corner of a free rectangle, and which way the rest is parted.

    ``rip_first``: the first cut runs along x above the piece, over the rectangle's whole length.
    """

    x: Hundredths
    y: Hundredths
    length: Hundredths  # of the free rectangle
    width: Hundredths
    kind: int
    along: Hundredths  # of the piece
    across: Hundredths
    turned: bool
    rip_first: bool


Filling = list[Drop]  # one board
Fillings = list[Filling]
Way = tuple[Hundredths, Hundredths, bool]  # along, across, turned


@dataclass(frozen=True, slots=True)
class Task:
    """Sizes with the kerf in them. A kind is a size and the ways it may lie; it has an index."""

    length: Hundredths
    width: Hundredths
    ways: tuple[tuple[Way, ...], ...]
    counts: tuple[int, ...]

    @property
    def area(self) -> int:
        return self.length * self.width

    def area_of(self, kind: int) -> int:
        along, across, _ = self.ways[kind][0]
        return along * across

    def pieces(self) -> list[int]:
        """Every piece by its kind."""
        return [kind for kind, count in enumerate(self.counts) for _ in range(count)]

    def least_boards(self) -> int:
        """How few boards could do: by area, and by the pieces no two of which share a board."""
        pieces = self.pieces()
        by_area = -(-sum(map(self.area_of, pieces)) // self.area)
        alone = sum(self.counts[kind] for kind in range(len(self.counts)) if self._is_big(kind))
        return max(1, by_area, alone)

    def _is_big(self, kind: int) -> bool:
        """Whether two such pieces never lie side by side, however they are turned."""
        return all(
            2 * along > self.length and 2 * across > self.width
            for along, across, _ in self.ways[kind]
        )

    def across(self) -> Task:
        """The same with x and y changed over."""
        turned = tuple(
            tuple((across, along, flag) for along, across, flag in kind) for kind in self.ways
        )
        return Task(self.width, self.length, turned, self.counts)


def task_of(demand: Demand) -> tuple[Task, tuple[tuple[int, ...], ...]]:
    """The task, and for each of its kinds the parts (one entry a piece) that it stands for."""
    room = demand.board.usable
    members: dict[tuple[Way, ...], list[int]] = {}
    for number, part in enumerate(demand.parts):
        along, across = part.length + demand.kerf, part.width + demand.kerf
        lying = tuple(
            (across, along, True) if turned else (along, across, False)
            for turned in ways(part, room)
        )
        members.setdefault(lying, []).extend([number] * part.quantity)
    kinds = sorted(members, key=lambda lying: (-lying[0][0] * lying[0][1], lying))
    return (
        Task(
            room.length + demand.kerf,
            room.width + demand.kerf,
            tuple(kinds),
            tuple(len(members[kind]) for kind in kinds),
        ),
        tuple(tuple(members[kind]) for kind in kinds),
    )


def back_across(fillings: Fillings) -> Fillings:
    """What was planned for ``Task.across``, as it lies on the board itself."""
    return [
        [
            Drop(
                drop.y,
                drop.x,
                drop.width,
                drop.length,
                drop.kind,
                drop.across,
                drop.along,
                drop.turned,
                not drop.rip_first,
            )
            for drop in filling
        ]
        for filling in fillings
    ]


def fill_area(filling: Sequence[Drop]) -> int:
    """What a board's pieces take, blades included."""
    return sum(drop.along * drop.across for drop in filling)


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
