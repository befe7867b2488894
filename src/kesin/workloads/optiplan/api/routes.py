"""The routes, with the seed's paths, spelling, and E_VALIDATION for every invalid request."""

from collections.abc import Callable, Coroutine, Mapping
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel

from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.lifecycle.model import Job
from kesin.web import dependencies
from kesin.web.auth import GuardedRouter, service_of
from kesin.web.dependencies import JSON, UNCACHED, MediaType, RawBody, SignedInActor, run_with_body
from kesin.web.schemas import Cursor
from kesin.workloads.optiplan import artifacts
from kesin.workloads.optiplan.api import responses, schemas, shop_files
from kesin.workloads.optiplan.api.trial import add_trial_routes
from kesin.workloads.optiplan.history import audit_events
from kesin.workloads.optiplan.optimizer.output.pdf import print_plans
from kesin.workloads.optiplan.orders import payload as payloads
from kesin.workloads.optiplan.orders.order_list import ListDefaults
from kesin.workloads.optiplan.orders.payload import EffortName, FieldProblem, OptiMode, PartType, Payload
from kesin.workloads.optiplan.orders.safe_xlsx import pack_zip
from kesin.workloads.optiplan.orders.spreadsheet import CSV, XLSX
from kesin.workloads.optiplan.rule_changes import FROM_NEXT_START, change_rules
from kesin.workloads.optiplan.service import QUEUE, OrderService, read_order_list
from kesin.workloads.optiplan.workshop.paths import paths_json
from kesin.workloads.optiplan.workshop.rules import Rules, rule_warnings, rules_json

MAX_PAGE_JOBS: Final = 500
MAX_PAGE_BYTES: Final = 5_000_000  # of payloads; a page of large orders is shorter
MAX_PAGE_CUSTOMERS: Final = 500

# Browsers on Windows send a CSV as an Excel file.
FILE_TYPES: Final = (XLSX, CSV, "application/vnd.ms-excel", "application/octet-stream")

MAX_BOARD_NUMBER: Final = 100_000

Word = Annotated[str | None, Query(min_length=1, max_length=payloads.MAX_NAME)]

json_response = partial(dependencies.json_response, cache_control=UNCACHED)


class OrderRoute(APIRoute):
    """A route that reports invalid parameters as E_VALIDATION, like invalid bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as problem:
                raise payloads.validation_problem(
                    [FieldProblem(tuple(error["loc"][1:]), payloads.error_message(error)) for error in problem.errors()]
                ) from None

        return handle


def optiplan_router(context: WorkloadContext) -> APIRouter:
    service = OrderService(context)
    router = GuardedRouter(tags=["optiplan"], route_class=OrderRoute)
    _add_order_routes(router, service)
    _add_read_routes(router, service)
    _add_operator_routes(router, service)
    _add_customer_routes(router, service)
    _add_file_routes(router, service)
    shop_files.add_shop_file_routes(router, service)
    add_trial_routes(router, service)
    _add_config_routes(router, service)
    return router


def _add_order_routes(router: APIRouter, service: OrderService) -> None:
    creates = _creates(schemas.OneJob, "The existing job of the same order", "A new job")

    @router.post("/jobs", **creates, openapi_extra=schemas.ORDER_BODY)
    async def create_order(request: Request, actor: SignedInActor, body: RawBody, kind: MediaType) -> Response:
        """Create an order: 201 with a new job, or 200 with the order's existing job."""

        def create() -> Response:
            service.require_create(actor)
            return created(actor, payloads.read_payload(schemas.parse_json(body, kind)))

        return await run_with_body(request, body, create)

    @router.post("/orders/{order_id}/import/xlsx", **creates, openapi_extra=schemas.IMPORT_BODY)
    async def import_order(  # noqa: PLR0917  # each one is a parameter of the request
        request: Request,
        actor: SignedInActor,
        order_id: str,
        body: RawBody,
        kind: MediaType,
        customer_phone: Annotated[str | None, Query(max_length=payloads.MAX_PHONE)] = None,
        file_name: Annotated[str, Query(max_length=255)] = "",
        opti_mode: OptiMode | None = None,
        color: Word = None,
        material_code: Word = None,
        thickness_mm: Annotated[Decimal | None, Query(ge=Decimal("0.1"), le=1_000)] = None,
        part_type: PartType = "GOVDE",
        effort: EffortName | None = None,
        saw_profile: Word = None,
        use_rack: Annotated[bool | None, Query()] = None,
    ) -> Response:
        """Create an order from JSON, or from the workshop's XLSX or CSV list.

        A list needs `customer_phone`; the other query parameters apply where the list has no
        value. If a row is invalid, nothing is created.
        """
        defaults = ListDefaults(
            material_code,
            color,
            thickness_mm,
            part_type,
            opti_mode=opti_mode,
            effort=effort,
            saw_profile=saw_profile,
            use_rack=use_rack,
        )

        def create() -> Response:
            service.require_create(actor)
            if kind == JSON:
                payload = _read_order(schemas.parse_json(body, kind), order_id)
            elif kind in FILE_TYPES:
                read = partial(read_order_list, service.workshop, file_name, body)
                payload = read(order_id=order_id, customer_phone=customer_phone, defaults=defaults)
            else:
                accepted = f"must be sent as {JSON} or as one of {', '.join(FILE_TYPES)}"
                raise FieldProblem((), f"{accepted}, not as {kind or 'nothing'}").as_problem()
            return created(actor, payload)

        return await service_of(request).imports.run(create)

    def created(actor: Actor, payload: Payload) -> Response:
        enqueued = service.create_order(actor, payload)
        body = schemas.OneJob.model_construct(job=schemas.job_body(service, enqueued.job))
        return json_response(body, 201 if enqueued.new else 200)


