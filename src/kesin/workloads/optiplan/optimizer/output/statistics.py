"""What a plan comes to: boards, yield, offcuts, band, time and money.

Sums are made from the layouts alone, so they hold for any plan the checker accepts. Times are an
estimate for a beam saw and count work, not the clock: the same plan always takes equally long.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from kesin.workloads.optiplan.optimizer.model import (
    Cut,
    Demand,
    Hundredths,
    Plan,
    metres,
    square_metres,
)

BOARD_S: Final = 40  # to fetch a board and take its pieces off
CUT_S: Final = 7  # to move the panel and clamp it
METRE_S: Final = 2
TRIM_CUTS: Final = 4
FREE_STAGES: Final = 2  # rips and cross cuts; what needs a further turn is a z cut


@dataclass(frozen=True, slots=True)
class Figures:
    """The sums of one plan; areas in square metres."""

    boards: int
    least_boards: int
    patterns: int
    cycles: int  # boards put on the saw, one at a time
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


def figures(plan: Plan) -> Figures:
    """The sums of a plan."""
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
    cuts = sum(one.times * len(one.cuts) for one in plan.layouts)
    sawn = plan.boards * trim_length + sum(
        one.times * cut_length(cut) for one in plan.layouts for cut in one.cuts
    )
    kept: Counter[tuple[Hundredths, Hundredths]] = Counter()
    for one in plan.layouts:
        for rest in one.offcuts:
            if demand.is_reusable(rest):
                kept[rest.length, rest.width] += one.times
    bands = band_metres(demand)
    seconds = BOARD_S * plan.boards + CUT_S * (cuts + TRIM_CUTS * plan.boards)
    cost = plan.boards * demand.board_price + demand.band_price_per_metre * sum(bands.values())
    return Figures(
        boards=plan.boards,
        least_boards=plan.least_boards,
        patterns=len(plan.layouts),
        cycles=plan.boards,
        cuts=cuts,
        z_cuts=sum(
            one.times * sum(cut.stage > FREE_STAGES for cut in one.cuts) for one in plan.layouts
        ),
        cut_metres=metres(sawn),
        board_m2=square_metres(plan.boards * board.area),
        part_m2=square_metres(sum(part.area * part.quantity for part in demand.parts)),
        offcut_m2=square_metres(sum(a * b * times for (a, b), times in kept.items())),
        offcut_sizes=len({tuple(sorted(size)) for size in kept}),
        time_s=round(seconds + METRE_S * metres(sawn)),
        cost=round(cost, 2),
        band_metres=tuple(sorted(bands.items())),
    )


def cut_length(cut: Cut) -> Hundredths:
    """How far the blade runs."""
    return cut.panel.length if cut.runs == "rip" else cut.panel.width


def band_metres(demand: Demand) -> dict[str, float]:
    """Metres of each band, by the finished sizes it is glued on."""
    sums: Counter[str] = Counter()
    for part in demand.parts:
        length, width = part.finished
        sides = ((part.up, length), (part.lo, length), (part.sx, width), (part.dx, width))
        for band, side in sides:
            if band is not None:
                sums[band.name] += side * part.quantity
    return {name: metres(total) for name, total in sums.items()}
