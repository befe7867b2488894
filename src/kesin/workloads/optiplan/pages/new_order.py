"""A new cutting order: typed part by part, or as the list the shop keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse, Response

from kesin.foundation.problems import Invalid
from kesin.web.auth import guarded_router
from kesin.web.dashboard.forms.schema_form import number_in, row_number
from kesin.web.dashboard.forms.uploads import Uploaded, WideForm
from kesin.web.dashboard.frame.page import Context, PageContext
from kesin.workloads.optiplan.pages.orders import PATH, desk_of, frame

if TYPE_CHECKING:
    from kesin.workloads.optiplan.errors import OrderProblem
    from kesin.workloads.optiplan.service import Created, OrderDesk

MOST_ROWS: Final = 200  # typed by hand; a longer order comes as a file
TEXTS: Final = ("material_code", "color")
NUMBERS: Final = ("thickness_mm", "length_cm", "width_cm", "quantity")
EDGES: Final = ("edge_up", "edge_lo", "edge_sx", "edge_dx")
LINES: Final = ("delik_kodu", "iidesc", "desc1")
COLUMNS: Final = ("id", "part_type", *TEXTS, *NUMBERS, "grain", *EDGES, *LINES)
KEPT: Final = ("part_type", *TEXTS, "thickness_mm", "grain")  # a new row is like the one above
HEADS: Final = ("order_id", "customer_phone", "customer_snapshot_name", "opti_mode")
PLATE: Final = ("width_mm", "height_mm")
_FIRST: Final = {"id": "P1", "part_type": "GOVDE", "thickness_mm": "18", "grain": "0"}


@dataclass(frozen=True, slots=True)
class OrderForm:
    """What was typed, text throughout."""

    heads: dict[str, str] = field(default_factory=dict)
    rows: tuple[dict[str, str], ...] = ()

    @classmethod
    def empty(cls) -> OrderForm:
        """With one row to begin with."""
        return cls({}, (_filled(_FIRST),))

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> OrderForm:
        """As a browser sends it: ``parts/0/length_cm``."""
        found: dict[int, dict[str, str]] = {}
        for name, text in fields.items():
            steps = name.split("/")
            if len(steps) == 3 and steps[0] == "parts" and steps[2] in COLUMNS:  # noqa: PLR2004
                number = row_number(steps[1])
                if number is not None:
                    found.setdefault(number, {})[steps[2]] = text
        rows = tuple(_filled(found[number]) for number in sorted(found))[:MOST_ROWS]
        heads = {name: fields.get(name, "") for name in (*HEADS, *PLATE)}
        return cls(heads, rows)

    def added(self) -> OrderForm:
        """With one more row, of the same board as the last."""
        if len(self.rows) >= MOST_ROWS:
            return self
        last = self.rows[-1] if self.rows else _filled(_FIRST)
        new = _filled({name: last[name] for name in KEPT} | {"id": f"P{len(self.rows) + 1}"})
        return OrderForm(self.heads, (*self.rows, new))

    def removed(self, number: int) -> OrderForm:
        """Without this row."""
        rows = tuple(row for n, row in enumerate(self.rows) if n != number)
        return OrderForm(self.heads, rows)

    def body(self) -> dict[str, Any]:
        """The order as it would be sent.

        What was left empty is left out; what is no number stays as it was typed, to be told.
        """
        told: dict[str, Any] = {
            "order_id": self.heads.get("order_id", "").strip(),
            "customer_phone": self.heads.get("customer_phone", "").strip(),
            "parts": [_part(row) for row in self.rows],
        }
        for name in ("customer_snapshot_name", "opti_mode"):
            if self.heads.get(name, "").strip():
                told[name] = self.heads[name].strip()
        plate = {name: number_in(self.heads.get(name, "").strip()) for name in PLATE}
        if any(value != "" for value in plate.values()):
            told["plate_size"] = plate
        return told


def _filled(row: Mapping[str, str]) -> dict[str, str]:
    return {name: row.get(name, "") for name in COLUMNS}


def _part(row: Mapping[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = {name: row[name].strip() for name in ("id", "part_type", *TEXTS)}
    told |= {name: number_in(row[name].strip()) for name in (*NUMBERS, "grain")}
    told |= {name: row[name].strip() for name in (*EDGES, *LINES) if row[name].strip()}
    return told


router = guarded_router(include_in_schema=False)

OFFERED: Final = 200  # customers in the list of phones


def _page(
    looking: PageContext,
    desk: OrderDesk,
    typed: OrderForm,
    *,
    problem: OrderProblem | None = None,
    sent: dict[str, str] | None = None,
) -> HTMLResponse:
    details = problem.details if problem else {}
    errors: dict[str, list[str]] = {}
    for one in details.get("fields", ()):
        errors.setdefault(one["field"], []).append(one["message"])
    customers, _ = desk.customers.page(limit=OFFERED)
    return looking.page(
        "optiplan_new.html",
        status=problem.status if problem else 200,
        form=typed,
        bands=_bands(desk),
        customers=customers,
        problem=problem,
        errors=errors,
        wrong_rows=details.get("rows", ()),
        sent=sent or {},
        most=MOST_ROWS,
        **frame(looking, "new"),
    )


def _bands(desk: OrderDesk) -> list[str]:
    from kesin.workloads.optiplan.workshop.rules import NO_BAND

    return [name for name in desk.workshop.rules().edge_mapping if name != NO_BAND]


@router.get(f"{PATH}/new", response_class=HTMLResponse)
def new_order_page(looking: Context) -> HTMLResponse:
    """A form with one part, and a place for a file."""
    desk = desk_of(looking)
    desk.may_create(looking.actor)
    return _page(looking, desk, OrderForm.empty())


@router.post(f"{PATH}/new/rows", response_class=HTMLResponse)
def change_order_rows(looking: Context, fields: WideForm) -> HTMLResponse:
    """The parts with one more or one less."""
    desk = desk_of(looking)
    desk.may_create(looking.actor)
    typed = OrderForm.read(fields)
    do, _, number = fields.get("do", "").partition(":")
    if do == "add":
        typed = typed.added()
    elif do == "remove" and (row := row_number(number)) is not None:
        typed = typed.removed(row)
    else:
        raise Invalid("say what to change: add or remove:N")
    return looking.page(
        "part_order_rows.html", form=typed, bands=_bands(desk), errors={}, most=MOST_ROWS, path=PATH
    )


@router.post(f"{PATH}/new")
def bring_order(looking: Context, fields: WideForm) -> Response:
    """Bring the order that was typed; what is wrong is told beside it."""
    from kesin.workloads.optiplan.errors import OrderProblem
    from kesin.workloads.optiplan.orders.payload import read_payload

    desk = desk_of(looking)
    desk.may_create(looking.actor)
    typed = OrderForm.read(fields)
    try:
        made = desk.create(looking.actor, read_payload(typed.body()))
    except OrderProblem as problem:
        return _page(looking, desk, typed, problem=problem)
    return _to_orders(made)


@router.post(f"{PATH}/import")
def import_order_list(looking: Context, sent: Uploaded) -> Response:
    """Bring the order in a list; all of its rows are good, or nothing is made."""
    from kesin.workloads.optiplan.errors import OrderProblem
    from kesin.workloads.optiplan.intake import order_of_file
    from kesin.workloads.optiplan.orders.order_list import ListDefaults
    from kesin.workloads.optiplan.orders.payload import FieldProblem, refused

    desk = desk_of(looking)
    desk.may_create(looking.actor)
    told = {name: value.strip()[:200] for name, value in sent.fields.items()}
    try:
        thickness = number_in(told.get("thickness_mm", ""))
        if isinstance(thickness, str) and thickness:
            raise refused([FieldProblem(("thickness_mm",), "must be a number of millimetres")])
        usual: dict[str, Any] = {
            "opti_mode": told.get("opti_mode") or None,
            "color": told.get("color") or None,
            "material_code": told.get("material_code") or None,
            "thickness_mm": Decimal(str(thickness)) if thickness != "" else None,
        }
        payload = order_of_file(
            sent.file_name,
            sent.data,
            order_id=told.get("order_id", ""),
            customer_phone=told.get("customer_phone") or None,
            rules=desk.workshop.rules(),
            defaults=ListDefaults(**usual),
        )
        made = desk.create(looking.actor, payload)
    except OrderProblem as problem:
        return _page(looking, desk, OrderForm.empty(), problem=problem, sent=told)
    return _to_orders(made)


def _to_orders(made: Created) -> Response:
    known = "" if made.new else "&known=1"
    return RedirectResponse(f"{PATH}?made={made.job.id}{known}", status_code=303)
