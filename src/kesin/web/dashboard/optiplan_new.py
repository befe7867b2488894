"""A new cutting order: typed part by part, or as the list the shop keeps."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse, Response

from kesin.foundation.problems import Invalid
from kesin.web.auth import guarded_router
from kesin.web.dashboard.optiplan_page import PATH, desk_of, frame
from kesin.web.dashboard.order_form import MOST_ROWS, OrderForm
from kesin.web.dashboard.schema_form import number_in, row_number
from kesin.web.dashboard.uploads import Uploaded, WideForm
from kesin.web.dashboard.view import Looker, Looking

if TYPE_CHECKING:
    from kesin.workloads.optiplan.codes import OrderProblem
    from kesin.workloads.optiplan.order_desk import Created, OrderDesk

router = guarded_router(include_in_schema=False)

OFFERED: Final = 200  # customers in the list of phones


def _page(
    looking: Looker,
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
    from kesin.workloads.optiplan.rules import NO_BAND

    return [name for name in desk.workshop.rules().edge_mapping if name != NO_BAND]


@router.get(f"{PATH}/new", response_class=HTMLResponse)
def new_order_page(looking: Looking) -> HTMLResponse:
    """A form with one part, and a place for a file."""
    desk = desk_of(looking)
    desk.may_create(looking.actor)
    return _page(looking, desk, OrderForm.empty())


@router.post(f"{PATH}/new/rows", response_class=HTMLResponse)
def change_order_rows(looking: Looking, fields: WideForm) -> HTMLResponse:
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
def bring_order(looking: Looking, fields: WideForm) -> Response:
    """Bring the order that was typed; what is wrong is told beside it."""
    from kesin.workloads.optiplan.codes import OrderProblem
    from kesin.workloads.optiplan.payload import read_payload

    desk = desk_of(looking)
    desk.may_create(looking.actor)
    typed = OrderForm.read(fields)
    try:
        made = desk.create(looking.actor, read_payload(typed.body()))
    except OrderProblem as problem:
        return _page(looking, desk, typed, problem=problem)
    return _to_orders(made)


@router.post(f"{PATH}/import")
def import_order_list(looking: Looking, sent: Uploaded) -> Response:
    """Bring the order in a list; all of its rows are good, or nothing is made."""
    from kesin.workloads.optiplan.codes import OrderProblem
    from kesin.workloads.optiplan.importing import order_of_file
    from kesin.workloads.optiplan.orders import ListDefaults
    from kesin.workloads.optiplan.payload import FieldProblem, refused

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
