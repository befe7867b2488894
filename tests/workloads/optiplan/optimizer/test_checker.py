"""The checker: every way to spoil a good plan is found and named."""

from dataclasses import replace
from typing import Any

import pytest

from kesin.workloads.optiplan.optimizer.checker import find_faults
from kesin.workloads.optiplan.optimizer.model import (
    Board,
    Cut,
    CuttingPlan,
    Layout,
    Placement,
    Rect,
    SawProfile,
    hundredths,
)
from kesin.workloads.optiplan.optimizer.optimise import optimise
from tests.tables import table
from tests.workloads.optiplan.optimizer.orders import QUICK, order

GOOD = optimise(order((900, 400, 6, 1), (700, 300, 7, 0), (500, 500, 3, 3)), QUICK)
FIRST = GOOD.layouts[0]


def spoilt(**changes: Any) -> CuttingPlan:
    """The good plan with its first layout changed."""
    return replace(GOOD, layouts=(replace(FIRST, **changes), *GOOD.layouts[1:]))


def moved(x: int = 0, y: int = 0, **changes: Any) -> CuttingPlan:
    first, *others = FIRST.placements
    rect = replace(first.rect, x=first.rect.x + x, y=first.rect.y + y)
    return spoilt(placements=(replace(first, rect=rect, **changes), *others))


def grained() -> int:
    return next(n for n, placement in enumerate(FIRST.placements) if placement.part == 0)


def turned() -> CuttingPlan:
    places = list(FIRST.placements)
    placement = places[grained()]
    rect = replace(placement.rect, length=placement.rect.width, width=placement.rect.length)
    places[grained()] = replace(placement, turned=True, rect=rect)
    return spoilt(placements=tuple(places))


def resized() -> CuttingPlan:
    first, *others = FIRST.placements
    rect = replace(first.rect, length=first.rect.length - 1)
    return spoilt(placements=(replace(first, rect=rect), *others))


def on_top() -> CuttingPlan:
    first, second, *others = FIRST.placements
    rect = replace(second.rect, x=first.rect.x, y=first.rect.y)
    return spoilt(placements=(first, replace(second, rect=rect), *others))


def last_cut(**changes: Any) -> CuttingPlan:
    return spoilt(cuts=(*FIRST.cuts[:-1], replace(FIRST.cuts[-1], **changes)))


def test_the_good_plan_is_good():
    assert find_faults(GOOD) == []


@table(
    ("plan", "reason"),
    [
        pytest.param(spoilt(placements=FIRST.placements[1:]), "quantity: ", id="one too few"),
        pytest.param(spoilt(placements=(*FIRST.placements, FIRST.placements[0])), "quantity: ", id="too many"),
        pytest.param(spoilt(times=2), "quantity: ", id="sawn twice"),
        pytest.param(
            spoilt(placements=(*FIRST.placements, Placement(9, FIRST.placements[0].rect))),
            "quantity: part number 9",
            id="never ordered",
        ),
        pytest.param(spoilt(times=0), "layout 1: sawn 0 times", id="never sawn"),
        pytest.param(turned(), "layout 1: grain: ", id="against the grain"),
        pytest.param(resized(), "layout 1: size: ", id="too short"),
        pytest.param(moved(turned=True), "layout 1: ", id="turned in name only"),
        pytest.param(moved(x=-1), "layout 1: trim: ", id="into the left trim"),
        pytest.param(moved(y=-1), "layout 1: trim: ", id="into the lower trim"),
        pytest.param(moved(x=hundredths(2800)), "layout 1: trim: ", id="off the board"),
        pytest.param(moved(y=hundredths(2100)), "layout 1: trim: ", id="above the board"),
        pytest.param(on_top(), "layout 1: overlap: ", id="one over the other"),
        pytest.param(moved(x=1), "layout 1: kerf: ", id="no room for the blade"),
        pytest.param(moved(x=1), "layout 1: guillotine: no cuts free", id="not where it is cut"),
        pytest.param(spoilt(cuts=FIRST.cuts[1:]), "layout 1: guillotine: cut 1 is through", id="first cut gone"),
        pytest.param(spoilt(cuts=FIRST.cuts[:-1]), "layout 1: guillotine: no cuts free", id="last cut gone"),
        pytest.param(spoilt(cuts=FIRST.cuts[::-1]), "layout 1: guillotine: cut 1 is through", id="wrong order"),
        pytest.param(last_cut(at=0), "layout 1: guillotine: cut", id="beside its panel"),
        pytest.param(last_cut(at=FIRST.cuts[-1].at + 1), "layout 1: guillotine: no cuts", id="a hair off"),
        pytest.param(last_cut(stage=99), "layout 1: guillotine: the stage of cut", id="no such stage"),
        pytest.param(spoilt(offcuts=FIRST.offcuts[1:]), "layout 1: offcut: ", id="offcut hidden"),
        pytest.param(
            spoilt(offcuts=(*FIRST.offcuts, Rect(0, 0, 1, 1))),
            "layout 1: guillotine: no cuts free",
            id="offcut invented",
        ),
    ],
)
def test_a_spoilt_plan_is_refused_for_its_reason(plan: CuttingPlan, reason: str):
    assert [fault for fault in find_faults(plan) if fault.startswith(reason)]


