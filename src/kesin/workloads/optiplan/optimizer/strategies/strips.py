"""Staged strips: the board is ripped into strips, a strip cut across, and what is low is stacked.

Three stages, the way a panel saw is worked fastest: all rips first, then each strip by itself.
Denser plans exist, but none is sawn with fewer turns of the panel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from kesin.workloads.optiplan.optimizer.problem import (
    Budget,
    Drop,
    Fillings,
    Task,
    Way,
    back_across,
)

Lying = Literal["flat", "tall", "as_told"]
LYING: Final[tuple[Lying, ...]] = ("flat", "tall", "as_told")
ROOMS: Final = 150  # of each sort; the newest are kept
Room = tuple[int, int, int, int, int]  # board, x, y, length, width


@dataclass(slots=True)
class _Rooms:
    """Places into which something may still go."""

    shortest: int
    lowest: int
    kept: list[Room] = field(default_factory=list)

    def add(self, room: Room) -> None:
        if room[3] >= self.shortest and room[4] >= self.lowest:
            self.kept.append(room)
            del self.kept[:-ROOMS]


def strips(
    task: Task, pieces: Sequence[int], lying: Lying, budget: Budget, *, cross_first: bool
) -> Fillings:
    """Strips along x, or along y if ``cross_first``; higher pieces open the strips."""
    if cross_first:
        return back_across(strips(task.across(), pieces, lying, budget, cross_first=False))
    chosen = {kind: _ways(task.ways[kind], lying) for kind in set(pieces)}
    high_first = sorted(pieces, key=lambda kind: (-chosen[kind][0][1], -chosen[kind][0][0], kind))
    every = [way for ways in chosen.values() for way in ways]
    shortest, lowest = min(way[0] for way in every), min(way[1] for way in every)
    boards = _Rooms(shortest, lowest)  # what is left above the strips
    rows = _Rooms(shortest, lowest)  # what is left beside the pieces of a strip
    stacks = _Rooms(shortest, lowest)  # what is left above a piece of a strip
    fillings: Fillings = []
    for kind in high_first:
        budget.spend(len(stacks.kept) + len(rows.kept) + len(boards.kept))
        ways = chosen[kind]
        if (place := _least(stacks.kept, ways, _over)) is not None:
            (board, x, y, length, width), way = stacks.kept.pop(place[0]), place[1]
            rip_first = True
            stacks.add((board, x, y + way[1], length, width - way[1]))
        elif (place := _least(rows.kept, ways, _over)) is not None:
            (board, x, y, length, width), way = rows.kept.pop(place[0]), place[1]
            rip_first = False
            rows.add((board, x + way[0], y, length - way[0], width))
            stacks.add((board, x, y + way[1], way[0], width - way[1]))
        else:
            place = _least(boards.kept, ways, _above)
            if place is None:
                boards.add((len(fillings), 0, 0, task.length, task.width))
                fillings.append([])
                place = _least(boards.kept[-1:], ways, _above)
                if place is None:
                    raise ValueError("a piece larger than the board")
                place = (len(boards.kept) - 1, place[1])
            (board, x, y, length, width), way = boards.kept.pop(place[0]), place[1]
            rip_first = True
            boards.add((board, x, y + way[1], length, width - way[1]))
            rows.add((board, x + way[0], y, length - way[0], way[1]))
        fillings[board].append(Drop(x, y, length, width, kind, way[0], way[1], way[2], rip_first))
    return fillings


def _ways(ways: tuple[Way, ...], lying: Lying) -> tuple[Way, ...]:
    """The ways a kind may lie, the wanted one first."""
    if lying == "as_told":
        return ways
    sign = 1 if lying == "flat" else -1
    return tuple(sorted(ways, key=lambda way: (sign * way[1], way)))


def _over(room: Room, way: Way) -> tuple[int, int]:
    """Least height lost, then least length."""
    return room[4] - way[1], room[3] - way[0]


def _above(room: Room, way: Way) -> tuple[int, int]:
    """The fullest board."""
    return room[4], way[1]


def _least(
    rooms: Sequence[Room], ways: Sequence[Way], loss: Callable[[Room, Way], tuple[int, int]]
) -> tuple[int, Way] | None:
    """The room in which the least is lost, by its index, and the way the piece lies in it."""
    best: tuple[tuple[int, int], int, Way] | None = None
    for index, room in enumerate(rooms):
        for way in ways:
            if way[0] <= room[3] and way[1] <= room[4]:
                told = loss(room, way)
                if best is None or told < best[0]:
                    best = (told, index, way)
    return None if best is None else best[1:]
