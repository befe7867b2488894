"""Schemas in the seed's spelling (snake_case); `payload.py` and `rules.py` check more strictly."""

import json
from contextlib import suppress
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, Field

from kesin.foundation.clock import iso
from kesin.lifecycle.model import Job
from kesin.web.dependencies import JSON
from kesin.workloads.optiplan.customers import Customer
from kesin.workloads.optiplan.errors import ADVICE, OrderProblem
from kesin.workloads.optiplan.lifecycle import APPROVED
from kesin.workloads.optiplan.orders.payload import (
    CuttingOrder,
    FieldProblem,
    OptiMode,
    Payload,
    StrictModel,
    payload_json,
)
from kesin.workloads.optiplan.orders.spreadsheet import CSV, XLSX
from kesin.workloads.optiplan.pipeline.waiting import WaitingFor, waiting_for
from kesin.workloads.optiplan.service import OrderService
from kesin.workloads.optiplan.workshop.rules import Rules

State = Literal[
    "NEW", "PREPARED", "OPTI_IMPORTED", "OPTI_RUNNING", "OPTI_DONE", "XML_READY", "DELIVERED", "DONE", "HOLD", "FAILED"
]


Schema = dict[str, Any]
_FILE: Final[Schema] = {"schema": {"type": "string", "format": "binary"}}


def _schema_of(model: type[BaseModel]) -> Schema:
    """Return the schema of a model's JSON, complete in itself."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def inline(node: Any) -> Any:
        if isinstance(node, list):
            return [inline(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return inline(definitions[node["$ref"].rpartition("/")[2]])
        if "anyOf" in node:  # something or null
            value = inline(node["anyOf"][0])
            options = {"enum": [*value["enum"], None]} if "enum" in value else {}
            return {**value, "type": [value["type"], "null"], **options}
        about = {"title", "description", "default"}  # of the Python class
        return {name: inline(item) for name, item in node.items() if name not in about}

    plain: Schema = inline(schema)
    return plain


def _body(content: Schema) -> Schema:
    return {"requestBody": {"required": True, "content": content}}


_ORDER: Final = _schema_of(Payload)
ORDER_BODY: Final = _body({"application/json": {"schema": _ORDER}})
IMPORT_BODY: Final = _body(
    {
        "application/json": {"schema": {**_ORDER, "required": ["customer_phone", "parts"]}},
        XLSX: _FILE,
        CSV: {"schema": {"type": "string"}},
    }
)
RULES: Final = _schema_of(Rules)
RULES["required"].append("kerf_mm")  # only a file may lack it
RULES_BODY: Final = _body({"application/json": {"schema": RULES}})


class OrderJob(BaseModel):
    """An order and its state."""

    id: str
    order_id: str | None = Field(description="null if the job was not created through the API and contains no order")
    state: State
    error_code: str | None
    error_message: str | None
    retry_count: int
    opti_mode: OptiMode | None
    revision: int
    next_run_at: str | None = Field(description="time of the next check; null in DONE, HOLD and FAILED")
    manual_trigger_approved: Literal[0, 1]
    created_at: str
    updated_at: str
    payload: dict[str, Any] | None
    waiting_for: WaitingFor | None = Field(description="null if the order is claimed or has ended")
    ready_to_approve: bool = Field(description="whether the order's XML exists and is well-formed")
    advice: dict[str, dict[str, str]] | None = Field(description="what the error means and what to do, by language")


class OneJob(BaseModel):
    """The job of an order."""

    job: OrderJob


class JobList(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[OrderJob]
    next_cursor: str | None


class OrderEventBody(BaseModel):
    """One line of a job's history."""

    id: int
    job_id: str
    event_type: str
    message: str
    details_json: str | None = Field(description="an object, as JSON text")
    created_at: str


class WholeJob(BaseModel):
    """A job and its history, oldest event first."""

    job: OrderJob
    audit: list[OrderEventBody]


class Approval(StrictModel):
    """Options for approving an order."""

    confirm: bool = Field(default=False, description="approve even if the XML is not ready")


class Moved(BaseModel):
    """The action succeeded; ``job`` shows the result."""

    success: bool = True
    job: OrderJob


class Cancelled(Moved):
    """The order is FAILED, or its worker will stop at the next step."""

    cancelled: bool


class Retried(BaseModel):
    """The order will be retried."""

    success: bool = True
    retry_count: int


class CustomerGiven(StrictModel):
    """A customer to add."""

    name: str
    phone: str


class OneCustomer(BaseModel):
    """A stored customer."""

    success: bool = True
    customer: Customer


class CustomerFound(BaseModel):
    """The customer with this phone number; null if there is none."""

    success: bool = True
    phone_normalized: str
    customer: Customer | None


class CustomerList(BaseModel):
    """A page of customers, ordered by phone number."""

    customers: list[Customer]
    next_cursor: str | None


class RulesTold(BaseModel):
    """The current rules, in the format of rules.json."""

    rules: dict[str, Any]
    warnings: list[str] = Field(description="values that are allowed but probably wrong")


class RulesChanged(RulesTold):
    """The rules after the change."""

    success: bool = True
    changed: list[str]
    from_next_start: list[str] = Field(description="the changed rules that take effect when Kesin next starts")


class PathsTold(BaseModel):
    """The paths of OptiPlanning, its folders and the saw's folder, on the service's machine."""

    paths: dict[str, str]


RESTING: Final = frozenset({"DONE", "HOLD", "FAILED"})


def job_body(service: OrderService, job: Job) -> OrderJob:
    """Build the response for a job; a job enqueued without the API may carry no order."""
    order: CuttingOrder | None = None
    with suppress(OrderProblem):
        order = CuttingOrder.from_job(job)
    approved = job.flags & service.queue.lifecycle.flag_bit(APPROVED)
    return OrderJob.model_construct(  # trusted values
        id=job.id,
        order_id=order.payload.order_id if order else None,
        state=cast("State", job.state),
        error_code=job.error_code,
        error_message=job.error_message,
        retry_count=job.retry_count,
        opti_mode=order.mode if order else None,
        revision=order.revision if order else 1,
        next_run_at=None if job.state in RESTING else iso(job.run_at),
        manual_trigger_approved=1 if approved else 0,
        created_at=iso(job.created_at) or "",
        updated_at=iso(job.moved_at) or "",
        payload=payload_json(order.payload) if order else None,
        waiting_for=waiting_for(job),
        ready_to_approve=service.is_ready_to_approve(job),
        advice=ADVICE.describe(job.error_code) if job.error_code else None,
    )


def parse_json(body: bytes, kind: str) -> Any:
    """Parse a body that must be JSON; raises OrderProblem."""
    if kind != JSON:
        raise FieldProblem((), f"must be sent as {JSON}, not as {kind or 'nothing'}").as_problem()
    try:
        return json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise FieldProblem((), f"is not JSON: {problem}").as_problem() from None
