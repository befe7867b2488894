"""Orders that a search solves only if it learns which pieces are hard to place."""

import pytest

from kesin.workloads.optiplan.optimizer.model import Board, CutPart, Demand, SawProfile, hundredths
from kesin.workloads.optiplan.optimizer.optimise import Effort, optimise

BOARD = (10, 10)
# Class I of Berkey and Wang, 40 pieces, the second; their area is 10.7 boards.
PIECES = (
    "1×2 1×3 1×3 1×9 1×10 2×5 2×7 2×7 2×10 3×1 3×6 3×7 3×8 3×10 4×3 4×7 5×1 5×2 5×9 5×10"
    " 6×2 6×3 6×7 6×9 7×2 7×2 7×6 7×7 7×10 8×1 8×2 8×3 8×4 8×9 9×4 9×4 9×5 9×6 9×9 10×2"
)


@pytest.mark.long
def test_with_thorough_effort_a_published_order_needs_the_fewest_boards_that_there_can_be():
    sides = [piece.split("×") for piece in PIECES.split()]
    parts = tuple(CutPart(str(n), hundredths(a), hundredths(b), 1) for n, (a, b) in enumerate(sides, start=1))
    demand = Demand("cl01_040_02", Board.of(*BOARD, trim_mm=0), parts, SawProfile.of(0, max_stages=0))
    plan = optimise(demand, Effort.named("thorough"))
    assert plan.boards == plan.least_boards == 11
