"""The plan as the XML that OptiPlanning would have left: a summary, and every board's cuts.

One file a batch. The solution taken comes first with ``best="1"`` and its layouts; what the other
strategies needed follows as summaries, for whoever compares.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from kesin.workloads.optiplan.optimizer.model import (
    Demand,
    Layout,
    Plan,
    Rect,
    mm_text,
    square_metres,
)
from kesin.workloads.optiplan.optimizer.output.cut_list import trim_count
from kesin.workloads.optiplan.optimizer.output.statistics import Figures, figures

GENERATOR: Final = "Kesin"  # the name by which a plan of ours is known
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def solution_xml(plans: Sequence[Plan]) -> bytes:
    """The file for one batch: its plans, one a material."""
    root = ET.Element(
        "Solutions", {"generator": GENERATOR, "batch": writable(plans[0].demand.name)}
    )
    sums = [figures(plan) for plan in plans]
    best = ET.SubElement(root, "Solution", _summary(plans, sums))
    number = 0
    for plan in plans:
        for layout in plan.layouts:
            number += 1
            _layout(best, number, plan.demand, layout)
    for index, (algo, boards) in enumerate(_others(plans), start=2):
        area = square_metres(plans[0].demand.board.area) * boards
        ET.SubElement(
            root,
            "Solution",
            {
                "name": f"p{index:03d}",
                "algo": algo,
                "best": "0",
                "mqBoards": f"{area:.4f}",
                "boards": str(boards),
            },
        )
    ET.indent(root)
    told: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return told + b"\n"


def _others(plans: Sequence[Plan]) -> list[tuple[str, int]]:
    """What else was found, told only where one material makes it comparable."""
    if len(plans) != 1:
        return []
    return [other for other in plans[0].others if other[0] != plans[0].strategy]


def _summary(plans: Sequence[Plan], sums: Sequence[Figures]) -> dict[str, str]:
    board_m2, part_m2 = sum(one.board_m2 for one in sums), sum(one.part_m2 for one in sums)
    return {
        "name": "p001",
        "algo": "+".join(sorted({plan.strategy for plan in plans})),
        "best": "1",
        "mqBoards": f"{board_m2:.4f}",
        "patterns": str(sum(one.patterns for one in sums)),
        "cycles": str(sum(one.cycles for one in sums)),
        "zcuts": str(sum(one.z_cuts for one in sums)),
        "jobTime": str(sum(one.time_s for one in sums)),
        "jobCost": f"{sum(one.cost for one in sums):.2f}",
        "mqDrops": f"{sum(one.offcut_m2 for one in sums):.4f}",
        "diffDrops": str(sum(one.offcut_sizes for one in sums)),
        "boards": str(sum(one.boards for one in sums)),
        "yield": f"{100 * part_m2 / board_m2:.2f}",
    }


def _layout(parent: ET.Element, number: int, demand: Demand, layout: Layout) -> None:
    board, trims = demand.board, demand.board.trims
    element = ET.SubElement(
        parent,
        "Layout",
        {
            "number": str(number),
            "times": str(layout.times),
            "material": writable(demand.material),
            "length": mm_text(board.length),
            "width": mm_text(board.width),
            "trimLeft": mm_text(trims.left),
            "trimRight": mm_text(trims.right),
            "trimBottom": mm_text(trims.bottom),
            "trimTop": mm_text(trims.top),
            "kerf": mm_text(demand.kerf),
            "yield": f"{100 * sum(one.rect.area for one in layout.placements) / board.area:.2f}",
        },
    )
    for placement in layout.placements:
        part = demand.parts[placement.part]
        told = {
            "part": writable(part.name),
            "number": str(placement.part + 1),
            **_place(placement.rect),
            "turned": str(int(placement.turned)),
            "grain": str(part.grain),
        }
        for side in ("up", "lo", "sx", "dx"):
            if (band := getattr(part, side)) is not None:
                told[side] = writable(band.name)
        ET.SubElement(element, "Piece", told)
    first = trim_count(demand) + 1
    for order, cut in enumerate(layout.cuts, start=first):
        ET.SubElement(
            element,
            "Cut",
            {
                "order": str(order),
                "stage": str(cut.stage),
                "runs": cut.runs,
                "at": mm_text(cut.at),
                **_place(cut.panel),
            },
        )
    for rest in layout.offcuts:
        kept = str(int(demand.is_reusable(rest)))
        ET.SubElement(element, "Drop", {**_place(rest), "reusable": kept})


def _place(rect: Rect) -> dict[str, str]:
    return {
        "x": mm_text(rect.x),
        "y": mm_text(rect.y),
        "length": mm_text(rect.length),
        "width": mm_text(rect.width),
    }


def writable(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return _UNWRITABLE.sub("\ufffd", text)
