"""What people and machines get: XML, drawing, paper and lists tell the same plan, byte for byte."""

import io
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pypdfium2
import pytest

from kesin.workloads.optiplan.optimizer.checker import find_faults
from kesin.workloads.optiplan.optimizer.model import (
    Band,
    Board,
    Cut,
    CuttingPlan,
    Demand,
    Layout,
    Placement,
    Rates,
    Rect,
    SawProfile,
    hundredths,
    mm_text,
)
from kesin.workloads.optiplan.optimizer.optimise import optimise
from kesin.workloads.optiplan.optimizer.output.board import draw_layout
from kesin.workloads.optiplan.optimizer.output.costs import plan_costs
from kesin.workloads.optiplan.optimizer.output.pdf import print_plans
from kesin.workloads.optiplan.optimizer.output.shapes import Disc, Hatch, Line, PaperHead, Text, shorten, text_length
from kesin.workloads.optiplan.optimizer.output.statistics import compute_statistics, is_hard_to_hold, saw_steps
from kesin.workloads.optiplan.optimizer.output.svg import draw_svg
from kesin.workloads.optiplan.optimizer.output.xml import solution_xml
from tests.workloads.optiplan.optimizer.instances import KITCHEN, workshop
from tests.workloads.optiplan.optimizer.orders import QUICK, order

AWKWARD = 'Kapak <A&B> "İç" ğış\x07'
THIN, THICK = Band("0.4 mm", 40), Band("2 mm", 200)
SVG = "{http://www.w3.org/2000/svg}"


def awkward() -> Demand:
    demand = order((720, 560, 5, 1), (900, 300, 4), (120, 80, 3))
    first, second, third = demand.parts
    parts = (
        replace(first, name=AWKWARD, bands=(THIN, None, None, THICK)),
        replace(second, bands=(None, THICK, None, None)),
        third,
    )
    return replace(demand, name="b_Meşe", material="18MM <Meşe>", parts=parts)


PLAN = optimise(awkward(), QUICK)
LARGE = optimise(workshop("large", KITCHEN, 60, 3, (0, 1)), QUICK)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def pages(paper: bytes) -> list[str]:
    document = pypdfium2.PdfDocument(io.BytesIO(paper))
    return [document[n].get_textpage().get_text_range() for n in range(len(document))]


def test_the_xml_tells_the_summary_optiplanning_tells_of_all_its_materials():
    root = ET.fromstring(solution_xml([LARGE]))
    best = [element for element in root.iter("Solution") if element.get("best") == "1"]
    sums = compute_statistics(LARGE)
    assert len(best) == 1
    assert best[0].get("name") == "p001"
    assert best[0].get("algo") == LARGE.strategy
    assert float(best[0].get("mqBoards", "")) == pytest.approx(LARGE.boards * 2.1 * 2.8)
    numbers = ("patterns", "cycles", "zcuts", "jobTime", "diffDrops")
    assert [int(best[0].get(name, "")) for name in numbers] == [
        len(LARGE.layouts),
        LARGE.boards,
        sums.z_cuts,
        sums.time_s,
        sums.offcut_sizes,
    ]
    assert float(best[0].get("mqDrops", "")) == pytest.approx(sums.offcut_m2, abs=1e-4)
    assert best[0].get("jobCost") == "0.00"
    (solution,) = ET.fromstring(solution_xml([PLAN, LARGE])).iter("Solution")
    assert [int(element.get("number", "")) for element in solution] == list(range(1, len(solution) + 1))
    assert int(solution.get("boards", "")) == PLAN.boards + LARGE.boards


