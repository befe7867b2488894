"""`kesin optiplan import` and `optimize`: enqueue an order from a file, or plan it locally."""

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Final

from kesin.foundation.problems import Invalid
from kesin.foundation.terminal import answer, argument, option, print_table, say, say_json, visible, warn
from kesin.workloads.common.advice import Language
from kesin.workloads.common.cli import JsonOption, local_operator, open_workload, read_settings
from kesin.workloads.optiplan.customers import normalise_phone
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.optimizer.input import read_batch
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Unplannable
from kesin.workloads.optiplan.optimizer.output.plan_files import write_plans
from kesin.workloads.optiplan.optimizer.output.statistics import compute_statistics
from kesin.workloads.optiplan.optimizer.run import PlanningRun
from kesin.workloads.optiplan.orders.order_list import BadOrderList, ListDefaults
from kesin.workloads.optiplan.orders.payload import EffortName, OptiMode, Payload, read_payload
from kesin.workloads.optiplan.orders.safe_xlsx import UnreadableSpreadsheet
from kesin.workloads.optiplan.orders.spreadsheet import read_sheets
from kesin.workloads.optiplan.pipeline.workbook import plain_letters, write_order
from kesin.workloads.optiplan.pipeline.xlsx_template import SHEET
from kesin.workloads.optiplan.service import QUEUE, OrderService, read_order_list
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.plan_settings import PlanSettings
from kesin.workloads.optiplan.workshop.rules import Rules, read_rules, rules_json

MAX_FILE_BYTES: Final = 10_000_000


def read_order(
    file: Path, workshop: Workshop, defaults: ListDefaults, *, order_id: str | None, phone: str | None
) -> Payload:
    """Read an order, with ``phone`` if given; raises Invalid with every bad row of a list."""
    data = read_file(file)
    if file.suffix.lower() == ".json":
        return _read_json_order(file, data, order_id, phone)
    if phone is None:
        raise Invalid("give the customer's phone number with --phone")
    names = {"order_id": order_id or file.stem, "customer_phone": phone}
    try:
        return read_order_list(workshop, file.name, data, **names, defaults=defaults)
    except BadOrderList as problem:
        lines = [f"  {visible(str(row_problem))}" for row_problem in problem.problems]
        raise Invalid("\n".join([f"{file}: nothing was created", *lines])) from None


