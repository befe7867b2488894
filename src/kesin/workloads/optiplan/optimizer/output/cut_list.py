"""The cut list: the steps at the saw in order, and the resulting pieces and offcuts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kesin.workloads.optiplan.optimizer.model import (
    Cut,
    CutDirection,
    CuttingPlan,
    Demand,
    Hundredths,
    Layout,
    Rect,
)


@dataclass(frozen=True, slots=True)
class SawStep:
    """A cut; ``fence`` is its distance from the edge. The blade takes the kerf behind it."""

    order: int
    stage: int  # 0 trims the board
    runs: CutDirection
    panel_length: Hundredths
    panel_width: Hundredths
    fence: Hundredths
    frees: tuple[int, ...] = ()  # numbers of the parts that this cut completes


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
    """The cuts, pieces and offcuts of one pattern."""

    number: str  # of the board, or a range for equal boards
    times: int
    steps: tuple[SawStep, ...]
    pieces: tuple[PieceLine, ...]
    offcuts: tuple[OffcutLine, ...]


@dataclass(frozen=True, slots=True)
class CutList:
    """The whole plan, board by board."""

    boards: tuple[BoardLine, ...]

    @property
    def offcuts(self) -> tuple[OffcutLine, ...]:
        """Return the offcuts of the whole plan that are worth keeping, largest first."""
        counts: Counter[tuple[int, int]] = Counter()
        for board in self.boards:
            for offcut in board.offcuts:
                counts[offcut.length, offcut.width] += offcut.pieces * board.times
        return _offcut_lines(counts)


def build_cut_list(plan: CuttingPlan) -> CutList:
    """Build the cut list of a plan."""
    return CutList(
        tuple(
            BoardLine(
                board_numbers(plan, number),
                layout.times,
                saw_steps(plan.demand, layout),
                piece_lines(plan.demand, layout),
                offcut_lines(plan.demand, layout),
            )
            for number, layout in enumerate(plan.layouts, start=1)
        )
    )


def board_numbers(plan: CuttingPlan, number: int) -> str:
    """Return the boards that a layout (counted from 1) covers: ``3``, or ``3–5``."""
    first = 1 + sum(layout.times for layout in plan.layouts[: number - 1])
    last = first + plan.layouts[number - 1].times - 1
    return str(first) if first == last else f"{first}–{last}"


def saw_steps(demand: Demand, layout: Layout) -> tuple[SawStep, ...]:
    """Return the trims, then the cuts as numbered in the drawing."""
    steps: list[SawStep] = []
    for panel, runs, fence in _trim_cuts(demand):
        steps.append(SawStep(len(steps) + 1, 0, runs, panel.length, panel.width, fence))
    part_numbers = {placement.rect: placement.part + 1 for placement in layout.placements}
    for cut in layout.cuts:
        panel = cut.panel
        fence = cut.at - (panel.y if cut.runs == "rip" else panel.x)
        frees = tuple(
            part_numbers[piece] for piece in _cut_pieces(cut, demand.kerf) if piece in part_numbers
        )
        steps.append(
            SawStep(len(steps) + 1, cut.stage, cut.runs, panel.length, panel.width, fence, frees)
        )
    return tuple(steps)


def _cut_pieces(cut: Cut, kerf: Hundredths) -> tuple[Rect, Rect]:
    """Return the two pieces of a cut panel."""
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
    """Return the number of trimmed sides; cuts are numbered after them."""
    return len(_trim_cuts(demand))


def _trim_cuts(demand: Demand) -> list[tuple[Rect, CutDirection, Hundredths]]:
    length, width = demand.board.length, demand.board.width
    trim_cuts: list[tuple[Rect, CutDirection, Hundredths]] = []
    board_trims = demand.board.trims
    for trim in (board_trims.bottom, board_trims.top):
        if trim:
            trim_cuts.append((Rect(0, 0, length, width), "rip", trim))
            width -= trim
    for trim in (board_trims.left, board_trims.right):
        if trim:
            trim_cuts.append((Rect(0, 0, length, width), "cross", trim))
            length -= trim
    return trim_cuts


def piece_lines(demand: Demand, layout: Layout) -> tuple[PieceLine, ...]:
    """Return the pieces of one board, grouped by part."""
    counts = Counter(placement.part for placement in layout.placements)
    return tuple(
        PieceLine(
            part + 1,
            demand.parts[part].name,
            demand.parts[part].length,
            demand.parts[part].width,
            counts[part],
        )
        for part in sorted(counts)
    )


def offcut_lines(demand: Demand, layout: Layout) -> tuple[OffcutLine, ...]:
    """Return the offcuts of one board that are worth keeping."""
    reusable = [offcut for offcut in layout.offcuts if demand.is_reusable(offcut)]
    return _offcut_lines(Counter((offcut.length, offcut.width) for offcut in reusable))


def _offcut_lines(counts: Counter[tuple[int, int]]) -> tuple[OffcutLine, ...]:
    ordered = sorted(counts, key=lambda size: (-size[0] * size[1], size))
    return tuple(OffcutLine(length, width, counts[length, width]) for length, width in ordered)
