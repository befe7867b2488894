"""The built-in optimiser: parts in, boards cut edge to edge out, and a proof of every plan.

It stands where OptiPlanning stands, so it is a program of its own (``python -m
kesin.workloads.optiplan.optimizer``) and knows nothing of jobs, queues or the web.
"""

from __future__ import annotations

from kesin.workloads.optiplan.optimizer.checker import faults
from kesin.workloads.optiplan.optimizer.input import Conditions, read_batch
from kesin.workloads.optiplan.optimizer.model import (
    Band,
    Board,
    Cut,
    Demand,
    Layout,
    Part,
    PartTooLarge,
    Placement,
    Plan,
    Rect,
    Trims,
    Unplannable,
    hundredths,
)
from kesin.workloads.optiplan.optimizer.optimise import Effort, optimise
from kesin.workloads.optiplan.optimizer.output.cut_list import CutList, cut_list
from kesin.workloads.optiplan.optimizer.output.files import write_plans
from kesin.workloads.optiplan.optimizer.output.pdf import print_plans
from kesin.workloads.optiplan.optimizer.output.statistics import Figures, figures
from kesin.workloads.optiplan.optimizer.output.svg import draw, draw_board
from kesin.workloads.optiplan.optimizer.output.xml import GENERATOR, solution_xml

__all__ = [
    "GENERATOR",
    "Band",
    "Board",
    "Conditions",
    "Cut",
    "CutList",
    "Demand",
    "Effort",
    "Figures",
    "Layout",
    "Part",
    "PartTooLarge",
    "Placement",
    "Plan",
    "Rect",
    "Trims",
    "Unplannable",
    "cut_list",
    "draw",
    "draw_board",
    "faults",
    "figures",
    "hundredths",
    "optimise",
    "print_plans",
    "read_batch",
    "solution_xml",
    "write_plans",
]