def priced(*more_boards: Board, **saw: Any) -> CuttingPlan:
    """Three equal boards of 1000 × 500, cut in two pieces, and an offcut that is one piece."""
    board = replace(Board.of(1000, 500, trim_mm=0), code="W18", price=5_050)
    offcut = Board.of(1000, 250, trim_mm=0)
    whole = replace(order((1000, 250, 7), board=board, kerf_mm=0), thickness=1_800)
    (part,) = whole.parts
    demand = replace(
        whole,
        parts=(replace(part, bands=(Band("1 mm", 100), Band("2 mm", 200), None, None)),),
        rates=Rates("EUR", 10, 300, (("2 mm", 455),)),
        saw=SawProfile("beam", kerf_rip=0, kerf_cross=0, **saw),
        more_boards=(replace(offcut, price=900, quantity=1, offcut="K7"), *more_boards),
    )
    halves = tuple(Placement(0, Rect(0, y, 100_000, 25_000)) for y in (0, 25_000))
    cut = Cut(Rect(0, 0, 100_000, 50_000), "rip", 25_000, 1)
    layouts = (Layout(3, halves, (), (cut,)), Layout(1, halves[:1], (), (), board=1))
    return CuttingPlan(demand, layouts)


def test_the_costs_are_new_boards_sawn_metres_and_metres_of_band():
    plan = priced()
    assert find_faults(plan) == []
    costs = plan_costs(plan, compute_statistics(plan))
    assert (costs.boards, costs.sawing) == (3 * 5_050, 3 * 10)  # nothing for the offcut
    assert costs.bands == (("1 mm", 7 * 300), ("2 mm", 7 * 455))
    solution = next(ET.fromstring(solution_xml([plan])).iter("Solution"))
    assert solution.get("jobCost") == "204.65"


def test_the_xml_names_saw_stages_effort_and_the_board_of_each_layout():
    root = ET.fromstring(solution_xml([priced()]))
    solution = next(root.iter("Solution"))
    stated = [solution.get(name) for name in ("profile", "stages", "effort", "mqBoards")]
    assert stated == ["beam", "1", "normal", "1.7500"]
    names = ("board", "code", "offcut", "price", "length", "width")
    assert [[layout.get(name) for name in names] for layout in root.iter("Layout")] == [
        ["0", "W18", None, "50.50", "1000", "500"],
        ["1", "", "K7", "9.00", "1000", "250"],
    ]


def test_books_are_counted_and_a_strip_that_is_hard_to_hold_is_known():
    sums = compute_statistics(priced(book_height=4_000))  # two boards of 18 mm
    assert (sums.book_cycles, sums.stages) == (3, 1)
    assert compute_statistics(priced()).book_cycles == 4
    assert compute_statistics(priced(book_height=1_000)).book_cycles == 4
    plan = priced()
    cut = replace(plan.layouts[0].cuts[0], at=44_000)  # 60 mm are left to hold
    held = replace(plan, layouts=(replace(plan.layouts[0], cuts=(cut,)),))
    assert is_hard_to_hold(held.demand, held.layouts[0])
    assert not is_hard_to_hold(plan.demand, plan.layouts[0])


def test_the_xml_holds_every_piece_and_every_cut_and_the_drawing_numbers_the_pieces():
    root = ET.fromstring(solution_xml([LARGE]))
    for number, (element, layout) in enumerate(zip(root.iter("Layout"), LARGE.layouts, strict=True), start=1):
        pieces = [
            tuple(hundredths(element.get(name, "")) for name in ("x", "y", "length", "width"))
            for element in element.iter("Piece")
        ]
        rects = [placement.rect for placement in layout.placements]
        assert pieces == [(rect.x, rect.y, rect.length, rect.width) for rect in rects]
        assert int(element.get("times", "")) == layout.times
        assert len(list(element.iter("Cut"))) == len(layout.cuts)
        assert len(list(element.iter("Drop"))) == len(layout.offcuts)
        drawn = {text for text in texts(draw_svg([LARGE], only=number)) if text.isdecimal()}
        assert {str(placement.part + 1) for placement in layout.placements} <= drawn


