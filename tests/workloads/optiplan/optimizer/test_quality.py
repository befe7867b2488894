"""How few boards: held against the area, against printed tables and against rectpack."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Demand
from kesin.workloads.optiplan.optimizer.optimise import Effort, optimise
from tests.workloads.optiplan.optimizer.instances import instances
from tests.workloads.optiplan.optimizer.rivals import PACKERS, boards_by_packer

ALL = instances()
LARGE = [name for name, demand in ALL.items() if demand.pieces == 100]
PUBLISHED = {"beng1": 4, "beng2": 6, "beng3": 9, "beng4": 11, "beng5": 14, "beng6": 2, "beng7": 3}
COMPARED = [*("gcut1", "sample", "beng3", "kitchen-50-1", "grained-50-1", "wardrobe-50-1", "doors-100")]
USUAL = {*("beng1", "beng3", "beng6", "gcut1", "sample", "kitchen-25-1", "grained-50-1")}


def usual_first(names: Iterable[str]) -> list[Any]:
    """Parameters: what is not in ``USUAL`` is left to the long form."""
    return [pytest.param(name, marks=[] if name in USUAL else pytest.mark.long) for name in names]


def area_bound(demand: Demand) -> int:
    """As few boards as the bare area of the parts fills."""
    return -(-sum(part.area * part.quantity for part in demand.parts) // demand.board.usable.area)


@cache
def planned(name: str) -> CuttingPlan:
    """A hundred pieces get the usual effort, smaller orders less of it."""
    return optimise(ALL[name], None if name in LARGE else Effort(looks=150_000))


@pytest.mark.parametrize("name", usual_first(ALL))
def test_it_is_within_one_board_of_the_area_and_the_reported_bound_holds(name):
    assert planned(name).boards <= area_bound(ALL[name]) + 1
    assert area_bound(ALL[name]) <= planned(name).least_boards


@pytest.mark.parametrize("name", usual_first(PUBLISHED))
def test_bengtssons_orders_need_no_more_boards_than_ever(name):
    assert planned(name).boards <= PUBLISHED[name]


@pytest.mark.parametrize("name", usual_first(COMPARED))
def test_it_needs_no_more_boards_than_any_guillotine_packer_of_rectpack(name):
    rivals = boards_by_packer(ALL[name], sorts=["area", "long side"], bins=["best fit"])
    assert len(rivals) == len(PACKERS) == 18
    assert planned(name).boards <= min(rivals.values())
