"""The plan as OptiPlanning's XML: layouts of the best solution, and summaries of the others."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final
from xml.etree import ElementTree as ET

from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Demand, Layout, mm_text
from kesin.workloads.optiplan.optimizer.output.costs import plan_costs
from kesin.workloads.optiplan.optimizer.output.statistics import compute_statistics, trim_steps

GENERATOR: Final = "Kesin"  # identifies a plan of this optimiser
MARK: Final = f'generator="{GENERATOR}"'.encode()  # in the first line of its XML
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def solution_xml(plans: Sequence[CuttingPlan]) -> bytes:
    """Return the XML of one batch: its plans, one per material."""
    batch = replace_unwritable(plans[0].demand.name)
    root = ET.Element("Solutions", {"generator": GENERATOR, "batch": batch})
    best = ET.SubElement(root, "Solution", _summary_attributes(plans))
    layouts = [(plan.demand, layout) for plan in plans for layout in plan.layouts]
    for number, (demand, layout) in enumerate(layouts, start=1):
        _add_layout(best, number, demand, layout)
    results = plans[0].strategy_boards if len(plans) == 1 else ()  # of one material, they compare
    others = [result for result in results if result[0] != plans[0].strategy]
    for index, (algo, boards) in enumerate(others, start=2):
        area = model.square_metres(plans[0].demand.board.area) * boards
        attributes = {"name": f"p{index:03d}", "algo": algo, "best": "0"}
        attributes |= {"mqBoards": f"{area:.4f}", "boards": str(boards)}
        ET.SubElement(root, "Solution", attributes)
    ET.indent(root)
    content: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _summary_attributes(plans: Sequence[CuttingPlan]) -> dict[str, str]:
    statistics = [compute_statistics(plan) for plan in plans]
    pairs = zip(plans, statistics, strict=True)
    costs = [plan_costs(plan, item).total for plan, item in pairs]
    board_m2 = sum(item.board_m2 for item in statistics)
    boards = str(sum(plan.boards for plan in plans))
    return {
        "name": "p001",
        "algo": "+".join(sorted({plan.strategy for plan in plans})),
        "best": "1",
        "mqBoards": f"{board_m2:.4f}",
        "patterns": str(sum(len(plan.layouts) for plan in plans)),
        "cycles": str(sum(item.book_cycles for item in statistics)),
        "zcuts": str(sum(item.z_cuts for item in statistics)),
        "jobTime": str(sum(item.time_s for item in statistics)),
        "jobCost": f"{sum(costs) / 100:.2f}",
        "mqDrops": f"{sum(item.offcut_m2 for item in statistics):.4f}",
        "diffDrops": str(sum(item.offcut_sizes for item in statistics)),
        "boards": boards,
        "yield": f"{100 * sum(item.part_m2 for item in statistics) / board_m2:.2f}",
        **profile_attributes(plans),
    }


def profile_attributes(plans: Sequence[CuttingPlan]) -> dict[str, str]:
    """Return what a solution states of its saw, and of the effort that it took."""
    cuts = (cut for plan in plans for layout in plan.layouts for cut in layout.cuts)
    return {
        "profile": replace_unwritable(plans[0].demand.saw.name),
        "stages": str(max((cut.stage for cut in cuts), default=0)),
        "effort": plans[0].demand.effort,
    }


def board_attributes(demand: Demand, layout: Layout) -> dict[str, str]:
    """Return what a layout states of its board; ``offcut`` only if it is of the rack."""
    board = demand.boards[layout.board]
    return {
        "board": str(layout.board),
        "code": replace_unwritable(board.code),
        **({"offcut": replace_unwritable(board.offcut)} if board.offcut else {}),
        "price": f"{board.price / 100:.2f}",
        "length": mm_text(board.length),
        "width": mm_text(board.width),
    }


def _add_layout(parent: ET.Element, number: int, demand: Demand, layout: Layout) -> None:
    board = demand.boards[layout.board]
    attributes = {
        "number": str(number),
        "times": str(layout.times),
        "material": replace_unwritable(demand.material),
        **board_attributes(demand, layout),
        **{f"trim{side.title()}": mm_text(trim) for side, trim in asdict(board.trims).items()},
        "kerf": mm_text(demand.saw.kerf_rip),
        "kerfCross": mm_text(demand.saw.kerf_cross),
        "yield": f"{100 * sum(item.rect.area for item in layout.placements) / board.area:.2f}",
    }
    element = ET.SubElement(parent, "Layout", attributes)
    for placement in layout.placements:
        part = demand.parts[placement.part]
        attributes = {
            "part": replace_unwritable(part.name),
            "number": str(placement.part + 1),
            **_rect_attributes(placement.rect),
            "turned": str(int(placement.turned)),
            "grain": str(part.grain),
        }
        for side, band in zip(("up", "lo", "sx", "dx"), part.bands, strict=True):
            if band is not None:
                attributes[side] = replace_unwritable(band.name)
        ET.SubElement(element, "Piece", attributes)
    for order, cut in enumerate(layout.cuts, len(trim_steps(board)) + 1):
        attributes = {"order": str(order), "stage": str(cut.stage), "runs": cut.runs}
        attributes |= {"at": mm_text(cut.at), **_rect_attributes(cut.panel)}
        ET.SubElement(element, "Cut", attributes)
    for offcut in layout.offcuts:
        reusable = str(int(demand.is_reusable(offcut)))
        ET.SubElement(element, "Drop", {**_rect_attributes(offcut), "reusable": reusable})


def _rect_attributes(rect: model.Rect) -> dict[str, str]:
    return {name: mm_text(size) for name, size in asdict(rect).items()}


def replace_unwritable(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)
