"""A PTX tells a saw the same plan: every piece by size, number and place, within its board."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings

from kesin.workloads.optiplan.machine_files.ptx import ascii_text, write_ptx
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Demand, SawProfile, Trims, Unplannable
from kesin.workloads.optiplan.optimizer.optimise import optimise
from tests.workloads.optiplan.machine_files import ptx_reader
from tests.workloads.optiplan.machine_files.ptx_reader import Piece
from tests.workloads.optiplan.optimizer.instances import instances
from tests.workloads.optiplan.optimizer.orders import QUICK, order, orders

SHOP = {name: demand for name, demand in instances().items() if demand.saw.max_stages}
USUAL = {name for name in SHOP if not name.endswith(("-2", "-3"))}


def expected(plan: CuttingPlan) -> Counter[tuple[str, tuple[int, int]]]:
    """The pieces of a plan in tenths of a millimetre, and its kept offcuts."""
    counts: Counter[tuple[str, tuple[int, int]]] = Counter()
    for number, part in enumerate(plan.demand.parts, start=1):
        sides = sorted((part.length // 10, part.width // 10), reverse=True)
        counts[str(number), (sides[0], sides[1])] = part.quantity
    return counts


def only_parts(found: Counter[tuple[str, tuple[int, int]]]) -> Counter[tuple[str, tuple[int, int]]]:
    return Counter({key: n for key, n in found.items() if not key[0].startswith("X")})


def within_four_stages(plan: CuttingPlan) -> bool:
    return max((cut.stage for layout in plan.layouts for cut in layout.cuts), default=1) <= 4


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in USUAL else pytest.mark.long) for name in SHOP])
def test_every_piece_of_a_shop_order_falls_where_it_is_planned(name: str):
    demand = SHOP[name]
    plan = optimise(replace(demand, saw=replace(demand.saw, max_stages=3)), QUICK)
    data = write_ptx([plan])
    assert only_parts(ptx_reader.parts_cut(data)) == expected(plan)
    for layout, pattern in zip(plan.layouts, ptx_reader.patterns(data), strict=True):
        assert pattern.boards == layout.times
        pieces = {
            Piece(str(place.part + 1), *(side // 10 for side in (r.x, r.y, r.length, r.width)))
            for place in layout.placements
            for r in (place.rect,)
        }
        assert {piece for piece in pattern.pieces if piece.part[0] != "X"} == pieces
        assert sorted(pattern.sequence) == list(range(1, len(pattern.sequence) + 1))


@given(orders())
@settings(max_examples=settings.default.max_examples // 3)
def test_any_plan_is_read_back_with_the_right_sizes_and_numbers(demand: Demand):
    parts = tuple(replace(part, length=max(part.length, 10), width=max(part.width, 10)) for part in demand.parts)
    plan = optimise(replace(demand, parts=parts), QUICK)
    if not within_four_stages(plan):
        with pytest.raises(Unplannable, match="set max_stages"):
            write_ptx([plan])
        return
    assert only_parts(ptx_reader.parts_cut(write_ptx([plan]))) == expected(plan)


def cross_first() -> CuttingPlan:
    """A piece of the whole board's width, and two of half of it: cross cuts, then rips."""
    demand = order((1000, 2080, 1, 1), (1000, 1000, 2, 1))
    saw = replace(demand.saw, max_stages=2, first_cut="cross")
    return optimise(replace(demand, saw=saw), QUICK)


def test_a_board_whose_first_cuts_run_across_is_turned():
    [pattern] = ptx_reader.patterns(write_ptx([cross_first()]))
    assert (pattern.kind, pattern.functions) == (1, {1, 2})


def test_the_stage_that_a_head_cut_adds_is_function_0():
    plan = cross_first()
    saw = SawProfile(max_stages=1, head_cut=True)
    [pattern] = ptx_reader.patterns(write_ptx([replace(plan, demand=replace(plan.demand, saw=saw))]))
    assert (pattern.kind, pattern.functions) == (2, {0, 1})
    assert pattern.pieces == ptx_reader.patterns(write_ptx([plan]))[0].pieces


def test_uneven_trims_stay_on_their_sides_when_the_board_is_turned():
    plan = cross_first()
    board = replace(plan.demand.board, trims=Trims(500, 1_500, 700, 1_300))
    plan = optimise(replace(plan.demand, board=board), QUICK)
    [pattern] = ptx_reader.patterns(write_ptx([plan]))
    assert min(piece.x for piece in pattern.pieces) == 50
    assert min(piece.y for piece in pattern.pieces) == 70


def test_a_kept_offcut_is_named_and_counted():
    plan = cross_first()
    rows = ptx_reader.records(write_ptx([plan]))
    kept = {(row[4], row[5]): int(row[6]) for row in rows["OFFCUTS"]}
    sizes = {(f"{a / 100:g}", f"{b / 100:g}"): n for (a, b), n in plan.kept_offcuts.items()}
    assert kept == sizes
    named = [(row[7], int(row[8])) for row in rows["CUTS"] if row[7].startswith("X")]
    assert dict(named) == {f"X{row[1]}": int(row[6]) for row in rows["OFFCUTS"]}


def test_texts_are_plain_letters_without_commas():
    assert ascii_text('Açık Meşe, "İç"\r\nkapağı ø') == "Acik Mese Ic kapagi o"
    assert ascii_text("日本") == "??"
    assert ascii_text("a" * 60) == "a" * 50


def test_more_stages_than_four_are_refused_with_what_to_do():
    demand = replace(SHOP["sample"], saw=replace(SHOP["sample"].saw, max_stages=0))
    plan = optimise(demand, QUICK)
    layout = plan.layouts[0]
    deep = replace(layout, cuts=(*layout.cuts[:-1], replace(layout.cuts[-1], stage=5)))
    with pytest.raises(Unplannable, match=r"board 1 has \d stages.*at most 4: set max_stages"):
        write_ptx([replace(plan, layouts=(deep,))])
