"""The doors for orders and customers, with the seed's paths and spelling.

An order's files and the workshop's settings have theirs in `api_files.py` and `api_config.py`. Who
may do what is the order desk's affair; here requests are read and answers written.
"""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from kesin.engine.workload import WorkloadContext
from kesin.workloads.optiplan.api.common import (
    JSON,
    Asker,
    Body,
    ContentType,
    OrderRoute,
    json_of,
    sent,
)
from kesin.workloads.optiplan.api.file_routes import config_router, files_router
from kesin.workloads.optiplan.api.schemas import (
    IMPORT_BODY,
    ORDER_BODY,
    AuditLine,
    Cancelled,
    CustomerBody,
    CustomerFound,
    CustomerGiven,
    CustomerList,
    JobList,
    Moved,
    OneCustomer,
    OneJob,
    OrderJob,
    Retried,
    State,
    WholeJob,
    job_body,
)
from kesin.workloads.optiplan.customers import Customer
from kesin.workloads.optiplan.history import audit_of
from kesin.workloads.optiplan.intake import FILE_TYPES, order_of_file, order_of_json
from kesin.workloads.optiplan.orders.order_list import ListDefaults
from kesin.workloads.optiplan.orders.payload import (
    MAX_NAME,
    MAX_PHONE,
    FieldProblem,
    Mode,
    PartType,
    read_payload,
    refused,
)
from kesin.workloads.optiplan.service import Created, OrderDesk

MOST_JOBS: Final = 500
PAGE_BYTES: Final = 5_000_000  # of payloads; a page of large orders is shorter
CURSOR: Final = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
MOST_CUSTOMERS: Final = 500

_MADE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": OneJob, "description": "The job that the same order has already"},
    201: {"model": OneJob, "description": "A new job"},
}
_REISSUED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": Moved, "description": "The new revision, which was there already"},
    201: {"model": Moved, "description": "The new revision"},
}
_KEPT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": OneCustomer, "description": "The phone was known; it has this name now"},
    201: {"model": OneCustomer, "description": "A new customer"},
}
_CANCELLED: Final[dict[int | str, dict[str, Any]]] = {
    202: {"model": Cancelled, "description": "A runner has it in hand and will stop"},
}

Word = Annotated[str | None, Query(min_length=1, max_length=MAX_NAME)]


def optiplan_router(house: WorkloadContext) -> APIRouter:
    """Every route of the workload."""
    desk = OrderDesk(house)
    router = APIRouter(tags=["optiplan"], route_class=OrderRoute)
    _orders(router, desk)
    _reading(router, desk)
    _operating(router, desk)
    _customers(router, desk)
    for part in (files_router(desk), config_router(desk)):
        router.routes.extend(part.routes)  # to include it would make each route anew
    return router


def _orders(router: APIRouter, desk: OrderDesk) -> None:
    @router.post(
        "/jobs",
        status_code=201,
        response_model=OneJob,
        responses=_MADE,
        openapi_extra=ORDER_BODY,
    )
    def create_order(actor: Asker, body: Body, kind: ContentType) -> Response:
        """Bring an order: 201 and a new job, or 200 and the job the same order has."""
        desk.may_create(actor)
        return _created(desk, desk.create(actor, read_payload(json_of(body, kind))))

    @router.post(
        "/orders/{order_id}/import/xlsx",
        status_code=201,
        response_model=OneJob,
        responses=_MADE,
        openapi_extra=IMPORT_BODY,
    )
    def import_order(  # noqa: PLR0917  # each one is a parameter of the request
        actor: Asker,
        order_id: str,
        body: Body,
        kind: ContentType,
        customer_phone: Annotated[str | None, Query(max_length=MAX_PHONE)] = None,
        file_name: Annotated[str, Query(max_length=255)] = "",
        opti_mode: Mode | None = None,
        color: Word = None,
        material_code: Word = None,
        thickness_mm: Annotated[Decimal | None, Query(ge=Decimal("0.1"), le=1_000)] = None,
        part_type: PartType = "GOVDE",
    ) -> Response:
        """Bring an order as JSON, or as the XLSX or CSV list the shop keeps.

        A list needs `customer_phone`; what else stands in the query holds where the list says
        nothing itself. All rows are good or nothing is made.
        """
        desk.may_create(actor)
        if kind == JSON:
            return _created(desk, desk.create(actor, order_of_json(json_of(body, kind), order_id)))
        if kind not in FILE_TYPES:
            told = f"must be sent as {JSON} or as one of {', '.join(FILE_TYPES)}"
            raise refused([FieldProblem((), f"{told}, not as {kind or 'nothing'}")])
        payload = order_of_file(
            file_name,
            body,
            order_id=order_id,
            customer_phone=customer_phone,
            rules=desk.workshop.rules(),
            defaults=ListDefaults(
                opti_mode=opti_mode,
                color=color,
                material_code=material_code,
                thickness_mm=thickness_mm,
                part_type=part_type,
            ),
        )
        return _created(desk, desk.create(actor, payload))


