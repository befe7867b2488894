"""The built-in optimiser: plans how parts are cut from boards and verifies every plan.

It replaces OptiPlanning, so it is a program of its own (``python -m
kesin.workloads.optiplan.optimizer``) and imports nothing of jobs, queues or the web.
"""

from __future__ import annotations

from kesin.workloads.optiplan.optimizer.checker import find_faults
from kesin.workloads.optiplan.optimizer.input import PlanDefaults, read_batch
from kesin.workloads.optiplan.optimizer.model import (
    Band,
    Board,
    Cut,
    CutPart,
    CuttingPlan,
    Demand,
    Layout,
    PartTooLarge,
    Placement,
    Rect,
    Trims,
    Unplannable,
    hundredths,
)
from kesin.workloads.optiplan.optimizer.optimise import Effort, optimise
from kesin.workloads.optiplan.optimizer.output.cut_list import CutList, build_cut_list
from kesin.workloads.optiplan.optimizer.output.files import write_plans
from kesin.workloads.optiplan.optimizer.output.pdf import print_plans
from kesin.workloads.optiplan.optimizer.output.statistics import PlanStatistics, compute_statistics
from kesin.workloads.optiplan.optimizer.output.svg import draw_board_svg, draw_svg
from kesin.workloads.optiplan.optimizer.output.xml import GENERATOR, solution_xml

__all__ = [
    "GENERATOR",
    "Band",
    "Board",
    "Cut",
    "CutList",
    "CutPart",
    "CuttingPlan",
    "Demand",
    "Effort",
    "Layout",
    "PartTooLarge",
    "Placement",
    "PlanDefaults",
    "PlanStatistics",
    "Rect",
    "Trims",
    "Unplannable",
    "build_cut_list",
    "compute_statistics",
    "draw_board_svg",
    "draw_svg",
    "find_faults",
    "hundredths",
    "optimise",
    "print_plans",
    "read_batch",
    "solution_xml",
    "write_plans",
]
