"""The plan on paper: a summary, a page for each board, and the cut list, as one PDF.

The same shapes as on the screen, in fonts that travel in the file, so that ğ, ı, İ and ş print
everywhere. No date and no random mark goes into it: the same plan gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kesin.workloads.optiplan.optimizer.model import Demand, Part, Plan, mm_text
from kesin.workloads.optiplan.optimizer.output.board import FAINT, INK, QUIET, picture
from kesin.workloads.optiplan.optimizer.output.cut_list import BoardLine, CutList, cut_list
from kesin.workloads.optiplan.optimizer.output.shapes import (
    PAGE_HEIGHT,
    PAGE_LENGTH,
    UNITS_A_MM,
    Anchor,
    Box,
    Disc,
    Hatch,
    Line,
    Shape,
    Text,
    shortened,
)
from kesin.workloads.optiplan.optimizer.output.statistics import Figures, figures
from kesin.workloads.optiplan.optimizer.output.texts import WORDS, Language

if TYPE_CHECKING:
    from fpdf import FPDF

FIRST_Y, LAST_Y, LEFT, RIGHT = 130.0, 796.0, 40.0, 1148.0
STEP, SIZE = 21.0, 13.0
COLUMNS: Final = 3  # of the cut list on a page
GAP: Final = 36.0
Column = tuple[str, float, Anchor]  # its title, where it stands, which end is fixed


@dataclass(slots=True)
class _Sheets:
    """Pages that are begun as the last one is full, in one column or several."""

    title: str
    told: str
    columns: int = 1
    pages: list[list[Shape]] = field(default_factory=list)
    column: int = 0
    y: float = LAST_Y + 1

    @property
    def x(self) -> float:
        return LEFT + self.column * (self.width + GAP)

    @property
    def width(self) -> float:
        return (RIGHT - LEFT - GAP * (self.columns - 1)) / self.columns

    def room(self, rows: int = 1) -> bool:
        """Go on where so many rows fit; whether that is a new column."""
        if self.pages and self.y + (rows - 1) * STEP <= LAST_Y:
            return False
        self.column += 1
        if not self.pages or self.column >= self.columns:
            self.column = 0
            self.pages.append(
                [
                    Text(LEFT, 62, self.title, 28, INK, bold=True),
                    Text(LEFT, 90, shortened(self.told, 13, RIGHT - LEFT), 13, QUIET),
                ]
            )
        self.y = FIRST_Y
        return True

    def row(self, cells: Sequence[str], columns: Sequence[Column], *, head: bool = False) -> None:
        """A line of a table; cells are cut where the next column begins."""
        page = self.pages[-1]
        for number, (cell, (_, at, anchor)) in enumerate(zip(cells, columns, strict=True)):
            if anchor == "start":
                later = [x for _, x, other in columns[number + 1 :] if other == "start"]
                end = later[0] if later else self.width
                ends = [x - 60 for _, x, other in columns[number + 1 :] if other == "end"]
                cell = shortened(cell, SIZE, min([end, *ends]) - at - 8)  # noqa: PLW2901
            page.append(
                Text(self.x + at, self.y, cell, SIZE, QUIET if head else INK, anchor, bold=head)
            )
        level = self.y + 6
        page.append(Line(self.x, level, self.x + self.width, level, FAINT, 0.6))
        self.y += STEP


def sheets(plan: Plan, language: Language) -> tuple[list[list[Shape]], list[list[Shape]]]:
    """The pages before the drawings and those after them."""
    listed = cut_list(plan)
    return _summary(plan, listed, language), _cuts(plan, listed, language)


def _summary(plan: Plan, listed: CutList, language: Language) -> list[list[Shape]]:
    words, sums, demand = WORDS[language], figures(plan), plan.demand
    pages = _Sheets(words["plan"], _facts(demand))
    pages.room()
    _figures(pages, sums, words)
    columns: list[Column] = [
        ("№", 24, "end"),
        (words["name"], 40, "start"),
        (words["pieces"], 430, "end"),
        (words["size"], 580, "end"),
        (words["finished"], 730, "end"),
        ("↔", 776, "middle"),
        (words["band"], 810, "start"),
    ]
    pages.row([title for title, _, _ in columns], columns, head=True)
    for number, part in enumerate(demand.parts, start=1):
        if pages.room():
            pages.row([title for title, _, _ in columns], columns, head=True)
        pages.row(_part(number, part), columns)
    _totals(pages, sums, listed, words)
    return pages.pages


def _part(number: int, part: Part) -> list[str]:
    sides = (("↑", part.up), ("↓", part.lo), ("←", part.sx), ("→", part.dx))
    length, width = part.finished
    return [
        str(number),
        " · ".join((part.name, *part.notes)),
        str(part.quantity),
        f"{mm_text(part.length)} × {mm_text(part.width)}",
        f"{mm_text(length)} × {mm_text(width)}",
        str(part.grain),
        "  ".join(f"{arrow} {band.name}" for arrow, band in sides if band is not None),
    ]


def _figures(pages: _Sheets, sums: Figures, words: dict[str, str]) -> None:
    """The large numbers on top."""
    told = [
        (words["boards"], str(sums.boards)),
        (words["yield"], f"{100 * sums.yield_share:.1f} %"),
        (words["cuts"], str(sums.cuts)),
        (words["sawn"], f"{sums.cut_metres:.1f}"),
        (words["minutes"], f"{sums.time_s / 60:.0f}"),
    ]
    if sums.cost:
        told.append((words["cost"], f"{sums.cost:,.2f}"))
    for number, (name, value) in enumerate(told):
        x = LEFT + number * 180
        pages.pages[-1] += [
            Text(x, 150, value, 26, INK, bold=True),
            Text(x, 172, name, 13, QUIET),
        ]
    pages.y = 214.0


def _totals(pages: _Sheets, sums: Figures, listed: CutList, words: dict[str, str]) -> None:
    """Band to fetch, offcuts to keep."""
    bands = [f"{name}: {length:.1f} m" for name, length in sums.band_metres]
    rests = [
        f"{mm_text(rest.length)} × {mm_text(rest.width)} ({rest.pieces}×)"
        for rest in listed.offcuts
    ]
    for title, lines in (
        (words["bands"], bands or [words["no_bands"]]),
        (words["offcuts"], rests or [words["no_offcuts"]]),
    ):
        pages.y += STEP
        pages.room(rows=2)
        pages.row([title], [("", 0, "start")], head=True)
        for start in range(0, len(lines), 4):
            pages.room()
            cells = [*lines[start : start + 4], "", "", ""][:4]
            pages.row(cells, [("", 270.0 * number, "start") for number in range(4)])


def _cuts(plan: Plan, listed: CutList, language: Language) -> list[list[Shape]]:
    words = WORDS[language]
    pages = _Sheets(words["cut_list"], _facts(plan.demand), COLUMNS)
    columns: list[Column] = [
        ("№", 26, "end"),
        (words["runs"], 38, "start"),
        (words["panel"], 218, "end"),
        (words["fence"], 292, "end"),
        ("→", 340, "end"),
    ]
    for board in listed.boards:
        _board_cuts(pages, board, columns, words)
    return pages.pages


def _facts(demand: Demand) -> str:
    return " · ".join(text for text in (demand.name, demand.material) if text)


def _board_cuts(
    pages: _Sheets, board: BoardLine, columns: list[Column], words: dict[str, str]
) -> None:
    title = f"{words['board']} {board.number}"
    if board.times > 1:
        title += f" × {board.times}"
    pages.y += STEP * 0.8
    pages.room(rows=4)
    pages.pages[-1].append(Text(pages.x, pages.y, title, 16, INK, bold=True))
    pages.y += STEP * 1.1
    pages.row([name for name, _, _ in columns], columns, head=True)
    for step in board.steps:
        if pages.room():
            pages.row([name for name, _, _ in columns], columns, head=True)
        runs = words["trim"] if step.stage == 0 else f"{words[step.runs]} {step.stage}"
        panel = f"{mm_text(step.panel_length)} × {mm_text(step.panel_width)}"
        done = ", ".join(map(str, step.frees))
        pages.row([str(step.order), runs, panel, mm_text(step.fence), done], columns)


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
