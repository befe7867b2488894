"""Statistics of a plan: yield, offcuts, bands and time.

They are computed from the layouts alone, so they hold for any plan the checker accepts. The time is
an estimate for a beam saw, computed from the cuts: the same plan always has the same time.
"""

from collections import Counter
from dataclasses import astuple, dataclass
from typing import Final

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
        band_metres=tuple(sorted(band_metres(demand).items())),
    )


def band_metres(demand: model.Demand) -> dict[str, float]:
    """Return the metres of each band, from the finished sizes of its parts."""
    lengths: Counter[str] = Counter()
    for part in demand.parts:
        length, width = part.finished
        for band, side in zip(part.bands, (length, length, width, width), strict=True):
            if band is not None:
                lengths[band.name] += side * part.quantity
    return {name: model.metres(total) for name, total in lengths.items()}
