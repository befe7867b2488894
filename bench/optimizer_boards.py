"""Several sizes of a board and a rack of offcuts: what the same kitchens cost."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from bench.beside import say
from bench.report import Report
from kesin.workloads.optiplan.optimizer.model import Board, CuttingPlan
from kesin.workloads.optiplan.optimizer.optimise import optimise
from tests.workloads.optiplan.optimizer.instances import KITCHEN, workshop

KITCHENS: Final = ((50, 1), (100, 1), (100, 2), (100, 11), (200, 11))  # pieces and seed
SIZES: Final = ((2800, 2100, 100), (3660, 1830, 118), (2100, 1400, 56))  # and price
RACK: Final = ((1500, 1000), (1250, 950), (1100, 900), (1000, 750), (900, 600), (700, 450))


def boards_and_rack(report: Report) -> None:
    """The money for new boards: one size, three sizes, and one size with a rack of six offcuts."""
    rows, saved = [], 0
    for pieces, seed in KITCHENS:
        demand = workshop(f"kitchen {pieces}-{seed}", KITCHEN, pieces, seed, (0,))
        sizes = [
            replace(Board.of(length, width), code=f"{length}", price=100 * price) for length, width, price in SIZES
        ]
        rack = tuple(
            replace(Board.of(length, width, trim_mm=0), quantity=1, offcut=f"K{number}")
            for number, (length, width) in enumerate(RACK, start=1)
        )
        alone = replace(demand, board=sizes[0])
        started = time.process_time()
        plans = [
            optimise(each)
            for each in (
                alone,
                replace(alone, more_boards=tuple(sizes[1:])),
                replace(alone, more_boards=rack),
                replace(alone, more_boards=(*sizes[1:], *rack)),
            )
        ]
        seconds = time.process_time() - started
        one, three, racked, both = plans
        taken = [placed for placed in racked.layouts if racked.demand.boards[placed.board].offcut]
        area = sum(racked.demand.boards[layout.board].area for layout in taken)
        filled = sum(piece.rect.area for layout in taken for piece in layout.placements)
        rows.append(
            (
                demand.name,
                str(money(one)),
                str(money(three)),
                f"{len(taken)} / {100 * filled / area if area else 0:.0f} %",
                f"{new_boards(one)} → {new_boards(racked)}",
                str(money(both)),
                f"{seconds / len(plans):.2f}",
            )
        )
        say(" ".join(rows[-1]))
        report.aim(f"{demand.name}: cost with three sizes / one", money(three) / money(one), most=1)
        saved += new_boards(one) - new_boards(racked)
    report.aim("new boards that the rack saves in all kitchens", saved, least=4)
    report.say("## Several board sizes, and offcuts")
    report.say(
        "Boards of 2800 × 2100 mm cost 100, of 3660 × 1830 mm 118 and of 2100 × 1400 mm 56. The"
        " rack has six offcuts of 0.3 to 1.5 m²."
    )
    report.table(
        (
            "order",
            "one size: cost",
            "three sizes: cost",
            "rack: used / filled",
            "new boards: without → with the rack",
            "three sizes and the rack: cost",
            "CPU seconds per plan",
        ),
        rows,
    )


def money(plan: CuttingPlan) -> int:
    boards = plan.demand.boards
    return sum(boards[index].price * n for index, n in plan.board_counts.items()) // 100


def new_boards(plan: CuttingPlan) -> int:
    boards = plan.demand.boards
    return sum(n for index, n in plan.board_counts.items() if not boards[index].offcut)
