"""The page of the offcut rack: what is in it, a field for the scanner, and one offcut at a time."""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.dashboard.frame.routes import FirstFields
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.orders.payload import validate_model
from kesin.workloads.optiplan.pages.orders import PATH, frame, readable_order_service
from kesin.workloads.optiplan.stock.offcut import FINAL, Offcut, OffcutFilter, OffcutGiven, OffcutState, Text
from kesin.workloads.optiplan.stock.service import OffcutAction, RackService

router = page_router()

PAGE: Final = f"{PATH}/rack"
MAX_CARDS: Final = 12  # of offcuts in doubt
MAX_ROWS: Final = 50
FAMILIES: Final[dict[OffcutState, str]] = {
    "FREE": "done",
    "RESERVED": "working",
    "IN_DOUBT": "person",
    "USED": "expired",
    "SCRAPPED": "expired",
}


class RackQuery(OffcutFilter):
    """The page's address: the list, the id that was scanned, and what was done last."""

    scan: Text = ""
    done: Text = ""


@router.get(PAGE, response_class=HTMLResponse)
def rack_page(ctx: Context, query: Annotated[RackQuery, Query()]) -> HTMLResponse:
    """The rack, and above it the offcut whose id was scanned."""
    readable_order_service(ctx)
    try:
        offcut = _rack(ctx).get(ctx.actor, query.scan) if query.scan.strip() else None
    except OrderProblem as unknown:
        return _render(ctx, query=query, problem=unknown)
    return _render(ctx, offcut, query, done=query.done)


def _rack(ctx: PageContext) -> RackService:
    return RackService(ctx.workload("optiplan"))


def _render(
    ctx: PageContext, offcut: Offcut | None = None, query: RackQuery | None = None, **outcome: Any
) -> HTMLResponse:
    where, page = query or RackQuery(), partial(_rack(ctx).page, ctx.actor)
    doubts, more_doubts = page(OffcutFilter(state="IN_DOUBT"), MAX_CARDS)
    offcuts, following = page(where, MAX_ROWS)
    return ctx.page(
        "optiplan/rack.html",
        offcut=offcut,
        may_change=offcut is not None and offcut.state not in FINAL,
        offcuts=offcuts,
        following=following,
        doubts=doubts,
        more_doubts=more_doubts,
        where=where,
        family=FAMILIES,
        made_key=secrets.token_hex(16),
        now=ctx.service.queues["optiplan"].now(),
        **outcome,
        **frame(ctx, "rack"),
    )


@router.post(PAGE)
def add_offcut(ctx: Context, fields: FirstFields) -> Response:
    """Add an offcut that was found."""
    given = {**_typed(fields, "length_mm", "width_mm", "thickness_mm")}
    given |= {name: fields.get(name, "").strip() for name in ("material", "color", "place")}
    given |= {"made_key": fields.get("made_key", ""), "trim_needed": "sawn" not in fields}
    try:
        offcut = _rack(ctx).add(ctx.actor, validate_model(OffcutGiven, given))
    except OrderProblem as problem:
        return _render(ctx, problem=problem, given=fields)
    return _redirect(offcut, "added")


@router.post(f"{PAGE}/{{offcut_id}}/{{action}}")
def change_offcut(ctx: Context, offcut_id: str, action: OffcutAction, fields: FirstFields) -> Response:
    """Change an offcut, and show it."""
    given = _typed(fields, "length_mm", "width_mm")
    given |= {name: text.strip() for name, text in fields.items() if name == "place"}
    try:
        return _redirect(_rack(ctx).act(ctx.actor, offcut_id, action, given), action)
    except OrderProblem as problem:
        return _render(ctx, _rack(ctx).get(ctx.actor, offcut_id), problem=problem)


def _redirect(offcut: Offcut, done: str) -> Response:
    return RedirectResponse(f"{PAGE}?scan={offcut.id}&done={done}", status_code=303)


def _typed(fields: Mapping[str, str], *names: str) -> dict[str, Any]:
    """Return the numbers of these fields, with a comma or a point; other texts as they are."""
    given: dict[str, Any] = {name: fields[name].strip() for name in names if name in fields}
    for name, text in given.items():
        with suppress(InvalidOperation):
            given[name] = Decimal(text.replace(",", "."))
    return given
