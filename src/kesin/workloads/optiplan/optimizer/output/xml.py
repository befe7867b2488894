"""The plan as OptiPlanning's XML: layouts of the best solution, and summaries of the others."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final
from xml.etree import ElementTree as ET

from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Demand, Layout, mm_text
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
    board_m2 = sum(item.board_m2 for item in statistics)
    boards = str(sum(plan.boards for plan in plans))
    return {
        "name": "p001",
        "algo": "+".join(sorted({plan.strategy for plan in plans})),
        "best": "1",
        "mqBoards": f"{board_m2:.4f}",
        "patterns": str(sum(len(plan.layouts) for plan in plans)),
        "cycles": boards,  # loaded onto the saw, one at a time
        "zcuts": str(sum(item.z_cuts for item in statistics)),
        "jobTime": str(sum(item.time_s for item in statistics)),
        "jobCost": "0.00",  # the format has it; Kesin knows no prices
        "mqDrops": f"{sum(item.offcut_m2 for item in statistics):.4f}",
        "diffDrops": str(sum(item.offcut_sizes for item in statistics)),
        "boards": boards,
        "yield": f"{100 * sum(item.part_m2 for item in statistics) / board_m2:.2f}",
    }


def _add_layout(parent: ET.Element, number: int, demand: Demand, layout: Layout) -> None:
    board = demand.board
    attributes = {
        "number": str(number),
        "times": str(layout.times),
        "material": replace_unwritable(demand.material),
        "length": mm_text(board.length),
        "width": mm_text(board.width),
        **{f"trim{side.title()}": mm_text(trim) for side, trim in asdict(board.trims).items()},
        "kerf": mm_text(demand.kerf),
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
    for order, cut in enumerate(layout.cuts, len(trim_steps(demand)) + 1):
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
