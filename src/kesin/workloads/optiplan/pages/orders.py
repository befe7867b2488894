"""Cutting orders: those that wait for a person first, then all of them, and what to do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import FastAPI, Query
from fastapi.responses import HTMLResponse

from kesin.foundation.problems import Refused
from kesin.lifecycle.model import Job
from kesin.web.auth import guarded_router
from kesin.web.dashboard.frame.navigation import may_see_orders
from kesin.web.dashboard.frame.page import Context, PageContext, once
from kesin.web.dashboard.state_groups import families
from kesin.web.schemas import Cursor

if TYPE_CHECKING:
    from kesin.workloads.optiplan.pipeline.shared_folder import Entry
    from kesin.workloads.optiplan.service import OrderDesk

LOOK_EVERY_S: Final = 3.0


class ReadyOrders:
    """One for an app."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._seen: Sequence[Entry] = ()
        self._until = 0.0

    def is_ready(self, desk: OrderDesk, job: Job) -> bool:
        """Whether the order waits for an operator who has done the work already."""
        from kesin.workloads.optiplan.api.schemas import is_ready

        return is_ready(desk, job, lambda: self._listed(desk))

    def _listed(self, desk: OrderDesk) -> Sequence[Entry]:
        """The folder as it was a moment ago; one that is away looks empty."""
        from kesin.workloads.optiplan.errors import OrderProblem
        from kesin.workloads.optiplan.pipeline.shared_folder import plain_files

        with self._lock:
            if self._now() >= self._until:
                try:
                    self._seen = plain_files(desk.workshop.paths().export_folder)
                except (OrderProblem, OSError):
                    self._seen = ()
                self._until = self._now() + LOOK_EVERY_S
            return self._seen


def ready_orders(app: FastAPI) -> ReadyOrders:
    """The app's own."""
    return once(app, "ready_orders", ReadyOrders)


router = guarded_router(include_in_schema=False)

PATH: Final = "/dashboard/optiplan"
ROWS: Final = 25
HELD: Final = 20
CHANGED: Final = {"HX-Trigger": json.dumps({"orders-changed": ""})}
ON_THE_WAY: Final = frozenset(
    {"NEW", "PREPARED", "OPTI_IMPORTED", "OPTI_RUNNING", "OPTI_DONE", "XML_READY", "HOLD"}
)

Call = Literal["approve", "retry", "reissue", "cancel"]


@dataclass(frozen=True, slots=True)
class Line:
    """An order as the list shows it; nothing is read again but what was stored."""

    job: Job
    order_id: str
    customer: str
    mode: str
    revision: int
    parts: int
    has_plan: bool
    calls: tuple[Call, ...]
    ready: bool = False
    unknown: bool = False  # nobody has its phone: approving it would hold it again
    means: str = ""
    act: str = ""


def desk_of(looking: PageContext) -> OrderDesk:
    """The workshop's desk; who may do what is checked there."""
    from kesin.workloads.optiplan.service import OrderDesk

    service = looking.service
    return OrderDesk(service.house(service.workloads["optiplan"]))


def reader_desk(looking: PageContext) -> OrderDesk:
    """The same, for whoever may look; the others are refused and noted."""
    desk = desk_of(looking)
    if not may_see_orders(looking):
        if looking.actor.has("read"):
            desk.house.commands.queue(looking.actor, "optiplan", "read", "read")
        desk.house.commands.accounts.require(
            looking.actor, "optiplan", "optiplan.read", queue="optiplan"
        )
    return desk


def frame(looking: PageContext, here: str) -> dict[str, Any]:
    """What every page of the workshop shows."""
    operates = looking.actor.has("operate") and may_see_orders(looking)
    return {
        "path": PATH,
        "here": here,
        "may_create": looking.actor.has("optiplan"),
        "may_operate": operates,
        "may_read_rules": looking.actor.has("read"),
    }