def _read_order(body: Any, order_id: str) -> Payload:
    """Read the order in a JSON body; its id is the one in the URL."""
    if isinstance(body, Mapping):
        if body.get("order_id", order_id) != order_id:
            raise FieldProblem(("order_id",), "differs from the one in the URL").as_problem()
        body = {**body, "order_id": order_id}
    return payloads.read_payload(body)


def _add_read_routes(router: APIRouter, service: OrderService) -> None:
    @router.get("/jobs", response_model=schemas.JobList)
    def list_orders(
        actor: SignedInActor,
        state: schemas.State | None = None,
        order_id: Word = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_JOBS)] = 100,
        cursor: Cursor = None,
    ) -> Response:
        """A page of jobs, newest first."""
        page = service.jobs(actor, state=state, order_id=order_id, limit=limit, cursor=cursor)
        bodies: list[schemas.OrderJob] = []
        next_cursor, size = page.cursor, 0
        for job in page.jobs:
            size += len(job.payload_json)
            if bodies and size > MAX_PAGE_BYTES:
                next_cursor = bodies[-1].id
                break
            bodies.append(schemas.job_body(service, job))
        return json_response(schemas.JobList.model_construct(jobs=bodies, next_cursor=next_cursor))

    @router.get("/jobs/{job_id}", response_model=schemas.WholeJob)
    def get_order(actor: SignedInActor, job_id: str) -> Response:
        """One job with its history."""
        job, events, notes = service.history(actor, job_id)
        audit = audit_events(service.queue, job.id, events, notes)
        body = schemas.WholeJob.model_construct(job=schemas.job_body(service, job), audit=audit)
        return json_response(body)


def _add_operator_routes(router: APIRouter, service: OrderService) -> None:
    def moved(actor: Actor, job: Job, status: int = 200) -> Response:
        body = schemas.job_body(service, service.shown(actor, job))
        return json_response(schemas.Moved.model_construct(success=True, job=body), status)

    @router.post("/jobs/{job_id}/approve", response_model=schemas.Moved)
    def approve_order(actor: SignedInActor, job_id: str, body: schemas.Approval | None = None) -> Response:
        """Approve a held order; with `confirm`, even if its XML is not ready."""
        confirmed = body is not None and body.confirm
        return moved(actor, service.approve(actor, job_id, confirmed=confirmed))

    @router.post("/jobs/{job_id}/retry")
    def retry_order(actor: SignedInActor, job_id: str) -> schemas.Retried:
        """Retry a failed order after its backoff."""
        return schemas.Retried(retry_count=service.retry(actor, job_id).retry_count)

    @router.post(
        "/jobs/{job_id}/reissue", **_creates(schemas.Moved, "The revision that already exists", "The new revision")
    )
    def reissue_order(actor: SignedInActor, job_id: str) -> Response:
        """Create a new revision of an order that failed or must be cut again."""
        enqueued = service.reissue(actor, job_id)
        return moved(actor, enqueued.job, 201 if enqueued.new else 200)

    stops = {"model": schemas.Cancelled, "description": "A worker is processing the order but will stop"}

    @router.post("/jobs/{job_id}/cancel", response_model=schemas.Cancelled, responses={202: stops})
    def cancel_order(actor: SignedInActor, job_id: str) -> Response:
        """Cancel an order; 409 if the saw already has it."""
        job = service.shown(actor, service.cancel(actor, job_id))
        body = schemas.Cancelled.model_construct(
            success=True, job=schemas.job_body(service, job), cancelled=job.state == "FAILED"
        )
        return json_response(body, 200 if body.cancelled else 202)


