"""Routes for orders and customers, with the seed's paths and spelling.

`file_routes.py` has the routes for an order's files and the workshop's settings. The order service
checks permissions; the routes parse requests and write responses.
"""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from kesin.engine.workload import WorkloadContext
from kesin.web.auth import service_of
from kesin.web.dependencies import JSON, MediaType, RawBody, SignedInActor, run_with_body
from kesin.web.schemas import Cursor
from kesin.workloads.optiplan.api.common import OrderRoute, json_response, parse_json
from kesin.workloads.optiplan.api.file_routes import config_router, files_router
from kesin.workloads.optiplan.api.schemas import (
    IMPORT_BODY,
    ORDER_BODY,
    Approval,
    Cancelled,
    CustomerBody,
    CustomerFound,
    CustomerGiven,
    CustomerList,
    JobList,
    Moved,
    OneCustomer,
    OneJob,
    OrderEventBody,
    OrderJob,
    Retried,
    State,
    WholeJob,
    job_body,
)
from kesin.workloads.optiplan.customers import Customer
from kesin.workloads.optiplan.history import audit_events
from kesin.workloads.optiplan.intake import FILE_TYPES, payload_from_file, payload_from_json
from kesin.workloads.optiplan.orders.order_list import ListDefaults
from kesin.workloads.optiplan.orders.payload import (
    MAX_NAME,
    MAX_PHONE,
    FieldProblem,
    OptiMode,
    PartType,
    read_payload,
    validation_problem,
)
from kesin.workloads.optiplan.service import EnqueuedOrder, OrderService

MAX_PAGE_JOBS: Final = 500
MAX_PAGE_BYTES: Final = 5_000_000  # of payloads; a page of large orders is shorter
MAX_PAGE_CUSTOMERS: Final = 500

_CREATE_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": OneJob, "description": "The job that the same order has already"},
    201: {"model": OneJob, "description": "A new job"},
}
_REISSUE_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": Moved, "description": "The new revision, which was there already"},
    201: {"model": Moved, "description": "The new revision"},
}
_ADD_CUSTOMER_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": OneCustomer, "description": "The phone was known; it has this name now"},
    201: {"model": OneCustomer, "description": "A new customer"},
}
_CANCEL_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    202: {"model": Cancelled, "description": "A runner has it in hand and will stop"}
}

Word = Annotated[str | None, Query(min_length=1, max_length=MAX_NAME)]


def optiplan_router(context: WorkloadContext) -> APIRouter:
    """Build every route of the workload."""
    service = OrderService(context)
    router = APIRouter(tags=["optiplan"], route_class=OrderRoute)
    _add_order_routes(router, service)
    _add_read_routes(router, service)
    _add_operator_routes(router, service)
    _add_customer_routes(router, service)
    for part in (files_router(service), config_router(service)):
        router.routes.extend(part.routes)  # include_router would build each route again
    return router


def _add_order_routes(router: APIRouter, service: OrderService) -> None:
    @router.post(
        "/jobs",
        status_code=201,
        response_model=OneJob,
        responses=_CREATE_RESPONSES,
        openapi_extra=ORDER_BODY,
    )
    async def create_order(
        request: Request, actor: SignedInActor, body: RawBody, kind: MediaType
    ) -> Response:
        """Bring an order: 201 and a new job, or 200 and the job the same order has."""

        def create() -> Response:
            service.require_create(actor)
            return _created_response(
                service, service.create_order(actor, read_payload(parse_json(body, kind)))
            )

        return await run_with_body(request, body, create)

    @router.post(
        "/orders/{order_id}/import/xlsx",
        status_code=201,
        response_model=OneJob,
        responses=_CREATE_RESPONSES,
        openapi_extra=IMPORT_BODY,
    )
    async def import_order(  # noqa: PLR0917  # each one is a parameter of the request
        request: Request,
        actor: SignedInActor,
        order_id: str,
        body: RawBody,
        kind: MediaType,
        customer_phone: Annotated[str | None, Query(max_length=MAX_PHONE)] = None,
        file_name: Annotated[str, Query(max_length=255)] = "",
        opti_mode: OptiMode | None = None,
        color: Word = None,
        material_code: Word = None,
        thickness_mm: Annotated[Decimal | None, Query(ge=Decimal("0.1"), le=1_000)] = None,
        part_type: PartType = "GOVDE",
    ) -> Response:
        """Bring an order as JSON, or as the XLSX or CSV list the shop keeps.

        A list needs `customer_phone`; what else stands in the query holds where the list says
        nothing itself. All rows are good or nothing is made.
        """
        defaults = ListDefaults(
            opti_mode=opti_mode,
            color=color,
            material_code=material_code,
            thickness_mm=thickness_mm,
            part_type=part_type,
        )

        def create() -> Response:
            service.require_create(actor)
            if kind == JSON:
                payload = payload_from_json(parse_json(body, kind), order_id)
            elif kind in FILE_TYPES:
                payload = payload_from_file(
                    file_name,
                    body,
                    order_id=order_id,
                    customer_phone=customer_phone,
                    rules=service.workshop.rules(),
                    defaults=defaults,
                )
            else:
                accepted = f"must be sent as {JSON} or as one of {', '.join(FILE_TYPES)}"
                raise validation_problem(
                    [FieldProblem((), f"{accepted}, not as {kind or 'nothing'}")]
                )
            return _created_response(service, service.create_order(actor, payload))

        return await service_of(request).imports.run(create)


