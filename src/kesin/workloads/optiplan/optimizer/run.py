"""Plans several demands from one store: what a plan uses is not offered to the next."""

from collections import Counter
from dataclasses import dataclass, field, replace

from kesin.workloads.optiplan.optimizer.model import Board, CuttingPlan, Demand
from kesin.workloads.optiplan.optimizer.optimise import Effort, optimise


@dataclass(frozen=True, slots=True)
class PlanningRun:
    """The plans of one order, made one after the other."""

    seconds: float = 60.0  # of each
    used: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def plan(self, demand: Demand) -> CuttingPlan:
        """Plan a demand from the boards and offcuts that are left."""
        offered = replace(
            demand,
            board=self._left(demand, demand.board),
            more_boards=tuple(self._left(demand, board) for board in demand.more_boards),
        )
        plan = optimise(offered, Effort.named(demand.effort, seconds=self.seconds))
        for index, count in plan.board_counts.items():
            self.used[_key(demand, demand.boards[index])] += count
        return replace(plan, demand=demand)

    def _left(self, demand: Demand, board: Board) -> Board:
        """Return the board with its quantity in store now; its index in the demand stays."""
        if board.quantity is None:
            return board
        return replace(board, quantity=max(0, board.quantity - self.used[_key(demand, board)]))


def _key(demand: Demand, board: Board) -> tuple[str, ...]:
    return (board.offcut,) if board.offcut else (demand.material, board.code, str(demand.thickness))
