"""A plan at the saw, computed from its layouts: steps, yield, offcuts, bands, estimated time."""

from collections import Counter
from dataclasses import astuple, dataclass
from typing import Final, NamedTuple

from kesin.workloads.optiplan.optimizer import model

BOARD_S: Final = 40  # to load a board and unload its pieces
CUT_S: Final = 7  # to position and clamp the panel
METRE_S: Final = 2
TRIM_CUTS: Final = 4
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

    @property
    def yield_share(self) -> float:
        return self.part_m2 / self.board_m2


def compute_statistics(plan: model.CuttingPlan) -> PlanStatistics:
    demand, board, boards = plan.demand, plan.demand.board, plan.boards
    trimmed_sides = (board.width, board.width, board.length, board.length)
    trimmed = zip(trimmed_sides, astuple(board.trims), strict=True)
    trim_length = sum(side for side, trim in trimmed if trim)
    cuts = [(layout.times, cut) for layout in plan.layouts for cut in layout.cuts]
    cut_count = sum(times for times, _ in cuts)
    lengths = ((n, cut.panel.length if cut.runs == "rip" else cut.panel.width) for n, cut in cuts)
    cut_metres = model.metres(boards * trim_length + sum(n * length for n, length in lengths))
    seconds = BOARD_S * boards + CUT_S * (cut_count + TRIM_CUTS * boards) + METRE_S * cut_metres
    offcuts = plan.kept_offcuts
    return PlanStatistics(
        cuts=cut_count,
        z_cuts=sum(times for times, cut in cuts if cut.stage > FREE_STAGES),
        cut_metres=cut_metres,
        board_m2=model.square_metres(boards * board.area),
        part_m2=model.square_metres(sum(part.area * part.quantity for part in demand.parts)),
        offcut_m2=model.square_metres(sum(a * b * count for (a, b), count in offcuts.items())),
        offcut_sizes=len({tuple(sorted(size)) for size in offcuts}),
        time_s=round(seconds),
        band_metres=_band_metres(demand),
    )


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
    steps = trim_steps(demand)
    part_numbers = {placement.rect: placement.part + 1 for placement in layout.placements}
    for cut in layout.cuts:
        fence = cut.at - (cut.panel.y if cut.runs == "rip" else cut.panel.x)
        pieces = cut.split(demand.kerf)
        frees = tuple(part_numbers[piece] for piece in pieces if piece in part_numbers)
        size = (cut.panel.length, cut.panel.width)
        steps.append(SawStep(cut.stage, cut.runs, size, fence, frees))
    return steps


def trim_steps(demand: model.Demand) -> list[SawStep]:
    """Return the cuts that trim the board; the others are numbered after them."""
    trims, length, width = demand.board.trims, demand.board.length, demand.board.width
    steps: list[SawStep] = []
    for trim in filter(None, (trims.bottom, trims.top)):
        steps.append(SawStep(0, "rip", (length, width), trim))
        width -= trim
    for trim in filter(None, (trims.left, trims.right)):
        steps.append(SawStep(0, "cross", (length, width), trim))
        length -= trim
    return steps
