"""Statistics of a plan: boards, yield, offcuts, bands, time and cost.

They are computed from the layouts alone, so they hold for any plan the checker accepts. The time is
an estimate for a beam saw, computed from the cuts: the same plan always has the same time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
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

    boards: int
    least_boards: int
    patterns: int
    cycles: int  # boards loaded onto the saw, one at a time
    cuts: int  # without the trims
    z_cuts: int
    cut_metres: float  # with the trims
    board_m2: float
    part_m2: float
    offcut_m2: float  # worth keeping
    offcut_sizes: int  # different ones
    time_s: int
    cost: float
    band_metres: tuple[tuple[str, float], ...]

    @property
    def yield_share(self) -> float:
        return self.part_m2 / self.board_m2


def compute_statistics(plan: model.CuttingPlan) -> PlanStatistics:
    """Compute the statistics of a plan."""
    demand, board = plan.demand, plan.demand.board
    trim_length = sum(
        side
        for side, trim in (
            (board.width, board.trims.left),
            (board.width, board.trims.right),
            (board.length, board.trims.bottom),
            (board.length, board.trims.top),
        )
        if trim
    )
    cuts = sum(layout.times * len(layout.cuts) for layout in plan.layouts)
    total_cut_length = plan.boards * trim_length + sum(
        layout.times * (cut.panel.length if cut.runs == "rip" else cut.panel.width)
        for layout in plan.layouts
        for cut in layout.cuts
    )
    reusable: Counter[tuple[model.Hundredths, model.Hundredths]] = Counter()
    for layout in plan.layouts:
        for offcut in layout.offcuts:
            if demand.is_reusable(offcut):
                reusable[offcut.length, offcut.width] += layout.times
    bands = band_metres(demand)
    seconds = BOARD_S * plan.boards + CUT_S * (cuts + TRIM_CUTS * plan.boards)
    cost = plan.boards * demand.board_price + demand.band_price_per_metre * sum(bands.values())
    return PlanStatistics(
        boards=plan.boards,
        least_boards=plan.least_boards,
        patterns=len(plan.layouts),
        cycles=plan.boards,
        cuts=cuts,
        z_cuts=sum(
            layout.times * sum(cut.stage > FREE_STAGES for cut in layout.cuts)
            for layout in plan.layouts
        ),
        cut_metres=model.metres(total_cut_length),
        board_m2=model.square_metres(plan.boards * board.area),
        part_m2=model.square_metres(sum(part.area * part.quantity for part in demand.parts)),
        offcut_m2=model.square_metres(sum(a * b * times for (a, b), times in reusable.items())),
        offcut_sizes=len({tuple(sorted(size)) for size in reusable}),
        time_s=round(seconds + METRE_S * model.metres(total_cut_length)),
        cost=round(cost, 2),
        band_metres=tuple(sorted(bands.items())),
    )


def band_metres(demand: model.Demand) -> dict[str, float]:
    """Return the metres of each band, from the finished sizes of its parts."""
    lengths: Counter[str] = Counter()
    for part in demand.parts:
        length, width = part.finished
        sides = ((part.up, length), (part.lo, length), (part.sx, width), (part.dx, width))
        for band, side in sides:
            if band is not None:
                lengths[band.name] += side * part.quantity
    return {name: model.metres(total) for name, total in lengths.items()}
