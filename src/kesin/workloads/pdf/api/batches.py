"""Routes for batches: create, read, download, cancel; only creators and admins find them."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from kesin.engine.validation import BadInput
from kesin.foundation.clock import iso
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Invalid, Problem, RequestConflict
from kesin.foundation.text import is_storable
from kesin.web.auth import GuardedRouter
from kesin.web.dependencies import RawBody, SignedInActor, json_response, run_with_body
from kesin.workloads.common.columns import column_names
from kesin.workloads.pdf import schemas
from kesin.workloads.pdf.api import download
from kesin.workloads.pdf.api.common import find_owned, note_download, require_access
from kesin.workloads.pdf.batches import rows, store
from kesin.workloads.pdf.batches.store import BatchOrder, BatchStatus, PdfBatch, PdfBatchStore
from kesin.workloads.pdf.jobs import submit
from kesin.workloads.pdf.schemas import BatchBody, BatchRequest, BatchResponse, CsvQuery, PdfJobRequest
from kesin.workloads.pdf.services import PdfServiceLoader, PdfServices

_SAME_FIELDS: Final = (  # of a batch and of its body
    "batch_id", "status", "rows", "template_name", "output", "cancel_asked", "file_name",
)  # fmt: skip
_MEDIA_TYPES: Final = [media_type for _, media_type in store.FILE_TYPES.values()]
_DOWNLOAD: Final = download.download_responses("file", _MEDIA_TYPES, BatchBody)
_REFERENCES: Final = "#/components/schemas/{model}"  # they are defined with the jobs
_REQUEST_SCHEMA: Final = schemas.BatchRequest.model_json_schema(ref_template=_REFERENCES)
del _REQUEST_SCHEMA["$defs"]
_CONTENT: Final[dict[str, Any]] = {
    "application/json": {"schema": _REQUEST_SCHEMA},
    "text/csv": {"schema": {"type": "string"}},
}
_REQUEST_BODY: Final = {"requestBody": {"required": True, "content": _CONTENT}}
_CREATE_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": BatchResponse, "description": "The existing batch"},
    202: {"model": BatchResponse, "description": "A new batch"},
}


def batch_router(loader: PdfServiceLoader) -> APIRouter:
    router, context = GuardedRouter(tags=["pdf"]), loader.context

    @router.post(
        "/pdf/batches",
        status_code=202,
        response_model=BatchResponse,
        responses=_CREATE_RESPONSES,
        openapi_extra=_REQUEST_BODY,
    )
    async def create_pdf_batch(
        request: Request, actor: SignedInActor, body: RawBody, query: Annotated[CsvQuery, Query()]
    ) -> Response:
        """Render a template once for each row of JSON or CSV, into a zip or a single PDF.

        Returns 202 with a new batch, or 200 with the existing batch for an identical request.
        """
        return await run_with_body(request, body, create, request, actor, body, query)

    def create(request: Request, actor: Actor, body: bytes, query: CsvQuery) -> Response:
        require_access(context, actor, "batch")
        services, content_type = loader.services, request.headers.get("content-type", "")
        order = parse_order(services, body, content_type, query, actor.name)
        subscribe = None
        if (url := order.webhook_url) is not None:
            services.hooks.require_allowed(url)
            subscribe = partial(services.hooks.subscribe, "batch", owner=actor.name, url=url)
        with submit.problems_raised():
            batch, new = services.batches.submit(order, owner=actor.name, subscribe=subscribe)
        batch_id, created_at = batch.batch_id, iso(batch.created_at) or ""
        accepted = BatchResponse(batch_id=batch_id, status=batch.status, rows=batch.rows, created_at=created_at)
        return json_response(accepted, 202 if new else 200, location=f"/pdf/batches/{batch_id}")

    @router.delete("/pdf/batches/{batch_id}", response_model=BatchBody)
    def cancel_pdf_batch(actor: SignedInActor, batch_id: str) -> Response:
        """Cancel a batch: immediately if waiting, soon if running; you can repeat the request."""
        require_access(context, actor, "cancel_batch", target=batch_id)
        batches = loader.services.batches
        batch = _find_owned(batches, actor, batch_id)
        note = partial(context.commands.accounts.note, actor, "pdf.cancel_batch")
        audit = partial(note, queue="pdf_batches", site=batch.owner, target=batch_id)
        cancelled = batches.cancel(batch, actor=actor.name, audit=audit)
        current = _find_owned(batches, actor, batch_id)
        if not cancelled:
            status = current.status.value
            raise RequestConflict(f"it has ended: {status}", details={"status": status})
        return json_response(BatchBody.model_construct(**_fields(batches, current)))

    @router.get("/pdf/batches/{batch_id}", response_model=schemas.BatchWhole)
    def get_pdf_batch(
        actor: SignedInActor,
        batch_id: str,
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
        limit: Annotated[int, Query(ge=0, le=1_000)] = 100,
    ) -> Response:
        """The state of a batch, and the results of a page of its rows."""
        require_access(context, actor, "read_batch", target=batch_id)
        batches = loader.services.batches
        batch = _find_owned(batches, actor, batch_id)
        fields = _fields(batches, batch) | {
            "started_at": iso(batches.started_at(batch)),
            "results": batches.results(batch, offset, limit),
        }
        return json_response(schemas.BatchWhole.model_validate(fields))

    @router.head("/pdf/batches/{batch_id}/download", **_DOWNLOAD, name="look_at_pdf_batch")
    @router.get("/pdf/batches/{batch_id}/download", **_DOWNLOAD, name="download_pdf_batch")
    def download_batch(request: Request, actor: SignedInActor, batch_id: str) -> Response:
        """The file, or a range of it; 202 until it is ready."""
        require_access(context, actor, "download_batch", target=batch_id)
        services = loader.services
        batch = _find_owned(services.batches, actor, batch_id)
        if not batch.is_over:
            body = BatchBody.model_construct(**_fields(services.batches, batch))
            return json_response(body, 202, retry_after="5")
        sent = download.download_response(services.artifacts, _batch_file(batch), request)
        return note_download(context, actor, "download_batch", batch_id, sent, request.method)

    return router


def parse_order(tools: PdfServices, body: bytes, content_type: str, query: CsvQuery, owner: str) -> BatchOrder:
    """Parse a request, a CSV's with the query; raises Problem with the rows that are invalid."""
    media_type = content_type.partition(";")[0].strip().lower()
    csv_problems: Sequence[rows.BatchRowProblem] = ()
    try:
        if media_type in {"text/csv", "application/csv"}:
            request, csv_problems = _parse_csv(tools, body, query)
        elif media_type in {"application/json", "text/json", ""} or media_type.endswith("+json"):
            request = BatchRequest.model_validate_json(body)
        else:
            raise Problem(
                f"rows must be sent as application/json or text/csv, not as {media_type[:100]!r}",
                code="unsupported_type",
            )
        return _build_order(tools, request, csv_problems, owner)
    except ValidationError as problem:  # in the form of all routes, which do not repeat the input
        errors = problem.errors(include_url=False, include_input=False, include_context=False)
        located = [{**error, "loc": ("body", *error["loc"])} for error in errors]
        raise RequestValidationError(located) from None


