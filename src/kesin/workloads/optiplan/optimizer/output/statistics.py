"""A plan at the saw, computed from its layouts: steps, yield, offcuts, bands, estimated time."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from kesin.workloads.optiplan.optimizer import model

BOARD_S: Final = 40  # to load a board and unload its pieces
CUT_S: Final = 7  # to position and clamp the panel
METRE_S: Final = 2
CLAMP: Final = 66 * model.MM  # a narrower strip at the far edge is hard to hold
FREE_STAGES: Final = 2  # rips and cross cuts; a cut of a later stage is a z cut


@dataclass(frozen=True, slots=True)
class PlanStatistics:
    """The statistics of one plan; areas in square metres."""

    cuts: int  # without the trims
    z_cuts: int
    cut_metres: float  # with the trims
    board_m2: float
    part_m2: float
    offcut_m2: float  # worth keeping
    offcut_sizes: int  # different ones
    time_s: int
    band_metres: tuple[tuple[str, float], ...]
    stages: int  # the most of any board
    book_cycles: int  # loads of the saw, equal boards in books

    @property
    def yield_share(self) -> float:
        return self.part_m2 / self.board_m2


def compute_statistics(plan: model.CuttingPlan) -> PlanStatistics:
    demand = plan.demand
    used = [(demand.boards[index], count) for index, count in plan.board_counts.items()]
    trims = [(count, step) for board, count in used for step in trim_steps(board)]
    cuts = [(layout.times, cut) for layout in plan.layouts for cut in layout.cuts]
    cut_count = sum(times for times, _ in cuts)
    sawn = [(n, cut.runs, (cut.panel.length, cut.panel.width)) for n, cut in cuts]
    sawn += [(n, step.runs, step.panel) for n, step in trims]
    cut_metres = model.metres(sum(n * panel[runs == "cross"] for n, runs, panel in sawn))
    seconds = BOARD_S * plan.boards + CUT_S * sum(n for n, *_ in sawn) + METRE_S * cut_metres
    offcuts = plan.kept_offcuts
    book = book_size(demand)
    return PlanStatistics(
        cuts=cut_count,
        z_cuts=sum(times for times, cut in cuts if cut.stage > FREE_STAGES),
        cut_metres=cut_metres,
        board_m2=model.square_metres(sum(board.area * count for board, count in used)),
        part_m2=model.square_metres(sum(part.area * part.quantity for part in demand.parts)),
        offcut_m2=model.square_metres(sum(a * b * count for (a, b), count in offcuts.items())),
        offcut_sizes=len({tuple(sorted(size)) for size in offcuts}),
        time_s=round(seconds),
        band_metres=_band_metres(demand),
        stages=max((cut.stage for _, cut in cuts), default=0),
        book_cycles=sum(math.ceil(layout.times / book) for layout in plan.layouts),
    )


def book_size(demand: model.Demand) -> int:
    """Return how many equal boards are cut together; one if a height is not known."""
    fit = demand.saw.book_height // demand.thickness if demand.thickness else 1
    return max(1, fit)


def is_hard_to_hold(demand: model.Demand, layout: model.Layout) -> bool:
    """Whether the last strip of the first stage, with the trim behind it, is narrow."""
    first = [cut for cut in layout.cuts if cut.stage == 1]
    if not first:
        return False
    board, runs = demand.boards[layout.board], first[0].runs
    edge = board.width if runs == "rip" else board.length
    return edge - max(cut.at for cut in first) - demand.saw.kerf(runs) < CLAMP


def _band_metres(demand: model.Demand) -> tuple[tuple[str, float], ...]:
    """Return the metres of each band, from the finished sizes of its parts."""
    lengths: Counter[str] = Counter()
    for part in demand.parts:
        length, width = part.finished
        for band, side in zip(part.bands, (length, length, width, width), strict=True):
            if band is not None:
                lengths[band.name] += side * part.quantity
    return tuple((name, model.metres(length)) for name, length in sorted(lengths.items()))


class SawStep(NamedTuple):
    """A cut; ``fence`` is its distance from the edge. The blade takes the kerf behind it."""

    stage: int  # 0 trims the board
    runs: model.CutDirection
    panel: tuple[model.Hundredths, model.Hundredths]  # length and width
    fence: model.Hundredths
    frees: tuple[int, ...] = ()  # numbers of the parts that this cut completes


def board_numbers(plan: model.CuttingPlan, number: int) -> str:
    """Return the boards that a layout (counted from 1) covers: ``3``, or ``3–5``."""
    first = 1 + sum(layout.times for layout in plan.layouts[: number - 1])
    last = first + plan.layouts[number - 1].times - 1
    return str(first) if first == last else f"{first}–{last}"


def saw_steps(demand: model.Demand, layout: model.Layout) -> list[SawStep]:
    """Return the trims, then the cuts, as the drawing numbers them from 1."""
    steps = trim_steps(demand.boards[layout.board])
    part_numbers = {placement.rect: placement.part + 1 for placement in layout.placements}
    for cut in layout.cuts:
        fence = cut.at - (cut.panel.y if cut.runs == "rip" else cut.panel.x)
        pieces = cut.split(demand.saw)
        frees = tuple(part_numbers[piece] for piece in pieces if piece in part_numbers)
        size = (cut.panel.length, cut.panel.width)
        steps.append(SawStep(cut.stage, cut.runs, size, fence, frees))
    return steps


def trim_steps(board: model.Board) -> list[SawStep]:
    """Return the cuts that trim the board; the others are numbered after them."""
    trims, length, width = board.trims, board.length, board.width
    steps: list[SawStep] = []
    for trim in filter(None, (trims.bottom, trims.top)):
        steps.append(SawStep(0, "rip", (length, width), trim))
        width -= trim
    for trim in filter(None, (trims.left, trims.right)):
        steps.append(SawStep(0, "cross", (length, width), trim))
        length -= trim
    return steps
