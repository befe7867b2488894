"""The costs of a plan in hundredths of the currency: its boards, and work at the shop's rates."""

from dataclasses import dataclass

from kesin.workloads.optiplan.optimizer.model import CuttingPlan
from kesin.workloads.optiplan.optimizer.output.statistics import PlanStatistics


@dataclass(frozen=True, slots=True)
class PlanCosts:
    """The parts of a price; what has no price costs nothing, and nor do offcuts of the rack."""

    boards: int
    sawing: int
    bands: tuple[tuple[str, int], ...]  # by name

    @property
    def total(self) -> int:
        return self.boards + self.sawing + sum(cost for _, cost in self.bands)


def plan_costs(plan: CuttingPlan, statistics: PlanStatistics) -> PlanCosts:
    rates, of_bands = plan.demand.rates, dict(plan.demand.rates.bands)
    used = ((plan.demand.boards[index], count) for index, count in plan.board_counts.items())
    return PlanCosts(
        boards=sum(count * board.price for board, count in used if not board.offcut),
        sawing=round(statistics.cut_metres * rates.cut_metre),
        bands=tuple(
            (name, round(length * of_bands.get(name, rates.band_metre))) for name, length in statistics.band_metres
        ),
    )
