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
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench import published
from bench.beside import say
from bench.optimizer_boards import boards_and_rack
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
STAGES, TURNS = 3, 2
OFFCUTS_BEFORE = 12.24


def run(report: Report, options: str) -> None:
    """Everything but the published orders, into a report."""
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    report.say(
        f"Measured with `make bench ARGS='optiplan{options}'` on {when}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, rectpack {version('rectpack')}. The kerf is 4 mm,"
        " the trims are 10 mm on every side, and the limit is three stages. The published orders"
        " (`beng`, `gcut`) have no kerf, trims or stage limit. For rectpack, pieces and"
        " boards are enlarged by the kerf. rectpack rotates either all pieces or none, so it"
        " rotates none in orders with grain. The checker verifies every Kesin plan. rectpack's"
        " plans contain no cuts and are not checked."
    )
    quality(report)
    stages(report)
    times(report)
    repeated(report)
    boards_and_rack(report)


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
                (str(pieces), str(seed), f"{wall:.2f}", f"{cpu:.2f}", str(plan.boards), str(area_bound(demand)))
            )
            say(" ".join(rows[-1]))
            if pieces == 100:
                report.aim(f"100 pieces, order {seed}: CPU seconds", cpu, most=1)
    report.say("## Time per plan")
    report.table(("pieces", "order", "seconds", "CPU seconds", "boards", "area bound"), rows)


def repeated(report: Report) -> None:
    """Orders in which kinds repeat, with two efforts."""
    rows = []
    for seed in range(1, 5):
        one = workshop(f"repeated-{seed}", KITCHEN, 10, seed, (0,))
        parts = tuple(replace(part, quantity=30 * part.quantity) for part in one.parts)
        demand = replace(one, parts=parts)
        row = [one.name, str(demand.pieces), str(area_bound(demand))]
        for effort in ("quick", "normal"):
            plan = optimise(demand, Effort.named(effort))
            row += [str(plan.boards), str(len(plan.layouts))]
        rows.append(tuple(row))
        say(" ".join(rows[-1]))
    report.say("## Few different parts, many pieces")
    head = ("order", "pieces", "area bound", "quick: boards", "patterns")
    report.table((*head, "normal: boards", "patterns"), rows)


def stages(report: Report) -> None:
    """What a limit of stages costs, on all orders."""
    rows = []
    for limit in (2, 3, 4, 0):
        plans, seconds = [], []
        for demand in instances().values():
            saw = replace(demand.saw, max_stages=limit)
            started = time.process_time()
            plans.append(optimise(replace(demand, saw=saw)))
            seconds.append(time.process_time() - started)
        cuts = [cut for plan in plans for each in plan.layouts for cut in each.cuts * each.times]
        boards, offcuts = sum(plan.boards for plan in plans), sum(map(largest_offcut, plans))
        rows.append(
            (
                str(limit or "none"),
                str(boards),
                str(max(cut.stage for cut in cuts)),
                str(len(cuts)),
                str(sum(cut.stage > TURNS for cut in cuts)),
                f"{offcuts:.1f}",
                f"{sum(seconds):.0f}",
                f"{max(seconds):.2f}",
            )
        )
        say(" ".join(rows[-1]))
        if limit == STAGES:
            report.aim("boards for all orders at 3 stages", boards, most=208)
            report.aim("total of their largest offcuts, in boards", offcuts, least=OFFCUTS_BEFORE)
            report.aim("CPU seconds for the slowest of them", max(seconds), most=1)
    report.say("## Stages")
    report.say(
        f"All {len(plans)} orders with the same limit. Each stage beyond the second turns the parts"
        " of a strip once more. The largest offcuts of all orders are added up, in boards; the"
        f" previous planner, whose plans had up to nine stages, left {OFFCUTS_BEFORE}."
    )
    head = ("maximum stages", "boards", "stages used", "cuts", "cuts beyond stage 2", "largest offcuts")
    report.table((*head, "CPU seconds", "slowest"), rows)


def largest_offcut(plan: CuttingPlan) -> float:
    """In boards."""
    offcuts = (rest.area for layout in plan.layouts for rest in layout.offcuts)
    return max(offcuts, default=0) / plan.demand.board.area


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


def main(*, write: bool, published_in: Path | None = None) -> None:
    """Measure, print, and write docs/contributing/optiplan-benchmarks.md if asked."""
    report = Report("Optimiser benchmarks")
    run(report, " --write" + " --published FOLDER" * bool(published_in))
    if published_in:
        published.run(report, published_in)
    text = report.text()
    print(text)
    if write:
        (ROOT / "docs" / "contributing" / "optiplan-benchmarks.md").write_text(text, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/contributing/optiplan-benchmarks.md")
    parser.add_argument("--published", type=Path, metavar="FOLDER", help="see published.py")
    options = parser.parse_args()
    main(write=options.write, published_in=options.published)
