"""The pages of the printed plan: a summary of all boards, then one page for each pattern."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Final, NamedTuple

from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.model import CutPart, CuttingPlan, mm_text, size_text
from kesin.workloads.optiplan.optimizer.output import board, shapes
from kesin.workloads.optiplan.optimizer.output.board import PRINTED
from kesin.workloads.optiplan.optimizer.output.costs import PlanCosts, plan_costs
from kesin.workloads.optiplan.optimizer.output.shapes import FAINT, INK, QUIET, TEXTS, PaperHead
from kesin.workloads.optiplan.optimizer.output.statistics import (
    PlanStatistics,
    SawStep,
    board_numbers,
    book_size,
    compute_statistics,
    is_hard_to_hold,
    saw_steps,
)

LEFT, TOP, LAST_Y, WIDTH = 40.0, 136.0, 1146.0, 760.0
GAP: Final = 20.0
COLUMNS: Final = 3  # of a cut list; on the first page, the parts stand in the first
FIRST_RECUT: Final = 3  # stage

Column = tuple[str, float, shapes.Anchor]  # title, position, anchor
Page = list[shapes.Shape]
Planned = tuple[CuttingPlan, PlanStatistics, PlanCosts]


def draw_paper(plans: Sequence[CuttingPlan], language: Language, head: PaperHead) -> list[Page]:
    """Return the shapes of every page."""
    pages = _summary_pages(plans, TEXTS[language], head)
    for plan in plans:
        for number in range(1, len(plan.layouts) + 1):
            pages += _pattern_pages(plan, number, language, head)
    return pages


@dataclass(slots=True)
class _PageFlow:
    """Rows that fill the columns of pages; a new page starts when the last column is full."""

    title: str
    head: PaperHead
    columns: int = 1
    step: float = 21.0
    size: float = 13.0
    top: float = TOP
    pages: list[Page] = field(default_factory=list)
    column: int = 0
    y: float = LAST_Y + 1

    @property
    def x(self) -> float:
        return LEFT + self.column * (self.width + GAP)

    @property
    def width(self) -> float:
        return (WIDTH - GAP * (self.columns - 1)) / self.columns

    def ensure_room(self, rows: int = 1) -> bool:
        """Move to a place with space for the rows; returns whether that is a new column."""
        if self.pages and self.y + (rows - 1) * self.step <= LAST_Y:
            return False
        self.column += 1
        if not self.pages or self.column >= self.columns:
            self.column, self.top = 0, TOP
            self.pages.append(board.heading(self.title, self.head, LEFT + WIDTH))
        self.y = self.top
        return True

    def section(self, title: str, columns: Sequence[Column] = ()) -> None:
        self.y += self.step * 0.6
        self.ensure_room(rows=4)
        heading = shapes.Text(self.x, self.y, title, self.size * 1.15, INK, bold=True)
        self.pages[-1].append(heading)
        self.y += self.step * 1.1
        if any(name for name, *_ in columns):
            self.row([name for name, _, _ in columns], columns, head=True)

    def table(self, title: str, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
        """Add a section with these rows; cells beyond the columns are left out."""
        self.section(title, columns)
        for cells in rows:
            self.row(cells[: len(columns)], columns)

    def row(self, cells: Sequence[str], columns: Sequence[Column], *, head: bool = False) -> None:
        """Add a table row, below the titles if it is the first; a cell is shortened to its room."""
        if not head and self.ensure_room() and any(name for name, _, _ in columns):
            self.row([name for name, _, _ in columns], columns, head=True)
        page, ink = self.pages[-1], QUIET if head else INK
        for number, (cell, (_, at, anchor)) in enumerate(zip(cells, columns, strict=True)):
            if anchor == "start":
                next_starts = [x for _, x, other in columns[number + 1 :] if other == "start"]
                end = next_starts[0] if next_starts else self.width
                next_ends = [x - 60 for _, x, other in columns[number + 1 :] if other == "end"]
                room = min([end, *next_ends]) - at - 8
                cell = shapes.shorten(cell, self.size, room)  # noqa: PLW2901
            x = self.x + at
            page.append(shapes.Text(x, self.y, cell, self.size, ink, anchor, bold=head))
        level = self.y + self.step * 0.3
        page.append(shapes.Line(self.x, level, self.x + self.width, level, FAINT, 0.6))
        self.y += self.step


def _summary_pages(plans: Sequence[CuttingPlan], texts: dict[str, str], head: PaperHead) -> list[Page]:
    pages = _PageFlow(texts["plan"], head)
    pages.ensure_room()
    statistics = map(compute_statistics, plans)
    planned = [(plan, each, plan_costs(plan, each)) for plan, each in zip(plans, statistics, strict=True)]
    _add_figures(pages, planned, texts)
    _add_boards(pages, planned, texts)
    _add_work(pages, planned, texts)
    columns: list[Column] = [
        ("№", 22, "end"),
        (texts["name"], 34, "start"),
        (texts["pieces"], 310, "end"),
        (texts["size"], 430, "end"),
        (texts["finished"], 550, "end"),
        ("↔", 578, "middle"),
        (texts["band"], 600, "start"),
    ]
    for plan in plans:
        rows = starmap(_part_cells, enumerate(plan.demand.parts, start=1))
        pages.table(f"{texts['whole_parts']} · {_plan_name(plan)}", columns, rows)
    return pages.pages


def _plan_name(plan: CuttingPlan) -> str:
    return " · ".join(filter(None, (plan.demand.name, plan.demand.material)))


def _part_cells(number: int, part: CutPart) -> list[str]:
    sides: dict[str, str] = {}
    for arrow, band in zip("↑↓←→", part.bands, strict=True):
        if band is not None:
            sides[band.name] = sides.get(band.name, "") + arrow
    return [
        str(number),
        " · ".join((part.name, *part.notes)),
        str(part.quantity),
        size_text(part.length, part.width),
        size_text(*part.finished),
        str(part.grain),
        "  ".join(f"{arrows} {name}" for name, arrows in sides.items()),
    ]


def _add_figures(pages: _PageFlow, planned: list[Planned], texts: dict[str, str]) -> None:
    plans, statistics, _ = zip(*planned, strict=True)
    share = sum(each.part_m2 for each in statistics) / sum(each.board_m2 for each in statistics)
    figures = [
        (texts["boards"], str(sum(plan.boards for plan in plans))),
        (texts["yield"], f"{100 * share:.1f} %"),
        (texts["cuts"], str(sum(each.cuts for each in statistics))),
        (texts["sawn"], f"{sum(each.cut_metres for each in statistics):.1f}"),
        (texts["minutes"], f"{sum(each.time_s for each in statistics) / 60:.0f}"),
    ]
    for number, (name, value) in enumerate(figures):
        x = LEFT + number * WIDTH / len(figures)
        figure = shapes.Text(x, 150, value, 26, INK, bold=True)
        pages.pages[-1] += [figure, shapes.Text(x, 172, name, 13, QUIET)]
    pages.y = 196.0


def _add_boards(pages: _PageFlow, planned: list[Planned], texts: dict[str, str]) -> None:
    """List the boards with their prices, and the offcuts used and made."""
    columns: list[Column] = [(texts["board"], 0, "start"), (texts["measure"], 480, "end")]
    columns += [(texts["pieces"], 560, "end")]
    plain: list[Column] = [("", at, anchor) for _, at, anchor in columns]
    if any(costs.boards for *_, costs in planned):
        columns.append((texts["cost"], WIDTH, "end"))
    new: list[list[str]] = []
    used: list[list[str]] = []
    made: list[list[str]] = []
    for plan, *_ in planned:
        name = _plan_name(plan)
        for index, count in sorted(plan.board_counts.items()):
            source = plan.demand.boards[index]
            size, cost = (size_text(source.length, source.width), _money(plan, count * source.price, texts))
            text = " · ".join(filter(None, (name, source.code, source.supplier)))
            if source.offcut:
                used.append([f"{source.offcut} · {name}", size, "1"])
            else:
                new.append([text, size, str(count), cost])
        made += [[name, size_text(*sizes), str(n)] for sizes, n in plan.kept_offcuts.items()]
    pages.table(texts["boards_used"], columns, new)
    if used:
        pages.table(texts["offcuts_used"], plain, used)
    pages.table(texts["offcuts"], plain if made else [(texts["no_offcuts"], 0, "start")], made)


def _add_work(pages: _PageFlow, planned: list[Planned], texts: dict[str, str]) -> None:
    """List the metres of cuts and bands with their costs, and the sum of all costs."""
    lengths, amounts = Counter[str](), Counter[str]()
    for _, each, costs in planned:
        lengths.update({texts["cut_work"]: each.cut_metres, **dict(each.band_metres)})
        amounts.update({texts["cut_work"]: costs.sawing, **dict(costs.bands)})
    total, plan = sum(costs.total for *_, costs in planned), planned[0][0]
    columns: list[Column] = [("", 0, "start"), (texts["metres"], 560, "end")]
    if total:
        columns.append((texts["cost"], WIDTH, "end"))
    rows = [[n, f"{length:.1f}", _money(plan, amounts[n], texts)] for n, length in lengths.items()]
    pages.table(texts["work"], columns, rows)
    if total:
        pages.row([texts["total"], "", _money(plan, total, texts)], columns, head=True)


def _money(plan: CuttingPlan, hundredths: int, texts: dict[str, str]) -> str:
    amount = f"{hundredths / 100:,.2f}".translate(str.maketrans(",.", texts["separators"]))
    return f"{amount} {plan.demand.rates.currency}"


class _CutRow(NamedTuple):
    """Equal cuts, one after the other, of one panel and what is left of it."""

    first: int
    last: int
    step: SawStep
    frees: str


def _pattern_pages(plan: CuttingPlan, number: int, language: Language, head: PaperHead) -> list[Page]:
    """Return the page of a pattern: its board, its parts and its cuts in the words of a shop."""
    texts, layout = TEXTS[language], plan.layouts[number - 1]
    drawn = board.draw_layout(plan, number, language, head, PRINTED)
    drawn.append(shapes.Text(LEFT, 121, _remarks(plan, layout, texts), 13, INK))
    top = PRINTED.top_of_lists(plan.demand.boards[layout.board]) + 10
    title = f"{texts['cut_list']} · {texts['board']} {board_numbers(plan, number)}"
    pages = _PageFlow(title, head, COLUMNS, 15.5, 10.5, top, [drawn], 1, top - 9)
    columns: list[Column] = [("№", 32, "end"), (texts["panel"], 116, "end")]
    columns += [(texts["fence"], 172, "end"), (texts["frees"], 180, "start")]
    stage = None
    for first, last, step, frees in _cut_rows(plan, layout, texts):
        if step.stage != stage:
            pages.section(_stage_name(plan, step, texts), columns)
        stage, order = step.stage, str(first) if first == last else f"{first}–{last}"
        pages.row([order, size_text(*step.panel), mm_text(step.fence), frees], columns)
    return pages.pages


def _remarks(plan: CuttingPlan, layout: model.Layout, texts: dict[str, str]) -> str:
    """Return what to know before the pattern is cut: the saw, books, a narrow last strip."""
    book, remarks = book_size(plan.demand), [plan.demand.saw.name]
    if min(book, layout.times) > 1:
        cycles = math.ceil(layout.times / book)
        remarks.append(f"{texts['book']} {min(book, layout.times)} · {cycles} × {texts['cycle']}")
    if is_hard_to_hold(plan.demand, layout):
        remarks.append(texts["clamp"])
    return " · ".join(filter(None, remarks))


def _stage_name(plan: CuttingPlan, step: SawStep, texts: dict[str, str]) -> str:
    """Return what a shop calls the cuts of this stage."""
    if step.stage == 0:
        return texts["trims"]
    saw = plan.demand.saw
    deepest = max(cut.stage for layout in plan.layouts for cut in layout.cuts)
    after_head = step.stage - (saw.head_cut and deepest == saw.stage_limit)
    if after_head == 0:
        return texts["head"]
    if after_head < FIRST_RECUT:
        return texts[step.runs]
    along = texts["along" if step.runs == "rip" else "across"]
    return f"{texts['recut']} · {along} · {texts['stage']} {after_head}"


def _cut_rows(plan: CuttingPlan, layout: model.Layout, texts: dict[str, str]) -> list[_CutRow]:
    """Return the cuts; equal ones in a row are one."""
    steps, rows = saw_steps(plan.demand, layout), list[_CutRow]()
    trims = len(steps) - len(layout.cuts)
    kept = {rect for rect in layout.offcuts if plan.demand.is_reusable(rect)}
    for order, step in enumerate(steps, 1):
        frees = [str(part) for part in step.frees]
        if order > trims:
            pieces = layout.cuts[order - trims - 1].split(plan.demand.saw)
            frees += [texts["offcut"] for piece in pieces if piece in kept]
        kerf = plan.demand.saw.kerf(step.runs) if step.stage else 0
        row = _CutRow(order, order, step, ", ".join(frees))
        if rows and _follows(rows[-1], row, kerf):
            rows[-1] = rows[-1]._replace(last=order)
        else:
            rows.append(row)
    return rows


def _follows(previous: _CutRow, row: _CutRow, kerf: int) -> bool:
    """Whether the fence stays, the same falls, and the panel is equal or what is left of it."""
    before, now = previous.step, row.step
    same_cut = (before.stage, before.runs, before.fence) == (now.stage, now.runs, now.fence)
    cuts = 1 + previous.last - previous.first
    left = cuts * (before.fence + kerf)
    length, width = before.panel
    rest = (length, width - left) if before.runs == "rip" else (length - left, width)
    return same_cut and previous.frees == row.frees and now.panel in {before.panel, rest}
