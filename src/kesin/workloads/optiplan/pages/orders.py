"""The page of cutting orders: held orders first, then all of them, and their actions."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.engine.access.commands import JobDetails
from kesin.engine.access.listing import search_jobs
from kesin.engine.access.masking import MASK
from kesin.foundation.messages import recorded_message
from kesin.foundation.problems import Forbidden, Problem
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Job
from kesin.store.records import Filter
from kesin.store.search import field_of
from kesin.web.dashboard.frame.page import Context, JobAction, PageContext, page_router
from kesin.web.dashboard.frame.routes import FirstFields
from kesin.web.dashboard.jobs.page import possible_moves
from kesin.web.dashboard.queues import listing
from kesin.web.dashboard.state_groups import state_groups
from kesin.workloads.optiplan.artifacts import JobArtifacts
from kesin.workloads.optiplan.customers import WORKLOAD, normalise_phone
from kesin.workloads.optiplan.errors import ADVICE, OptiCode, OrderProblem
from kesin.workloads.optiplan.lifecycle import BEFORE_DELIVERY, CANCEL_REQUESTED, REISSUED
from kesin.workloads.optiplan.optimizer.output.xml import MARK
from kesin.workloads.optiplan.pipeline import shared_folder
from kesin.workloads.optiplan.pipeline.shared_folder import FolderEntry, FolderUnavailable
from kesin.workloads.optiplan.pipeline.waiting import WaitingFor, waiting_for
from kesin.workloads.optiplan.service import OrderService

FOLDER_CACHE_S: Final = 3.0


@lru_cache(maxsize=4)
def _exported_files(_moment: int, folder: Path) -> Sequence[FolderEntry]:
    """The folder's files, listed once in a moment; none if it cannot be read."""
    with suppress(OSError):
        return shared_folder.list_plain_files(folder)
    return ()


