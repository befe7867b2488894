"""The packing task: pieces, and the board, whose far edge needs no blade, are a kerf larger."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, Self

from kesin.workloads.optiplan.optimizer.model import Board, CutPart, Demand, Hundredths, Unplannable, size_text

EffortName = Literal["quick", "normal", "thorough"]
UNLIMITED: Final = 99  # stages
RIP: Final = True  # the direction of a cut: along x
CROSS: Final = False  # along y


class Drop(NamedTuple):
    """A piece in a free rectangle's corner; ``rip_first``: first a cut along x above it.

    A drop of the kind `STRIP` is no piece but a cut: it divides the rectangle in two.
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


STRIP: Final = -1

DropValues = tuple[int, int, int, int, int, int, int, bool, bool]  # of a `Drop`, made faster
Filling = list[DropValues]  # one board
Fillings = list[Filling]
Orientation = tuple[Hundredths, Hundredths, bool]  # along, across, turned


class Start(NamedTuple):
    """A direction in which a board may be cut first."""

    rips: bool  # along the board's length
    stages: int  # at most
    strip: Hundredths  # the least size, kerf included, of a strip that then holds pieces


@dataclass(frozen=True, slots=True)
class PackingTask:
    """Sizes include the kerf. A kind, given by its index, is a size and its orientations.

    A kind without orientations does not fit the board and is left out.
    """

    length: Hundredths
    width: Hundredths
    orientations: tuple[tuple[Orientation, ...], ...]
    counts: tuple[int, ...]
    starts: tuple[Start, ...]
    smallest: tuple[int, ...]  # the shorter side of each kind
    least_across: Mapping[int, int]  # of all orientations, by the extent along
    least_along: Mapping[int, int]  # the other way round
    weights: tuple[int, ...]  # what a piece of each kind counts: its area, and more if it is hard to place

    @property
    def area(self) -> int:
        return self.length * self.width

    def area_of(self, kind: int) -> int:
        return next((along * across for along, across, _ in self.orientations[kind]), 0)

    def weight_of(self, filling: Filling) -> int:
        return sum(map(self.weights.__getitem__, kinds_of(filling)))

    def pieces(self) -> list[int]:
        """Return the kinds of all pieces that fit the board."""
        return [kind for kind, count in enumerate(self.counts) if self.orientations[kind] for _ in range(count)]

    def least_boards(self) -> int:
        """Return a lower bound: by area, and by the pieces too large to share a board."""
        by_area = -(-sum(map(self.area_of, self.pieces())) // self.area)
        alone = sum(
            count
            for count, ways in zip(self.counts, self.orientations, strict=True)
            if ways and all(2 * way[0] > self.length and 2 * way[1] > self.width for way in ways)
        )
        return max(1, by_area, alone)

    def with_counts(self, counts: Sequence[int]) -> Self:
        return replace(self, counts=tuple(counts))


def build_task(demand: Demand) -> tuple[PackingTask, tuple[tuple[int, ...], ...]]:
    """Build the task of the demand's own board; raises Unplannable if a part does not fit it."""
    tasks, members = build_tasks(demand, [demand.board])
    refuse_unfit(demand, tasks, members)
    return tasks[0], members


def build_tasks(demand: Demand, boards: Sequence[Board]) -> tuple[list[PackingTask], tuple[tuple[int, ...], ...]]:
    """Build a task for each board, and for each kind the list of parts, one entry per piece.

    All tasks have the same kinds; on a board too small for a kind it has no orientations.
    """
    saw = demand.saw
    members: dict[tuple[Orientation, ...], list[int]] = {}
    for number, part in enumerate(demand.parts):
        members.setdefault(_ways(demand, part), []).extend([number] * part.quantity)
    kinds = sorted(members, key=lambda kind: (-kind[0][0] * kind[0][1], kind))
    parts = tuple(tuple(members[kind]) for kind in kinds)
    tasks = []
    for board in boards:
        length = board.usable.length + saw.kerf_cross
        width = board.usable.width + saw.kerf_rip
        starts = find_starts(demand, board)
        ways = tuple(tuple(way for way in kind if _fits(way, length, width, starts)) for kind in kinds)
        tasks.append(_task(length, width, ways, tuple(map(len, parts)), starts))
    return tasks, parts


def _task(
    length: int,
    width: int,
    orientations: tuple[tuple[Orientation, ...], ...],
    counts: tuple[int, ...],
    starts: tuple[Start, ...],
) -> PackingTask:
    least_across: dict[int, int] = {}
    least_along: dict[int, int] = {}
    for along, across, _ in sorted(way for ways in orientations for way in ways):
        least_across.setdefault(along, across)
        least_along[across] = min(along, least_along.get(across, along))
    smallest = tuple(min((min(way[:2]) for way in ways), default=0) for ways in orientations)
    areas = tuple(ways[0][0] * ways[0][1] if ways else 0 for ways in orientations)
    return PackingTask(length, width, orientations, counts, starts, smallest, least_across, least_along, areas)


def refuse_unfit(demand: Demand, tasks: Sequence[PackingTask], members: Sequence[Sequence[int]]) -> None:
    """Raise Unplannable, naming the part, if a kind fits none of the tasks' boards."""
    if not any(task.starts for task in tasks):
        limits = f"largest_cut and largest_rip of saw {demand.saw.name!r}"
        raise Unplannable(f"{demand.name}: {limits} leave no first cut through the board")
    for kind, numbers in enumerate(members):
        if not any(task.orientations[kind] for task in tasks):
            part = demand.parts[numbers[0]]
            raise Unplannable(
                f"part {part.name!r} ({size_text(part.length, part.width)} mm) cannot be cut from"
                f" the board within the limits of saw {demand.saw.name!r}"
            )


def find_starts(demand: Demand, board: Board) -> tuple[Start, ...]:
    """Return the directions in which the saw may cut a board first; empty if there is none."""
    saw = demand.saw
    starts = []
    for runs, cut, rip, kerf in (
        ("rip", board.length, board.width, saw.kerf_rip),
        ("cross", board.width, board.length, saw.kerf_cross),
    ):
        head = saw.head_cut and saw.first_cut not in {"any", runs}
        if saw.first_cut not in {"any", runs} and not head:
            continue
        if (saw.largest_cut and cut > saw.largest_cut) or (saw.largest_rip and rip > saw.largest_rip):
            continue
        limit = saw.stage_limit if head or saw.first_cut == "any" else saw.max_stages
        strip = saw.smallest_strip + kerf if saw.smallest_strip else 0
        starts.append(Start(runs == "rip", limit or UNLIMITED, strip))
    return tuple(starts)


def _ways(demand: Demand, part: CutPart) -> tuple[Orientation, ...]:
    return tuple(
        (along + demand.saw.kerf_cross, across + demand.saw.kerf_rip, turned)
        for turned in part.turns
        for along, across in [part.size(turned=turned)]
    )


def _fits(way: Orientation, length: int, width: int, starts: Sequence[Start]) -> bool:
    """Whether a piece can be cut from an empty board."""
    if way[0] > length or way[1] > width:
        return False
    whole = way[:2] == (length, width)
    return whole or any(may_start(start, way, length, width) for start in starts)


def may_start(start: Start, way: Orientation, length: int, width: int) -> bool:
    """Whether a piece can be cut from an empty board, its first cut as given."""
    size, other, room, end = way[1], way[0], width, length
    if not start.rips:
        size, other, room, end = other, size, end, room
    # A strip that is wider than the piece is cut across, then along once more.
    narrow = size < start.strip
    stages = 1 + (other < end) + narrow
    return size < room >= start.strip and stages <= start.stages and not (narrow and other == end)


def fill_area(filling: Filling) -> int:
    """Return the area of a board's pieces, kerf included."""
    return sum(along * across for _, _, _, _, _, along, across, _, _ in filling)


def kinds_of(filling: Filling) -> list[int]:
    """Return the kind of each piece of a board, in the order in which they were placed."""
    return [values[4] for values in filling if values[4] != STRIP]


def largest_rest(filling: Filling) -> int:
    """Return the area of the largest rectangle that the pieces of a board leave."""
    used = {values[:4] for values in filling}
    largest = 0
    for x, y, length, width, _, along, across, _, rip_first in filling:
        above, beside = width - across, length - along
        over = (x, y + across, length if rip_first else along, above)
        right = (x + along, y, beside, across if rip_first else width)
        if over not in used:
            largest = max(largest, over[2] * above)
        if right not in used:
            largest = max(largest, right[3] * beside)
    return largest


LOOKS: Final = {"quick": 750_000, "normal": 3_000_000, "thorough": 24_000_000}
PIECES: Final = 100  # pieces this is meant for; larger orders get up to six times as much


@dataclass(frozen=True, slots=True)
class Effort:
    """The limits of planning. A look compares one piece with one free rectangle."""

    looks: int = LOOKS["normal"]
    seconds: float = 60.0
    now: Callable[[], float] = time.monotonic

    @classmethod
    def named(cls, name: EffortName, **limits: Any) -> Self:
        return cls(looks=LOOKS[name], **limits)

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

    @property
    def share(self) -> float:
        """The share of the looks that is spent."""
        return self.spent / self.effort.looks

    def has_left(self, share: float = 1.0) -> bool:
        """Whether less than this share of the looks is spent, and the time limit is not reached."""
        return self.spent < self.effort.looks * share and self.effort.now() < self.ends
