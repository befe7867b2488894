"""The plan on paper: a summary, a page for each board, and the cut list, as one PDF.

The same shapes as on the screen, in fonts that travel in the file, so that ğ, ı, İ and ş print
everywhere. No date and no random mark goes into it: the same plan gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kesin.workloads.optiplan.optimizer.model import Plan
from kesin.workloads.optiplan.optimizer.picture import QUIET, picture
from kesin.workloads.optiplan.optimizer.scene import (
    PAGE_HEIGHT,
    PAGE_LENGTH,
    UNITS_A_MM,
    Box,
    Disc,
    Hatch,
    Line,
    Shape,
    Text,
)
from kesin.workloads.optiplan.optimizer.sheets import sheets
from kesin.workloads.optiplan.optimizer.words import WORDS, Language

if TYPE_CHECKING:
    from fpdf import FPDF

FONTS: Final = Path(__file__).parent / "fonts"
FAMILY: Final = "sans"
POINT_MM: Final = 25.4 / 72
MADE_AT: Final = datetime(2000, 1, 1, tzinfo=UTC)  # a date in the file would change its bytes


def print_plans(plans: Sequence[Plan], language: Language = "en") -> bytes:
    """One PDF for a batch."""
    from fpdf import FPDF

    paper = FPDF(orientation="landscape", unit="mm", format="A4")
    paper.set_auto_page_break(auto=False)
    paper.set_margin(0)
    paper.c_margin = 0
    paper.set_creation_date(MADE_AT)
    paper.set_producer("Kesin")
    paper.set_title(f"{WORDS[language]['plan']} {plans[0].demand.name}")
    paper.set_lang(language)
    paper.add_font(FAMILY, "", FONTS / "sans-regular.ttf")
    paper.add_font(FAMILY, "B", FONTS / "sans-bold.ttf")
    pages: list[list[Shape]] = []
    for plan in plans:
        before, after = sheets(plan, language)
        drawings = [picture(plan, number + 1, language) for number in range(len(plan.layouts))]
        pages += [*before, *drawings, *after]
    for number, page in enumerate(pages, start=1):
        paper.add_page()
        told = f"{number} / {len(pages)}"
        for shape in (*page, Text(PAGE_LENGTH - 40, PAGE_HEIGHT - 18, told, 11, QUIET, "end")):
            _put(paper, shape)
    return bytes(paper.output())


def _put(paper: FPDF, shape: Shape) -> None:
    match shape:
        case Box():
            paper.set_fill_color(shape.fill)
            style = "DF" if shape.stroke else "F"
            _pen(paper, shape.stroke or shape.fill, shape.stroke_width)
            size = (max(_mm(shape.width), 0.01), max(_mm(shape.height), 0.01))
            paper.rect(_mm(shape.x), _mm(shape.y), *size, style=style)
        case Hatch():
            _pen(paper, shape.stroke, shape.stroke_width)
            for ends in shape.lines():
                paper.line(*(_mm(end) for end in ends))
        case Line():
            _pen(paper, shape.stroke, shape.stroke_width)
            if shape.dash:
                paper.set_dash_pattern(dash=_mm(shape.dash[0]), gap=_mm(shape.dash[1]))
            paper.line(_mm(shape.x1), _mm(shape.y1), _mm(shape.x2), _mm(shape.y2))
            if shape.dash:
                paper.set_dash_pattern()
        case Disc():
            paper.set_fill_color(shape.fill)
            _pen(paper, shape.stroke or shape.fill, 1.0)
            paper.circle(_mm(shape.x), _mm(shape.y), _mm(shape.radius), style="DF")
        case Text():
            _write(paper, shape)


def _write(paper: FPDF, shape: Text) -> None:
    paper.set_font(FAMILY, "B" if shape.bold else "", _mm(shape.size) / POINT_MM)
    paper.set_text_color(shape.fill)
    text = "".join(c if c.isprintable() else " " for c in shape.text)
    length = paper.get_string_width(text)
    back = {"start": 0.0, "middle": length / 2, "end": length}[shape.anchor]
    x, y = _mm(shape.x), _mm(shape.y)
    if not shape.turned:
        paper.text(x - back, y, text)
        return
    with paper.rotation(90, x, y):
        paper.text(x - back, y, text)


def _pen(paper: FPDF, stroke: str, width: float) -> None:
    paper.set_draw_color(stroke)
    paper.set_line_width(_mm(width))


def _mm(units: float) -> float:
    return units / UNITS_A_MM
