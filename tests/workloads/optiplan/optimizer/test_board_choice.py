"""Boards of several sizes and offcuts: least money first, and nothing used that is not there."""

from dataclasses import replace
from typing import Any

import pytest

from kesin.workloads.optiplan.optimizer.checker import find_faults
from kesin.workloads.optiplan.optimizer.model import Board, CuttingPlan, Demand, Unplannable
from kesin.workloads.optiplan.optimizer.optimise import optimise
from kesin.workloads.optiplan.optimizer.run import PlanningRun
from tests.workloads.optiplan.optimizer.orders import QUICK, order

LARGE = replace(Board.of(2000, 1000, trim_mm=0), code="L", price=10_000)
SMALL = replace(Board.of(1000, 1000, trim_mm=0), code="S", price=6_000)


def offcut(name: str, length: float, width: float) -> Board:
    return replace(Board.of(length, width, trim_mm=0), offcut=name, quantity=1)


def demand_of(*parts: tuple[Any, ...], boards: tuple[Board, ...]) -> Demand:
    return replace(order(*parts, board=boards[0]), more_boards=boards[1:])


def planned(*parts: tuple[Any, ...], boards: tuple[Board, ...]) -> CuttingPlan:
    plan = optimise(demand_of(*parts, boards=boards), QUICK)
    assert find_faults(plan) == []
    return plan


def used(plan: CuttingPlan) -> dict[str, int]:
    boards = plan.demand.boards
    return {boards[index].code or boards[index].offcut: count for index, count in sorted(plan.board_counts.items())}


@pytest.mark.parametrize(
    ("pieces", "boards", "expected"),
    [
        (1, (LARGE, SMALL), {"S": 1}),
        (2, (LARGE, SMALL), {"L": 1}),
        (3, (LARGE, SMALL), {"L": 1, "S": 1}),
        (3, (LARGE, replace(SMALL, price=3_000)), {"S": 3}),
        (3, (SMALL, LARGE), {"S": 1, "L": 1}),
        (2, (replace(LARGE, price=0), SMALL), {"L": 1}),  # not all have prices: by area
        (3, (replace(LARGE, price=0), replace(SMALL, price=0)), {"L": 1, "S": 1}),
        (3, (LARGE, replace(SMALL, quantity=0)), {"L": 2}),
        (4, (replace(LARGE, quantity=1), SMALL), {"L": 1, "S": 2}),
        (4, (replace(LARGE, quantity=2),), {"L": 2}),
        (3, (LARGE, SMALL, offcut("K1", 950, 920)), {"L": 1, "K1": 1}),
        (3, (LARGE, offcut("K1", 950, 920), offcut("K2", 920, 950)), {"L": 1, "K1": 1, "K2": 1}),
        (1, (LARGE, offcut("K1", 1900, 1000)), {"K1": 1}),  # half empty, but it saves a board
        (1, (LARGE, offcut("K1", 800, 1000)), {"L": 1}),  # too small
    ],
)
def test_the_least_money_for_new_boards_wins(pieces: int, boards: tuple[Board, ...], expected: dict[str, int]):
    assert used(planned((900, 900, pieces), boards=boards)) == expected


def test_parts_that_fit_only_one_size_are_cut_from_it():
    plan = planned((1800, 200, 2), (400, 300, 4), boards=(SMALL, LARGE))
    assert used(plan) == {"L": 1}


def test_too_few_boards_of_every_size_are_an_error_that_says_how_many_are_missing():
    boards = (replace(LARGE, quantity=1), replace(SMALL, quantity=1))
    message = r"too few boards in stock: 1 more of 'L' \(2000 × 1000 mm, 1 in stock\) needed"
    with pytest.raises(Unplannable, match=message):
        planned((900, 900, 5), boards=boards)


def test_a_part_that_fits_no_board_that_can_be_bought_is_refused_although_an_offcut_holds_it():
    with pytest.raises(Unplannable, match=r"part 'p1' .* is larger than the board"):
        planned((1500, 200, 1), boards=(SMALL, offcut("K1", 1600, 300)))


def test_the_same_store_gives_the_same_plan():
    parts = [(700 - 30 * n, 400 + 20 * n, 3) for n in range(5)]
    boards = (LARGE, SMALL, offcut("K1", 900, 500))
    assert planned(*parts, boards=boards) == planned(*parts, boards=boards)


def test_what_a_plan_uses_is_not_offered_to_the_next_of_the_run():
    boards = (LARGE, replace(SMALL, quantity=1), offcut("K1", 950, 920))
    run, demand = PlanningRun(), replace(demand_of((900, 900, 1), boards=boards), effort="quick")
    plans = [run.plan(demand) for _ in range(3)]
    assert [used(plan) for plan in plans] == [{"K1": 1}, {"S": 1}, {"L": 1}]
    assert all(plan.demand == demand for plan in plans)
