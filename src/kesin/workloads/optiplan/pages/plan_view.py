"""The plan of an order as its page shows it: patterns, costs, offcuts and parts."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kesin.foundation.problems import Problem
from kesin.lifecycle.model import Job
from kesin.web.dashboard.frame.page import PageContext
from kesin.workloads.optiplan.api.trial import PlanFigures
from kesin.workloads.optiplan.artifacts import JobArtifacts
from kesin.workloads.optiplan.labels.ids import order_code
from kesin.workloads.optiplan.labels.part_labels import part_numbers
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, size_text
from kesin.workloads.optiplan.optimizer.output.costs import plan_costs
from kesin.workloads.optiplan.optimizer.output.statistics import board_numbers, compute_statistics
from kesin.workloads.optiplan.orders.payload import CuttingOrder
from kesin.workloads.optiplan.pipeline.shared_folder import FolderUnavailable
from kesin.workloads.optiplan.service import OrderService


def view_plan(ctx: PageContext, orders: OrderService, job: Job) -> dict[str, Any] | None:
    """Return the plan of an order; None without a plan of ours, or if its files cannot be read."""
    try:
        artifacts = JobArtifacts(orders.workshop.paths(), job, orders.progress(job))
        plans = artifacts.read_plans(ctx.language)
    except (Problem, FolderUnavailable):
        return None
    if not plans:
        return None
    figures = PlanFigures.of(plans)
    return {
        "figures": figures,
        "saw": plans[0].demand.saw,
        "costs": _costs(ctx, plans) if figures.cost else (),
        "patterns": _patterns(plans),
        "used": [
            (board.offcut, plan.demand.name, size_text(board.length, board.width), 1)
            for plan in plans
            for board in map(plan.demand.boards.__getitem__, plan.board_counts)
            if board.offcut
        ],
        "made": [
            ("", plan.demand.name, size_text(*size), count)
            for plan in plans
            for size, count in plan.kept_offcuts.items()
        ],
        "parts": _parts(job, plans),
    }


def _costs(ctx: PageContext, plans: Sequence[CuttingPlan]) -> list[tuple[str, float]]:
    """Return what the boards, the sawing and each band cost."""
    amounts = Counter[str]()
    for plan in plans:
        costs = plan_costs(plan, compute_statistics(plan))
        amounts.update({ctx.say("Boards"): costs.boards, ctx.say("Sawing"): costs.sawing})
        amounts.update(dict(costs.bands))
    return [(name, amount / 100) for name, amount in amounts.items() if amount]


def _patterns(plans: Sequence[CuttingPlan]) -> list[dict[str, Any]]:
    """Return the boards that are cut alike, in the order of the plans."""
    return [
        {
            "boards": f"{board_numbers(plan, number)} / {plan.boards}",
            "times": layout.times,
            "name": plan.demand.name,
            "yield_share": sum(each.rect.area for each in layout.placements) / plan.demand.boards[layout.board].area,
        }
        for plan in plans
        for number, layout in enumerate(plan.layouts, start=1)
    ]


def _parts(job: Job, plans: Sequence[CuttingPlan]) -> list[dict[str, Any]]:
    """Return the parts in the order of the plans, with the patterns that they lie on."""
    code, first, lines = order_code(job.id), 1, []
    numbers = part_numbers(CuttingOrder.from_job(job).payload.parts)
    for plan, indices in zip(plans, numbers, strict=True):
        lines += [
            {
                "label": f"{code}-{indices[index] + 1}",  # continued by the number of a piece
                "name": part.name,
                "pieces": part.quantity,
                "finished": size_text(*part.finished),
                "cut": size_text(part.length, part.width),
                "material": plan.demand.name,
                "boards": ", ".join(
                    str(number)
                    for number, layout in enumerate(plan.layouts, first)
                    if any(placement.part == index for placement in layout.placements)
                ),
            }
            for index, part in enumerate(plan.demand.parts)
        ]
        first += len(plan.layouts)
    return lines