def _parse_csv(tools: PdfServices, body: bytes, query: CsvQuery) -> tuple[BatchRequest, Sequence[rows.BatchRowProblem]]:
    if not query.template_name:
        raise Invalid("name the template: ?template_name=…", code="no_template")
    schema = submit.check_template(tools, query.template_name).schema
    table, problems = rows.read_csv(body, schema, column_names(query.ignore_columns))
    if not table:
        raise Invalid("there are no rows below the first line", code="no_rows")
    fields = query.model_dump(exclude={"ignore_columns"})
    return BatchRequest.model_validate({**fields, "rows": table}), problems


def _build_order(
    tools: PdfServices, request: BatchRequest, csv_problems: Sequence[rows.BatchRowProblem], owner: str
) -> BatchOrder:
    name, options = request.template_name, request.options
    sample = submit.check_template(tools, name).sample
    names = rows.row_file_names(request.rows, request.row_names, request.name_field)
    one = PdfJobRequest(template_name=name, variables=sample, options=options, then=request.then)
    like = submit.build_render_request(tools, one, owner)  # every job but for the variables
    order = BatchOrder(
        template=like.template,
        payload={field: value for field, value in like.payload.items() if field != "variables"},
        rows=request.rows,
        names=names,
        output=request.output,
        timeout=like.metadata["timeout"],
        file_name=request.file_name,
        webhook_url=request.webhook_url,
    )
    usable = set[str]()

    def find_problems(number: int, variables: dict[str, Any]) -> Sequence[tuple[str, str, str]]:
        [single] = order.requests("", "", number - 1, 1)
        try:
            tools.batches.queue.payload_text(single.body)
            if is_storable(single.body):
                return submit.find_problems(tools, owner, name, variables, usable)
            why = "contains characters that cannot be stored"
        except BadInput as problem:
            why = str(problem)
        return [("/", "limit", why)]

    rows.check_rows(find_problems, request.rows, csv_problems)
    return order


def _find_owned(batches: PdfBatchStore, actor: Actor, batch_id: str) -> PdfBatch:
    return batches.parse_batch(find_owned(batches.queue, actor, batch_id, "batch"))


def _fields(batches: PdfBatchStore, batch: PdfBatch) -> dict[str, Any]:
    made, failed = batches.progress(batch)
    output = batch.result if batch.has_file else {}
    return {
        **{name: getattr(batch, name) for name in _SAME_FIELDS},
        "created_at": iso(batch.created_at) or "",
        "made": made,
        "failed": failed,
        "waiting": 0 if batch.is_over else batch.rows - made - failed,
        "finished_at": iso(batch.finished_at),
        "download_url": f"/pdf/batches/{batch.batch_id}/download" if batch.has_file else None,
        **{fact: output.get(fact) for fact in ("bytes", "sha256", "pages")},
        "error_code": None if batch.has_file else batch.error_code,
        "error_message": None if batch.has_file else batch.error_message,
    }


def _batch_file(batch: PdfBatch) -> download.Download | Problem:
    if batch.status is BatchStatus.FAILED:
        code = batch.error_code or "UNKNOWN"
        why = batch.error_message or "it produced no file"
        return RequestConflict(why, code=code, details={"error_code": code})
    if not batch.has_file:
        return download.file_expired()
    created_at, template = iso(batch.created_at) or "", batch.template_name
    extension, media_type = store.FILE_TYPES[batch.output]
    suffix, batch_id = f".{extension}", batch.batch_id
    name = download.file_name(batch.file_name, template, created_at, batch_id, suffix)
    key = batch.result.get("artifact_key", "")
    return download.Download(key, name, batch.result, media_type)