def read_file(file: Path) -> bytes:
    """Read a file that the user names; raises Invalid."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise Invalid(f"{file} cannot be read: {problem.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise Invalid(f"{file} is larger than {MAX_FILE_BYTES} bytes")
    return data


def _read_json_order(file: Path, data: bytes, order_id: str | None, phone: str | None) -> Payload:
    try:
        body: Any = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise Invalid(f"{file} is not JSON: {problem}") from None
    if not isinstance(body, dict):
        raise Invalid(f"{file} must contain a JSON object with an order")
    body = {"order_id": order_id or file.stem, **body}
    if order_id is not None and body["order_id"] != order_id:
        raise Invalid(f"{file} has the order {body['order_id']!r}, but --order-id is {order_id!r}")
    return read_payload({**body, "customer_phone": phone} if phone else body)


def plan_files(
    workshop: Workshop, files: Sequence[Path], out: Path, color: str | None, language: Language, **chosen: str | None
) -> list[dict[str, Any]]:
    """Plan batches or orders, and write XML, SVG and PDF, but nothing for a bad file or for two of one name.

    ``chosen`` replaces rules, and these fields of all orders.
    """
    choices = {name: value for name, value in chosen.items() if value is not None}
    rules, run = read_rules(rules_json(workshop.rules()) | choices), PlanningRun()
    plan_defaults = PlanSettings.of(rules)

    def read(file: Path) -> Payload:
        defaults = ListDefaults(color=color)
        order = read_order(file, workshop, defaults, order_id=None, phone="")  # only planned
        return order.model_copy(update=choices)

    records: list[dict[str, Any]] = []
    stems: set[str] = set()
    try:
        with tempfile.TemporaryDirectory(prefix="kesin-optiplan-") as folder:
            imported = [(file, _import_files(file, Path(folder), workshop, rules, read)) for file in files]
            for file, batches in imported:
                for batch in batches:
                    if batch.stem in stems:  # the second would replace the first
                        raise Invalid(f"{file}: another file has the same name")
                    stems.add(batch.stem)
            for _, batches in imported:
                planned = [(batch.stem, list(map(run.plan, read_batch(batch, plan_defaults)))) for batch in batches]
                for stem, plans in planned:
                    write_plans(out, stem, plans, language, rules.saw().machine_files)
                    records += [_plan_record(stem, plan) for plan in plans]
    except Unplannable as problem:
        raise Invalid(str(problem)) from None
    return records


def _plan_record(batch: str, plan: CuttingPlan) -> dict[str, Any]:
    sums = compute_statistics(plan)
    return {
        "batch": batch,
        "material": plan.demand.material,
        "pieces": plan.demand.pieces,
        "boards": plan.boards,
        "least_boards": plan.least_boards,
        "yield_percent": round(100 * sums.yield_share, 1),
        "offcut_m2": round(sums.offcut_m2, 2),
        "cut_metres": round(sums.cut_metres, 1),
        "band_metres": {name: round(metres, 2) for name, metres in sums.band_metres},
    }


def _import_files(
    file: Path, folder: Path, workshop: Workshop, rules: Rules, read: Callable[[Path], Payload]
) -> list[Path]:
    """Return an import file itself, or the import files written for an order."""
    with suppress(UnreadableSpreadsheet):
        if file.suffix.lower() == ".xlsx" and SHEET in read_sheets(read_file(file)):
            return [file]
    order, paths = read(file), workshop.paths()
    try:
        return write_order(folder, plain_letters(file.stem), order, rules, paths)
    except OrderProblem as problem:
        raise Invalid(f"{file}: {problem.message}") from None


Files = Annotated[list[Path], argument("FILE", "OptiPlanning import files, or orders.")]
Color = Annotated[str | None, option("NAME", "The colour for parts whose rows have no colour.")]
Phone = Annotated[str | None, option("PHONE", "The customer's phone number; optional for JSON.")]
Lang = Annotated[Language, option("en|tr", "The language of drawings and advice.")]


def import_order(
    file: Annotated[Path, argument("FILE", "The order, as an XLSX or CSV list or as JSON.")],
    *,
    order_id: Annotated[str, option("ID", "The workshop's order number.")],
    phone: Phone = None,
    mode: Annotated[OptiMode | None, option("A|B|C", "How the optimiser is started.")] = None,
    color: Color = None,
    as_json: JsonOption = False,
) -> None:
    """Enqueue an order from a file.

    If any row is wrong, nothing is enqueued. If the order already has a job, that job is shown.
    """
    with open_workload(QUEUE) as context:
        service = OrderService(context)
        defaults = ListDefaults(opti_mode=mode, color=color)
        payload = read_order(file, service.workshop, defaults, order_id=order_id, phone=phone)
        enqueued = service.create_order(local_operator(), payload)
        phone = normalise_phone(payload.customer_phone)
        customer_known = service.customers.find(phone) is not None
    pieces = sum(part.quantity for part in payload.parts)
    body = {"id": enqueued.job.id, "state": enqueued.job.state, "new": enqueued.new}
    how = "is queued" if enqueued.new else f"already existed, {enqueued.job.state}"
    text = f"{enqueued.job.id}: order {payload.order_id!r}, {pieces} pieces, {how}"
    answer({**body, "pieces": pieces, "customer_known": customer_known}, text, as_json=as_json)
    if not (customer_known or as_json):
        warn("no customer has this phone number: the order will be held until the customer is added")


def optimize(
    files: Files,
    *,
    out: Annotated[Path, option("DIR", "The folder for the XML, SVG and PDF files.")] = Path(),
    color: Color = None,
    lang: Lang = "en",
    effort: Annotated[EffortName | None, option("quick|normal|thorough", "How thorough the search is.")] = None,
    profile: Annotated[str | None, option("NAME", "The name of a saw profile in the rules.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Create cutting plans without a queue.

    Prints the boards and the yield, and writes an XML, an SVG and a PDF for each batch.
    """
    chosen = {"effort": effort, "saw_profile": profile}
    records = plan_files(Workshop(read_settings()), files, out, color, lang, **chosen)
    if as_json:
        say_json(records)
        return
    heads = ("batch", "material", "pieces", "boards", "at least", "yield %", "band m")
    figures = ("batch", "material", "pieces", "boards", "least_boards", "yield_percent")
    bands = [round(sum(record["band_metres"].values()), 1) for record in records]
    rows = zip(map(itemgetter(*figures), records), bands, strict=True)
    print_table(heads, [(*row, metres) for row, metres in rows])
    say(f"XML, SVG and PDF are in {out}")
