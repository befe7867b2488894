"""The routes of what a shop prints and loads: labels, PTX, cut list and parts list."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from kesin.foundation.messages import Message
from kesin.foundation.permissions import Actor
from kesin.store.search import field_of
from kesin.web.dependencies import SignedInActor
from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.api import responses
from kesin.workloads.optiplan.artifacts import JobArtifacts, date_text
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.labels import printing
from kesin.workloads.optiplan.labels.part_labels import PartLabel, part_labels
from kesin.workloads.optiplan.labels.printing import Label, LabelPrint, print_labels
from kesin.workloads.optiplan.machine_files.cut_list import cut_list_csv, parts_csv
from kesin.workloads.optiplan.machine_files.ptx import write_ptx
from kesin.workloads.optiplan.optimizer.input import read_batch
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Unplannable, hundredths
from kesin.workloads.optiplan.optimizer.output.shapes import TEXTS
from kesin.workloads.optiplan.optimizer.output.xml import MARK
from kesin.workloads.optiplan.orders.payload import FieldProblem
from kesin.workloads.optiplan.service import OrderService
from kesin.workloads.optiplan.stock.offcut import Offcut
from kesin.workloads.optiplan.stock.service import RackService
from kesin.workloads.optiplan.workshop.saw_rules import LabelLayout

SCAN_PATH: Final = "/dashboard/optiplan/scan"
SHEET_LAYOUT: Final[LabelLayout] = "a4-3x8"
MAX_LABELS: Final = 1_000  # in one PDF
MAX_START: Final = 10_000_000
MAX_OFFCUT_LABELS: Final = 100  # of one request

Start = Annotated[int | None, Query(ge=1, le=MAX_START)]
OffcutIds = Annotated[list[str], Query(alias="id", min_length=1, max_length=MAX_OFFCUT_LABELS)]


def add_shop_file_routes(router: APIRouter, service: OrderService) -> None:
    def how_to_print(
        request: Request,
        layout: LabelLayout | None = None,
        first: Annotated[int, Query(ge=1, le=printing.ON_SHEET)] = 1,
        language: responses.InLanguage = "en",
    ) -> LabelPrint:
        """Read how to print labels: as asked for, else by the rules."""
        rules = service.workshop.rules().labels
        rules = rules.model_copy(update={"layout": layout or rules.layout})
        if first > 1 and rules.layout != SHEET_LAYOUT:
            problem = Message("has no effect on a roll of labels: leave it out")
            raise FieldProblem(("first",), problem).as_problem()
        address = service.workshop.settings.public_url or str(request.base_url)
        return LabelPrint(rules, language, f"{address.rstrip('/')}{SCAN_PATH}/", first)

    _add_order_routes(router, service, Depends(how_to_print))
    _add_rack_routes(router, service, Depends(how_to_print))


def _add_order_routes(router: APIRouter, service: OrderService, how_to_print: Any) -> None:
    @router.get("/jobs/{job_id}/labels.pdf", **responses.sends("The labels as a PDF", responses.PDF))
    def job_labels(actor: SignedInActor, job_id: str, start: Start = None, how: LabelPrint = how_to_print) -> Response:
        """One label per piece, in the order in which the saw cuts the pieces, starting at label `start`.

        `layout` defaults to the one in the rules; `first` is the first free label on a sheet. A
        PDF has at most 1000 labels, so a larger order needs `start`. For a plan from OptiPlanning,
        the labels are in the order of the parts and show neither the board nor the cut.
        """
        labels = _labels_from(read_labels(service, actor, job_id, how.language), start)
        data = print_labels((printing.part_label(label, how.language) for label in labels), how)
        return responses.file_response(data, f"{job_id}-labels.pdf", responses.PDF)

    @router.get(
        "/jobs/{job_id}/ptx", **responses.sends("The PTX, or an archive of PTX files", responses.PTX, responses.ZIP)
    )
    def job_ptx(actor: SignedInActor, job_id: str) -> Response:
        """The plan as pattern exchange files for saws, one per batch; at most 4 stages."""
        artifacts = responses.order_artifacts(service, actor, job_id)
        by_batch = groupby(artifacts.read_plans(), lambda plan: plan.demand.name)
        with _refused():
            written = [write_ptx(list(plans)) for _, plans in by_batch]
        names = (f"{stem}.ptx" for stem in artifacts.progress.stems)
        files = dict(zip(names, written, strict=True))
        return responses.files_response(files, f"{job_id}-ptx.zip", responses.PTX)

    @router.get("/jobs/{job_id}/cut-list.csv", **responses.sends("The cut list", responses.CSV))
    def job_cut_list(actor: SignedInActor, job_id: str) -> Response:
        """The boards, parts and cuts, one per row: N name, M material, K kerf, S board, P part."""
        plans = responses.order_artifacts(service, actor, job_id).read_plans()
        return responses.file_response(cut_list_csv(plans), f"{job_id}-cut-list.csv", responses.CSV)

    @router.get("/jobs/{job_id}/parts.csv", **responses.sends("The parts list", responses.CSV))
    def job_parts(actor: SignedInActor, job_id: str) -> Response:
        """The parts in finished sizes, with their bands."""
        plans = read_plans_or_parts(responses.order_artifacts(service, actor, job_id))
        return responses.file_response(parts_csv(plans), f"{job_id}-parts.csv", responses.CSV)


def _add_rack_routes(router: APIRouter, service: OrderService, how_to_print: Any) -> None:
    rack = RackService(service.context)

    @router.get("/rack/labels.pdf", **responses.sends("The labels as a PDF", responses.PDF))
    def rack_labels(actor: SignedInActor, offcut_ids: OffcutIds, how: LabelPrint = how_to_print) -> Response:
        """The labels of up to 100 offcuts, requested with `?id=…&id=…`."""
        labels = [_offcut_label(service, rack.get(actor, each), how) for each in offcut_ids]
        return responses.file_response(print_labels(labels, how), "offcuts.pdf", responses.PDF)


def _offcut_label(service: OrderService, offcut: Offcut, how: LabelPrint) -> Label:
    """Return the label of an offcut, with the number of the order that left it."""
    texts, date = TEXTS[how.language], date_text(offcut.created_at, how.language)
    job = service.queue.job(offcut.made_by_job) if offcut.made_by_job else None
    order = field_of(job.payload, "order.order_id") if job else None
    lines = (
        "",
        f"{texts['offcut'].upper()} {offcut.id}",
        "",
        offcut.size_text,
        offcut.material_text,
        f"{texts['from_order']} {order} · {date}" if order else date,
        f"{texts['rack']} {offcut.place}" if offcut.place else "",
    )
    size = hundredths(offcut.length_mm), hundredths(offcut.width_mm)
    return Label(offcut.id, offcut.id, "", lines, size, ("",) * 4, has_grain=True)


def read_labels(service: OrderService, actor: Actor, job_id: str, language: Language) -> Iterable[PartLabel]:
    """Yield the labels of an order as the actor may see it; raises OrderProblem."""
    artifacts = responses.order_artifacts(service, actor, job_id)
    head = responses.order_head(service, actor, artifacts.job, language)
    return part_labels(artifacts.job, head, read_plans_or_parts(artifacts))


def read_plans_or_parts(artifacts: JobArtifacts) -> list[CuttingPlan]:
    """Return the plans of an order; of another program's plan only the parts, without boards."""
    if all(MARK in data[:200] for data in artifacts.read_xml_files().values()):
        return artifacts.read_plans()
    files = (artifacts.paths.import_folder / name for name in artifacts.progress.files)
    with _refused():
        return [CuttingPlan(demand, ()) for file in files for demand in read_batch(file)]


@contextmanager
def _refused() -> Iterator[None]:
    """Report a plan that cannot be read or written as a file that does not exist."""
    try:
        yield
    except Unplannable as problem:
        raise OrderProblem(OptiCode.FILE_NOT_FOUND, str(problem)) from None


def _labels_from(labels: Iterable[PartLabel], start: int | None) -> Sequence[PartLabel]:
    first = (start or 1) - 1
    shown = list(islice(labels, first, first + MAX_LABELS + 1))
    if not shown:
        raise FieldProblem(("start",), "is beyond the last label").as_problem()
    if len(shown) > MAX_LABELS and start is None:
        problem = "is required: a PDF has at most %(most)s labels, so request 1, then %(next)s, …"
        message = Message(problem, most=MAX_LABELS, next=MAX_LABELS + 1)
        raise FieldProblem(("start",), message).as_problem()
    return shown[:MAX_LABELS]
