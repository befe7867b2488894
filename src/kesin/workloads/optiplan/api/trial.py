"""Plans of orders that are not placed: made in a process of its own, and stored nowhere."""

import math
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Self

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from kesin.foundation.child_environment import child_environment
from kesin.foundation.messages import Message
from kesin.web.dependencies import UNCACHED, MediaType, RawBody, SignedInActor, json_response
from kesin.web.pools import WorkPool
from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.api.schemas import ORDER_BODY, parse_json
from kesin.workloads.optiplan.artifacts import batch_names, parse_plans
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, size_text
from kesin.workloads.optiplan.optimizer.output.costs import plan_costs
from kesin.workloads.optiplan.optimizer.output.statistics import compute_statistics
from kesin.workloads.optiplan.orders.payload import Payload, read_payload
from kesin.workloads.optiplan.pipeline.program import build_launch
from kesin.workloads.optiplan.pipeline.workbook import write_order
from kesin.workloads.optiplan.service import OrderService
from kesin.workloads.optiplan.stock.plans import offer_offcuts
from kesin.workloads.optiplan.stock.rack import Rack

TRIALS: Final = WorkPool("trial", "plans to try", threads=2, waiting=0)
TRIAL_S: Final = 24.0  # a request has 30 s by default: no time to wait for others
_PLANNING_S: Final = 16.0  # of them; the optimiser also starts, and writes its files
_STEM: Final = "trial"


class PlanFigures(BaseModel):
    """The plans of an order in figures."""

    boards: int = Field(description="new ones")
    cost: float = Field(description="0 if neither the boards nor the work has a price")
    currency: str
    stages: int
    cuts: int
    cut_metres: float
    yield_percent: float
    saw_minutes: int
    offcuts_used: int
    offcuts_made: int
    largest_offcut: str = Field(description="in millimetres; empty if none is worth keeping")

    @classmethod
    def of(cls, plans: Sequence[CuttingPlan]) -> Self:
        statistics = [compute_statistics(plan) for plan in plans]
        used = [(plan.demand.boards[each], n) for plan in plans for each, n in plan.board_counts.items()]
        made = [(size, count) for plan in plans for size, count in plan.kept_offcuts.items()]
        largest = max((size for size, _ in made), key=math.prod, default=())
        part_m2 = sum(each.part_m2 for each in statistics)
        return cls(
            boards=sum(count for board, count in used if not board.offcut),
            cost=sum(plan_costs(plan, each).total for plan, each in zip(plans, statistics, strict=True)) / 100,
            currency=plans[0].demand.rates.currency,
            stages=max(each.stages for each in statistics),
            cuts=sum(each.cuts for each in statistics),
            cut_metres=round(sum(each.cut_metres for each in statistics), 1),
            yield_percent=round(100 * part_m2 / sum(each.board_m2 for each in statistics), 1),
            saw_minutes=round(sum(each.time_s for each in statistics) / 60),
            offcuts_used=sum(count for board, count in used if board.offcut),
            offcuts_made=sum(count for _, count in made),
            largest_offcut=size_text(*largest) if largest else "",
        )


def add_trial_routes(router: APIRouter, service: OrderService) -> None:
    @router.post("/plans/try", response_model=PlanFigures, openapi_extra=ORDER_BODY)
    async def try_order(actor: SignedInActor, body: RawBody, kind: MediaType) -> Response:
        """Plan an order without placing it; nothing is stored, and no offcut is reserved."""

        def plan() -> Response:
            service.require_create(actor)
            plans = plan_order(service, read_payload(parse_json(body, kind)))
            return json_response(PlanFigures.of(plans), cache_control=UNCACHED)

        return await TRIALS.run(plan)


def plan_order(service: OrderService, order: Payload, language: Language = "en") -> list[CuttingPlan]:
    """Plan an order with the built-in optimiser, as it would be planned now; raises OrderProblem."""
    rules, paths = service.workshop.rules(), service.workshop.paths()
    names = batch_names(_STEM, order, language)
    with tempfile.TemporaryDirectory(prefix="kesin-trial-") as name:
        folder = Path(name)
        files = write_order(folder, _STEM, order, rules, paths)
        offer_offcuts(folder, order, rules.for_order(order), [*names], Rack(service.queue).free())
        limit = ("--time-limit", f"{_PLANNING_S / len(files):g}")
        _run(build_launch("A", replace(paths, exe=None, export_folder=folder), files, own_options=limit).command)
        xml = [file.with_suffix(".xml") for file in files]
        return parse_plans(folder, {file.name: file.read_bytes() for file in xml}, names)


def _run(command: Sequence[str]) -> None:
    try:
        run = partial(subprocess.run, command, env=child_environment(), stdin=subprocess.DEVNULL)
        run(capture_output=True, timeout=TRIAL_S, check=True)
    except subprocess.TimeoutExpired:
        why = Message("no plan was found within %(n)s s: choose less effort, or place the order", n=f"{TRIAL_S:g}")
        raise OrderProblem(OptiCode.OPTI_RUNNER_FAILED, why) from None
    except subprocess.CalledProcessError as failed:
        last = failed.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        why = Message("the optimiser ended with %(problem)s", problem=f"{failed.returncode}: {last[-300:]}")
        raise OrderProblem(OptiCode.OPTI_RUNNER_FAILED, why) from None
