"""The built-in optimiser: boards and yield beside every guillotine packer of rectpack, and time.

Orders are the ones the tests ship; rectpack tries six orders of pieces and two ways to choose a
board for each of its eighteen packers, and the best of these counts. Boards are counted, so the
machine is no matter; times are the best of three.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.beside import say
from bench.report import Report
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Demand
from kesin.workloads.optiplan.optimizer.optimise import Effort, optimise
from kesin.workloads.optiplan.optimizer.output.statistics import compute_statistics
from tests.workloads.optiplan.optimizer.instances import KITCHEN, instances, workshop
from tests.workloads.optiplan.optimizer.rivals import boards_by_packer

ROOT = Path(__file__).parent.parent
TIMED = (50, 100, 500)
SEEDS = (1, 2, 3)
REPEATS = 3


def run(report: Report) -> None:
    """Everything, into a report."""
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    report.say(
        f"Measured with `make bench ARGS='optiplan --write'` on {when}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, rectpack {version('rectpack')}, HiGHS"
        f" {version('highspy')}. The kerf is 4 mm and the trims are 10 mm on every side, except in"
        " the published orders (`beng`, `gcut`), which have neither. For rectpack, pieces and"
        " boards are enlarged by the kerf. rectpack rotates either all pieces or none, so it"
        " rotates none in orders with grain. The checker verifies every Kesin plan. rectpack's"
        " plans contain no cuts and are not checked."
    )
    quality(report)
    times(report)
    strategies(report)


def quality(report: Report) -> None:
    """Boards on every order."""
    rows, worse, over, ours, theirs = [], 0, 0, 0, 0
    packers: dict[str, int] = {}
    for name, demand in instances().items():
        plan = optimise(demand)
        rivals = boards_by_packer(demand)
        least = area_bound(demand)
        best, worst = min(rivals.values()), max(rivals.values())
        worse += plan.boards > best
        over = max(over, plan.boards - least)
        ours, theirs = ours + plan.boards, theirs + best
        for packer, boards in rivals.items():
            packers[packer] = packers.get(packer, 0) + boards
        rows.append(
            (
                name,
                str(demand.pieces),
                str(least),
                f"**{plan.boards}**",
                f"{100 * compute_statistics(plan).yield_share:.1f}",
                str(best),
                f"{100 * compute_statistics(plan).yield_share * plan.boards / best:.1f}",
                str(worst),
                plan.strategy,
            )
        )
        say(" ".join(rows[-1]))
    report.say("## Boards and yield")
    report.table(
        (
            "order",
            "pieces",
            "area bound",
            "boards",
            "yield %",
            "best of rectpack",
            "its yield %",
            "worst of rectpack",
            "strategy",
        ),
        rows,
    )
    report.say(
        "The table shows how many boards each packer needs for all orders combined. For each"
        " order, each packer gets the sequence of pieces that suits it best."
    )
    report.table(
        ("packer", "boards"),
        [("**Kesin**", f"**{ours}**"), ("best rectpack packer for each order", str(theirs))]
        + [(name, str(boards)) for name, boards in sorted(packers.items(), key=lambda p: p[1])],
    )
    report.aim("orders for which rectpack needs fewer boards", worse, most=1)
    report.aim("largest number of boards above the area bound", over, most=1.5)
    report.aim("boards: best of rectpack / Kesin", theirs / ours, least=1)


def times(report: Report) -> None:
    """How long a plan takes, drawing and paper left out."""
    rows = []
    for pieces in TIMED:
        for seed in SEEDS:
            demand = workshop(f"{pieces}-{seed}", KITCHEN, pieces, seed, (0, 1))
            plan, wall, cpu = _timed(demand)
            rows.append(
                (
                    str(pieces),
                    str(seed),
                    f"{wall:.2f}",
                    f"{cpu:.2f}",
                    str(plan.boards),
                    str(area_bound(demand)),
                )
            )
            say(" ".join(rows[-1]))
            if pieces == 100:
                report.aim(f"100 pieces, order {seed}: CPU seconds", cpu, most=2)
    report.say("## Time per plan")
    report.table(("pieces", "order", "seconds", "CPU seconds", "boards", "area bound"), rows)


def strategies(report: Report) -> None:
    """What column generation adds where kinds repeat."""
    rows = []
    for seed in range(1, 5):
        one = workshop(f"repeated-{seed}", KITCHEN, 10, seed, (0,))
        parts = tuple(
            type(part)(part.name, part.length, part.width, 30 * part.quantity, part.grain)
            for part in one.parts
        )
        demand = Demand(one.name, one.board, parts, one.kerf)
        for solver in (True, False):
            plan = optimise(demand, Effort(solver=solver))
            rows.append(
                (
                    f"{one.name}, {'with' if solver else 'without'} HiGHS",
                    str(demand.pieces),
                    str(area_bound(demand)),
                    str(plan.boards),
                    str(len(plan.layouts)),
                )
            )
            say(" ".join(rows[-1]))
    report.say("## Few kinds, many pieces")
    report.table(("order", "pieces", "area bound", "boards", "patterns"), rows)


def area_bound(demand: Demand) -> int:
    return -(-sum(part.area * part.quantity for part in demand.parts) // demand.board.usable.area)


def _timed(demand: Demand) -> tuple[CuttingPlan, float, float]:
    walls, cpus = [], []
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        plan = optimise(demand)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return plan, min(walls), min(cpus)


def main(*, write: bool) -> None:
    """Measure, print, and write docs/contributing/optiplan-benchmarks.md if asked."""
    report = Report("Optimiser benchmarks")
    run(report)
    text = report.text()
    print(text)
    if write:
        (ROOT / "docs" / "contributing" / "optiplan-benchmarks.md").write_text(text, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write docs/contributing/optiplan-benchmarks.md"
    )
    main(write=parser.parse_args().write)