def test_a_pinwheel_cannot_be_sawn():
    """Four pieces around a fifth: they fit, and no first cut goes from edge to edge."""
    board = Board.of(300, 300, trim_mm=0)
    demand = order((200, 100, 4), (100, 100, 1), board=board, kerf_mm=0)
    side = hundredths(100)
    placements = (
        Placement(0, Rect(0, 0, 2 * side, side)),
        Placement(0, Rect(2 * side, 0, side, 2 * side), turned=True),
        Placement(0, Rect(side, 2 * side, 2 * side, side)),
        Placement(0, Rect(0, side, side, 2 * side), turned=True),
        Placement(1, Rect(side, side, side, side)),
    )
    for cuts in ((), (Cut(Rect(0, 0, 3 * side, 3 * side), "rip", side, 1),)):
        plan = CuttingPlan(demand, (Layout(1, placements, (), cuts),))
        faults = find_faults(plan)
        assert faults
        assert {fault.split(": ")[1] for fault in faults} <= {"guillotine", "offcut"}


def by_hand(board: Board | None = None, **saw: Any) -> CuttingPlan:
    """Four pieces of 400 × 200 from a board of 1000 × 600: two rips, then cross cuts."""
    board = board or Board.of(1000, 600, trim_mm=0)
    saw = {"kerf_rip": 400, "kerf_cross": 500, "max_stages": 2} | saw
    demand = replace(order((400, 200, 4), board=board), saw=SawProfile(**saw))
    rips = [Cut(Rect(0, y, 100_000, 60_000 - y), "rip", y + 20_000, 1) for y in (0, 20_400)]
    cuts, places, offcuts = rips, [], [Rect(0, 40_800, 100_000, 19_200)]
    for y in (0, 20_400):
        for x in (0, 40_500):
            cuts.append(Cut(Rect(x, y, 100_000 - x, 20_000), "cross", x + 40_000, 2))
            places.append(Placement(0, Rect(x, y, 40_000, 20_000)))
        offcuts.append(Rect(81_000, y, 19_000, 20_000))
    return CuttingPlan(demand, (Layout(1, tuple(places), tuple(offcuts), tuple(cuts)),))


def relaid(**changes: Any) -> CuttingPlan:
    plan = by_hand()
    return replace(plan, layouts=(replace(plan.layouts[0], **changes),))


def stored(*others: Board, **changes: Any) -> CuttingPlan:
    plan = relaid(**changes)
    return replace(plan, demand=replace(plan.demand, more_boards=others))


SAME = Board.of(1000, 600, trim_mm=0)


@table(
    "plan",
    [
        by_hand(),
        by_hand(max_stages=0),
        by_hand(first_cut="rip"),
        by_hand(first_cut="cross", head_cut=True, max_stages=1),
        by_hand(smallest_strip=20_000, smallest_piece=20_000),
        by_hand(largest_cut=100_000, largest_rip=60_000),
        stored(replace(SAME, quantity=1, offcut="K7"), board=1),
    ],
)
def test_a_plan_within_the_profile_is_accepted(plan: CuttingPlan):
    assert find_faults(plan) == []


@table(
    ("plan", "fault"),
    [
        (by_hand(max_stages=1), "saw: 2 stages, and max_stages is 1"),
        (by_hand(max_stages=1, first_cut="rip", head_cut=True), "saw: 2 stages"),
        (
            relaid(cuts=tuple(replace(cut, stage=1) for cut in by_hand().layouts[0].cuts)),
            "guillotine: the stage of cut 3 is 2, and 1 is given",
        ),
        (by_hand(first_cut="cross"), "saw: the first cut is a rip cut, and first_cut is cross"),
        (by_hand(kerf_rip=401), "kerf: 4 mm between"),
        (by_hand(kerf_cross=501), "kerf: 5 mm between"),
        (by_hand(smallest_strip=20_001), "saw: a strip of 200 holds pieces, below smallest_strip"),
        (by_hand(smallest_piece=20_001), "saw: part 'p1' is smaller than smallest_piece"),
        (by_hand(largest_cut=99_999), "saw: a first cut of 1000, above largest_cut"),
        (by_hand(largest_rip=59_999), "saw: a first cut through 600, above largest_rip"),
        (relaid(board=1), "board: there is no board 1"),
        (relaid(board=-1), "board: there is no board -1"),
        (by_hand(Board.of(1000, 600, trim_mm=1)), "trim: part 'p1' at (0, 0)"),
        (stored(Board.of(900, 600, trim_mm=0), board=1), "guillotine: cut 1 is through a panel"),
        (by_hand(replace(SAME, code="S", quantity=0)), "board: 1 of board 'S' planned, 0 in store"),
        (
            stored(replace(SAME, quantity=1, offcut="K7"), board=1, times=2),
            "board: 2 of offcut 'K7' planned, 1 in store",
        ),
    ],
)
def test_a_plan_above_the_profile_or_the_store_is_refused(plan: CuttingPlan, fault: str):
    assert [found for found in find_faults(plan) if found.removeprefix("layout 1: ").startswith(fault)]
