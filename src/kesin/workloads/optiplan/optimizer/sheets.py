"""The pages of words: what the plan comes to, what is cut from it, and the cuts in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kesin.workloads.optiplan.optimizer.cut_list import BoardLine, CutList, cut_list
from kesin.workloads.optiplan.optimizer.figures import Figures, figures
from kesin.workloads.optiplan.optimizer.model import Demand, Part, Plan, mm_text
from kesin.workloads.optiplan.optimizer.picture import FAINT, INK, QUIET
from kesin.workloads.optiplan.optimizer.scene import Anchor, Line, Shape, Text, shortened
from kesin.workloads.optiplan.optimizer.words import WORDS, Language

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
