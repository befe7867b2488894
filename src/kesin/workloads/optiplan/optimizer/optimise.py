"""All strategies, both first cuts, the best plan kept, and kept only if the checker agrees.

Fewest boards wins. Among plans with equally many boards (their yield is the same) the one with the
clearly larger offcut wins, because that is half a board for the next order; then the one with fewer
different boards, the one whose panels are turned least, and the one with fewer cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from kesin.workloads.optiplan.optimizer.checker import faults
from kesin.workloads.optiplan.optimizer.cut_sequence import layouts
from kesin.workloads.optiplan.optimizer.model import Demand, Layout, Plan, check_demand
from kesin.workloads.optiplan.optimizer.problem import (
    Budget,
    Effort,
    Fillings,
    Task,
    fill_area,
    task_of,
)
from kesin.workloads.optiplan.optimizer.strategies.column_generation import Pool, pays, whole_boards
from kesin.workloads.optiplan.optimizer.strategies.free_rectangles import FITS, PARTS, split
from kesin.workloads.optiplan.optimizer.strategies.local_search import improve, settle
from kesin.workloads.optiplan.optimizer.strategies.strips import LYING, strips

__all__ = ["Effort", "optimise"]

COMPARED: Final = 4  # plans of a strategy that are sawn to the end, to see their offcuts
OFFCUT_STEPS: Final = 20  # an offcut is larger if it is so by a twentieth of a board
POOL: Final = 6_000  # boards remembered for the cover
STRIP_SHARE, SPLIT_SHARE, COLUMN_SHARE, REPACK_SHARE = (
    0.2,
    0.35,
    0.55,
    0.9,
)  # of the work, when each has ended

Rank = Callable[[int], tuple[int, ...]]


class WrongPlan(AssertionError):
    """A strategy made a plan that the checker refuses: a defect of ours, never handed over."""


@dataclass(slots=True)
class _Search:
    """What has been found so far."""

    task: Task
    plans: list[tuple[int, float, str, Fillings]] = field(default_factory=list)
    pool: Pool = field(default_factory=dict)
    needed: dict[str, int] = field(default_factory=dict)

    def keep(self, strategy: str, fillings: Fillings) -> None:
        """Remember a whole plan."""
        self.remember(fillings)
        boards = len(fillings)
        self.needed[strategy] = min(boards, self.needed.get(strategy, boards))
        if self.plans and boards > self.fewest:
            return
        emptiest = min(fill_area(filling) for filling in fillings) / self.task.area
        self.plans.append((boards, emptiest, strategy, fillings))
        self.plans.sort(key=lambda plan: plan[:2])
        alike = [plan for plan in self.plans if plan[2] == strategy]
        if len(alike) > COMPARED:
            self.plans.remove(alike[-1])
        self.plans = [plan for plan in self.plans if plan[0] == self.fewest]

    def remember(self, fillings: Fillings) -> None:
        """Remember boards by what is on them."""
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


def optimise(demand: Demand, effort: Effort | None = None) -> Plan:
    """The best plan found; ``Unplannable`` names what cannot be cut."""
    check_demand(demand)
    budget = Budget((effort or Effort()).of(demand.pieces))
    task, members = task_of(demand)
    least = task.least_boards()
    search = _Search(task)
    _try_strips(search, budget)
    _try_splits(search, budget)
    if search.fewest > least and budget.effort.solver and pays(task):
        _try_columns(search, budget)
    if search.fewest > least:
        _repack(search, budget, least)
    _settle(search, budget)
    strategy, chosen = min(
        _sawn(demand, members, search.plans),
        key=lambda sawn: (_preference(demand, sawn[1]), sawn[0]),
    )
    plan = Plan(demand, strategy, chosen, least, tuple(sorted(search.needed.items())))
    if wrong := faults(plan):
        raise WrongPlan(f"{demand.name}: {strategy}: {wrong[0]}")
    return plan


def _try_strips(search: _Search, budget: Budget) -> None:
    pieces = search.task.pieces()
    for lying in LYING:
        for cross_first in (False, True):
            if search.plans and not budget.left(STRIP_SHARE):
                return
            search.keep(
                "STRIPS", strips(search.task, pieces, lying, budget, cross_first=cross_first)
            )


def _try_splits(search: _Search, budget: Budget) -> None:
    for fillings in _splits(search.task, budget, SPLIT_SHARE, lambda: search.fewest):
        search.keep("SPLIT", fillings)


def _splits(
    task: Task, budget: Budget, share: float, most_boards: Callable[[], int]
) -> Iterator[Fillings]:
    """Every rule of splitting in every order of the pieces, as far as the work lasts."""
    for rank, part, fit, first_board in product(_ranks(task), PARTS, FITS, (False, True)):
        if not budget.left(share):
            return
        fillings = split(
            task,
            sorted(task.pieces(), key=rank),
            fit,
            part,
            budget,
            first_board=first_board,
            most_boards=most_boards(),
        )
        if fillings is not None:
            yield fillings


def _try_columns(search: _Search, budget: Budget) -> None:
    """Whole boards of the linear programme, and the rest as a small order of its own."""
    boards, rest = whole_boards(search.task, search.pool, budget, COLUMN_SHARE - 0.05)
    if not boards:
        return
    if not any(rest.counts):
        search.keep("COLUMNS", boards)
        return
    small = _Search(rest)
    pieces = rest.pieces()
    small.keep("STRIPS", strips(rest, pieces, "flat", budget, cross_first=False))
    for fillings in _splits(rest, budget, COLUMN_SHARE, lambda: small.fewest):
        small.keep("SPLIT", fillings)
    search.keep("COLUMNS", [*boards, *small.plans[0][3]])


def _ranks(task: Task) -> Iterator[Rank]:
    """Orders in which pieces are put down: the large and unwieldy first, by one measure each."""
    sides = [way[0][:2] for way in task.ways]
    yield lambda kind: (-sides[kind][0] * sides[kind][1], kind)
    yield lambda kind: (-max(sides[kind]), -min(sides[kind]), kind)
    yield lambda kind: (-min(sides[kind]), -max(sides[kind]), kind)
    yield lambda kind: (-sum(sides[kind]), kind)
    yield lambda kind: (-sides[kind][1], -sides[kind][0], kind)
    yield lambda kind: (-sides[kind][0], -sides[kind][1], kind)
    yield lambda kind: (-abs(sides[kind][0] - sides[kind][1]), kind)


def _repack(search: _Search, budget: Budget, least: int) -> None:
    """Improve the best plans in turn, each with its share of the work."""
    starts = [plan[3] for plan in search.plans[:2]]
    for number, start in enumerate(starts):
        share = COLUMN_SHARE + (REPACK_SHARE - COLUMN_SHARE) * (number + 1) / len(starts)
        better = improve(
            search.task,
            start,
            budget,
            share=share,
            least=least,
            found=search.remember,
            seed=number,
        )
        search.keep("REPACK", better)
        if search.fewest <= least:
            return


def _settle(search: _Search, budget: Budget) -> None:
    _, _, strategy, best = search.plans[0]
    settled = settle(search.task, best, budget, seed=7)
    if settled is not best:
        search.keep(strategy, settled)


def _sawn(
    demand: Demand,
    members: Sequence[Sequence[int]],
    plans: Sequence[tuple[int, float, str, Fillings]],
) -> Iterator[tuple[str, tuple[Layout, ...]]]:
    for boards, _, strategy, fillings in plans:
        if boards == plans[0][0]:
            yield strategy, layouts(demand, members, fillings)


def _preference(demand: Demand, found: tuple[Layout, ...]) -> tuple[int, ...]:
    """Smaller is better."""
    offcut = max((rest.area for layout in found for rest in layout.offcuts), default=0)
    turns = sum(layout.times * max((c.stage for c in layout.cuts), default=0) for layout in found)
    cuts = sum(layout.times * len(layout.cuts) for layout in found)
    return -(offcut * OFFCUT_STEPS // demand.board.area), len(found), turns, cuts, -offcut
