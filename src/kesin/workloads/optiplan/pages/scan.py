"""The pages behind a scanned label: the part in its order and on its board, or the offcut."""

from contextlib import suppress
from typing import Annotated, Final

from fastapi import Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.foundation.problems import Problem
from kesin.store.search import field_of
from kesin.web.dashboard.frame.page import Context, page_router
from kesin.workloads.optiplan.api.shop_files import SCAN_PATH, read_labels
from kesin.workloads.optiplan.labels.ids import PieceId, find_offcut_id, find_orders
from kesin.workloads.optiplan.pages.orders import PATH, frame, readable_order_service

router = page_router()

MAX_SCANNED: Final = 300
Scanned = Annotated[str, Query(max_length=MAX_SCANNED)]


@router.get(SCAN_PATH, response_class=HTMLResponse)
def scan_page(ctx: Context, text: Scanned = "") -> Response:
    """The field that a scanner types into; what it has typed is opened."""
    orders = readable_order_service(ctx)
    if piece := PieceId.parse(text):
        return RedirectResponse(f"{SCAN_PATH}/{piece}", status_code=303)
    if offcut := find_offcut_id(text):
        return RedirectResponse(f"{PATH}/rack?scan={offcut}", status_code=303)
    if len(found := find_orders(orders.queue, text.strip().upper())) == 1:  # from its papers
        return RedirectResponse(f"/dashboard/jobs/{found[0]}", status_code=303)
    return ctx.page("optiplan/scan.html", text=text, parts=[], piece=None, **frame(ctx, "scan"))


@router.get(f"{SCAN_PATH}/{{label}}", response_class=HTMLResponse)
def scanned_page(ctx: Context, label: str) -> Response:
    """The part with this id: what is on its label, and the drawing of its board."""
    piece = PieceId.parse(label)
    if piece is None:
        return scan_page(ctx, label[:MAX_SCANNED])
    orders = readable_order_service(ctx)
    parts = []
    for job_id in find_orders(orders.queue, piece.order):
        job = orders.readable_job(ctx.actor, job_id)
        given = field_of(job.payload, "order.parts")
        if not isinstance(given, list) or piece.part > len(given):
            continue
        found = None  # without a plan, or if its files are gone
        with suppress(Problem):
            labels = read_labels(orders, ctx.actor, job_id, ctx.language)
            found = next((each for each in labels if each.piece == piece), None)
        parts.append({"job": job, "name": given[piece.part - 1]["id"], "label": found})
    shown = {"text": label, "parts": parts, "piece": piece, **frame(ctx, "scan")}
    return ctx.page("optiplan/scan.html", status=200 if parts else 404, **shown)
