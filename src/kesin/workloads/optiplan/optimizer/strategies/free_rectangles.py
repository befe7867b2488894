"""Free rectangles: each piece goes where it fits best, and the rest of that place is parted in two.

A piece is put into the corner of a free rectangle; two cuts free it, and which of them comes first
decides what the two rests look like. Rules for the best place and for the first cut are many and
none is best for every order, so all of them are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from kesin.workloads.optiplan.optimizer.problem import Budget, Drop, Fillings, Task, Way

Fit = Literal["short", "long", "area"]  # which remainder the best place has least of
Room = tuple[int, int, int, int, int]  # board, x, y, length, width
Part = Literal[
    "short_rest", "long_rest", "short_side", "long_side", "large_rest", "even_rests", "rip", "cross"
]
FITS: Final[tuple[Fit, ...]] = ("short", "long", "area")
PARTS: Final[tuple[Part, ...]] = (
    "short_rest",
    "large_rest",
    "rip",
    "cross",
    "even_rests",
    "long_rest",
    "short_side",
    "long_side",
)
PIECE_LOOKS: Final = 8  # what a piece costs beside the looks at it
A_BOARD: Final = 10**15  # more than any rest
NEVER: Final = 10**30
ROOMS: Final = 400  # free rectangles looked at; the newest are kept


def split(
    task: Task,
    pieces: Sequence[int],
    fit: Fit,
    part: Part,
    budget: Budget,
    *,
    first_board: bool = False,
    most_boards: int | None = None,
    skip: bool = False,
) -> Fillings | None:
    """Put the pieces down in their order; nothing if they need more boards than allowed.

    ``first_board`` fills a board before it looks at the next one; ``skip`` leaves out what does
    not go on the boards allowed.
    """
    smallest = min((min(way[:2]) for kind in set(pieces) for way in task.ways[kind]), default=0)
    fillings: Fillings = []
    rooms: list[Room] = []
    looks = 0
    for kind in pieces:
        looks += len(rooms) + PIECE_LOOKS
        found = _best(rooms, task.ways[kind], fit, first_board=first_board)
        if found is None:
            if most_boards is not None and len(fillings) >= most_boards:
                if skip:
                    continue
                budget.spend(looks)
                return None
            rooms.append((len(fillings), 0, 0, task.length, task.width))
            fillings.append([])
            found = _best(rooms[-1:], task.ways[kind], fit, first_board=False)
            if found is None:
                raise ValueError("a piece larger than the board")
            found = (len(rooms) - 1, *found[1:])
        index, along, across, turned = found
        board, x, y, length, width = rooms.pop(index)
        rip_first = _rips(part, length, width, length - along, width - across)
        fillings[board].append(Drop(x, y, length, width, kind, along, across, turned, rip_first))
        over = (length if rip_first else along, width - across)
        beside = (length - along, across if rip_first else width)
        if over[0] >= smallest <= over[1]:
            rooms.append((board, x, y + across, *over))
        if beside[0] >= smallest <= beside[1]:
            rooms.append((board, x + along, y, *beside))
        if len(rooms) > ROOMS:
            del rooms[0]
    budget.spend(looks)
    return fillings


def _best(
    rooms: Sequence[Room], ways: Sequence[Way], fit: Fit, *, first_board: bool
) -> tuple[int, int, int, bool] | None:
    """The place a piece fits best, by its index, and how it lies there."""
    best = None
    least = NEVER
    by_area, by_short = fit == "area", fit == "short"
    for along, across, turned in ways:
        for index, (board, _, _, length, width) in enumerate(rooms):
            if along > length or across > width:
                continue
            if by_area:
                rest = length * width - along * across
            else:
                beside, over = length - along, width - across
                rest = beside if (beside < over) == by_short else over
            if first_board:
                rest += board * A_BOARD
            if rest < least:
                least, best = rest, (index, along, across, turned)
    return best


def _rips(part: Part, length: int, width: int, beside: int, over: int) -> bool:
    """Whether the cut along x comes first."""
    if part in {"short_rest", "long_rest"}:
        return (beside <= over) == (part == "short_rest")
    if part in {"short_side", "long_side"}:
        return (length <= width) == (part == "short_side")
    if part in {"large_rest", "even_rests"}:
        return (length * over >= width * beside) == (part == "large_rest")
    return part == "rip"
