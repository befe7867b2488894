"""Parses and validates the request for a batch, row by row."""

from collections.abc import Sequence
from functools import partial

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.foundation.problems import Invalid, Problem
from kesin.foundation.text import is_storable
from kesin.workloads.common.columns import column_names
from kesin.workloads.pdf.batches import rows
from kesin.workloads.pdf.batches.store import BatchOrder
from kesin.workloads.pdf.jobs.submit import build_render_request, check_template, find_problems
from kesin.workloads.pdf.schemas import BatchRequest, CsvQuery, PdfJobRequest
from kesin.workloads.pdf.services import PdfServices


def parse_order(
    tools: PdfServices, body: bytes, content_type: str, query: CsvQuery, owner: str
) -> BatchOrder:
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


def _parse_csv(
    tools: PdfServices, body: bytes, query: CsvQuery
) -> tuple[BatchRequest, Sequence[rows.BatchRowProblem]]:
    if not query.template_name:
        raise Invalid("name the template: ?template_name=…", code="no_template")
    schema = check_template(tools, query.template_name).schema
    table, problems = rows.read_csv(body, schema, column_names(query.ignore_columns))
    if not table:
        raise Invalid("there are no rows below the first line", code="no_rows")
    fields = query.model_dump(exclude={"ignore_columns"})
    return BatchRequest.model_validate({**fields, "rows": table}), problems


def _build_order(
    tools: PdfServices,
    request: BatchRequest,
    csv_problems: Sequence[rows.BatchRowProblem],
    owner: str,
) -> BatchOrder:
    name, options = request.template_name, request.options
    sample = check_template(tools, name).sample
    names = rows.row_file_names(request.rows, request.row_names, request.name_field)
    one = PdfJobRequest(template_name=name, variables=sample, options=options, then=request.then)
    like = build_render_request(tools, one, owner)  # every job but for the variables
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
    unstorable = _find_unstorable_rows(order, tools.batches.queue)
    check = partial(find_problems, tools, owner, name, usable=set())
    rows.check_rows(check, request.rows, csv_problems, unstorable=unstorable)
    return order


def _find_unstorable_rows(order: BatchOrder, queue: Queue) -> dict[int, str]:
    """Return the rows, counted from 1, that the queue cannot store unchanged, and why."""
    reasons: dict[int, str] = {}
    for number, request in enumerate(order.requests("", "", 0, len(order.rows)), 1):
        try:
            queue.payload_text(request.body)
            if not is_storable(request.body):
                reasons[number] = "contains characters that cannot be stored"
        except BadInput as problem:
            reasons[number] = str(problem)
    return reasons
