"""Column generation: patterns worth repeating, for orders with many pieces of few kinds.

A linear programme over the boards seen so far tells what each kind of piece is worth at the margin;
boards filled with the worthiest pieces are added until none is worth more than it costs. The whole
boards of its solution are taken, and what they leave is planned like a small order. It pays where
kinds repeat; otherwise the solution holds no whole boards. HiGHS solves the programme; where it is
not installed this strategy is left out.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

from kesin.workloads.optiplan.optimizer.problem import Budget, Filling, Fillings, Task
from kesin.workloads.optiplan.optimizer.strategies.free_rectangles import FITS, PARTS, split

ROUNDS: Final = 60  # of pricing
NEW_BOARDS: Final = 12  # filled a round
COLUMNS: Final = 600  # to start from: the fullest
REPEATS: Final = 4  # pieces a kind, on average, from which it pays
SLACK: Final = 1e-6
POWERS: Final = (0.8, 0.9, 1.0, 1.1)  # how much the area of a piece speaks against it

Counts = tuple[int, ...]  # pieces on a board, by kind
Pool = dict[Counts, Filling]


def pays(task: Task) -> bool:
    """Whether kinds repeat enough, and there is a solver."""
    repeats = sum(task.counts) >= REPEATS * len(task.counts)
    return repeats and importlib.util.find_spec("highspy") is not None


def whole_boards(task: Task, pool: Pool, budget: Budget, share: float) -> tuple[Fillings, Task]:
    """Boards to saw as often as the programme says, and the task that is left after them."""
    chance = Random(11)
    known = dict(pool)
    columns = sorted(known, key=lambda counts: (-_filled(task, counts), counts))[:COLUMNS]
    times, values = _programme(task, columns)
    for _ in range(ROUNDS):
        if not budget.left(share):
            break
        fresh = []
        for counts, filling in _priced(task, values, budget, chance):
            if _worth(counts, values) > 1 + SLACK and counts not in known:
                known[counts] = filling
                fresh.append(counts)
        if fresh:
            columns += fresh
            times, values = _programme(task, columns)
    left = list(task.counts)
    boards: Fillings = []
    for counts, wanted in sorted(
        zip(columns, times, strict=True), key=lambda column: (-column[1], column[0])
    ):
        for _ in range(int(wanted + SLACK)):
            if any(count > have for count, have in zip(counts, left, strict=True)):
                break
            boards.append(known[counts])
            left = [have - count for have, count in zip(left, counts, strict=True)]
    return boards, Task(task.length, task.width, task.ways, tuple(left))


def _filled(task: Task, counts: Counts) -> int:
    return sum(count * task.area_of(kind) for kind, count in enumerate(counts))


def _worth(counts: Counts, values: Sequence[float]) -> float:
    return sum(count * value for count, value in zip(counts, values, strict=True))


def _priced(
    task: Task, values: Sequence[float], budget: Budget, chance: Random
) -> Iterator[tuple[Counts, Filling]]:
    """Boards filled with what is worth most for its area."""
    kinds = [kind for kind in range(len(task.counts)) if values[kind] > SLACK]
    for number in range(NEW_BOARDS):
        shake = 0.0 if number < len(FITS) else 0.1 * number
        power = chance.choice(POWERS)
        rank = {
            kind: values[kind] / task.area_of(kind) ** power * (1 + shake * (chance.random() - 0.5))
            for kind in kinds
        }
        pieces = [
            kind
            for kind in sorted(rank, key=lambda kind: (-rank[kind], kind))
            for _ in range(task.counts[kind])
        ]
        fit, part = FITS[number % len(FITS)], chance.choice(PARTS)
        filled = split(task, pieces, fit, part, budget, most_boards=1, skip=True)
        if filled:
            counts = Counter(drop.kind for drop in filled[0])
            yield tuple(counts[kind] for kind in range(len(task.counts))), filled[0]


def _programme(task: Task, columns: Sequence[Counts]) -> tuple[list[float], list[float]]:
    """How often each board is sawn, in fractions, and what a piece of each kind is worth."""
    import highspy
    import numpy as np

    model: Any = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(columns), len(task.counts)
    model.col_cost_ = np.ones(len(columns))
    model.col_lower_ = np.zeros(len(columns))
    model.col_upper_ = np.full(len(columns), highspy.kHighsInf)
    model.row_lower_ = np.array(task.counts, dtype=float)
    model.row_upper_ = np.full(len(task.counts), highspy.kHighsInf)
    matrix = np.array(columns, dtype=float)
    column, row = np.nonzero(matrix)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.searchsorted(column, np.arange(len(columns) + 1))
    model.a_matrix_.index_ = row
    model.a_matrix_.value_ = matrix[column, row]
    new: Any = highspy.Highs
    solver = new()
    solver.setOptionValue("output_flag", False)  # noqa: FBT003 - HiGHS knows no names
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    solver.passModel(model)
    solver.run()
    solution = solver.getSolution()
    return list(solution.col_value), list(solution.row_dual)