def _add_customer_routes(router: APIRouter, service: OrderService) -> None:
    @router.get("/customers/lookup", response_model=schemas.CustomerFound)
    def look_up_customer(
        actor: SignedInActor, phone: Annotated[str, Query(max_length=payloads.MAX_PHONE)] = ""
    ) -> Response:
        """The customer with this phone number, which can be written in any format."""
        normalised, customer = service.look_up_customer(actor, phone)
        return json_response(schemas.CustomerFound(phone_normalized=normalised, customer=customer))

    @router.get("/customers", response_model=schemas.CustomerList)
    def list_customers(
        actor: SignedInActor,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_CUSTOMERS)] = 100,
        cursor: Annotated[str | None, Query(max_length=payloads.MAX_PHONE)] = None,
    ) -> Response:
        """A page of customers, ordered by phone number."""
        customers, next_cursor = service.customer_page(actor, limit=limit, cursor=cursor)
        return json_response(schemas.CustomerList(customers=customers, next_cursor=next_cursor))

    renamed = "The phone number already existed; the name was updated"

    @router.post("/customers", **_creates(schemas.OneCustomer, renamed, "A new customer"))
    def add_customer(actor: SignedInActor, body: schemas.CustomerGiven) -> Response:
        """Add a customer (201) or, if the phone number exists, update the name (200)."""
        customer, new = service.add_customer(actor, body.name, body.phone)
        return json_response(schemas.OneCustomer(customer=customer), 201 if new else 200)


def _add_file_routes(router: APIRouter, service: OrderService) -> None:
    artifacts_of = partial(responses.order_artifacts, service)

    @router.get(
        "/jobs/{job_id}/xml", **responses.sends("The XML, or an archive of XML files", responses.XML, responses.ZIP)
    )
    def job_xml(actor: SignedInActor, job_id: str) -> Response:
        """The solution XML as sent to the saw; an archive if there are several files."""
        files = artifacts_of(actor, job_id).read_xml_files()
        return responses.files_response(files, f"{job_id}-xml.zip", responses.XML)

    @router.get("/jobs/{job_id}/import-files", **responses.sends("An archive with one XLSX per batch", responses.ZIP))
    def job_import_files(actor: SignedInActor, job_id: str) -> Response:
        """The optimiser's import files: one XLSX per batch of one type, colour and thickness."""
        files = artifacts_of(actor, job_id).read_import_files()
        return responses.file_response(pack_zip(files), f"{job_id}-import.zip", responses.ZIP)

    @router.get("/jobs/{job_id}/plan.svg", **responses.sends("The drawing", responses.SVG))
    def job_plan_svg(
        actor: SignedInActor,
        job_id: str,
        board: Annotated[int | None, Query(ge=1, le=MAX_BOARD_NUMBER)] = None,
        language: responses.InLanguage = "en",
    ) -> Response:
        """The cutting plan with all boards, or with only one board."""
        files = artifacts_of(actor, job_id)
        plans, head = (files.read_plans(language), responses.order_head(service, actor, files.job, language))
        drawing = artifacts.draw_plans(plans, board, language, head)
        return Response(drawing, headers=dict(responses.PRIVATE_HEADERS), media_type=responses.SVG)

    @router.get("/jobs/{job_id}/plan.pdf", **responses.sends("The plan as a PDF", responses.PDF))
    def job_plan_pdf(actor: SignedInActor, job_id: str, language: responses.InLanguage = "en") -> Response:
        """The cutting plan for printing: a summary, the boards, and the cut list."""
        files = artifacts_of(actor, job_id)
        plans = files.read_plans(language)
        artifacts.check_board_count(plans)
        data = print_plans(plans, language, responses.order_head(service, actor, files.job, language))
        return responses.file_response(data, f"{job_id}-plan.pdf", responses.PDF)


def _add_config_routes(router: APIRouter, service: OrderService) -> None:
    @router.get("/config/rules", response_model=schemas.RulesTold)
    def get_rules(actor: SignedInActor) -> Response:
        """The rules, such as trims, bands, saws, boards, deadlines and retries."""
        service.context.commands.queue(actor, QUEUE)
        return json_response(schemas.RulesTold(**_rules_body(service.workshop.rules())))

    @router.put("/config/rules", response_model=schemas.RulesChanged, openapi_extra=schemas.RULES_BODY)
    def put_rules(actor: SignedInActor, body: RawBody, kind: MediaType) -> Response:
        """Replace all rules.

        Orders use new rules from their next step; new deadlines and retries apply after a restart.
        """
        service.context.commands.queue(actor, QUEUE, "operate", "rules")
        rules, changed = change_rules(service, actor, schemas.parse_json(body, kind))
        later = [key for key in changed if key in FROM_NEXT_START]
        answer = schemas.RulesChanged(**_rules_body(rules), changed=changed, from_next_start=later)
        return json_response(answer)

    @router.get("/config/paths", response_model=schemas.PathsTold)
    def get_paths(actor: SignedInActor) -> Response:
        """The paths of OptiPlanning, its folders and the saw's folder, as in paths.json."""
        service.context.commands.queue(actor, QUEUE)
        return json_response(schemas.PathsTold(paths=paths_json(service.workshop.paths())))


def _rules_body(rules: Rules) -> dict[str, Any]:
    return {"rules": rules_json(rules), "warnings": rule_warnings(rules)}


def _creates(model: type[BaseModel], known: str, new: str) -> dict[str, Any]:
    """The options of a route that responds with 201 to what is new, and with 200 if it is known."""
    texts = {200: known, 201: new}
    responses = {code: {"model": model, "description": text} for code, text in texts.items()}
    return {"status_code": 201, "response_model": model, "responses": responses}