def test_awkward_names_survive_the_xml_and_the_drawing():
    root = ET.fromstring(solution_xml([PLAN]))
    names = {element.get("part") for element in root.iter("Piece")}
    assert AWKWARD.replace("\x07", "\ufffd") in names
    assert {element.get("dx") for element in root.iter("Piece")} == {"2 mm", None}
    drawn_texts = texts(draw_svg([PLAN]))
    assert any(AWKWARD.replace("\x07", "\ufffd") in text for text in drawn_texts)
    assert "18MM <Meşe>" in " ".join(drawn_texts)
    assert any(text.endswith(" %") for text in drawn_texts)
    assert texts(draw_svg([PLAN], only=1)) == drawn_texts[: len(texts(draw_svg([PLAN], only=1)))]


def test_bands_offcuts_and_cut_numbers_are_drawn():
    shapes = draw_layout(PLAN, 1)
    layout = PLAN.layouts[0]
    thick = [shape for shape in shapes if isinstance(shape, Line) and shape.stroke_width == 3.4]
    banded = sum(
        sum(band is not None for band in part.bands)
        for part in (PLAN.demand.parts[placement.part] for placement in layout.placements)
    )
    assert len(thick) == banded + 2  # and the legend
    assert len({(line.stroke, line.dash) for line in thick}) == 2
    assert sum(isinstance(shape, Hatch) for shape in shapes) == len(layout.offcuts) + 1
    assert any(isinstance(shape, Disc) for shape in shapes)


def test_a_turned_part_takes_its_bands_along():
    board = Board.of(1000, 500, trim_mm=0)
    demand = order((400, 1000, 1), board=board)
    part = replace(demand.parts[0], bands=(THIN, None, None, None))
    plan = optimise(replace(demand, parts=(part,)), QUICK)
    assert plan.layouts[0].placements[0].turned
    line = next(shape for shape in draw_layout(plan, 1) if isinstance(shape, Line) and shape.stroke_width == 3.4)
    assert line.x1 == line.x2  # it runs upwards
    assert line.x1 < 100  # on the left


@pytest.mark.parametrize("plan", [PLAN, LARGE])
def test_no_label_lies_over_another(plan):
    for number in range(1, len(plan.layouts) + 1):
        boxes = []
        for shape in draw_layout(plan, number):
            if isinstance(shape, Text) and shape.anchor == "middle" and 118 < shape.y < 750:
                length = text_length(shape.text, shape.size, bold=shape.bold)
                wide, high = (shape.size, length) if shape.turned else (length, shape.size)
                middle = shape.y if shape.turned else shape.y - shape.size * 0.36
                across = shape.x - shape.size * 0.36 if shape.turned else shape.x
                boxes.append((across - wide / 2, middle - high / 2, wide, high, shape.text))
        for n, (x, y, wide, high, text) in enumerate(boxes):
            for left, top, width, height, other in boxes[n + 1 :]:
                apart = x + wide <= left + 1 or left + width <= x + 1 or y + high <= top + 1 or top + height <= y + 1
                assert apart, (text, other)


def test_a_text_is_shortened_to_its_room():
    assert shorten("Yan dikme", 10, 500) == "Yan dikme"
    short = shorten("Yan dikme sağ üst", 10, 60)
    assert short.endswith("…")
    assert text_length(short, 10) <= 60
    assert shorten("Yan", 10, 1) == ""


def test_the_paper_is_in_its_language_names_its_order_and_counts_the_materials_of_all_plans():
    head = PaperHead("W-12", "Demir Mobilya", "19.11.2026")
    drawn_texts = pages(print_plans([PLAN, LARGE], "tr", head))
    assert all("Demir Mobilya · W-12 · 19.11.2026" in text for text in drawn_texts)
    whole = "\n".join(drawn_texts)
    for text in ("Kesim planı", 'Kapak <A&B> "İç" ğış', "b_Meşe", "Saklanacak artıklar", "tıraş"):
        assert text in whole
    summary = drawn_texts[0]
    assert summary.startswith("Kesim planı")
    assert "TRY" not in summary
    for plan in (PLAN, LARGE):
        sizes = list(plan.kept_offcuts)
        assert all(f"{mm_text(a)} × {mm_text(b)}" in summary for a, b in sizes)
    assert f"{compute_statistics(PLAN).band_metres[0][1]:.1f}" in summary
    assert "Demir Mobilya · W-12" in " ".join(texts(draw_svg([PLAN], "tr", head=head)))