@router.get(PATH, response_class=HTMLResponse)
def orders_page(  # noqa: PLR0917  # each one is a query parameter
    looking: Context,
    state: Annotated[str, Query(max_length=32)] = "",
    order_id: Annotated[str, Query(max_length=100)] = "",
    cursor: Cursor = None,
    made: Annotated[str, Query(max_length=64)] = "",
    known: Literal["", "1"] = "",
    part: Literal["", "orders"] = "",
) -> HTMLResponse:
    """Holds on top, then the orders."""
    desk = reader_desk(looking)
    states = desk.queue.lifecycle.state
    page = desk.jobs(
        looking.actor,
        state=state if state in states else None,
        order_id=order_id.strip() or None,
        limit=ROWS,
        cursor=cursor,
    )
    held = desk.jobs(looking.actor, state="HOLD", limit=HELD)
    counts = desk.queue.stats().states
    return looking.page(
        "part_orders.html" if part else "optiplan.html",
        orders=[_line(looking, desk, job) for job in page.jobs],
        following=page.cursor,
        cursor=cursor,
        held=[_line(looking, desk, job) for job in held.jobs],
        held_count=counts.get("HOLD", 0),
        counts={name: counts.get(name, 0) for name in states},
        state=state,
        order_id=order_id,
        family=families(desk.queue.lifecycle),
        now=desk.queue.now(),
        made=made,
        known=known,
        **frame(looking, "orders"),
    )


def _line(looking: PageContext, desk: OrderDesk, job: Job) -> Line:
    from kesin.workloads.optiplan.advice import advice

    kept = job.data if isinstance(job.data, dict) else {}
    order = kept.get("order")
    order = order if isinstance(order, dict) else {}
    parts = order.get("parts")
    told = advice(job.error_code, looking.language) if job.error_code else None
    means, act = (told.means, told.act) if told else ("", "")
    customer = _missed(desk, job, order)
    if customer == "known":
        means = looking.say("Its customer was not known when it came, and is known now.")
        act = looking.say("Approve it.")
    return Line(
        job,
        str(order.get("order_id", "–")),
        str(order.get("customer_snapshot_name") or ""),
        str(kept.get("mode", "")),
        int(kept.get("revision", 1)),
        len(parts) if isinstance(parts, list) else 0,
        bool(desk.dossier(job).xml),
        _calls(job),
        ready_orders(looking.request.app).is_ready(desk, job),
        customer == "unknown",
        means,
        act,
    )


def _missed(desk: OrderDesk, job: Job, order: dict[str, Any]) -> Literal["", "unknown", "known"]:
    """How it is now with the customer for want of whom an order waits."""
    from kesin.workloads.optiplan.errors import OptiCode
    from kesin.workloads.optiplan.orders.phones import normalised_phone

    if job.state != "HOLD" or job.error_code != OptiCode.CRM_NO_MATCH:
        return ""
    phone = normalised_phone(str(order.get("customer_phone") or ""))
    if not phone:
        return ""
    return "unknown" if desk.customers.find(phone) is None else "known"


def _calls(job: Job) -> tuple[Call, ...]:
    """What an operator may try; the desk has the last word."""
    from kesin.workloads.optiplan.lifecycle import NEVER_RETRIED

    found: list[Call] = []
    if job.state == "HOLD":
        found.append("approve")
    if job.state == "FAILED" and job.error_code not in NEVER_RETRIED:
        found.append("retry")
    if job.state in {"FAILED", "DONE"}:
        found.append("reissue")
    if job.state in ON_THE_WAY:
        found.append("cancel")
    return tuple(found)


@router.get(f"{PATH}/orders/{{job_id}}/{{call}}", response_class=HTMLResponse)
def ask_about_order(looking: Context, job_id: str, call: Call) -> HTMLResponse:
    """A sheet that says what the button behind it does."""
    desk = reader_desk(looking)
    if not frame(looking, "")["may_operate"]:
        raise Refused("this needs the right 'operate'", details={"needs": "operate"})
    job = desk.job(looking.actor, job_id)
    return looking.page(
        "part_order_sheet.html",
        line=_line(looking, desk, job),
        call=call,
        family=families(desk.queue.lifecycle),
        **frame(looking, "orders"),
    )


@router.post(f"{PATH}/orders/{{job_id}}/{{call}}", response_class=HTMLResponse)
def move_order(looking: Context, job_id: str, call: Call) -> HTMLResponse:
    """Do it, and say what came of it."""
    desk = desk_of(looking)
    new = None
    if call == "reissue":
        new = desk.reissue(looking.actor, job_id).job
        job = desk.job(looking.actor, job_id)
    else:
        acts = {"approve": desk.approve, "retry": desk.retry, "cancel": desk.cancel}
        job = acts[call](looking.actor, job_id)
    answer = looking.page(
        "part_order_moved.html",
        line=_line(looking, desk, job),
        call=call,
        new=new,
        family=families(desk.queue.lifecycle),
        **frame(looking, "orders"),
    )
    answer.headers.update(CHANGED)
    return answer
