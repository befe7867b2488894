"""Column generation: repeated patterns, for orders with many pieces of few kinds.

A linear programme over the boards found so far, which HiGHS solves, gives the marginal value of
each kind of piece; boards of the most valuable pieces are added until none is worth more than it
costs. The whole boards of the solution are taken, of which there are some only if kinds repeat, and
the remaining pieces are planned like a small order.
"""

import importlib.util
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import mul
from random import Random
from typing import Any, Final

from kesin.workloads.optiplan.optimizer.problem import Budget, Filling, Fillings, PackingTask
from kesin.workloads.optiplan.optimizer.strategies import free_rectangles

ROUNDS: Final = 60  # of pricing
NEW_BOARDS: Final = 12  # filled in each round
COLUMNS: Final = 600  # at the start: the fullest boards
REPEATS: Final = 4  # pieces per kind, on average, from which the strategy is used
SLACK: Final = 1e-6
POWERS: Final = (0.8, 0.9, 1.0, 1.1)  # exponents of the area by which a value is divided

Counts = tuple[int, ...]  # pieces on a board, by kind
Pool = dict[Counts, Filling]


def is_worthwhile(task: PackingTask) -> bool:
    """Whether kinds repeat enough and the solver is installed."""
    repeats = sum(task.counts) >= REPEATS * len(task.counts)
    return repeats and importlib.util.find_spec("highspy") is not None


def generate_boards(
    task: PackingTask, pool: Pool, budget: Budget, share: float
) -> tuple[Fillings, PackingTask]:
    """Return the whole boards of the programme's solution, and the task that remains."""
    rng = Random(11)
    fillings = dict(pool)
    areas = [task.area_of(kind) for kind in range(len(task.counts))]
    columns = sorted(fillings, key=lambda counts: (-sum(map(mul, counts, areas)), counts))[:COLUMNS]
    times, values = _solve(task, columns)
    for _ in range(ROUNDS):
        if not budget.has_left(share):
            break
        new_columns = []
        for counts, filling in _price_boards(task, values, budget, rng):
            if sum(map(mul, counts, values)) > 1 + SLACK and counts not in fillings:
                fillings[counts] = filling
                new_columns.append(counts)
        if new_columns:
            columns += new_columns
            times, values = _solve(task, columns)
    left = list(task.counts)
    boards: Fillings = []
    for counts, board_times in sorted(
        zip(columns, times, strict=True), key=lambda column: (-column[1], column[0])
    ):
        for _ in range(int(board_times + SLACK)):
            if any(count > remaining for count, remaining in zip(counts, left, strict=True)):
                break
            boards.append(fillings[counts])
            left = [remaining - count for remaining, count in zip(left, counts, strict=True)]
    return boards, PackingTask(task.length, task.width, task.orientations, tuple(left))


def _price_boards(
    task: PackingTask, values: Sequence[float], budget: Budget, rng: Random
) -> Iterator[tuple[Counts, Filling]]:
    """Yield boards filled with the pieces of the highest value per area."""
    fit_rules = free_rectangles.FIT_RULES
    kinds = [kind for kind in range(len(task.counts)) if values[kind] > SLACK]
    for number in range(NEW_BOARDS):
        shake = 0.0 if number < len(fit_rules) else 0.1 * number
        power = rng.choice(POWERS)
        rank = {
            kind: values[kind] / task.area_of(kind) ** power * (1 + shake * (rng.random() - 0.5))
            for kind in kinds
        }
        pieces = [
            kind
            for kind in sorted(rank, key=lambda kind: (-rank[kind], kind))
            for _ in range(task.counts[kind])
        ]
        fit, split = fit_rules[number % len(fit_rules)], rng.choice(free_rectangles.SPLIT_RULES)
        rules = free_rectangles.PackingRules(fit, split)
        filled = free_rectangles.fill_boards(task, pieces, rules, budget, max_boards=1, skip=True)
        if filled:
            counts = Counter(drop.kind for drop in filled[0])
            yield tuple(counts[kind] for kind in range(len(task.counts))), filled[0]


def _solve(task: PackingTask, columns: Sequence[Counts]) -> tuple[list[float], list[float]]:
    """Solve the programme: how often each board is cut (a fraction), and the value of each kind."""
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
    solver.setOptionValue("output_flag", False)  # noqa: FBT003 - HiGHS takes no keyword
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    solver.passModel(model)
    solver.run()
    solution = solver.getSolution()
    return list(solution.col_value), list(solution.row_dual)
