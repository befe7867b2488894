"""Staged strips: the board is ripped into strips, strips are cut across, low pieces are stacked.

This takes three stages, the fastest way to use a panel saw: all rips first, then each strip by
itself. Denser plans exist, but none needs fewer turns of the panel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from kesin.workloads.optiplan.optimizer import problem
from kesin.workloads.optiplan.optimizer.problem import Fillings, FreeRectangle, Orientation

OrientationPreference = Literal["flat", "tall", "as_given"]
PREFERENCES: Final[tuple[OrientationPreference, ...]] = ("flat", "tall", "as_given")
MAX_RECTANGLES: Final = 150  # of each sort; the newest are kept


@dataclass(slots=True)
class _FreeRectangles:
    """Free rectangles large enough for some piece."""

    shortest: int
    lowest: int
    rectangles: list[FreeRectangle] = field(default_factory=list)

    def add(self, rectangle: FreeRectangle) -> None:
        if rectangle[3] >= self.shortest and rectangle[4] >= self.lowest:
            self.rectangles.append(rectangle)
            del self.rectangles[:-MAX_RECTANGLES]


def fill_strips(
    task: problem.PackingTask,
    pieces: Sequence[int],
    preference: OrientationPreference,
    budget: problem.Budget,
    *,
    cross_first: bool,
) -> Fillings:
    """Fill strips along x, or along y if ``cross_first``; the tallest pieces open the strips."""
    if cross_first:
        turned = task.transpose()
        return problem.transpose_back(
            fill_strips(turned, pieces, preference, budget, cross_first=False)
        )
    ways_of = {kind: _sort_ways(task.orientations[kind], preference) for kind in set(pieces)}
    tallest_first = sorted(
        pieces, key=lambda kind: (-ways_of[kind][0][1], -ways_of[kind][0][0], kind)
    )
    shortest = min(way[0] for ways in ways_of.values() for way in ways)
    lowest = min(way[1] for ways in ways_of.values() for way in ways)
    boards = _FreeRectangles(shortest, lowest)  # what is left above the strips
    rows = _FreeRectangles(shortest, lowest)  # what is left beside the pieces of a strip
    stacks = _FreeRectangles(shortest, lowest)  # what is left above a piece of a strip
    fillings: Fillings = []
    for kind in tallest_first:
        budget.spent += len(stacks.rectangles) + len(rows.rectangles) + len(boards.rectangles)
        ways = ways_of[kind]
        if (place := _find_least_loss(stacks.rectangles, ways, _strip_loss)) is not None:
            (board, x, y, length, width), way = stacks.rectangles.pop(place[0]), place[1]
            rip_first = True
            stacks.add((board, x, y + way[1], length, width - way[1]))
        elif (place := _find_least_loss(rows.rectangles, ways, _strip_loss)) is not None:
            (board, x, y, length, width), way = rows.rectangles.pop(place[0]), place[1]
            rip_first = False
            rows.add((board, x + way[0], y, length - way[0], width))
            stacks.add((board, x, y + way[1], way[0], width - way[1]))
        else:
            place = _find_least_loss(boards.rectangles, ways, _board_loss)
            if place is None:
                boards.add((len(fillings), 0, 0, task.length, task.width))
                fillings.append([])
                place = _find_least_loss(boards.rectangles[-1:], ways, _board_loss)
                if place is None:
                    raise ValueError("a piece larger than the board")
                place = (len(boards.rectangles) - 1, place[1])
            (board, x, y, length, width), way = boards.rectangles.pop(place[0]), place[1]
            rip_first = True
            boards.add((board, x, y + way[1], length, width - way[1]))
            rows.add((board, x + way[0], y, length - way[0], way[1]))
        fillings[board].append(problem.Drop(x, y, length, width, kind, *way, rip_first))
    return fillings


def _sort_ways(ways: Sequence[Orientation], preference: OrientationPreference) -> list[Orientation]:
    """Return the orientations of a kind, the preferred one first."""
    if preference == "as_given":
        return list(ways)
    sign = 1 if preference == "flat" else -1
    return sorted(ways, key=lambda way: (sign * way[1], way))


def _strip_loss(rectangle: FreeRectangle, orientation: Orientation) -> tuple[int, int]:
    """Minimise the lost height, then the lost length."""
    return rectangle[4] - orientation[1], rectangle[3] - orientation[0]


def _board_loss(rectangle: FreeRectangle, orientation: Orientation) -> tuple[int, int]:
    """Prefer the fullest board."""
    return rectangle[4], orientation[1]


def _find_least_loss(
    rectangles: Sequence[FreeRectangle],
    orientations: Sequence[Orientation],
    loss: Callable[[FreeRectangle, Orientation], tuple[int, int]],
) -> tuple[int, Orientation] | None:
    """Return the index of the rectangle with the least loss, and the piece's orientation in it."""
    best: tuple[tuple[int, int], int, Orientation] | None = None
    for index, rectangle in enumerate(rectangles):
        for orientation in orientations:
            if orientation[0] <= rectangle[3] and orientation[1] <= rectangle[4]:
                cost = loss(rectangle, orientation)
                if best is None or cost < best[0]:
                    best = (cost, index, orientation)
    return None if best is None else best[1:]
