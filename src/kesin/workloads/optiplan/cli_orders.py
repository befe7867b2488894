"""`kesin optiplan import` and `optimize`: an order from a file, to the queue or cut right here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kesin.foundation.terminal import print_table, say, say_json, warn
from kesin.workloads.optiplan.cli_desk import (
    AsJson,
    InLanguage,
    open_order_desk,
    open_workshop,
    operator,
)
from kesin.workloads.optiplan.payload import Mode

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
    from kesin.workloads.optiplan.order_files import order_in
    from kesin.workloads.optiplan.orders import ListDefaults

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
    from kesin.workloads.optiplan.planning import planned

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
