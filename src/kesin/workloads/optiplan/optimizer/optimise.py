"""Runs all strategies and returns the best plan that the checker accepts: the fewest boards."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Final, NamedTuple

from kesin.workloads.optiplan.optimizer import problem
from kesin.workloads.optiplan.optimizer.board_choice import choose_boards
from kesin.workloads.optiplan.optimizer.checker import find_faults
from kesin.workloads.optiplan.optimizer.cut_sequence import build_layouts
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Demand, Layout, check_demand
from kesin.workloads.optiplan.optimizer.problem import Budget, Effort, Fillings, PackingTask
from kesin.workloads.optiplan.optimizer.strategies import free_rectangles
from kesin.workloads.optiplan.optimizer.strategies.local_search import fill_one_by_one, improve, settle

__all__ = ["Effort", "optimise", "plan_boards"]

COMPARED: Final = 4  # plans of a strategy whose cuts are worked out, to compare their offcuts
OFFCUT_STEPS: Final = 20  # offcuts are compared in steps of a twentieth of a board
# Of the budget: where each strategy ends.
SPLIT_SHARE, ONE_SHARE, REPACK_SHARE = 0.02, 0.1, 0.9
# And what is spent, at most, on larger offcuts.
GATHERED, SETTLED = 0.3, 0.06
TRIES: Final = 24  # of each board, when they are filled one by one

Rank = Callable[[int], tuple[int, ...]]


class WrongPlan(AssertionError):
    """A strategy made a plan that the checker rejects: a defect of the optimiser."""


class Candidate(NamedTuple):
    """A plan of the fewest boards found."""

    boards: int
    emptiest: float  # how full the emptiest board is
    strategy: str
    fillings: Fillings


@dataclass(slots=True)
class _Search:
    task: PackingTask
    plans: list[Candidate] = field(default_factory=list)
    results: dict[str, int] = field(default_factory=dict)  # the fewest boards by strategy

    def keep(self, strategy: str, fillings: Fillings) -> None:
        """Record a plan if it needs no more boards than the best."""
        boards = len(fillings)
        self.results[strategy] = min(boards, self.results.get(strategy, boards))
        if self.plans and boards > self.fewest:
            return
        emptiest = min(problem.fill_area(filling) for filling in fillings) / self.task.area
        self.plans.append(Candidate(boards, emptiest, strategy, fillings))
        self.plans.sort(key=lambda plan: plan[:2])
        same_strategy = [plan for plan in self.plans if plan.strategy == strategy]
        if len(same_strategy) > COMPARED:
            self.plans.remove(same_strategy[-1])
        self.plans = [plan for plan in self.plans if plan.boards == self.fewest]

    @property
    def fewest(self) -> int:
        return self.plans[0].boards


def optimise(demand: Demand, effort: Effort | None = None) -> CuttingPlan:
    """Return the best plan found; raises Unplannable, naming what cannot be cut."""
    check_demand(demand)
    effort = (effort or Effort()).scaled_to(demand.pieces)
    if demand.more_boards or demand.board.quantity is not None:
        return _verified(choose_boards(demand, effort, plan_boards))
    budget = Budget(effort)
    task, members = problem.build_task(demand)
    search = _plan(task, budget)
    candidates = [(plan.strategy, build_layouts(demand, members, plan.fillings)) for plan in search.plans]
    strategy, layouts = min(candidates, key=lambda each: (_preference(demand, each[1]), each[0]))
    least = task.least_boards()
    results = tuple(sorted(search.results.items()))
    return _verified(CuttingPlan(demand, layouts, strategy, least, results))


def _verified(plan: CuttingPlan) -> CuttingPlan:
    if faults := find_faults(plan):
        raise WrongPlan(f"{plan.demand.name}: {plan.strategy}: {faults[0]}")
    return plan


def plan_boards(task: PackingTask, budget: Budget) -> Fillings:
    """Return fillings of the fewest boards found for all pieces that fit the task's board."""
    return _plan(task, budget).plans[0].fillings if task.pieces() else []


def _plan(task: PackingTask, budget: Budget) -> _Search:
    least = task.least_boards()
    search = _Search(task)
    _try_splits(search, budget, SPLIT_SHARE)
    if search.fewest > least:
        _try_one_by_one(search, budget, ONE_SHARE, least)
    if search.fewest > least:
        start = search.plans[0].fillings
        search.keep("REPACK", improve(task, start, budget, REPACK_SHARE, seed=2))
    if search.fewest > 1:  # gather the empty space on as few boards as possible
        share = min(budget.share + GATHERED, 1 - SETTLED)
        gathered = improve(task, search.plans[0].fillings, budget, share, seed=7, gather=True)
        search.keep("REPACK", gathered)
    first = budget.share
    for number, plan in enumerate(search.plans, start=1):
        share = min(first + SETTLED * number / len(search.plans), 1.0)
        settled = settle(task, plan.fillings, budget, share, seed=number)
        search.plans[number - 1] = plan._replace(fillings=settled)
    return search


def _try_splits(search: _Search, budget: Budget, share: float) -> None:
    """Try every split rule and every order of pieces, as far as this share of the budget lasts."""
    task = search.task
    starts = range(len(task.starts) or 1)
    choices = (free_rectangles.SPLIT_RULES, free_rectangles.FIT_RULES, (False, True), starts)
    for rank, split, fit, first_board, start in product(_sort_keys(task), *choices):
        if search.plans and not budget.has_left(share):
            return
        pieces = sorted(task.pieces(), key=rank)
        rules = free_rectangles.PackingRules(fit, split, first_board, start=start)
        boards = search.fewest if search.plans else None
        fillings = free_rectangles.fill_boards(task, pieces, rules, budget, max_boards=boards)
        if fillings is not None:
            search.keep("SPLIT", fillings)


def _sort_keys(task: PackingTask) -> Iterator[Rank]:
    """Yield sort keys for the pieces: the largest first, by one measure each."""
    sides = [ways[0][:2] if ways else (0, 0) for ways in task.orientations]
    yield lambda kind: (-sides[kind][0] * sides[kind][1], kind)
    yield lambda kind: (-max(sides[kind]), -min(sides[kind]), kind)
    yield lambda kind: (-min(sides[kind]), -max(sides[kind]), kind)
    yield lambda kind: (-sum(sides[kind]), kind)
    yield lambda kind: (-sides[kind][1], -sides[kind][0], kind)
    yield lambda kind: (-sides[kind][0], -sides[kind][1], kind)
    yield lambda kind: (-abs(sides[kind][0] - sides[kind][1]), kind)


def _try_one_by_one(search: _Search, budget: Budget, share: float, least: int) -> None:
    rng = Random(3)
    while budget.has_left(share) and search.fewest > least:
        fillings = fill_one_by_one(search.task, budget, rng, TRIES, max_boards=search.fewest, share=share)
        if fillings is not None:
            search.keep("ONE_BY_ONE", fillings)


def _preference(demand: Demand, layouts: tuple[Layout, ...]) -> tuple[int, ...]:
    """Return the sort key of a plan: a clearly larger offcut wins, for the next order."""
    offcut = max((rest.area for layout in layouts for rest in layout.offcuts), default=0)
    turns = sum(each.times * max((cut.stage for cut in each.cuts), default=0) for each in layouts)
    cuts = sum(layout.times * len(layout.cuts) for layout in layouts)
    return -(offcut * OFFCUT_STEPS // demand.board.area), len(layouts), turns, cuts, -offcut