def test_the_paper_has_a_page_for_each_pattern_with_every_cut():
    drawn_texts = pages(print_plans([LARGE]))
    assert "Cutting plan" in drawn_texts[0]
    patterns = [text for text in drawn_texts if text.startswith("Board ")]
    assert len(patterns) == len(LARGE.layouts)
    for text, layout in zip(patterns, LARGE.layouts, strict=True):
        assert "Trims" in text
        assert ("Ripping strips" in text) == any(cut.stage < 3 and cut.runs == "rip" for cut in layout.cuts)
        assert ("Recuts" in text) == any(cut.stage >= 3 for cut in layout.cuts)
        listed = re.findall(r"^(\d+)(?:–(\d+))? [\d.]+ × [\d.]+ [\d.]+", text, re.MULTILINE)
        cuts = [n for a, b in listed for n in range(int(a), int(b or a) + 1)]
        assert cuts == list(range(1, 4 + len(layout.cuts) + 1))
    assert f"{len(drawn_texts)} / {len(drawn_texts)}" in drawn_texts[-1]


def test_the_paper_has_the_price_of_boards_bands_and_saw_work_and_says_what_is_cut_together():
    rates = Rates("TRY", cut_metre=350, band_metre=1200)
    board = replace(PLAN.demand.board, price=185_000, code="ML-18", supplier="Kaya")
    saw = replace(PLAN.demand.saw, name="beam saw", book_height=7500)
    layouts = (replace(PLAN.layouts[0], times=7), *PLAN.layouts[1:])
    plan = CuttingPlan(replace(PLAN.demand, rates=rates, board=board, saw=saw, thickness=1800), layouts)
    costs = plan_costs(plan, compute_statistics(plan))
    printed = pages(print_plans([plan], "tr"))
    boards = f"{plan.boards * 1850:,.2f}".translate(str.maketrans(",.", ".,"))
    assert f"ML-18 · Kaya 2800 × 2100 {plan.boards} {boards} TRY" in printed[0]
    total = f"{costs.total / 100:,.2f}".translate(str.maketrans(",.", ".,"))
    assert f"Toplam {total} TRY" in printed[0]
    page = next(text for text in printed if text.startswith("Levha 1–7"))
    assert "beam saw · Paket 4 · 2 × " in page


def test_the_cut_list_starts_with_the_trims_and_frees_every_piece():
    for layout in LARGE.layouts:
        steps = saw_steps(LARGE.demand, layout)
        assert [step.stage for step in steps[:4]] == [0, 0, 0, 0]
        assert len(steps) == len(layout.cuts) + 4
        freed = sorted(number for step in steps for number in step.frees)
        assert freed == sorted(placement.part + 1 for placement in layout.placements)


def test_band_metres_are_those_of_the_finished_parts_and_yield_is_parts_by_boards():
    lengths = dict(compute_statistics(PLAN).band_metres)
    assert lengths["0.4 mm"] == pytest.approx(5 * 0.72)
    assert lengths["2 mm"] == pytest.approx(5 * 0.56 + 4 * 0.9)
    sums = compute_statistics(LARGE)
    parts = sum(part.area * part.quantity for part in LARGE.demand.parts)
    assert sums.yield_share == pytest.approx(parts / (LARGE.boards * LARGE.demand.board.area))
    assert 0 < sums.offcut_m2 < sums.board_m2 - sums.part_m2
