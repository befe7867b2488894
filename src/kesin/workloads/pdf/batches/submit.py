"""Parses and validates the request for a batch, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.foundation.problems import Invalid, Problem
from kesin.workloads.common.columns import column_names
from kesin.workloads.pdf.batches.rows import (
    BatchRowProblem,
    CsvTable,
    check_rows,
    read_csv,
    row_file_names,
)
from kesin.workloads.pdf.batches.store import BatchOrder
from kesin.workloads.pdf.jobs.submit import build_render_request, check_template, exact_json
from kesin.workloads.pdf.schemas import BatchRequest, CsvQuery, PdfJobRequest
from kesin.workloads.pdf.services import PdfServices

CSV_TYPES: Final = frozenset({"text/csv", "application/csv"})
JSON_TYPES: Final = frozenset({"application/json", "text/json", ""})


def parse_order(
    tools: PdfServices, queue: Queue, body: bytes, content_type: str, query: CsvQuery
) -> BatchOrder:
    """Parse a request to an order; raises Problem, listing the rows that are invalid.

    For a CSV body the query parameters hold the fields of the JSON body.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    csv_problems: Sequence[BatchRowProblem] = ()
    if media_type in CSV_TYPES:
        template_name = query.template_name
        if not template_name:
            raise Invalid("name the template: ?template_name=…", code="no_template")
        check_template(tools.library, tools.config, template_name)
        ignored = column_names(query.ignore_columns)
        table = read_csv(body, tools.library.get(template_name).schema, ignored)
        csv_problems = table.problems
        request = _csv_request(table, query)
    elif media_type in JSON_TYPES or media_type.endswith("+json"):
        request = _json_request(body)
        check_template(tools.library, tools.config, request.template_name)
    else:
        raise Problem(
            f"rows come as application/json or text/csv, not as {media_type[:100]!r}",
            code="unsupported_type",
        )
    return _build_order(tools, queue, request, csv_problems)


def _json_request(body: bytes) -> BatchRequest:
    try:
        return BatchRequest.model_validate_json(body)
    except ValidationError as problem:
        raise _validation_error(problem) from None


def _csv_request(table: CsvTable, query: CsvQuery) -> BatchRequest:
    if not table.rows:
        raise Invalid("there are no rows below the first line", code="no_rows")
    try:
        fields = query.model_dump(exclude={"ignore_columns"})
        return BatchRequest.model_validate({**fields, "rows": table.rows})
    except ValidationError as problem:
        raise _validation_error(problem) from None


def _validation_error(problem: ValidationError) -> RequestValidationError:
    """Convert the error to the form of all routes; it does not repeat the input."""
    errors = problem.errors(include_url=False, include_input=False, include_context=False)
    return RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in errors])


def _build_order(
    tools: PdfServices, queue: Queue, request: BatchRequest, csv_problems: Sequence[BatchRowProblem]
) -> BatchOrder:
    names = row_file_names(request.rows, request.row_names, request.name_field)
    sample = tools.library.get(request.template_name).sample
    sample_request = build_render_request(  # the payload of every job, but for the variables
        tools.library,
        tools.config,
        PdfJobRequest(
            template_name=request.template_name, variables=sample, options=request.options
        ),
        owner="",
    )
    order = BatchOrder(
        template=request.template_name,
        payload={
            name: value for name, value in sample_request.payload.items() if name != "variables"
        },
        rows=request.rows,
        names=names,
        output=request.output,
        timeout=sample_request.metadata["timeout"],
        file_name=request.file_name,
        webhook_url=request.webhook_url,
    )
    check_rows(
        tools.library,
        request.template_name,
        request.rows,
        csv_problems,
        unstorable=_find_unstorable_rows(order, queue),
    )
    return order


def _find_unstorable_rows(order: BatchOrder, queue: Queue) -> dict[int, str]:
    """Return the rows, counted from 1, that the queue cannot store unchanged, and why."""
    reasons: dict[int, str] = {}
    for number, request in enumerate(order.requests("", "", 0, len(order.rows)), 1):
        body = request.body
        try:
            text = queue.payload_text(body)
        except BadInput as problem:
            reasons[number] = str(problem)
        else:
            if text != exact_json(body):
                reasons[number] = "holds characters that cannot be stored"
    return reasons
