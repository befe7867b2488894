"""The plan as a PDF with its fonts (ğ, ı, İ, ş); no random id: the same plan, the same bytes."""

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.optimizer.model import CuttingPlan
from kesin.workloads.optiplan.optimizer.output import shapes
from kesin.workloads.optiplan.optimizer.output.paper import draw_paper
from kesin.workloads.optiplan.optimizer.output.shapes import NO_HEAD, PAGE_HEIGHT, PAGE_LENGTH, QUIET, TEXTS, PaperHead

if TYPE_CHECKING:
    from fpdf import FPDF

FONTS: Final = Path(__file__).parent / "fonts"
FAMILY: Final = "sans"
UNIT_POINTS: Final = 72 / 25.4 / shapes.UNITS_PER_MM
CREATED_AT: Final = datetime(2000, 1, 1, tzinfo=UTC)  # fixed: the same plan gives the same bytes


def print_plans(plans: Sequence[CuttingPlan], language: Language = "en", head: PaperHead = NO_HEAD) -> bytes:
    title = f"{TEXTS[language]['plan']} {head.order or plans[0].demand.name}"
    pdf = new_pdf(title, language, UNIT_POINTS, "A4")
    pages = draw_paper(plans, language, head)
    for number, page in enumerate(pages, start=1):
        pdf.add_page()
        label = f"{number} / {len(pages)}"
        footer = shapes.Text(PAGE_HEIGHT - 40, PAGE_LENGTH - 18, label, 11, QUIET, "end")
        for shape in (*page, footer):
            draw_shape(pdf, shape)
    return bytes(pdf.output())


def new_pdf(title: str, language: Language, unit: str | float, size: str | tuple[float, float]) -> "FPDF":
    """Return an empty document with our fonts."""
    from fpdf import FPDF

    pdf = FPDF(orientation="portrait", unit=unit, format=size)
    pdf.set_auto_page_break(auto=False)
    pdf.set_margin(0)
    pdf.c_margin = 0
    pdf.set_creation_date(CREATED_AT)
    pdf.set_producer("Kesin")
    pdf.set_title(title)
    pdf.set_lang(language)
    pdf.add_font(FAMILY, "", FONTS / "sans-regular.ttf")
    pdf.add_font(FAMILY, "B", FONTS / "sans-bold.ttf")
    return pdf


def draw_shape(pdf: "FPDF", shape: shapes.Shape) -> None:
    match shape:
        case shapes.Box():
            pdf.set_fill_color(shape.fill)
            _set_pen(pdf, shape.stroke or shape.fill, shape.stroke_width)
            size = (max(shape.width, 0.04), max(shape.height, 0.04))
            pdf.rect(shape.x, shape.y, *size, style="DF" if shape.stroke else "F")
        case shapes.Hatch():
            _set_pen(pdf, shape.stroke, shape.stroke_width)
            for ends in shape.lines():
                pdf.line(*ends)
        case shapes.Line():
            _set_pen(pdf, shape.stroke, shape.stroke_width)
            if shape.dash:
                pdf.set_dash_pattern(*shape.dash)
            pdf.line(shape.x1, shape.y1, shape.x2, shape.y2)
            if shape.dash:
                pdf.set_dash_pattern()
        case shapes.Disc():
            pdf.set_fill_color(shape.fill)
            _set_pen(pdf, shape.stroke or shape.fill, 1.0)
            pdf.circle(shape.x, shape.y, shape.radius, style="DF")
        case shapes.Text():
            pdf.set_font(FAMILY, "B" if shape.bold else "", shape.size * UNIT_POINTS)
            pdf.set_text_color(shape.fill)
            text = "".join(c if c.isprintable() else " " for c in shape.text)
            length = pdf.get_string_width(text)
            offset = {"start": 0.0, "middle": length / 2, "end": length}[shape.anchor]
            with pdf.rotation(90, shape.x, shape.y) if shape.turned else nullcontext():
                pdf.text(shape.x - offset, shape.y, text)


def _set_pen(pdf: "FPDF", stroke: str, width: float) -> None:
    pdf.set_draw_color(stroke)
    pdf.set_line_width(width)
