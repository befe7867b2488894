"""Take a few boards apart and put their pieces down again, better.

The emptiest board and a few others are taken; their pieces are put down in a shaken order by a
rule drawn by lot. What needs fewer boards is kept, and so is what leaves the empty space more in
one place: it becomes either a board saved later or one large offcut.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from kesin.workloads.optiplan.optimizer.problem import Budget, Fillings, Task, fill_area
from kesin.workloads.optiplan.optimizer.strategies.free_rectangles import FITS, PARTS, split

TAKEN: Final = (2, 2, 2, 3, 3, 4)  # boards taken apart at once
STALLED: Final = 1_500  # tries in vain, and it is given up
SHAKE: Final = (0.0, 0.15, 0.3, 0.6)

Found = Callable[[Fillings], None]


def improve(
    task: Task,
    start: Fillings,
    budget: Budget,
    *,
    share: float,
    least: int,
    found: Found,
    seed: int,
) -> Fillings:
    """Better fillings, or the same; all boards put down on the way are told to ``found``."""
    chance = Random(seed)
    boards = [list(filling) for filling in start]
    areas = [fill_area(filling) for filling in boards]
    in_vain = 0
    while budget.left(share) and len(boards) > max(least, 1) and in_vain < STALLED:
        in_vain += 1
        chosen = _chosen(areas, chance)
        old = [boards[index] for index in chosen]
        new = _again(task, old, budget, chance)
        if new is None:
            continue
        found(new)
        if _worth(task, new) > _worth(task, old):
            in_vain = 0
            for index in sorted(chosen, reverse=True):
                del boards[index], areas[index]
            boards += new
            areas += [fill_area(filling) for filling in new]
    return boards


def settle(task: Task, start: Fillings, budget: Budget, seed: int) -> Fillings:
    """The same number of boards, with the empty space gathered on as few of them as possible."""
    if len(start) == 1:
        return start
    return improve(task, start, budget, share=1.0, least=1, found=lambda _: None, seed=seed)


def _chosen(areas: list[int], chance: Random) -> list[int]:
    count = min(chance.choice(TAKEN), len(areas))
    order = sorted(range(len(areas)), key=areas.__getitem__)
    emptiest = order[0] if chance.random() < 0.7 else chance.choice(order)  # noqa: PLR2004
    others = [index for index in order if index != emptiest]
    return [emptiest, *chance.sample(others, count - 1)]


def _again(task: Task, old: Fillings, budget: Budget, chance: Random) -> Fillings | None:
    """The pieces of some boards once more, on no more boards than before."""
    shake = chance.choice(SHAKE)
    measure = chance.choice((_by_area, _by_long_side, _by_short_side, _by_edge))
    pieces = [drop.kind for filling in old for drop in filling]
    rank = {
        kind: measure(task, kind) * (1 + shake * (chance.random() - 0.5))
        for kind in sorted(set(pieces))
    }
    if chance.random() < 0.5:  # noqa: PLR2004 - every piece for itself, or equal ones together
        pieces.sort(key=lambda kind: (-rank[kind], kind))
    else:
        shaken = [
            (rank[kind] * (1 + shake * (chance.random() - 0.5)), kind) for kind in sorted(pieces)
        ]
        pieces = [kind for _, kind in sorted(shaken, reverse=True)]
    return split(
        task,
        pieces,
        chance.choice(FITS),
        chance.choice(PARTS),
        budget,
        first_board=chance.random() < 0.5,  # noqa: PLR2004
        most_boards=len(old),
    )


def _worth(task: Task, fillings: Fillings) -> float:
    """Higher for fewer boards, and for boards that are either full or empty."""
    return sum((fill_area(filling) / task.area) ** 2 for filling in fillings) - 10 * len(fillings)


def _by_area(task: Task, kind: int) -> float:
    return task.area_of(kind)


def _by_long_side(task: Task, kind: int) -> float:
    return max(task.ways[kind][0][:2])


def _by_short_side(task: Task, kind: int) -> float:
    return min(task.ways[kind][0][:2])


def _by_edge(task: Task, kind: int) -> float:
    return sum(task.ways[kind][0][:2])
