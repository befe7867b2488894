"""Plans to compare before an order is placed: made in child processes with limits, never stored."""

import math
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, Response

from kesin.foundation.child_environment import child_environment
from kesin.foundation.messages import Message
from kesin.foundation.permissions import Actor
from kesin.web.dependencies import (
    UNCACHED,
    MediaType,
    RawBody,
    SignedInActor,
    json_response,
)
from kesin.web.pools import WorkPool
from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan import artifacts
from kesin.workloads.optiplan.api.schemas import (
    MAX_VARIANTS,
    TRIAL_BODY,
    Trial,
    TrialFigures,
    TrialVariant,
    TrialVariants,
    TriedVariant,
    parse_json,
)
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.optimizer.__main__ import EXIT_PLANNED, EXIT_UNPLANNABLE
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, size_text
from kesin.workloads.optiplan.optimizer.output.costs import plan_costs
from kesin.workloads.optiplan.optimizer.output.statistics import compute_statistics
from kesin.workloads.optiplan.orders import payload as payloads
from kesin.workloads.optiplan.orders.payload import FieldProblem, Payload
from kesin.workloads.optiplan.pipeline.prechecks import find_unmakeable, lacks_board
from kesin.workloads.optiplan.pipeline.program import OPTIMISER
from kesin.workloads.optiplan.pipeline.transform import transform_order
from kesin.workloads.optiplan.pipeline.workbook import write_batches
from kesin.workloads.optiplan.pipeline.xlsx_template import read_template
from kesin.workloads.optiplan.service import OrderService
from kesin.workloads.optiplan.stock.plans import offer_offcuts
from kesin.workloads.optiplan.stock.rack import Rack
from kesin.workloads.optiplan.workshop.rules import Rules

TRIAL_S: Final = 24.0  # of a request, which has 30 s by default
MEMORY_BYTES: Final = 2 * 1024**3
_AROUND_S: Final = 8.0  # of a child, before and after it plans
_STEM: Final = "trial"


@lru_cache(maxsize=1)
def trial_pool() -> WorkPool:
    """The threads that wait for plans: one is made at a time, and few requests wait."""
    return WorkPool("trial", "plans to try", threads=1, waiting=MAX_VARIANTS)


def add_trial_routes(router: APIRouter, service: OrderService) -> None:
    @router.post("/plans/try", response_model=Trial, openapi_extra=TRIAL_BODY)
    async def try_plans(actor: SignedInActor, body: RawBody, kind: MediaType) -> Response:
        """Plan an order in up to four variants and compare them; nothing is stored."""

        def plan() -> Response:
            service.require_create(actor)
            order, variants = _read(parse_json(body, kind))
            seconds = TRIAL_S / len(variants)
            trying = Trying(service, actor, order)
            tried = [trying.plan(variant, seconds)[0] for variant in variants]
            return json_response(Trial(tried=tried), cache_control=UNCACHED)

        return await trial_pool().run(plan)


def _read(body: Any) -> tuple[Payload, tuple[TrialVariant, ...]]:
    """Read an order with its variants; raises OrderProblem with every invalid field."""
    fields = dict(body) if isinstance(body, dict) else {}
    if "variants" not in fields:
        raise FieldProblem(("variants",), "is missing").as_problem()
    given = {"variants": fields.pop("variants")}
    count = len(given["variants"]) if isinstance(given["variants"], list) else 1
    if not 1 <= count <= MAX_VARIANTS:
        message = Message("must have 1…%(most)s variants, got %(n)s", most=MAX_VARIANTS, n=count)
        raise FieldProblem(("variants",), message).as_problem()
    order = payloads.read_payload(fields)
    return order, payloads.validate_model(TrialVariants, given).variants