def is_ready(orders: OrderService, job: Job) -> bool:
    """Whether an operator's plan for the order is in the export folder."""
    moment = int(time.monotonic() // FOLDER_CACHE_S)
    return orders.is_ready_to_approve(job, partial(_exported_files, moment))


router = page_router()

PATH: Final = "/dashboard/optiplan"
MAX_CARDS: Final = 12  # of orders that wait for someone
STEP: Final = 25  # orders that are read at a time
CHANGED: Final = {"HX-Trigger": json.dumps({"orders-changed": "", "kesin:forget": ""})}
ON_THE_WAY: Final = frozenset({*BEFORE_DELIVERY, "HOLD"})

OrderAction = Literal["approve", "retry", "reissue", "cancel"]


@dataclass(frozen=True, slots=True)
class OrderRow:
    """A row of the list, from what is stored of an order."""

    job: Job
    order_id: str
    customer: str
    mode: str
    revision: int
    parts: int
    has_plan: bool
    actions: tuple[OrderAction, ...]
    ready: bool = False
    unknown: bool = False  # its customer is unknown: approving would hold it again
    known: bool = False  # its customer was unknown, and is known now
    means: str = ""
    act: str = ""
    waits: WaitingFor | None = None

    @property
    def needs_you(self) -> bool:
        """Whether it waits for a person: held, or failed and neither cancelled nor reissued."""
        failed = self.job.state == "FAILED" and self.job.error_code != OptiCode.CANCELLED
        return self.job.state == "HOLD" or (failed and "reissue" in self.actions)

    @property
    def unsure(self) -> bool:
        """Whether approving it needs a confirmation: it waits for its XML, and there is none."""
        held_for_xml = self.job.error_code == OptiCode.OPERATOR_TRIGGER_REQUIRED
        return self.job.state == "HOLD" and held_for_xml and not self.ready

    @property
    def message(self) -> str:
        return recorded_message(self.job.error_message, self.job.note)


def may_see_orders(ctx: PageContext) -> bool:
    sees_all = ctx.commands.visible_sites(ctx.actor, WORKLOAD) is None
    return ctx.actor.has("optiplan") or (ctx.actor.has("read") and sees_all)


def order_service(ctx: PageContext) -> OrderService:
    return OrderService(ctx.workload("optiplan"))


def readable_order_service(ctx: PageContext) -> OrderService:
    """The order service, for users who may see orders; others are refused with an audit line."""
    orders = order_service(ctx)
    if not may_see_orders(ctx):
        commands = orders.context.commands
        if ctx.actor.has("read"):
            commands.queue(ctx.actor, "optiplan", "read", "read")
        commands.accounts.require(ctx.actor, "optiplan", "optiplan.read", queue="optiplan")
    return orders


def frame(ctx: PageContext, here: str) -> dict[str, Any]:
    return {
        "path": PATH,
        "here": here,
        "may_create": ctx.actor.has("optiplan"),
        "may_operate": ctx.actor.has("operate") and may_see_orders(ctx),
        "may_read_rules": ctx.actor.has("read"),
    }


@router.get(PATH, response_class=HTMLResponse)
def orders_page(
    ctx: Context,
    made: Annotated[str, Query(max_length=64)] = "",
    known: Literal["", "1"] = "",
    part: Literal["", "orders", "more"] = "",
) -> HTMLResponse:
    template = "optiplan/orders.html"
    if part or ctx.in_part:
        template = f"optiplan/part_{part or 'orders'}.html"
    values = _order_list(ctx, ctx.request.query_params if part == "more" else listing.NONE)
    return ctx.page(template, made=made, known=known, **values)


@router.post(f"{PATH}/renewal", response_class=HTMLResponse)
def renew_orders(ctx: Context, sent: FirstFields) -> HTMLResponse:
    return ctx.page("optiplan/part_orders.html", **_order_list(ctx, sent))


def _order_list(ctx: PageContext, sent: Mapping[str, str]) -> dict[str, Any]:
    orders = readable_order_service(ctx)
    given, order = ctx.request.query_params, listing.order_of(ctx)
    states, counts = orders.queue.lifecycle.state, orders.queue.totals().states
    state, text = given.get("state", ""), listing.text_of(given, "text")
    where = Filter((state,) if state in states else (), text=text or None, oldest_first=bool(order))
    total = None if text else sum(counts.get(name, 0) for name in where.states or counts)
    if orders.owns_orders(ctx.actor):
        source = listing.all_jobs(ctx, orders.queue, where, total)
    else:
        look: dict[str, Any] = {"reveal": "everything", "same_look": True}
        search = search_jobs(ctx.commands, ctx.actor, orders.queue.name, where)
        source = listing.visible_jobs(ctx, orders.queue.name, search, total, **look)
    held = orders.jobs(ctx.actor, state="HOLD", limit=MAX_CARDS, same_look=True)
    failed = orders.jobs(ctx.actor, state="FAILED", limit=MAX_CARDS, same_look=True)
    rows = (order_row(ctx, orders, job) for job in (*held.jobs, *failed.jobs))
    waiting = [row for row in rows if row.needs_you]
    fields = {"state": state, "text": text, "order": order}
    return {
        "listing": listing.shown_rows(ctx, source, sent, STEP),
        "line_of": partial(order_row, ctx, orders),
        "query": partial(listing.query_of, fields),
        "waiting": waiting[:MAX_CARDS],
        "waiting_count": counts.get("HOLD", 0) + len(waiting) - len(held.jobs),
        "more_waiting": len(waiting) > MAX_CARDS or held.cursor or failed.cursor,
        "counts": {name: counts.get(name, 0) for name in states},
        **fields,
        "family": state_groups(orders.queue.lifecycle),
        "now": orders.queue.now(),
        **frame(ctx, "orders"),
    }


def order_row(ctx: PageContext, orders: OrderService, job: Job) -> OrderRow:
    field = partial(field_of, job.payload)
    parts = field("order.parts")
    advice = ADVICE.find(job.error_code, language=ctx.language) if job.error_code else None
    means, act = (advice.means, advice.act) if advice else ("", "")
    customer = _missing_customer(orders, job)
    if customer == "known":
        means = ctx.say("The customer was unknown when the order arrived but is known now.")
        act = ctx.say("Approve the order.")
    return OrderRow(
        job,
        str(field("order.order_id") or "–"),
        str(field("order.customer_snapshot_name") or ""),
        str(field("mode") or ""),
        int(field("revision") or 1),
        len(parts) if isinstance(parts, list) else 0,
        bool(orders.progress(job).xml),
        _order_actions(orders.queue.lifecycle, job),
        is_ready(orders, job),
        customer == "unknown",
        customer == "known",
        means,
        act,
        waiting_for(job),
    )


def _missing_customer(orders: OrderService, job: Job) -> Literal["", "unknown", "known"]:
    """Whether the customer that a held order waits for is known by now."""
    if job.state != "HOLD" or job.error_code != OptiCode.CRM_NO_MATCH:
        return ""
    written = str(field_of(job.payload, "order.customer_phone") or "")
    if not (phone := "" if MASK in written else normalise_phone(written)):
        return ""
    return "unknown" if orders.customers.find(phone) is None else "known"


def _order_actions(lifecycle: Lifecycle, job: Job) -> tuple[OrderAction, ...]:
    """The actions to offer; the order service decides."""
    state, flags, bit = job.state, job.flags, lifecycle.flag_bit
    offered: dict[OrderAction, bool] = {
        "approve": state == "HOLD",
        "retry": state == "FAILED" and bool(possible_moves(lifecycle, job, "retry", job.moved_at)),
        "reissue": state in {"FAILED", "DONE"} and not flags & bit(REISSUED),
        "cancel": state in ON_THE_WAY and not flags & bit(CANCEL_REQUESTED),
    }
    return tuple(action for action, possible in offered.items() if possible)


def job_actions(ctx: PageContext, history: JobDetails) -> list[JobAction]:
    if not frame(ctx, "")["may_operate"]:
        return []
    orders = order_service(ctx)
    # Masked, the order would not say whether its customer is known; only that is read here.
    row = order_row(ctx, orders, orders.queue.job(history.job.id) or history.job)
    helpful = next((one for one in row.actions if one != "cancel"), "")
    hint = ctx.say("XML found: ready to approve") if row.ready else ""
    if row.unsure:
        hint = ctx.say("The order's XML is not in the export folder or is not well-formed.")
    offered = [
        JobAction(
            ctx.say(action.capitalize()),
            f"{PATH}/orders/{row.job.id}/{action}",
            primary=action == helpful and row.job.state != "DONE",
            destructive=action == "cancel",
            hint=hint if action == "approve" else "",
            # Nothing is left to ask if its XML is there, or its customer.
            fields={"now": "1"} if action == "approve" and (row.ready or row.known) else {},
        )
        for action in row.actions
        if not (row.unknown and action == "approve")  # the form of the customer approves it too
    ]
    if is_drawn(orders, row.job):
        path, waits = f"/jobs/{row.job.id}/plan.pdf?lang={ctx.language}", row.needs_you
        offered.append(JobAction(ctx.say("Print the plan"), path, is_link=True, primary=not waits))
    return offered


def is_drawn(orders: OrderService, job: Job) -> bool:
    """Whether the order has a plan that Kesin draws; other programs draw theirs themselves."""
    try:
        files = JobArtifacts(orders.workshop.paths(), job, orders.progress(job)).read_xml_files()
    except (Problem, FolderUnavailable):
        return False
    return all(MARK in data[:200] for data in files.values())


@router.get(f"{PATH}/orders/{{job_id}}/{{action}}", response_class=HTMLResponse)
def order_dialog(ctx: Context, job_id: str, action: OrderAction) -> HTMLResponse:
    orders = readable_order_service(ctx)
    if not frame(ctx, "")["may_operate"]:
        raise Forbidden("this needs the permission 'operate'", details={"needs": "operate"})
    job = orders.job(ctx.actor, job_id)
    return _render_action(ctx, orders, "optiplan/part_order_dialog.html", job, action)


@router.post(f"{PATH}/orders/{{job_id}}/{{action}}", response_class=HTMLResponse)
def move_order(ctx: Context, job_id: str, action: OrderAction | Literal["customer"], fields: FirstFields) -> Response:
    """Take the action and report the result; an approval without an XML must be confirmed."""
    orders = order_service(ctx)
    new = None
    if action == "approve":
        try:
            orders.approve(ctx.actor, job_id, confirmed="sure" in fields)
        except OrderProblem as problem:
            if problem.code != OptiCode.OPERATOR_TRIGGER_REQUIRED:
                raise
            return order_dialog(ctx, job_id, action)
    elif action == "customer":
        name, phone = fields.get("name", ""), fields.get("phone", "")
        orders.add_customer(ctx.actor, name, phone, approve=job_id if "approve" in fields else None)
        if not ctx.in_part:
            return RedirectResponse(f"/dashboard/jobs/{job_id}", status_code=303)
    elif action == "reissue":
        new = orders.reissue(ctx.actor, job_id).job
    else:
        (orders.retry if action == "retry" else orders.cancel)(ctx.actor, job_id)
    job, moved = orders.job(ctx.actor, job_id), "optiplan/part_order_moved.html"
    return _render_action(ctx, orders, moved, job, action, headers=CHANGED, new=new)


def _render_action(
    ctx: PageContext, orders: OrderService, template: str, job: Job, action: str, **more: Any
) -> HTMLResponse:
    return ctx.page(
        template,
        line=order_row(ctx, orders, job),
        action=action,
        family=state_groups(orders.queue.lifecycle),
        **more,
        **frame(ctx, "orders"),
    )