def _created(desk: OrderDesk, made: Created) -> Response:
    return sent(OneJob.model_construct(job=job_body(desk, made.job)), 201 if made.new else 200)


def _reading(router: APIRouter, desk: OrderDesk) -> None:
    @router.get("/jobs", response_model=JobList)
    def list_orders(
        actor: Asker,
        state: State | None = None,
        order_id: Word = None,
        limit: Annotated[int, Query(ge=1, le=MOST_JOBS)] = 100,
        cursor: Annotated[str | None, Query(pattern=CURSOR)] = None,
    ) -> Response:
        """Jobs, newest first."""
        page = desk.jobs(actor, state=state, order_id=order_id, limit=limit, cursor=cursor)
        told: list[OrderJob] = []
        following, size = page.cursor, 0
        for job in page.jobs:
            size += len(job.payload)
            if told and size > PAGE_BYTES:
                following = told[-1].id
                break
            told.append(job_body(desk, job))
        return sent(JobList.model_construct(jobs=told, next_cursor=following))

    @router.get("/jobs/{job_id}", response_model=WholeJob)
    def get_order(actor: Asker, job_id: str) -> Response:
        """One job with its history."""
        job = desk.job(actor, job_id)
        audit = [AuditLine.model_construct(**asdict(one)) for one in audit_of(desk.queue, job.id)]
        return sent(WholeJob.model_construct(job=job_body(desk, job), audit=audit))


def _operating(router: APIRouter, desk: OrderDesk) -> None:
    @router.post("/jobs/{job_id}/approve", response_model=Moved)
    def approve_order(actor: Asker, job_id: str) -> Response:
        """Let a held order go on."""
        job = desk.approve(actor, job_id)
        return sent(Moved.model_construct(success=True, job=job_body(desk, job)))

    @router.post("/jobs/{job_id}/retry")
    def retry_order(actor: Asker, job_id: str) -> Retried:
        """Try a failed order again, after a pause."""
        return Retried(retry_count=desk.retry(actor, job_id).retry_count)

    @router.post(
        "/jobs/{job_id}/reissue", status_code=201, response_model=Moved, responses=_REISSUED
    )
    def reissue_order(actor: Asker, job_id: str) -> Response:
        """Make a new revision of an order that failed, or that is to be cut once more."""
        made = desk.reissue(actor, job_id)
        body = Moved.model_construct(success=True, job=job_body(desk, made.job))
        return sent(body, 201 if made.new else 200)

    @router.post("/jobs/{job_id}/cancel", response_model=Cancelled, responses=_CANCELLED)
    def cancel_order(actor: Asker, job_id: str) -> Response:
        """Stop an order; 409 once the machine has it."""
        job = desk.cancel(actor, job_id)
        done = job.state == "FAILED"
        body = Cancelled.model_construct(success=True, job=job_body(desk, job), cancelled=done)
        return sent(body, 200 if done else 202)


def _customers(router: APIRouter, desk: OrderDesk) -> None:
    @router.get("/customers/lookup", response_model=CustomerFound)
    def look_up_customer(
        actor: Asker, phone: Annotated[str, Query(max_length=MAX_PHONE)] = ""
    ) -> Response:
        """Whose phone this is, however it is written."""
        normalised, found = desk.lookup(actor, phone)
        customer = None if found is None else _customer(found)
        return sent(CustomerFound(phone_normalized=normalised, customer=customer))

    @router.get("/customers", response_model=CustomerList)
    def list_customers(
        actor: Asker,
        limit: Annotated[int, Query(ge=1, le=MOST_CUSTOMERS)] = 100,
        cursor: Annotated[str | None, Query(max_length=MAX_PHONE)] = None,
    ) -> Response:
        """Everybody, by phone."""
        found, following = desk.customer_page(actor, limit=limit, cursor=cursor)
        customers = [_customer(one) for one in found]
        return sent(CustomerList(customers=customers, next_cursor=following))

    @router.post("/customers", status_code=201, response_model=OneCustomer, responses=_KEPT)
    def add_customer(actor: Asker, given: CustomerGiven) -> Response:
        """Keep a customer: 201, or 200 when the phone was known and has another name now."""
        customer, new = desk.add_customer(actor, given.name, given.phone)
        return sent(OneCustomer(customer=_customer(customer)), 201 if new else 200)


def _customer(found: Customer) -> CustomerBody:
    return CustomerBody(name=found.name, phone=found.phone)
