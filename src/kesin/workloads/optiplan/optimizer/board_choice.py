"""Chooses boards of several sizes, and offcuts of the rack, for the least money for new boards."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from kesin.workloads.optiplan.optimizer.cut_sequence import build_layouts
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Demand, Unplannable, size_text
from kesin.workloads.optiplan.optimizer.problem import (
    Budget,
    Effort,
    Filling,
    Fillings,
    PackingTask,
    build_tasks,
    fill_area,
    kinds_of,
    refuse_unfit,
)
from kesin.workloads.optiplan.optimizer.strategies.local_search import fill_board

WELL_FILLED: Final = 0.6  # an offcut that is filled less stays in the rack, unless it saves a board
WORTH_POWER: Final = 1.05  # a large piece is worth more than its area in small ones
RACK_TRIES: Final = 40  # of each offcut
RACK_FILLS: Final = 2  # for which each size alone is planned
TRIES: Final = 16  # of each board, where sizes are mixed
ROUNDS: Final = 40  # of filling the rack and mixing sizes, at most

Chosen = list[tuple[int, Filling]]  # the index of the demand's board, and its pieces
Counts = tuple[int, ...]  # of pieces, by kind
PlanBoards = Callable[[PackingTask, Budget], Fillings]


def choose_boards(demand: Demand, effort: Effort, plan_boards: PlanBoards) -> CuttingPlan:
    """Return the best plan found; raises Unplannable if the store has too few boards."""
    tasks, members = build_tasks(demand, demand.boards)
    store = _Store(demand, effort, plan_boards, tasks)
    refuse_unfit(demand, [tasks[index] for index in store.bought], members)
    counts = tuple(map(len, members))
    has_rack = any(board.offcut for board in demand.boards)
    choices = {"SIZES": store.choose(counts, with_rack=False)}
    choices |= {"RACK": store.choose(counts, with_rack=True)} if has_rack else {}
    known = {name: choice for name, choice in choices.items() if choice is not None}
    if not known:
        raise Unplannable(f"{demand.name}: {store.shortage(counts)}")
    name = min(known, key=lambda name: (store.rank(known[name]), name))
    indices, fillings = [each[0] for each in known[name]], [each[1] for each in known[name]]
    largest = max(task.area for task in tasks)
    pieces = sum(count * max(task.area_of(kind) for task in tasks) for kind, count in enumerate(counts))
    layouts = build_layouts(demand, members, fillings, indices)
    return CuttingPlan(demand, layouts, name, max(1, -(-pieces // largest)))


@dataclass(slots=True)
class _Store:
    demand: Demand
    effort: Effort
    plan_boards: PlanBoards
    tasks: Sequence[PackingTask]
    rng: Random = field(default_factory=lambda: Random(11))

    @property
    def bought(self) -> list[int]:
        """The boards that can be bought and cut."""
        return [
            index for index, board in enumerate(self.demand.boards) if not board.offcut and self.tasks[index].starts
        ]

    def money(self, index: int) -> int:
        """Return what a board costs; without all prices, boards count by their areas."""
        boards = self.demand.boards
        if boards[index].offcut:
            return 0
        has_prices = all(board.price for board in boards if not board.offcut)
        return boards[index].price if has_prices else boards[index].area

    def rank(self, chosen: Chosen) -> tuple[int, ...]:
        """Return the sort key of a choice: money, rack area used, offcuts touched, largest rest."""
        boards, offcuts = self.demand.boards, [each for each in chosen if not self.money(each[0])]
        rests = [self.tasks[index].area - fill_area(filling) for index, filling in chosen if self.money(index)]
        rack_area = sum(boards[index].area for index, _ in offcuts)
        money = sum(self.money(index) for index, _ in chosen)
        return money, -rack_area, len(offcuts), -max(rests, default=0)

    def choose(self, counts: Counts, *, with_rack: bool) -> Chosen | None:
        """Return the cheapest boards found, after well filled offcuts; None if there are too few.

        Each size alone, and then what is in store; all sizes mixed, again and again.
        """
        fills, mixes = (RACK_FILLS if with_rack else 1), len(self.bought) > 1 or with_rack
        budget, choices = self._budget(1), list[Chosen]()
        best = min(self.bought, key=lambda index: self.money(index) / self.tasks[index].area)
        for attempt in range(ROUNDS if mixes else 1):
            rack, rest = self._fill_rack(counts, budget) if with_rack else ([], counts)
            for index in self.bought if attempt < fills and any(rest) else ():
                shares = 1 if index == best else len(self.bought)
                share = self._budget(fills * (1 + mixes) * shares)
                fillings = self.plan_boards(self._task(index, rest), share)
                most = self.demand.boards[index].quantity
                fillings = sorted(fillings, key=fill_area, reverse=True)[:most]
                chosen = [*rack, *((index, filling) for filling in fillings)]
                choices += self._complete(chosen, _without(rest, fillings), share)
            if mixes:
                choices += self._complete(rack, rest, budget)
            if attempt >= fills and not budget.has_left():
                break
        return min(choices, key=self.rank, default=None)

    def _fill_rack(self, counts: Counts, budget: Budget) -> tuple[Chosen, Counts]:
        """Fill offcuts, the smallest first; returns those filled well, and the pieces left."""
        chosen: Chosen = []
        for index in sorted(range(len(self.tasks)), key=lambda index: self.tasks[index].area):
            if not (self.demand.boards[index].offcut and self._has(index, chosen)):
                continue
            filling = fill_board(self._task(index, counts), budget, self.rng, RACK_TRIES)
            if filling and fill_area(filling) >= WELL_FILLED * self.tasks[index].area:
                chosen.append((index, filling))
                counts = _without(counts, [filling])
        return chosen, counts

    def _complete(self, chosen: Chosen, counts: Counts, budget: Budget) -> list[Chosen]:
        """Add boards for the pieces left, and save on all; empty if there are too few."""
        added, rest = self._fill(counts, chosen, budget, limited=True)
        return [] if any(rest) else [self._cheapen([*chosen, *added], budget)]

    def _fill(self, counts: Counts, chosen: Chosen, budget: Budget, *, limited: bool) -> tuple[Chosen, Counts]:
        """Add boards, each time the most worth for its money; returns them and what is left."""
        added: Chosen = []
        while any(counts):
            best, most = None, 0.0
            for index in self.bought:
                if limited and not self._has(index, [*chosen, *added]):
                    continue
                filling = fill_board(self._task(index, counts), budget, self.rng, TRIES)
                areas = (along * across for *_, along, across, _, _ in filling)
                worth = sum(area**WORTH_POWER for area in areas) / self.money(index)
                if worth > most:
                    best, most = (index, filling), worth
            if best is None:
                break
            added.append(best)
            counts = _without(counts, [best[1]])
        return added, counts

    def _cheapen(self, chosen: Chosen, budget: Budget) -> Chosen:
        """Move the pieces of each board, the emptiest first, to the cheapest that holds them."""
        chosen = sorted(chosen, key=lambda each: fill_area(each[1]))
        by_price = sorted(range(len(self.tasks)), key=lambda index: (self.money(index), self.tasks[index].area))
        for place, (old, filling) in enumerate(chosen):
            kinds = Counter(kinds_of(filling))
            counts = tuple(kinds[kind] for kind in range(len(self.tasks[0].counts)))
            for index in by_price:
                if self.money(index) >= self.money(old):
                    break
                others = [*chosen[:place], *chosen[place + 1 :]]
                if not self._has(index, others) or fill_area(filling) > self.tasks[index].area:
                    continue
                moved = fill_board(self._task(index, counts), budget, self.rng, TRIES)
                if len(kinds_of(moved)) == kinds.total():
                    chosen[place] = (index, moved)
                    break
        return chosen

    def shortage(self, counts: Counts) -> str:
        """Say how many boards are missing, of the sizes that would be bought."""
        budget = self._budget(1)
        added, rest = self._fill(counts, [], budget, limited=True)
        if not any(rest):
            return "there are barely enough boards in stock: choose a more thorough effort"
        missing, _ = self._fill(rest, added, budget, limited=False)
        boards = self.demand.boards
        wanted = ", ".join(
            f"{count} more of {boards[index].code!r}"
            f" ({size_text(boards[index].length, boards[index].width)} mm,"
            f" {boards[index].quantity} in stock)"
            for index, count in sorted(Counter(index for index, _ in missing).items())
        )
        return f"there are too few boards in stock: {wanted} needed"

    def _has(self, index: int, chosen: Chosen) -> bool:
        quantity = self.demand.boards[index].quantity
        return bool(self.tasks[index].starts) and (
            quantity is None or sum(each[0] == index for each in chosen) < quantity
        )

    def _task(self, index: int, counts: Counts) -> PackingTask:
        return self.tasks[index].with_counts(counts)

    def _budget(self, shares: int) -> Budget:
        looks, seconds = self.effort.looks // shares, self.effort.seconds / shares
        return Budget(replace(self.effort, looks=looks, seconds=seconds))


def _without(counts: Counts, fillings: Iterable[Filling]) -> Counts:
    placed = Counter(kind for filling in fillings for kind in kinds_of(filling))
    return tuple(count - placed[kind] for kind, count in enumerate(counts))
