"""The page of a new cutting order: typed part by part, or uploaded as a list."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlencode

from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.foundation.problems import Invalid
from kesin.web.dashboard.forms.schema_form import parse_number, parse_row_number
from kesin.web.dashboard.forms.uploads import Upload, Uploaded, WideForm
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.workloads.optiplan.api.trial import TRIALS, PlanFigures, plan_order
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.orders.order_list import ListDefaults
from kesin.workloads.optiplan.orders.payload import FieldProblem, read_payload
from kesin.workloads.optiplan.pages.orders import PATH, frame, order_service
from kesin.workloads.optiplan.service import EnqueuedOrder, OrderService, read_order_list
from kesin.workloads.optiplan.workshop.rules import NO_BAND

MAX_ROWS: Final = 200  # in the form; longer orders are uploaded
MAX_CELL_CHARS: Final = 250
TEXTS: Final = ("material_code", "color")
NUMBERS: Final = ("thickness_mm", "length_cm", "width_cm", "quantity")
EDGES: Final = ("edge_up", "edge_lo", "edge_sx", "edge_dx")
TEXT_LINES: Final = ("delik_kodu", "iidesc", "desc1")
COLUMNS: Final = ("id", "part_type", *TEXTS, *NUMBERS, "grain", *EDGES, *TEXT_LINES)
# Copied from the row above into a new row.
COPIED_COLUMNS: Final = ("part_type", *TEXTS, "thickness_mm", "grain")
HEADS: Final = ("order_id", "customer_phone", "customer_snapshot_name", "opti_mode")
PLATE: Final = ("width_mm", "height_mm")
CHOICES: Final = ("saw_profile", "effort", "use_rack", "board")  # how the order is planned
RACK: Final = {"yes": True, "no": False}
_NO_ROW: Final = dict.fromkeys(COLUMNS, "")
_FIRST_ROW: Final = _NO_ROW | {"id": "P1", "part_type": "GOVDE", "thickness_mm": "18", "grain": "0"}


@dataclass(frozen=True, slots=True)
class OrderForm:
    """The form as typed; it begins with one row."""

    heads: dict[str, str] = field(default_factory=dict)
    rows: tuple[dict[str, str], ...] = (_FIRST_ROW,)

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> Self:
        """Read the submitted fields, such as ``parts/0/length_cm``."""
        rows_by_number: dict[int, dict[str, str]] = {}
        for name, text in fields.items():
            steps = name.split("/")
            if len(steps) == 3 and steps[0] == "parts" and steps[2] in COLUMNS:  # noqa: PLR2004
                number = parse_row_number(steps[1])
                if number is not None:
                    rows_by_number.setdefault(number, {})[steps[2]] = text
        rows = [_NO_ROW | row for _, row in sorted(rows_by_number.items())]
        heads = {name: fields.get(name, "") for name in (*HEADS, *PLATE, *CHOICES)}
        return cls(heads, tuple(rows[:MAX_ROWS]))

    def with_row(self) -> Self:
        """The form with another row, of the same board as the last."""
        last = self.rows[-1] if self.rows else _FIRST_ROW
        copied = {name: last[name] for name in COPIED_COLUMNS}
        return self._with_inserted(len(self.rows), _NO_ROW | copied)

    def with_copy(self, number: int) -> Self:
        known = number < len(self.rows)
        return self._with_inserted(number + 1, self.rows[number]) if known else self

    def _with_inserted(self, at: int, row: dict[str, str]) -> Self:
        if len(self.rows) >= MAX_ROWS:
            return self
        new = row | {"id": f"P{len(self.rows) + 1}"}
        return replace(self, rows=(*self.rows[:at], new, *self.rows[at:]))

    def with_block(self, number: int, column: str, block: str) -> Self:
        """The form with lines of cells, as a spreadsheet copies them, from this cell on."""
        form, columns = self, COLUMNS[COLUMNS.index(column) :]
        for n, line in enumerate(block.rstrip("\r\n").splitlines(), number):
            form = form.with_row() if n >= len(form.rows) else form
            if n >= len(form.rows):
                break
            cells = [cell.strip()[:MAX_CELL_CHARS] for cell in line.split("\t")]
            row = {**form.rows[n], **dict(zip(columns, cells, strict=False))}
            row["part_type"] = row["part_type"].upper().replace("Ö", "O")
            form = replace(form, rows=(*form.rows[:n], row, *form.rows[n + 1 :]))
        return form

    def without_row(self, number: int) -> Self:
        return replace(self, rows=(*self.rows[:number], *self.rows[number + 1 :]))

    def body(self) -> dict[str, Any]:
        """The order as a body without empty fields; what is no number stays as typed."""
        heads = {name: self.heads.get(name, "").strip() for name in (*HEADS, *PLATE)}
        order: dict[str, Any] = {name: heads[name] for name in HEADS if heads[name]}
        order = {"order_id": "", "customer_phone": "", "parts": [*map(_part, self.rows)]} | order
        if any(heads[name] for name in PLATE):
            order["plate_size"] = {name: parse_number(heads[name]) for name in PLATE}
        typed = {name: self.heads.get(name) for name in CHOICES}
        return order | {name: RACK.get(text, text) for name, text in typed.items() if text}


def _part(row: Mapping[str, str]) -> dict[str, Any]:
    part: dict[str, Any] = {name: row[name].strip() for name in ("id", "part_type", *TEXTS)}
    typed = {name: row[name].strip() for name in (*NUMBERS, "grain")}
    part |= {name: parse_number(text) for name, text in typed.items() if text}
    part |= {name: row[name].strip() for name in (*EDGES, *TEXT_LINES) if row[name].strip()}
    return part


router = page_router()

MAX_CUSTOMERS: Final = 200  # in the list of phones


def _page(
    ctx: PageContext,
    orders: OrderService,
    typed: OrderForm,
    *,
    problem: OrderProblem | None = None,
    sent: dict[str, str] | None = None,
) -> HTMLResponse:
    customers, _ = orders.customer_page(ctx.actor, limit=MAX_CUSTOMERS)
    rules = orders.workshop.rules()
    return ctx.page(
        "optiplan/new_order.html",
        form=typed,
        bands=_bands(orders),
        customers=customers,
        own={"saw_profile": rules.saw_profiles, "board": dict.fromkeys(board.code for board in rules.boards)},
        problem=problem,
        wrong_rows=problem.details.get("rows", ()) if problem else (),
        sent=sent,
        most=MAX_ROWS,
        **frame(ctx, "new"),
    )


def _bands(orders: OrderService) -> dict[str, Decimal | None]:
    """The bands of the rules with their thickness in millimetres."""
    bands = orders.workshop.rules().edge_mapping
    return {name: thickness for name, thickness in bands.items() if name != NO_BAND}


@router.get(f"{PATH}/new", response_class=HTMLResponse)
def new_order_page(ctx: Context) -> HTMLResponse:
    orders = order_service(ctx)
    orders.require_create(ctx.actor)
    return _page(ctx, orders, OrderForm())


@router.post(f"{PATH}/new/rows", response_class=HTMLResponse)
def change_order_rows(ctx: Context, fields: WideForm) -> HTMLResponse:
    orders = order_service(ctx)
    orders.require_create(ctx.actor)
    typed = OrderForm.read(fields)
    do, _, cell = fields.get("do", "").partition(":")
    number, _, column = cell.partition("/")
    row = parse_row_number(number)
    if do == "add":
        typed = typed.with_row()
    elif do == "paste" and row is not None and column in COLUMNS:
        typed = typed.with_block(row, column, fields.get("block", ""))
    elif do in {"copy", "remove"} and row is not None:
        typed = typed.with_copy(row) if do == "copy" else typed.without_row(row)
    else:
        raise Invalid("specify the change: add, copy:N, remove:N or paste:N/COLUMN")
    return ctx.page("optiplan/part_order_rows.html", form=typed, bands=_bands(orders), most=MAX_ROWS, path=PATH)


@router.post(f"{PATH}/new")
def submit_order(ctx: Context, fields: WideForm) -> Response:
    """Create the typed order; problems are shown beside their fields."""
    orders = order_service(ctx)
    orders.require_create(ctx.actor)
    of_trial = parse_qsl(fields.get("chosen", ""), keep_blank_values=True)
    typed = OrderForm.read({**fields, **{name: value for name, value in of_trial if name in CHOICES}})
    try:
        created = orders.create_order(ctx.actor, read_payload(typed.body()))
    except OrderProblem as problem:
        return _page(ctx, orders, typed, problem=problem)
    return _redirect_to_orders(created)


@router.post(f"{PATH}/new/try", response_class=HTMLResponse)
async def try_order(ctx: Context, fields: WideForm) -> HTMLResponse:
    """A line of the comparison: the plan of the order as it is typed, or why it has none."""
    return await TRIALS.run(_try_order, ctx, OrderForm.read(fields))


def _try_order(ctx: PageContext, typed: OrderForm) -> HTMLResponse:
    orders, order = order_service(ctx), typed.body()
    orders.require_create(ctx.actor)
    chosen = {name: typed.heads[name] for name in CHOICES}
    line = partial(ctx.page, "optiplan/part_tried.html", chosen=chosen, place=urlencode(chosen))
    unnamed = {} if order["order_id"] else {"order_id": "–"}  # the number may be chosen later
    try:
        plans = plan_order(orders, read_payload(order | unnamed), ctx.language)
    except OrderProblem as problem:
        return line(refused=problem)
    return line(figures=PlanFigures.of(plans))


@router.post(f"{PATH}/import")
async def import_order_list(ctx: Context, sent: Uploaded) -> Response:
    """Create the order from an uploaded list; if any row is invalid, nothing is created."""
    return await ctx.service.imports.run(_import_order_list, ctx, sent)


def _import_order_list(ctx: PageContext, sent: Upload) -> Response:
    orders = order_service(ctx)
    orders.require_create(ctx.actor)
    fields = {name: value.strip()[:200] for name, value in sent.fields.items()}
    try:
        thickness = parse_number(fields.get("thickness_mm", ""))
        if isinstance(thickness, str) and thickness:
            raise FieldProblem(("thickness_mm",), "must be a number of millimetres").as_problem()
        names = ("opti_mode", "color", "material_code")
        defaults: dict[str, Any] = {name: fields.get(name) or None for name in names}
        if thickness != "":
            defaults["thickness_mm"] = Decimal(str(thickness))
        read = partial(read_order_list, orders.workshop, sent.file_name, sent.data)
        order_id, phone = fields.get("order_id", ""), fields.get("customer_phone") or None
        payload = read(order_id=order_id, customer_phone=phone, defaults=ListDefaults(**defaults))
        created = orders.create_order(ctx.actor, payload)
    except OrderProblem as problem:
        return _page(ctx, orders, OrderForm(), problem=problem, sent=fields)
    return _redirect_to_orders(created)


def _redirect_to_orders(created: EnqueuedOrder) -> Response:
    duplicate = "" if created.new else "&known=1"
    return RedirectResponse(f"{PATH}?made={created.job.id}{duplicate}", status_code=303)
