"""The cut list: what to do at the saw, in order, and what lies on the table afterwards."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kesin.workloads.optiplan.optimizer.model import (
    Cut,
    Demand,
    Hundredths,
    Layout,
    Plan,
    Rect,
    Runs,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One cut. The fence stands ``fence`` away from the panel's edge; the blade takes the kerf."""

    order: int
    stage: int  # 0 trims the board
    runs: Runs
    panel_length: Hundredths
    panel_width: Hundredths
    fence: Hundredths
    frees: tuple[int, ...] = ()  # the numbers of the parts that are done with it


@dataclass(frozen=True, slots=True)
class PieceLine:
    """Equal pieces of a board; ``number`` is the part's, counted from 1."""

    number: int
    name: str
    length: Hundredths
    width: Hundredths
    pieces: int  # on one board


@dataclass(frozen=True, slots=True)
class OffcutLine:
    """Equal offcuts of a board that are worth keeping."""

    length: Hundredths
    width: Hundredths
    pieces: int


@dataclass(frozen=True, slots=True)
class BoardLine:
    """Everything about one pattern."""

    number: str  # of the board, or of the first and last of equal ones
    times: int
    steps: tuple[Step, ...]
    pieces: tuple[PieceLine, ...]
    offcuts: tuple[OffcutLine, ...]


@dataclass(frozen=True, slots=True)
class CutList:
    """The whole plan, board by board."""

    boards: tuple[BoardLine, ...]

    @property
    def offcuts(self) -> tuple[OffcutLine, ...]:
        """What goes to the rack after the whole plan, largest first."""
        sums: Counter[tuple[int, int]] = Counter()
        for board in self.boards:
            for rest in board.offcuts:
                sums[rest.length, rest.width] += rest.pieces * board.times
        return _offcuts(sums)


def cut_list(plan: Plan) -> CutList:
    """The list of a plan."""
    return CutList(
        tuple(
            BoardLine(
                board_numbers(plan, number),
                layout.times,
                steps(plan.demand, layout),
                piece_lines(plan.demand, layout),
                offcut_lines(plan.demand, layout),
            )
            for number, layout in enumerate(plan.layouts, start=1)
        )
    )


def board_numbers(plan: Plan, number: int) -> str:
    """Which boards are cut by a layout (counted from 1): ``3``, or ``3–5`` for equal ones."""
    first = 1 + sum(layout.times for layout in plan.layouts[: number - 1])
    last = first + plan.layouts[number - 1].times - 1
    return str(first) if first == last else f"{first}–{last}"


def steps(demand: Demand, layout: Layout) -> tuple[Step, ...]:
    """The trims, then the cuts as numbered in the drawing."""
    found: list[Step] = []
    for panel, runs, fence in _trims(demand):
        found.append(Step(len(found) + 1, 0, runs, panel.length, panel.width, fence))
    done = {placement.rect: placement.part + 1 for placement in layout.placements}
    for cut in layout.cuts:
        panel = cut.panel
        fence = cut.at - (panel.y if cut.runs == "rip" else panel.x)
        frees = tuple(done[piece] for piece in _pieces(cut, demand.kerf) if piece in done)
        found.append(
            Step(len(found) + 1, cut.stage, cut.runs, panel.length, panel.width, fence, frees)
        )
    return tuple(found)


def _pieces(cut: Cut, kerf: Hundredths) -> tuple[Rect, Rect]:
    """What a cut makes of its panel."""
    panel, second = cut.panel, cut.at + kerf
    if cut.runs == "rip":
        return (
            Rect(panel.x, panel.y, panel.length, cut.at - panel.y),
            Rect(panel.x, second, panel.length, panel.top - second),
        )
    return (
        Rect(panel.x, panel.y, cut.at - panel.x, panel.width),
        Rect(second, panel.y, panel.right - second, panel.width),
    )


def trim_count(demand: Demand) -> int:
    """How many sides are trimmed: the number the first cut comes after."""
    return len(_trims(demand))


def _trims(demand: Demand) -> list[tuple[Rect, Runs, Hundredths]]:
    length, width = demand.board.length, demand.board.width
    found: list[tuple[Rect, Runs, Hundredths]] = []
    trims = demand.board.trims
    for trim in (trims.bottom, trims.top):
        if trim:
            found.append((Rect(0, 0, length, width), "rip", trim))
            width -= trim
    for trim in (trims.left, trims.right):
        if trim:
            found.append((Rect(0, 0, length, width), "cross", trim))
            length -= trim
    return found


def piece_lines(demand: Demand, layout: Layout) -> tuple[PieceLine, ...]:
    """The pieces of one board by their part."""
    sums = Counter(placement.part for placement in layout.placements)
    return tuple(
        PieceLine(
            part + 1,
            demand.parts[part].name,
            demand.parts[part].length,
            demand.parts[part].width,
            sums[part],
        )
        for part in sorted(sums)
    )


def offcut_lines(demand: Demand, layout: Layout) -> tuple[OffcutLine, ...]:
    """The offcuts of one board that are worth keeping."""
    kept = [rest for rest in layout.offcuts if demand.is_reusable(rest)]
    return _offcuts(Counter((rest.length, rest.width) for rest in kept))


def _offcuts(sums: Counter[tuple[int, int]]) -> tuple[OffcutLine, ...]:
    ordered = sorted(sums, key=lambda size: (-size[0] * size[1], size))
    return tuple(OffcutLine(length, width, sums[length, width]) for length, width in ordered)
