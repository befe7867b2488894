"""The optimiser: runs all strategies and returns the best plan that the checker accepts.

The plan with the fewest boards wins. Among plans with equally many boards (their yield is the same)
the plan with the clearly larger offcut wins, because the next order can use it; then the plan with
fewer different boards, fewer turns of panels, and fewer cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from kesin.workloads.optiplan.optimizer.checker import find_faults
from kesin.workloads.optiplan.optimizer.cut_sequence import build_layouts
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Demand, Layout, check_demand
from kesin.workloads.optiplan.optimizer.problem import (
    Budget,
    Effort,
    Fillings,
    PackingTask,
    build_task,
    fill_area,
)
from kesin.workloads.optiplan.optimizer.strategies.column_generation import (
    Pool,
    generate_boards,
    is_worthwhile,
)
from kesin.workloads.optiplan.optimizer.strategies.free_rectangles import (
    FIT_RULES,
    SPLIT_RULES,
    fill_boards,
)
from kesin.workloads.optiplan.optimizer.strategies.local_search import gather_space, improve
from kesin.workloads.optiplan.optimizer.strategies.strips import PREFERENCES, fill_strips

__all__ = ["Effort", "optimise"]

COMPARED: Final = 4  # plans of a strategy whose cuts are worked out, to compare their offcuts
OFFCUT_STEPS: Final = 20  # offcuts are compared in steps of a twentieth of a board
POOL: Final = 6_000  # boards kept as columns
STRIP_SHARE, SPLIT_SHARE, COLUMN_SHARE, REPACK_SHARE = (
    0.2,
    0.35,
    0.55,
    0.9,
)  # of the budget: where each strategy ends

Rank = Callable[[int], tuple[int, ...]]


class WrongPlan(AssertionError):
    """A strategy made a plan that the checker rejects: a defect of the optimiser."""


@dataclass(slots=True)
class _Search:
    """The plans and boards found so far."""

    task: PackingTask
    plans: list[tuple[int, float, str, Fillings]] = field(default_factory=list)
    pool: Pool = field(default_factory=dict)
    boards_by_strategy: dict[str, int] = field(default_factory=dict)

    def keep(self, strategy: str, fillings: Fillings) -> None:
        """Record a plan if it needs no more boards than the best."""
        self.remember(fillings)
        boards = len(fillings)
        self.boards_by_strategy[strategy] = min(
            boards, self.boards_by_strategy.get(strategy, boards)
        )
        if self.plans and boards > self.fewest:
            return
        emptiest = min(fill_area(filling) for filling in fillings) / self.task.area
        self.plans.append((boards, emptiest, strategy, fillings))
        self.plans.sort(key=lambda plan: plan[:2])
        same_strategy = [plan for plan in self.plans if plan[2] == strategy]
        if len(same_strategy) > COMPARED:
            self.plans.remove(same_strategy[-1])
        self.plans = [plan for plan in self.plans if plan[0] == self.fewest]

    def remember(self, fillings: Fillings) -> None:
        """Add boards to the pool, keyed by their piece counts."""
        for filling in fillings:
            if len(self.pool) >= POOL:
                return
            counts = [0] * len(self.task.counts)
            for drop in filling:
                counts[drop.kind] += 1
            self.pool.setdefault(tuple(counts), filling)

    @property
    def fewest(self) -> int:
        return self.plans[0][0]


def optimise(demand: Demand, effort: Effort | None = None) -> CuttingPlan:
    """Return the best plan found; raises Unplannable, naming what cannot be cut."""
    check_demand(demand)
    budget = Budget((effort or Effort()).scaled_to(demand.pieces))
    task, members = build_task(demand)
    least = task.least_boards()
    search = _Search(task)
    _try_strips(search, budget)
    _try_splits(search, budget)
    if search.fewest > least and budget.effort.solver and is_worthwhile(task):
        _try_columns(search, budget)
    if search.fewest > least:
        _repack(search, budget, least)
    _gather_space(search, budget)
    strategy, layouts = min(
        _cut_plans(demand, members, search.plans),
        key=lambda candidate: (_preference(demand, candidate[1]), candidate[0]),
    )
    plan = CuttingPlan(
        demand, strategy, layouts, least, tuple(sorted(search.boards_by_strategy.items()))
    )
    if faults := find_faults(plan):
        raise WrongPlan(f"{demand.name}: {strategy}: {faults[0]}")
    return plan


def _try_strips(search: _Search, budget: Budget) -> None:
    pieces = search.task.pieces()
    for preference in PREFERENCES:
        for cross_first in (False, True):
            if search.plans and not budget.has_left(STRIP_SHARE):
                return
            search.keep(
                "STRIPS",
                fill_strips(search.task, pieces, preference, budget, cross_first=cross_first),
            )


def _try_splits(search: _Search, budget: Budget) -> None:
    for fillings in _split_plans(search.task, budget, SPLIT_SHARE, lambda: search.fewest):
        search.keep("SPLIT", fillings)


def _split_plans(
    task: PackingTask, budget: Budget, share: float, max_boards: Callable[[], int]
) -> Iterator[Fillings]:
    """Yield a plan for every split rule and every order of pieces, as far as the budget lasts."""
    for rank, split_rule, fit_rule, first_board in product(
        _sort_keys(task), SPLIT_RULES, FIT_RULES, (False, True)
    ):
        if not budget.has_left(share):
            return
        fillings = fill_boards(
            task,
            sorted(task.pieces(), key=rank),
            fit_rule,
            split_rule,
            budget,
            first_board=first_board,
            max_boards=max_boards(),
        )
        if fillings is not None:
            yield fillings


def _try_columns(search: _Search, budget: Budget) -> None:
    """Take whole boards from the linear programme, and plan the rest as a small order."""
    boards, rest = generate_boards(search.task, search.pool, budget, COLUMN_SHARE - 0.05)
    if not boards:
        return
    if not any(rest.counts):
        search.keep("COLUMNS", boards)
        return
    rest_search = _Search(rest)
    pieces = rest.pieces()
    rest_search.keep("STRIPS", fill_strips(rest, pieces, "flat", budget, cross_first=False))
    for fillings in _split_plans(rest, budget, COLUMN_SHARE, lambda: rest_search.fewest):
        rest_search.keep("SPLIT", fillings)
    search.keep("COLUMNS", [*boards, *rest_search.plans[0][3]])


def _sort_keys(task: PackingTask) -> Iterator[Rank]:
    """Yield sort keys for the pieces: the largest first, by one measure each."""
    sides = [orientation[0][:2] for orientation in task.orientations]
    yield lambda kind: (-sides[kind][0] * sides[kind][1], kind)
    yield lambda kind: (-max(sides[kind]), -min(sides[kind]), kind)
    yield lambda kind: (-min(sides[kind]), -max(sides[kind]), kind)
    yield lambda kind: (-sum(sides[kind]), kind)
    yield lambda kind: (-sides[kind][1], -sides[kind][0], kind)
    yield lambda kind: (-sides[kind][0], -sides[kind][1], kind)
    yield lambda kind: (-abs(sides[kind][0] - sides[kind][1]), kind)


def _repack(search: _Search, budget: Budget, least: int) -> None:
    """Improve the best plans in turn, each with its share of the budget."""
    starts = [plan[3] for plan in search.plans[:2]]
    for number, start in enumerate(starts):
        share = COLUMN_SHARE + (REPACK_SHARE - COLUMN_SHARE) * (number + 1) / len(starts)
        better = improve(
            search.task,
            start,
            budget,
            share=share,
            least=least,
            on_repacked=search.remember,
            seed=number,
        )
        search.keep("REPACK", better)
        if search.fewest <= least:
            return


def _gather_space(search: _Search, budget: Budget) -> None:
    _, _, strategy, best = search.plans[0]
    gathered = gather_space(search.task, best, budget, seed=7)
    if gathered is not best:
        search.keep(strategy, gathered)


def _cut_plans(
    demand: Demand,
    members: Sequence[Sequence[int]],
    plans: Sequence[tuple[int, float, str, Fillings]],
) -> Iterator[tuple[str, tuple[Layout, ...]]]:
    for boards, _, strategy, fillings in plans:
        if boards == plans[0][0]:
            yield strategy, build_layouts(demand, members, fillings)


def _preference(demand: Demand, layouts: tuple[Layout, ...]) -> tuple[int, ...]:
    """Return the sort key of a plan; the smallest is preferred."""
    offcut = max((rest.area for layout in layouts for rest in layout.offcuts), default=0)
    turns = sum(
        layout.times * max((cut.stage for cut in layout.cuts), default=0) for layout in layouts
    )
    cuts = sum(layout.times * len(layout.cuts) for layout in layouts)
    return -(offcut * OFFCUT_STEPS // demand.board.area), len(layouts), turns, cuts, -offcut
