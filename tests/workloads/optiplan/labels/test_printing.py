"""Labels on paper: all that belongs on them, within their edges, and codes that scan."""

from dataclasses import replace

import pytest

from kesin.workloads.optiplan.labels.code128 import bars
from kesin.workloads.optiplan.optimizer.output.shapes import PaperHead
from kesin.workloads.optiplan.workshop.saw_rules import LabelLayout
from tests.workloads.optiplan.labels.printed import (
    LONG,
    SCAN_URL,
    codes,
    how,
    label,
    pages,
    printed,
    size_of,
    text_boxes,
    text_of,
)

LAYOUTS: tuple[LabelLayout, ...] = ("100x50", "80x50", "a4-3x8")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_label_says_all_that_the_bench_needs_and_its_codes_scan(layout: LabelLayout):
    [page] = pages(printed(how(layout), label(2)))
    assert codes(page, layout) == {"Code128": "B7Q4TXA7K2-12-2", "QRCode": f"{SCAN_URL}B7Q4TXA7K2-12-2"}
    text = text_of(page)
    for shown in ("S-1 r2 · Güneş Ahşap", "Raf", "2 / 3", "600 × 450", "Kesim 598 × 449.6"):
        assert shown in text
    for shown in ("18 mm · MDF · Açık Meşe", "Levha 3/7 · kesim no 12 · Delik D-104", "Mutfak"):
        assert shown in text
    for shown in ("bantlama", "Meşe 2 mm", "B7Q4TXA7K2-12-2", "19.11.2026"):
        assert shown in text


@pytest.mark.parametrize("layout", LAYOUTS)
def test_long_texts_never_leave_their_label(layout: LabelLayout):
    part = label(of=10_000).part
    part = replace(part, name=LONG, finished_length=999_999, finished_width=999_999)
    long = label(10_000, part=part, head=PaperHead(LONG, LONG), material=LONG)
    long = replace(long, drill=LONG, notes=LONG, bands=(LONG,) * 4)
    [page] = pages(printed(how(layout), long))
    width, height = size_of(layout)
    bottom = page.get_height() * 25.4 / 72 - height - (0.5 if layout == "a4-3x8" else 0)
    boxes = list(text_boxes(page))
    assert len(boxes) >= 10
    for left, low, right, top in boxes:
        assert 0 <= left < right <= width
        assert bottom <= low < top <= bottom + height
    assert "9999.99 × 9999.99" in text_of(page)


def test_without_a_plan_there_is_no_board_and_no_cut():
    [page] = pages(printed(how(), label(board="", cut=0, drill="")))
    assert "Levha" not in text_of(page)
    assert "kesim no" not in text_of(page)


def test_a_roll_has_a_page_for_each_label():
    found = pages(printed(how("80x50"), label(1), label(2), label(3)))
    sizes = [tuple(round(side * 25.4 / 72) for side in page.get_size()) for page in found]
    assert sizes == [(80, 50)] * 3


def test_a_sheet_begins_at_its_first_free_label():
    found = pages(printed(how("a4-3x8", first=23), label(1), label(2), label(3)))
    assert ["1 / 3" in text_of(page) for page in found] == [True, False]
    assert ["3 / 3" in text_of(page) for page in found] == [False, True]


def test_margins_and_pitches_move_the_labels_of_a_sheet():
    def lefts(margin: int, pitch: int) -> list[float]:
        rules = {"margin_left_mm": margin, "pitch_x_mm": pitch}
        [page] = pages(printed(how("a4-3x8", **rules), label(), label(2)))
        return sorted(box[0] for box in text_boxes(page))

    assert min(lefts(7, 66)) == pytest.approx(min(lefts(0, 70)) + 7, abs=0.1)


def test_the_same_labels_give_the_same_bytes():
    assert printed(how(), label()) == printed(how(), label())


def test_only_printable_ascii_has_bars():
    with pytest.raises(ValueError, match="printable ASCII"):
        bars("ğ")
