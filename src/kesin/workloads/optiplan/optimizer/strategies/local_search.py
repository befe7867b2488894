"""Local search: repack the emptiest board with a few others, for fewer boards or a saved one."""

import math
from collections.abc import Callable
from random import Random
from typing import Final

from kesin.workloads.optiplan.optimizer.problem import Budget, Fillings, PackingTask, fill_area
from kesin.workloads.optiplan.optimizer.strategies import free_rectangles

REPACKED_BOARDS: Final = (2, 2, 2, 3, 3, 4)  # boards repacked at once
MAX_STALLED: Final = 1_500  # attempts without improvement after which the search ends
PERTURBATIONS: Final = (0.0, 0.15, 0.3, 0.6)
# What the sides of a piece are ordered by: its area, its long side, its short side, their sum.
MEASURES: Final[tuple[Callable[[tuple[int, int]], int], ...]] = (math.prod, max, min, sum)


def improve(
    task: PackingTask,
    start: Fillings,
    budget: Budget,
    share: float,
    least: int,
    *,
    seed: int,
    on_repacked: Callable[[Fillings], None] = lambda _: None,
) -> Fillings:
    """Return better fillings, or the same; every repacked result is passed to ``on_repacked``."""
    rng = Random(seed)
    boards = [list(filling) for filling in start]
    areas = [fill_area(filling) for filling in boards]
    stalled = 0
    while budget.has_left(share) and len(boards) > max(least, 1) and stalled < MAX_STALLED:
        stalled += 1
        chosen = _choose_boards(areas, rng)
        old_fillings = [boards[index] for index in chosen]
        if (new_fillings := _repack(task, old_fillings, budget, rng)) is None:
            continue
        on_repacked(new_fillings)
        if _score(task, new_fillings) > _score(task, old_fillings):
            stalled = 0
            for index in sorted(chosen, reverse=True):
                del boards[index], areas[index]
            boards += new_fillings
            areas += [fill_area(filling) for filling in new_fillings]
    return boards


def _choose_boards(areas: list[int], rng: Random) -> list[int]:
    count = min(rng.choice(REPACKED_BOARDS), len(areas))
    order = sorted(range(len(areas)), key=areas.__getitem__)
    emptiest = order[0] if rng.random() < 0.7 else rng.choice(order)  # noqa: PLR2004
    return [emptiest, *rng.sample([index for index in order if index != emptiest], count - 1)]


def _repack(task: PackingTask, old: Fillings, budget: Budget, rng: Random) -> Fillings | None:
    """Repack the pieces of some boards on no more boards than before; None if they do not fit."""
    perturbation = rng.choice(PERTURBATIONS)
    measure = rng.choice(MEASURES)
    pieces = [drop.kind for filling in old for drop in filling]
    rank = {
        kind: measure(task.orientations[kind][0][:2]) * (1 + perturbation * (rng.random() - 0.5))
        for kind in sorted(set(pieces))
    }
    if rng.random() < 0.5:  # noqa: PLR2004 - equal pieces together, or each piece by itself
        pieces.sort(key=lambda kind: (-rank[kind], kind))
    else:
        ranked = [
            (rank[kind] * (1 + perturbation * (rng.random() - 0.5)), kind)
            for kind in sorted(pieces)
        ]
        pieces = [kind for _, kind in sorted(ranked, reverse=True)]
    fit, split = rng.choice(free_rectangles.FIT_RULES), rng.choice(free_rectangles.SPLIT_RULES)
    rules = free_rectangles.PackingRules(fit, split, rng.random() < 0.5)  # noqa: PLR2004
    return free_rectangles.fill_boards(task, pieces, rules, budget, max_boards=len(old))


def _score(task: PackingTask, fillings: Fillings) -> float:
    """Return a score: higher for fewer boards, and for boards that are either full or empty."""
    return sum((fill_area(filling) / task.area) ** 2 for filling in fillings) - 10 * len(fillings)
