"""Strips in three stages, the fastest at a saw: no plan needs fewer turns of the panel."""

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
    loss: Callable[[FreeRectangle, Orientation], tuple[int, int]]
    rectangles: list[FreeRectangle] = field(default_factory=list)

    def add(self, rectangle: FreeRectangle) -> None:
        if rectangle[3] >= self.shortest and rectangle[4] >= self.lowest:
            self.rectangles.append(rectangle)
            del self.rectangles[:-MAX_RECTANGLES]

    def take(self, ways: Sequence[Orientation]) -> tuple[FreeRectangle, Orientation] | None:
        """Remove the rectangle with the least loss; returns it and the piece's orientation."""
        losses = (
            (self.loss(rectangle, way), index, number)
            for index, rectangle in enumerate(self.rectangles)
            for number, way in enumerate(ways)
            if way[0] <= rectangle[3] and way[1] <= rectangle[4]
        )
        best = min(losses, default=None)
        return None if best is None else (self.rectangles.pop(best[1]), ways[best[2]])


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
        fillings = fill_strips(task.transpose(), pieces, preference, budget, cross_first=False)
        return problem.transpose_back(fillings)
    ways_of = {kind: _sort_ways(task.orientations[kind], preference) for kind in set(pieces)}
    tallest_first = sorted(
        pieces, key=lambda kind: (-ways_of[kind][0][1], -ways_of[kind][0][0], kind)
    )
    shortest = min(way[0] for ways in ways_of.values() for way in ways)
    lowest = min(way[1] for ways in ways_of.values() for way in ways)
    boards = _FreeRectangles(shortest, lowest, _board_loss)  # what is left above the strips
    rows = _FreeRectangles(shortest, lowest, _strip_loss)  # beside the pieces of a strip
    stacks = _FreeRectangles(shortest, lowest, _strip_loss)  # above a piece of a strip
    fillings = []
    for kind in tallest_first:
        budget.spent += len(stacks.rectangles) + len(rows.rectangles) + len(boards.rectangles)
        for free in (stacks, rows, boards):
            if (place := free.take(ways_of[kind])) is not None:
                break
        else:
            boards.add((len(fillings), 0, 0, task.length, task.width))
            fillings.append([])
            if (place := boards.take(ways_of[kind])) is None:
                raise ValueError("a piece larger than the board")
        (board, x, y, length, width), (along, across, turned) = place
        drop = problem.Drop(x, y, length, width, kind, along, across, turned, free is not rows)
        fillings[board].append(drop)
        if free is rows:
            rows.add((board, x + along, y, length - along, width))
            stacks.add((board, x, y + across, along, width - across))
        else:
            free.add((board, x, y + across, length, width - across))
        if free is boards:
            rows.add((board, x + along, y, length - along, across))
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
