"""The packing task: pieces, and the board, whose far edge needs no blade, are a kerf larger."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self

from kesin.workloads.optiplan.optimizer.model import Demand, Hundredths, orientations


class Drop(NamedTuple):
    """A piece in a free rectangle's corner; ``rip_first``: first a cut along x above it."""

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
Orientation = tuple[Hundredths, Hundredths, bool]  # along, across, turned
FreeRectangle = tuple[int, int, int, int, int]  # board, x, y, length, width


@dataclass(frozen=True, slots=True)
class PackingTask:
    """Sizes include the kerf. A kind, given by its index, is a size and its orientations."""

    length: Hundredths
    width: Hundredths
    orientations: tuple[tuple[Orientation, ...], ...]
    counts: tuple[int, ...]

    @property
    def area(self) -> int:
        return self.length * self.width

    def area_of(self, kind: int) -> int:
        along, across, _ = self.orientations[kind][0]
        return along * across

    def pieces(self) -> list[int]:
        return [kind for kind, count in enumerate(self.counts) for _ in range(count)]

    def least_boards(self) -> int:
        """Return a lower bound: by area, and by the pieces too large to share a board."""
        by_area = -(-sum(map(self.area_of, self.pieces())) // self.area)
        alone = sum(
            count
            for count, ways in zip(self.counts, self.orientations, strict=True)
            if all(2 * way[0] > self.length and 2 * way[1] > self.width for way in ways)
        )
        return max(1, by_area, alone)

    def transpose(self) -> Self:
        turned = tuple(
            tuple((across, along, flag) for along, across, flag in kind)
            for kind in self.orientations
        )
        return replace(self, length=self.width, width=self.length, orientations=turned)


def build_task(demand: Demand) -> tuple[PackingTask, tuple[tuple[int, ...], ...]]:
    """Build the task, and for each of its kinds the list of parts, one entry per piece."""
    usable = demand.board.usable
    members: dict[tuple[Orientation, ...], list[int]] = {}
    for number, part in enumerate(demand.parts):
        along, across = part.length + demand.kerf, part.width + demand.kerf
        kind = tuple(
            (across, along, True) if turned else (along, across, False)
            for turned in orientations(part, usable)
        )
        members.setdefault(kind, []).extend([number] * part.quantity)
    kinds = tuple(sorted(members, key=lambda kind: (-kind[0][0] * kind[0][1], kind)))
    parts = tuple(tuple(members[kind]) for kind in kinds)
    length, width = usable.length + demand.kerf, usable.width + demand.kerf
    return PackingTask(length, width, kinds, tuple(map(len, parts))), parts


def transpose_back(fillings: Fillings) -> Fillings:
    """Swap x and y back in the result for a transposed task."""
    return [
        [
            Drop(y, x, width, length, kind, across, along, turned, not rip_first)
            for x, y, length, width, kind, along, across, turned, rip_first in filling
        ]
        for filling in fillings
    ]


def fill_area(filling: Sequence[Drop]) -> int:
    """Return the area of a board's pieces, kerf included."""
    return sum(drop.along * drop.across for drop in filling)


LOOKS: Final = 1_600_000  # well under a second
PIECES: Final = 100  # pieces this is meant for; larger orders get up to six times as much


@dataclass(frozen=True, slots=True)
class Effort:
    """The limits of planning. A look compares one piece with one free rectangle."""

    looks: int = LOOKS
    seconds: float = 60.0
    solver: bool = True  # use HiGHS where it is installed
    now: Callable[[], float] = time.monotonic

    def scaled_to(self, pieces: int) -> Self:
        return replace(self, looks=round(self.looks * min(max(pieces / PIECES, 1), 6)))


@dataclass(slots=True)
class Budget:
    """The part of an effort that is used up."""

    effort: Effort
    spent: int = 0
    ends: float = field(init=False)

    def __post_init__(self) -> None:
        self.ends = self.effort.now() + self.effort.seconds

    def has_left(self, share: float = 1.0) -> bool:
        """Whether less than this share of the looks is spent, and the time limit is not reached."""
        return self.spent < self.effort.looks * share and self.effort.now() < self.ends