def _created_response(service: OrderService, enqueued: EnqueuedOrder) -> Response:
    return json_response(
        OneJob.model_construct(job=job_body(service, enqueued.job)), 201 if enqueued.new else 200
    )


def _add_read_routes(router: APIRouter, service: OrderService) -> None:
    @router.get("/jobs", response_model=JobList)
    def list_orders(
        actor: SignedInActor,
        state: State | None = None,
        order_id: Word = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_JOBS)] = 100,
        cursor: Cursor = None,
    ) -> Response:
        """Jobs, newest first."""
        page = service.jobs(actor, state=state, order_id=order_id, limit=limit, cursor=cursor)
        bodies: list[OrderJob] = []
        next_cursor, size = page.cursor, 0
        for job in page.jobs:
            size += len(job.payload_json)
            if bodies and size > MAX_PAGE_BYTES:
                next_cursor = bodies[-1].id
                break
            bodies.append(job_body(service, job))
        return json_response(JobList.model_construct(jobs=bodies, next_cursor=next_cursor))

    @router.get("/jobs/{job_id}", response_model=WholeJob)
    def get_order(actor: SignedInActor, job_id: str) -> Response:
        """One job with its history."""
        job, events, notes = service.history(actor, job_id)
        audit = [
            OrderEventBody.model_construct(**asdict(event))
            for event in audit_events(service.queue, job.id, events, notes)
        ]
        return json_response(WholeJob.model_construct(job=job_body(service, job), audit=audit))


def _add_operator_routes(router: APIRouter, service: OrderService) -> None:
    @router.post("/jobs/{job_id}/approve", response_model=Moved)
    def approve_order(actor: SignedInActor, job_id: str, body: Approval | None = None) -> Response:
        """Let a held order go on; one that waits for its XML and is not ready needs `confirm`."""
        confirmed = body is not None and body.confirm
        job = service.shown(actor, service.approve(actor, job_id, confirmed=confirmed))
        return json_response(Moved.model_construct(success=True, job=job_body(service, job)))

    @router.post("/jobs/{job_id}/retry")
    def retry_order(actor: SignedInActor, job_id: str) -> Retried:
        """Try a failed order again, after a pause."""
        return Retried(retry_count=service.retry(actor, job_id).retry_count)

    @router.post(
        "/jobs/{job_id}/reissue",
        status_code=201,
        response_model=Moved,
        responses=_REISSUE_RESPONSES,
    )
    def reissue_order(actor: SignedInActor, job_id: str) -> Response:
        """Make a new revision of an order that failed, or that is to be cut once more."""
        enqueued = service.reissue(actor, job_id)
        job = service.shown(actor, enqueued.job)
        body = Moved.model_construct(success=True, job=job_body(service, job))
        return json_response(body, 201 if enqueued.new else 200)

    @router.post("/jobs/{job_id}/cancel", response_model=Cancelled, responses=_CANCEL_RESPONSES)
    def cancel_order(actor: SignedInActor, job_id: str) -> Response:
        """Stop an order; 409 once the machine has it."""
        job = service.shown(actor, service.cancel(actor, job_id))
        cancelled = job.state == "FAILED"
        body = Cancelled.model_construct(
            success=True, job=job_body(service, job), cancelled=cancelled
        )
        return json_response(body, 200 if cancelled else 202)


def _add_customer_routes(router: APIRouter, service: OrderService) -> None:
    @router.get("/customers/lookup", response_model=CustomerFound)
    def look_up_customer(
        actor: SignedInActor, phone: Annotated[str, Query(max_length=MAX_PHONE)] = ""
    ) -> Response:
        """Whose phone this is, however it is written."""
        normalised, match = service.look_up_customer(actor, phone)
        customer = None if match is None else _customer_body(match)
        return json_response(CustomerFound(phone_normalized=normalised, customer=customer))

    @router.get("/customers", response_model=CustomerList)
    def list_customers(
        actor: SignedInActor,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_CUSTOMERS)] = 100,
        cursor: Annotated[str | None, Query(max_length=MAX_PHONE)] = None,
    ) -> Response:
        """Everybody, by phone."""
        page, next_cursor = service.customer_page(actor, limit=limit, cursor=cursor)
        customers = [_customer_body(customer) for customer in page]
        return json_response(CustomerList(customers=customers, next_cursor=next_cursor))

    @router.post(
        "/customers", status_code=201, response_model=OneCustomer, responses=_ADD_CUSTOMER_RESPONSES
    )
    def add_customer(actor: SignedInActor, body: CustomerGiven) -> Response:
        """Keep a customer: 201, or 200 when the phone was known and has another name now."""
        customer, new = service.add_customer(actor, body.name, body.phone)
        return json_response(OneCustomer(customer=_customer_body(customer)), 201 if new else 200)


def _customer_body(customer: Customer) -> CustomerBody:
    return CustomerBody(name=customer.name, phone=customer.phone)
