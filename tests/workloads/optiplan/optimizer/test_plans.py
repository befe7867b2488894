"""Whatever is ordered, the plan holds: proved by the checker, which shares no code with it."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.workloads.optiplan.optimizer.checker import find_faults
from kesin.workloads.optiplan.optimizer.cut_sequence import build_layouts
from kesin.workloads.optiplan.optimizer.model import (
    Board,
    CuttingPlan,
    Demand,
    Layout,
    SawProfile,
    Trims,
    Unplannable,
    hundredths,
)
from kesin.workloads.optiplan.optimizer.optimise import Effort, optimise, plan_boards
from kesin.workloads.optiplan.optimizer.problem import Budget, build_tasks
from tests.workloads.optiplan.optimizer.instances import KITCHEN, workshop
from tests.workloads.optiplan.optimizer.orders import QUICK, order, orders


def made(plan: CuttingPlan) -> Counter[int]:
    return Counter(
        {
            part: sum(
                layout.times * sum(placement.part == part for placement in layout.placements) for layout in plan.layouts
            )
            for part in range(len(plan.demand.parts))
        }
    )


@settings(max_examples=settings.default.max_examples // 3)
@given(orders())
def test_every_plan_is_proved_and_within_the_limits_of_its_saw(demand: Demand):
    plan = optimise(demand, QUICK)
    assert find_faults(plan) == []
    assert plan.boards >= plan.least_boards
    for layout in plan.layouts:
        assert_the_saw_can_cut(demand, layout)


def assert_the_saw_can_cut(demand: Demand, layout: Layout) -> None:
    """Check the order and number of the stages, the first direction and the strips of the first stage."""
    saw, board = demand.saw, demand.board
    assert [cut.stage for cut in layout.cuts] == sorted(cut.stage for cut in layout.cuts)
    stages = max((cut.stage for cut in layout.cuts), default=0)
    assert stages <= (saw.stage_limit or stages)
    first = {cut.runs for cut in layout.cuts if cut.stage == 1}
    assert len(first) == (stages > 0)
    if saw.first_cut != "any" and first != {saw.first_cut}:
        assert saw.head_cut or not stages
    if saw.first_cut in first and saw.max_stages:
        assert stages <= saw.max_stages
    if saw.largest_cut:
        assert (board.width if "cross" in first else board.length) <= saw.largest_cut or not stages
    for strip in [rest for cut in layout.cuts if cut.stage == 1 for rest in cut.split(saw)]:
        holds = any(
            strip.x <= rect.x < strip.right and strip.y <= rect.y < strip.top
            for rect in (placement.rect for placement in layout.placements)
        )
        assert not holds or (strip.width if "rip" in first else strip.length) >= saw.smallest_strip


@settings(max_examples=5)
@given(orders(), st.randoms(use_true_random=False))
def test_the_order_of_the_parts_costs_no_board(demand: Demand, chance):
    parts = list(demand.parts)
    chance.shuffle(parts)
    assert optimise(replace(demand, parts=tuple(parts)), QUICK).boards == (optimise(demand, QUICK).boards)


def test_only_a_free_part_is_turned_where_it_helps():
    board = Board.of(1000, 500, trim_mm=0)
    for grain in (0, 3):
        plan = optimise(order((500, 1000, 1, grain), board=board), QUICK)
        assert plan.layouts[0].placements[0].turned
    for grain in (1, 2):
        plan = optimise(order((900, 300, 20, grain), (300, 900, 20, grain)), QUICK)
        assert not any(placement.turned for layout in plan.layouts for placement in layout.placements)
        with pytest.raises(Unplannable, match=f"'p1'.*500 × 1000.*grain {grain} forbids turning"):
            optimise(order((500, 1000, 1, grain), board=board), QUICK)


@pytest.mark.parametrize(("spare_mm", "boards"), [(0, 1), (-0.01, 2)])
def test_the_kerf_is_between_pieces_only(spare_mm, boards):
    """Three pieces need two kerfs: not a hundredth more, not a hundredth less."""
    board = Board.of(3 * 600 + 2 * 4 + spare_mm, 300, trim_mm=0)
    assert optimise(order((600, 300, 3), board=board), QUICK).boards == boards


def test_every_trim_is_kept():
    for side in ("left", "right", "bottom", "top"):
        board = Board(hundredths(1000), hundredths(500), replace(Trims.of(0), **{side: hundredths(1)}))
        assert optimise(order((999, 499, 1), board=board), QUICK).boards == 1
        long, wide = (1000, 499) if side in {"left", "right"} else (999, 500)
        with pytest.raises(Unplannable):
            optimise(order((long, wide, 1, 1), board=board), QUICK)


def test_a_part_as_large_as_the_room_needs_no_cut_and_a_larger_is_named():
    plan = optimise(order((2780, 2080, 1)), QUICK)
    assert (plan.layouts[0].cuts, plan.layouts[0].offcuts) == ((), ())
    with pytest.raises(Unplannable, match=r"part 'p2' \(2800 × 2070 mm\) is larger.*2780 × 2080"):
        optimise(order((100, 100, 1), (2800, 2070, 50)), QUICK)


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        (order(), "no parts"),
        (order((100, 100, 0)), "must be positive"),
        (order((100, -1, 1)), "must be positive"),
        (order((100, 100, 1, 4)), "grain must be 0, 1, 2 or 3, got 4"),
        (order((100, 100, 5_001)), "at most 5000"),
        (order((10, 10, 1), kerf_mm=-1), "kerf must not be negative"),
        (order((10, 10, 1), board=Board.of(100, 100, trim_mm=50)), "trims leave nothing"),
    ],
)
def test_nonsense_is_refused_with_its_reason(demand, message):
    with pytest.raises(Unplannable, match=message):
        optimise(demand, QUICK)


def test_the_same_order_gives_the_same_plan():
    demand = workshop("again", KITCHEN[:4], 60, 4, (0, 1))
    effort = Effort(looks=20_000)
    assert optimise(demand, effort) == optimise(demand, effort)


def test_the_clock_ends_the_search_and_not_the_plan():
    struck = Effort(seconds=1, now=iter(range(0, 10**9, 2)).__next__)
    plan = optimise(workshop("late", KITCHEN, 60, 4, (0,)), struck)
    assert find_faults(plan) == []


def test_thousands_of_pieces_are_planned_and_repeated_kinds_cut_by_repeated_boards():
    plan = optimise(order((300, 200, 2_500), (250, 100, 2_500)), Effort(looks=1))
    assert made(plan) == {0: 2_500, 1: 2_500}
    assert find_faults(plan) == []
    demand = order((700, 520, 90), (1100, 390, 60), (450, 260, 80))
    plan = optimise(demand, Effort(looks=50_000))
    assert len(plan.layouts) < plan.boards
    assert plan.boards <= plan.least_boards + 2


@pytest.mark.parametrize(("head_cut", "boards"), [(True, 1), (False, 2)])
def test_a_head_cut_divides_the_board_before_the_first_stage(head_cut, boards):
    """Both halves are ripped, at different heights."""
    saw = SawProfile.of(0, max_stages=2, first_cut="rip", head_cut=head_cut)
    parts = ((500, 250, 2, 1), (500, 200, 1, 1), (500, 300, 1, 1))
    demand = replace(order(*parts, board=Board.of(1000, 500, trim_mm=0)), saw=saw)
    assert optimise(demand, QUICK).boards == boards


def test_a_narrow_piece_comes_out_of_a_strip_that_is_wide_enough():
    saw = SawProfile(first_cut="rip", smallest_strip=hundredths(60))
    plan = optimise(replace(order((600, 30, 1, 1)), saw=saw), QUICK)
    assert [cut.stage for cut in plan.layouts[0].cuts] == [1, 2, 3]


def test_limits_of_a_saw_that_leave_no_cut_are_named():
    saw = SawProfile("small saw", largest_cut=hundredths(2000))
    with pytest.raises(Unplannable, match="'small saw' leave no first cut"):
        optimise(replace(order((600, 300, 1)), saw=saw), QUICK)
    saw = SawProfile("table", first_cut="rip")  # as wide as the board: only a cross cut frees it
    with pytest.raises(Unplannable, match=r"'p1' \(600 × 2080 mm\).*limits of saw 'table'"):
        optimise(replace(order((600, 2080, 1, 1)), saw=saw), QUICK)


def test_a_piece_larger_than_a_board_is_left_out_there():
    small, large = Board.of(1000, 500), Board.of(2800, 2100)
    demand = replace(order((900, 400, 2), (1500, 400, 1)), board=large, more_boards=(small,))
    tasks, members = build_tasks(demand, demand.boards)
    budget = Budget(QUICK)
    on_small = plan_boards(tasks[1], budget)
    rest = tasks[0].with_counts([1, 0])
    layouts = build_layouts(demand, members, [*on_small, *plan_boards(rest, budget)], [1, 1, 0])
    assert sorted((layout.board, layout.times) for layout in layouts) == [(0, 1), (1, 2)]
    assert all(
        placement.rect.right <= demand.boards[layout.board].usable.right
        for layout in layouts
        for placement in layout.placements
    )