class Trying:
    """Tries an order; raises OrderProblem if it could not be placed at all."""

    def __init__(
        self, service: OrderService, actor: Actor, order: Payload, language: Language = "en"
    ) -> None:
        service.require_create(actor)
        self._service, self._order, self._language = service, order, language
        self._rules = rules = service.workshop.rules()
        if problems := find_unmakeable(order, rules, own_boards=False):
            raise payloads.validation_problem(problems)
        if lacks_board(order, rules):
            why = "is missing, and the rules have no defaultPlateSize"
            raise FieldProblem(("plate_size",), why).as_problem()

    def plan(
        self, variant: TrialVariant, seconds: float = TRIAL_S
    ) -> tuple[TriedVariant, list[CuttingPlan]]:
        """Plan one variant; what cannot be planned is the variant's problem."""
        row = partial(TriedVariant.model_construct, variant=variant)  # trusted values
        try:
            plans = self._plan(variant, seconds)
        except OrderProblem as problem:
            return row(figures=None, problem=problem.message), []
        return row(figures=figures_of(plans), problem=None), plans

    def _plan(self, variant: TrialVariant, seconds: float) -> list[CuttingPlan]:
        chosen = {"saw_profile", "effort", "use_rack"}
        order = self._order.model_copy(update=variant.model_dump(include=chosen, exclude_none=True))
        rules = self._rules if variant.boards is None else _only(self._rules, variant.boards)
        if problems := find_unmakeable(order, rules, own_boards=False):
            raise payloads.validation_problem(problems)
        batches, _ = transform_order(order, rules)
        template = read_template(self._service.workshop.paths().template)
        names = artifacts.batch_names(_STEM, order, self._language)
        with tempfile.TemporaryDirectory(prefix="kesin-optiplan-") as name:
            folder = Path(name)
            files = write_batches(folder, _STEM, batches, template, order=order, rules=rules)
            free = Rack(self._service.queue).free()  # read only: nothing is reserved
            offer_offcuts(folder, order, rules.for_order(order), [*names], free)
            _run_optimiser(files, folder, seconds)
            return [
                plan
                for file in files
                for plan in artifacts.read_batch_plans(
                    file, file.with_suffix(".xml").read_bytes(), names[file.stem]
                )
            ]


def _only(rules: Rules, codes: Sequence[str]) -> Rules:
    """Return the rules with these boards only; raises OrderProblem for an unknown code."""
    known = [board.code for board in rules.boards]
    if unknown := sorted(set(codes) - set(known)):
        why = "must be codes of boards in the rules (%(known)s), got %(given)s"
        message = Message(why, known=", ".join(known) or "–", given=", ".join(unknown))
        raise FieldProblem(("boards",), message).as_problem()
    boards = tuple(board for board in rules.boards if board.code in codes)
    return rules.model_copy(update={"boards": boards})


def _run_optimiser(files: Sequence[Path], folder: Path, seconds: float) -> None:
    """Run the optimiser on import files; raises OrderProblem. It is killed after these seconds."""
    each_s = (seconds - min(_AROUND_S, seconds / 2)) / len(files)
    command = [sys.executable, "-m", OPTIMISER, "--out", str(folder), "--time-limit", f"{each_s:g}"]
    child = subprocess.Popen(  # noqa: S603 - our own module
        [*command, *map(str, files)],
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        cpu_s = round(seconds) + 1
        for limit, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, cpu_s)):
            resource.prlimit(child.pid, limit, (most, most))
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        why = "no plan was found within %(n)s s: choose less effort, or place the order"
        raise OrderProblem(OptiCode.OPTI_RUNNER_FAILED, why, n=f"{seconds:g}") from None
    finally:
        child.kill()
        _, errors = child.communicate()
    if child.returncode != EXIT_PLANNED:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        why = last if child.returncode == EXIT_UNPLANNABLE else "the optimiser has failed"
        raise OrderProblem(OptiCode.OPTI_RUNNER_FAILED, why)


def figures_of(plans: Sequence[CuttingPlan]) -> TrialFigures:
    """Return the figures of a variant, of one plan per material."""
    statistics = [compute_statistics(plan) for plan in plans]
    cut = [(plan.demand.boards[layout.board], layout) for plan in plans for layout in plan.layouts]
    made = [(size, count) for plan in plans for size, count in plan.kept_offcuts.items()]
    largest = max((size for size, _ in made), key=math.prod, default=None)
    part_m2 = sum(each.part_m2 for each in statistics)
    priced = zip(plans, statistics, strict=True)
    cost = sum(plan_costs(plan, each).total for plan, each in priced)
    return TrialFigures(
        boards=sum(layout.times for board, layout in cut if not board.offcut),
        cost=cost / 100 if cost else None,
        currency=plans[0].demand.rates.currency,
        stages=max(each.stages for each in statistics),
        cuts=sum(each.cuts for each in statistics),
        cut_metres=round(sum(each.cut_metres for each in statistics), 1),
        yield_percent=round(100 * part_m2 / sum(each.board_m2 for each in statistics), 1),
        offcuts_used=sum(bool(board.offcut) for board, _ in cut),
        offcuts_made=sum(count for _, count in made),
        largest_offcut=size_text(*largest) if largest else "",
        saw_minutes=round(sum(each.time_s for each in statistics) / 60),
    )
