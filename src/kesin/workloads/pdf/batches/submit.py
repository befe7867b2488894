"""From what was sent to a batch: read, checked row by row, and only then asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.foundation.problems import Invalid, Problem
from kesin.workloads.pdf.batches.rows import RowProblem, Table, check_rows, names_of, read_csv
from kesin.workloads.pdf.batches.store import Order
from kesin.workloads.pdf.jobs.submit import check_template, render_request, unmended
from kesin.workloads.pdf.schemas import BatchRequest, CsvQuery, PdfJobRequest
from kesin.workloads.pdf.services import Tools

CSV_TYPES: Final = frozenset({"text/csv", "application/csv"})
JSON_TYPES: Final = frozenset({"application/json", "text/json", ""})


def ordered(tools: Tools, queue: Queue, body: bytes, content_type: str, query: CsvQuery) -> Order:
    """What somebody wants, if every row will do; raises Problem, with the rows that will not.

    The query says of a CSV file what JSON says in its body.
    """
    kind = content_type.partition(";")[0].strip().lower()
    known: Sequence[RowProblem] = ()
    if kind in CSV_TYPES:
        named = query.template_name
        if not named:
            raise Invalid("name the template: ?template_name=…", code="no_template")
        check_template(tools.book, tools.config, named)
        table = read_csv(body, tools.book.get(named).schema)
        known = table.problems
        request = _csv_request(table, query)
    elif kind in JSON_TYPES or kind.endswith("+json"):
        request = _json_request(body)
        check_template(tools.book, tools.config, request.template_name)
    else:
        raise Problem(
            f"rows come as application/json or text/csv, not as {kind[:100]!r}",
            code="unsupported_type",
        )
    return _order(tools, queue, request, known)


def _json_request(body: bytes) -> BatchRequest:
    try:
        return BatchRequest.model_validate_json(body)
    except ValidationError as problem:
        raise _spelled(problem) from None


def _csv_request(table: Table, query: CsvQuery) -> BatchRequest:
    if not table.rows:
        raise Invalid("there are no rows below the first line", code="no_rows")
    try:
        return BatchRequest.model_validate({**query.model_dump(), "rows": table.rows})
    except ValidationError as problem:
        raise _spelled(problem) from None


def _spelled(problem: ValidationError) -> RequestValidationError:
    """The same, as every other door tells it; what was sent is not repeated."""
    found = problem.errors(include_url=False, include_input=False, include_context=False)
    return RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found])


def _order(tools: Tools, queue: Queue, request: BatchRequest, known: Sequence[RowProblem]) -> Order:
    names = names_of(request.rows, request.row_names, request.name_field)
    sample = tools.book.get(request.template_name).sample
    pattern = render_request(  # every job has this payload, with other variables
        tools.book,
        tools.config,
        PdfJobRequest(
            template_name=request.template_name, variables=sample, options=request.options
        ),
        owner="",
    )
    order = Order(
        template=request.template_name,
        payload={name: one for name, one in pattern.payload.items() if name != "variables"},
        rows=request.rows,
        names=names,
        output=request.output,
        timeout=pattern.manner["timeout"],
        file_name=request.file_name,
        webhook_url=request.webhook_url,
    )
    check_rows(tools.book, request.template_name, request.rows, known, unfit=_unfit(order, queue))
    return order


def _unfit(order: Order, queue: Queue) -> dict[int, str]:
    """Rows, counted from 1, that the queue could not keep as they are."""
    found: dict[int, str] = {}
    for number, request in enumerate(order.requests("", "", 0, len(order.rows)), 1):
        body = request.body
        try:
            text = queue.payload_text(body)
        except BadInput as problem:
            found[number] = str(problem)
        else:
            if text != unmended(body):
                found[number] = "holds characters that cannot be stored"
    return found
