"""Runs all strategies and returns the best plan that the checker accepts: the fewest boards."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from kesin.workloads.optiplan.optimizer import problem
from kesin.workloads.optiplan.optimizer.checker import find_faults
from kesin.workloads.optiplan.optimizer.cut_sequence import build_layouts
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Demand, Layout, check_demand
from kesin.workloads.optiplan.optimizer.problem import Budget, Effort, Fillings, PackingTask
from kesin.workloads.optiplan.optimizer.strategies import column_generation, free_rectangles
from kesin.workloads.optiplan.optimizer.strategies.local_search import improve
from kesin.workloads.optiplan.optimizer.strategies.strips import PREFERENCES, fill_strips

__all__ = ["Effort", "optimise"]

COMPARED: Final = 4  # plans of a strategy whose cuts are worked out, to compare their offcuts
OFFCUT_STEPS: Final = 20  # offcuts are compared in steps of a twentieth of a board
POOL: Final = 6_000  # boards kept as columns
# Of the budget: where each strategy ends.
STRIP_SHARE, SPLIT_SHARE, COLUMN_SHARE, REPACK_SHARE = 0.2, 0.35, 0.55, 0.9

Rank = Callable[[int], tuple[int, ...]]


class WrongPlan(AssertionError):
    """A strategy made a plan that the checker rejects: a defect of the optimiser."""


@dataclass(slots=True)
class _Search:
    task: PackingTask
    plans: list[tuple[int, float, str, Fillings]] = field(default_factory=list)
    pool: column_generation.Pool = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)  # the fewest boards by strategy

    def keep(self, strategy: str, fillings: Fillings) -> None:
        """Record a plan if it needs no more boards than the best."""
        self.remember(fillings)
        boards = len(fillings)
        self.results[strategy] = min(boards, self.results.get(strategy, boards))
        if self.plans and boards > self.fewest:
            return
        emptiest = min(problem.fill_area(filling) for filling in fillings) / self.task.area
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
    task, members = problem.build_task(demand)
    least = task.least_boards()
    search = _Search(task)
    _try_strips(search, budget)
    _try_splits(search, budget, SPLIT_SHARE)
    if search.fewest > least and budget.effort.solver and column_generation.is_worthwhile(task):
        _try_columns(search, budget)
    if search.fewest > least:
        _repack(search, budget, least)
    boards, _, strategy, best = search.plans[0]
    if boards > 1:  # gather the empty space on as few boards as possible
        search.keep(strategy, improve(task, best, budget, 1.0, 1, seed=7))
    candidates = [(plan[2], build_layouts(demand, members, plan[3])) for plan in search.plans]
    strategy, layouts = min(candidates, key=lambda each: (_preference(demand, each[1]), each[0]))
    plan = CuttingPlan(demand, layouts, strategy, least, tuple(sorted(search.results.items())))
    if faults := find_faults(plan):
        raise WrongPlan(f"{demand.name}: {strategy}: {faults[0]}")
    return plan


def _try_strips(search: _Search, budget: Budget) -> None:
    pieces = search.task.pieces()
    for preference in PREFERENCES:
        for cross_first in (False, True):
            if search.plans and not budget.has_left(STRIP_SHARE):
                return
            fillings = fill_strips(search.task, pieces, preference, budget, cross_first=cross_first)
            search.keep("STRIPS", fillings)


def _try_splits(search: _Search, budget: Budget, share: float) -> None:
    """Try every split rule and every order of pieces, as far as this share of the budget lasts."""
    task = search.task
    choices = (free_rectangles.SPLIT_RULES, free_rectangles.FIT_RULES, (False, True))
    for rank, split, fit, first_board in product(_sort_keys(task), *choices):
        if not budget.has_left(share):
            return
        pieces = sorted(task.pieces(), key=rank)
        rules = free_rectangles.PackingRules(fit, split, first_board)
        boards = search.fewest
        fillings = free_rectangles.fill_boards(task, pieces, rules, budget, max_boards=boards)
        if fillings is not None:
            search.keep("SPLIT", fillings)


def _try_columns(search: _Search, budget: Budget) -> None:
    """Take whole boards from the linear programme, and plan the rest as a small order."""
    share = COLUMN_SHARE - 0.05
    boards, rest = column_generation.generate_boards(search.task, search.pool, budget, share)
    if boards and any(rest.counts):
        rest_search = _Search(rest)
        strips = fill_strips(rest, rest.pieces(), "flat", budget, cross_first=False)
        rest_search.keep("STRIPS", strips)
        _try_splits(rest_search, budget, COLUMN_SHARE)
        boards = [*boards, *rest_search.plans[0][3]]
    if boards:
        search.keep("COLUMNS", boards)


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
            search.task, start, budget, share, least, seed=number, on_repacked=search.remember
        )
        search.keep("REPACK", better)
        if search.fewest <= least:
            return


def _preference(demand: Demand, layouts: tuple[Layout, ...]) -> tuple[int, ...]:
    """Return the sort key of a plan: a clearly larger offcut wins, for the next order."""
    offcut = max((rest.area for layout in layouts for rest in layout.offcuts), default=0)
    turns = sum(each.times * max((cut.stage for cut in each.cuts), default=0) for each in layouts)
    cuts = sum(layout.times * len(layout.cuts) for layout in layouts)
    return -(offcut * OFFCUT_STEPS // demand.board.area), len(layouts), turns, cuts, -offcut
