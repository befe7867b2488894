"""`kesin optiplan import` and `optimize`: an order from a file, to the queue or cut right here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kesin.foundation.problems import Invalid
from kesin.foundation.terminal import print_table, say, say_json, warn
from kesin.workloads.optiplan.cli.context import (
    AsJson,
    InLanguage,
    open_order_desk,
    open_workshop,
    operator,
)
from kesin.workloads.optiplan.cli.order_file import content, order_in
from kesin.workloads.optiplan.optimizer import (
    Conditions,
    Figures,
    Plan,
    Unplannable,
    figures,
    optimise,
    read_batch,
    write_plans,
)
from kesin.workloads.optiplan.optimizer.output.texts import Language
from kesin.workloads.optiplan.orders.order_list import ListDefaults
from kesin.workloads.optiplan.orders.payload import Mode
from kesin.workloads.optiplan.orders.spreadsheet import Unreadable, read_sheets
from kesin.workloads.optiplan.pipeline.transform import transform
from kesin.workloads.optiplan.pipeline.workbook import plain_letters, write_batches
from kesin.workloads.optiplan.pipeline.xlsx_template import SHEET, check_template
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.rules import Rules, rules_json

NOBODY: Final = ""  # the phone of an order that is only planned


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and what it comes to."""

    batch: str
    plan: Plan
    sums: Figures

    def record(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "material": self.plan.demand.material,
            "pieces": self.plan.demand.pieces,
            "boards": self.sums.boards,
            "least_boards": self.sums.least_boards,
            "yield_percent": round(100 * self.sums.yield_share, 1),
            "offcut_m2": round(self.sums.offcut_m2, 2),
            "cut_metres": round(self.sums.cut_metres, 1),
            "band_metres": {name: round(metres, 2) for name, metres in self.sums.band_metres},
        }


def planned(
    workshop: Workshop,
    files: Sequence[Path],
    out: Path,
    *,
    color: str | None = None,
    language: Language = "en",
) -> list[Planned]:
    """Plan import files or whole orders, and write XML, SVG and PDF for each batch.

    Raises Invalid with what cannot be cut; then nothing of that file is written.
    """
    rules = workshop.rules()
    conditions = Conditions.of_rules(rules_json(rules))
    made: list[Planned] = []
    stems: set[str] = set()
    try:
        with tempfile.TemporaryDirectory(prefix="kesin-optiplan-") as folder:
            for file in files:
                batches: dict[str, list[Plan]] = {}
                for batch in _batches(file, Path(folder), workshop, rules, color):
                    _add_stem(stems, batch.stem, file)
                    batches[batch.stem] = [optimise(one) for one in read_batch(batch, conditions)]
                for stem, plans in batches.items():
                    write_plans(out, stem, plans, language)
                    made += [Planned(stem, plan, figures(plan)) for plan in plans]
    except Unplannable as problem:
        raise Invalid(str(problem)) from None
    return made


def _add_stem(stems: set[str], stem: str, file: Path) -> None:
    """Two of one name would be one: the second would be planned and written as the first."""
    if stem in stems:
        raise Unplannable(f"{file}: another file of this name was given too")
    stems.add(stem)


def _batches(
    file: Path, folder: Path, workshop: Workshop, rules: Rules, color: str | None
) -> Iterator[Path]:
    """The import file itself; of an order, those it would be written into."""
    if _is_import_file(file):
        yield file
        return
    payload = order_in(
        file, order_id=None, phone=NOBODY, rules=rules, defaults=ListDefaults(color=color)
    )
    plate = payload.plate_size or rules.default_plate_size
    if plate is None:
        raise Invalid(f"{file} names no plate size and the rules have no defaultPlateSize")
    yield from write_batches(
        folder,
        plain_letters(file.stem),
        transform(payload, rules).batches,
        check_template(workshop.paths().template),
        plate=plate,
        kerf_mm=rules.kerf_mm,
    )


def _is_import_file(file: Path) -> bool:
    if file.suffix.lower() != ".xlsx":
        return False
    try:
        return SHEET in (one.name for one in read_sheets(content(file)))
    except Unreadable:
        return False


ListFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="An order: the list as XLSX or CSV, or JSON.")
]
Color = Annotated[
    str | None, typer.Option("--color", metavar="NAME", help="Where the list names none.")
]


def import_order(
    file: ListFile,
    *,
    order_id: Annotated[
        str, typer.Option("--order-id", metavar="ID", help="What the shop calls the order.")
    ],
    phone: Annotated[
        str | None,
        typer.Option("--phone", metavar="PHONE", help="The customer's; JSON has its own."),
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option("--mode", metavar="A|B|C", help="Who starts the optimiser.")
    ] = None,
    color: Color = None,
    as_json: AsJson = False,
) -> None:
    """Bring an order from a file into the queue.

    All rows are good or nothing is made. The same order again finds the job it has.
    """
    from kesin.workloads.optiplan.cli.order_file import order_in
    from kesin.workloads.optiplan.orders.order_list import ListDefaults

    with open_order_desk() as desk:
        payload = order_in(
            file,
            order_id=order_id,
            phone=phone,
            rules=desk.workshop.rules(),
            defaults=ListDefaults(opti_mode=mode, color=color),
        )
        made = desk.create(operator(), payload)
        known = desk.knows_customer(payload)
    pieces = sum(part.quantity for part in payload.parts)
    if as_json:
        told = {"id": made.job.id, "state": made.job.state, "new": made.new}
        say_json({**told, "pieces": pieces, "customer_known": known})
        return
    how = "is queued" if made.new else f"was there already, {made.job.state}"
    say(f"{made.job.id}: order {payload.order_id!r}, {pieces} pieces, {how}")
    if not known:
        warn("nobody has this phone: the order is held until the customer is added")


def optimize(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Import files for OptiPlanning, or whole orders."),
    ],
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where XML, SVG and PDF go.")
    ] = Path(),
    color: Color = None,
    lang: InLanguage = "en",
    as_json: AsJson = False,
) -> None:
    """Plan the cutting here and now, without a queue.

    Prints boards and yield, and writes an XML, an SVG and a PDF for each batch.
    """
    made = [
        one.record() for one in planned(open_workshop(), files, out, color=color, language=lang)
    ]
    if as_json:
        say_json(made)
        return
    print_table(
        ("batch", "material", "pieces", "boards", "at least", "yield %", "band m"),
        [
            (
                one["batch"],
                one["material"],
                one["pieces"],
                one["boards"],
                one["least_boards"],
                one["yield_percent"],
                round(sum(one["band_metres"].values()), 1),
            )
            for one in made
        ],
    )
    say(f"XML, SVG and PDF are in {out}")
