"""The plan as a PDF with its fonts (ğ, ı, İ, ş); no date or random id: the same bytes."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.optimizer.model import CutPart, CuttingPlan, mm_text, size_text
from kesin.workloads.optiplan.optimizer.output import shapes
from kesin.workloads.optiplan.optimizer.output.board import FAINT, INK, QUIET, draw_layout
from kesin.workloads.optiplan.optimizer.output.shapes import PAGE_HEIGHT, PAGE_LENGTH, TEXTS
from kesin.workloads.optiplan.optimizer.output.statistics import (
    PlanStatistics,
    board_numbers,
    compute_statistics,
    saw_steps,
)

if TYPE_CHECKING:
    from fpdf import FPDF

FIRST_Y, LAST_Y, LEFT, RIGHT = 130.0, 796.0, 40.0, 1148.0
STEP, SIZE = 21.0, 13.0
COLUMNS: Final = 3  # of the cut list, per page
GAP: Final = 36.0
FONTS: Final = Path(__file__).parent / "fonts"
FAMILY: Final = "sans"
UNIT_POINTS: Final = 72 / 25.4 / shapes.UNITS_PER_MM
CREATED_AT: Final = datetime(2000, 1, 1, tzinfo=UTC)  # fixed: the same plan gives the same bytes
Column = tuple[str, float, shapes.Anchor]  # title, position, anchor


def print_plans(plans: Sequence[CuttingPlan], language: Language = "en") -> bytes:
    from fpdf import FPDF

    pdf = FPDF(orientation="landscape", unit=UNIT_POINTS, format="A4")
    pdf.set_auto_page_break(auto=False)
    pdf.set_margin(0)
    pdf.c_margin = 0
    pdf.set_creation_date(CREATED_AT)
    pdf.set_producer("Kesin")
    pdf.set_title(f"{TEXTS[language]['plan']} {plans[0].demand.name}")
    pdf.set_lang(language)
    pdf.add_font(FAMILY, "", FONTS / "sans-regular.ttf")
    pdf.add_font(FAMILY, "B", FONTS / "sans-bold.ttf")
    pages: list[list[shapes.Shape]] = []
    for plan in plans:
        pages += _summary_pages(plan, language)
        pages += [draw_layout(plan, number + 1, language) for number in range(len(plan.layouts))]
        pages += _cut_pages(plan, language)
    for number, page in enumerate(pages, start=1):
        pdf.add_page()
        label = f"{number} / {len(pages)}"
        footer = shapes.Text(PAGE_LENGTH - 40, PAGE_HEIGHT - 18, label, 11, QUIET, "end")
        for shape in (*page, footer):
            _draw_shape(pdf, shape)
    return bytes(pdf.output())


@dataclass(slots=True)
class _PageFlow:
    """Pages with one or more columns; a new page starts when the last one is full."""

    title: str
    subtitle: str
    columns: int = 1
    pages: list[list[shapes.Shape]] = field(default_factory=list)
    column: int = 0
    y: float = LAST_Y + 1

    @property
    def x(self) -> float:
        return LEFT + self.column * (self.width + GAP)

    @property
    def width(self) -> float:
        return (RIGHT - LEFT - GAP * (self.columns - 1)) / self.columns

    def ensure_room(self, rows: int = 1) -> bool:
        """Move to a place with space for the rows; returns whether that is a new column."""
        if self.pages and self.y + (rows - 1) * STEP <= LAST_Y:
            return False
        self.column += 1
        if not self.pages or self.column >= self.columns:
            self.column = 0
            heading = shapes.Text(LEFT, 62, self.title, 28, INK, bold=True)
            subtitle = shapes.shorten(self.subtitle, 13, RIGHT - LEFT)
            self.pages.append([heading, shapes.Text(LEFT, 90, subtitle, 13, QUIET)])
        self.y = FIRST_Y
        return True

    def head(self, columns: Sequence[Column]) -> None:
        self.row([title for title, _, _ in columns], columns, head=True)

    def row(self, cells: Sequence[str], columns: Sequence[Column], *, head: bool = False) -> None:
        """Add a table row, below the titles if it is the first; a cell is shortened to its room."""
        if not head and self.ensure_room() and columns[0][0]:
            self.head(columns)
        page, ink = self.pages[-1], QUIET if head else INK
        for number, (cell, (_, at, anchor)) in enumerate(zip(cells, columns, strict=True)):
            if anchor == "start":
                next_starts = [x for _, x, other in columns[number + 1 :] if other == "start"]
                end = next_starts[0] if next_starts else self.width
                next_ends = [x - 60 for _, x, other in columns[number + 1 :] if other == "end"]
                cell = shapes.shorten(cell, SIZE, min([end, *next_ends]) - at - 8)  # noqa: PLW2901
            page.append(shapes.Text(self.x + at, self.y, cell, SIZE, ink, anchor, bold=head))
        level = self.y + 6
        page.append(shapes.Line(self.x, level, self.x + self.width, level, FAINT, 0.6))
        self.y += STEP


def _summary_pages(plan: CuttingPlan, language: Language) -> list[list[shapes.Shape]]:
    texts, statistics = TEXTS[language], compute_statistics(plan)
    pages = _PageFlow(texts["plan"], _subtitle(plan))
    pages.ensure_room()
    _add_figures(pages, plan, statistics, texts)
    columns: list[Column] = [
        ("№", 24, "end"),
        (texts["name"], 40, "start"),
        (texts["pieces"], 430, "end"),
        (texts["size"], 580, "end"),
        (texts["finished"], 730, "end"),
        ("↔", 776, "middle"),
        (texts["band"], 810, "start"),
    ]
    pages.head(columns)
    for number, part in enumerate(plan.demand.parts, start=1):
        pages.row(_part_cells(number, part), columns)
    _add_totals(pages, plan, statistics, texts)
    return pages.pages


def _part_cells(number: int, part: CutPart) -> list[str]:
    sides = zip("↑↓←→", part.bands, strict=True)
    return [
        str(number),
        " · ".join((part.name, *part.notes)),
        str(part.quantity),
        size_text(part.length, part.width),
        size_text(*part.finished),
        str(part.grain),
        "  ".join(f"{arrow} {band.name}" for arrow, band in sides if band is not None),
    ]


def _add_figures(
    pages: _PageFlow, plan: CuttingPlan, statistics: PlanStatistics, texts: dict[str, str]
) -> None:
    figures = [
        (texts["boards"], str(plan.boards)),
        (texts["yield"], f"{100 * statistics.yield_share:.1f} %"),
        (texts["cuts"], str(statistics.cuts)),
        (texts["sawn"], f"{statistics.cut_metres:.1f}"),
        (texts["minutes"], f"{statistics.time_s / 60:.0f}"),
    ]
    for number, (name, value) in enumerate(figures):
        x = LEFT + number * 180
        figure = shapes.Text(x, 150, value, 26, INK, bold=True)
        pages.pages[-1] += [figure, shapes.Text(x, 172, name, 13, QUIET)]
    pages.y = 214.0


def _add_totals(
    pages: _PageFlow, plan: CuttingPlan, statistics: PlanStatistics, texts: dict[str, str]
) -> None:
    bands = [f"{name}: {length:.1f} m" for name, length in statistics.band_metres]
    offcuts = [f"{size_text(*size)} ({count}×)" for size, count in plan.kept_offcuts.items()]
    for title, lines in (
        (texts["bands"], bands or [texts["no_bands"]]),
        (texts["offcuts"], offcuts or [texts["no_offcuts"]]),
    ):
        pages.y += STEP
        pages.ensure_room(rows=2)
        pages.head([(title, 0, "start")])
        for start in range(0, len(lines), 4):
            cells = [*lines[start : start + 4], "", "", ""][:4]
            pages.row(cells, [("", 270.0 * number, "start") for number in range(4)])


def _cut_pages(plan: CuttingPlan, language: Language) -> list[list[shapes.Shape]]:
    texts = TEXTS[language]
    pages = _PageFlow(texts["cut_list"], _subtitle(plan), COLUMNS)
    columns: list[Column] = [("№", 26, "end"), (texts["runs"], 38, "start")]
    columns += [(texts["panel"], 218, "end"), (texts["fence"], 292, "end"), ("→", 340, "end")]
    for number, layout in enumerate(plan.layouts, start=1):
        times = f" × {layout.times}" if layout.times > 1 else ""
        title = f"{texts['board']} {board_numbers(plan, number)}{times}"
        pages.y += STEP * 0.8
        pages.ensure_room(rows=4)
        pages.pages[-1].append(shapes.Text(pages.x, pages.y, title, 16, INK, bold=True))
        pages.y += STEP * 1.1
        pages.head(columns)
        for order, step in enumerate(saw_steps(plan.demand, layout), 1):
            runs = texts["trim"] if step.stage == 0 else f"{texts[step.runs]} {step.stage}"
            fence, frees = mm_text(step.fence), ", ".join(map(str, step.frees))
            pages.row([str(order), runs, size_text(*step.panel), fence, frees], columns)
    return pages.pages


def _subtitle(plan: CuttingPlan) -> str:
    return " · ".join(filter(None, (plan.demand.name, plan.demand.material)))


def _draw_shape(pdf: "FPDF", shape: shapes.Shape) -> None:
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
            _draw_text(pdf, shape)


def _draw_text(pdf: "FPDF", shape: shapes.Text) -> None:
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
