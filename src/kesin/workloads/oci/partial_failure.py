"""Which rows Google took: the answer to an upload, read without trusting its 200.

A row is credited when Google shows its result, echoes its click and lists no error for it. An
answer that cannot be read to the end credits nobody: sent again, the order id tells Google what it
has already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.channel import Accepted, Refused, Row
from kesin.workloads.oci.conversions import CLICKS
from kesin.workloads.oci.google_errors import PARTIAL_FAILURE_UNREADABLE, UNREADABLE_RESPONSE
from kesin.workloads.oci.line import note_of
from kesin.workloads.oci.verdicts import GoogleError, either, judge, read_error

FAILURE: Final = "GoogleAdsFailure"
MAX_DIGITS: Final = 10
MAX_NOTED: Final = 5  # errors of one row that are kept as they came
MAX_NOTE: Final = 2_000  # characters of each


class Unreadable(ValueError):
    """An answer that does not say which row it speaks of."""


def read_upload(body: Any, rows: Sequence[Row], request_id: str = "") -> list[Accepted | Refused]:
    """One answer a row of a request that came back with 200."""
    if not isinstance(body, dict):
        return _nobody(len(rows), UNREADABLE_RESPONSE, "the answer is no JSON object", request_id)
    try:
        failed = errors_by_row(partial_errors(body), len(rows))
        results = _results(body, rows)
    except Unreadable as problem:
        return _nobody(len(rows), PARTIAL_FAILURE_UNREADABLE, str(problem), request_id)
    accepted = Accepted(note=note_of(request_id))
    unsure = Refused(
        PARTIAL_FAILURE_UNREADABLE,
        "Google shows neither a result nor an error for this row",
        Category.TRANSIENT,
        note_of(request_id),
    )
    return [
        judge_row(failed[position], request_id)
        if position in failed
        else accepted
        if results[position]
        else unsure
        for position in range(len(rows))
    ]


def judge_row(errors: Sequence[GoogleError], request_id: str) -> Accepted | Refused:
    """All errors of a row, with those errors in its note."""
    noted = [_noted(error) for error in errors[:MAX_NOTED]]
    return replace(judge(errors), note=note_of(request_id, errors=noted))


def partial_errors(body: Mapping[str, Any]) -> list[Any]:
    """The errors of the rows; raises Unreadable where Google says there are some and not which."""
    status = either(body, "partialFailureError", "partial_failure_error")
    if status is None:
        return []
    errors = failure_errors(status)
    if not errors:
        raise Unreadable("a partial failure without errors")
    return errors


def failure_errors(status: Any) -> list[Any]:
    """The errors in the details of a status; raises Unreadable."""
    details = status.get("details") if isinstance(status, dict) else None
    if not isinstance(details, list):
        raise Unreadable("a failure without details")
    errors: list[Any] = []
    for detail in details:
        if not isinstance(detail, dict):
            raise Unreadable("a failure with strange details")
        found = detail.get("errors")
        if isinstance(found, list):
            errors += found
        elif found is not None or str(detail.get("@type", FAILURE)).endswith(FAILURE):
            raise Unreadable("a failure whose errors are no list")
    return errors


def errors_by_row(errors: Sequence[Any], count: int) -> dict[int, list[GoogleError]]:
    """All errors of each row; raises Unreadable for one that belongs to none."""
    grouped: dict[int, list[GoogleError]] = {}
    for error in errors:
        index = _index(error)
        if index is None or not 0 <= index < count:
            raise Unreadable(f"an error of row {index}, in a request of {count}")
        grouped.setdefault(index, []).append(read_error(error))
    return grouped


def _index(error: Any) -> int | None:
    """The position that an error names, wherever in its path that stands."""
    for element in _path(error):
        if (
            isinstance(element, dict)
            and either(element, "fieldName", "field_name") == "conversions"
        ):
            index = element.get("index")
            if isinstance(index, str) and index.isascii() and index.isdecimal():
                return int(index) if len(index) < MAX_DIGITS else None
            return index if isinstance(index, int) and not isinstance(index, bool) else None
    return None


def _path(error: Any) -> Iterator[Any]:
    location = error.get("location") if isinstance(error, dict) else None
    if isinstance(location, dict):
        elements = either(location, "fieldPathElements", "field_path_elements")
        yield from elements if isinstance(elements, list) else ()


def _results(body: Mapping[str, Any], rows: Sequence[Row]) -> list[Any]:
    """One result a row, empty for those that failed; raises Unreadable if they do not fit."""
    results = body.get("results")
    if not isinstance(results, list) or len(results) != len(rows):
        raise Unreadable(f"no result for each of {len(rows)} rows")
    for result, row in zip(results, rows, strict=True):
        if not isinstance(result, dict):
            raise Unreadable("a result that is no object")
        kind, click = row.conversion.click
        if any(result.get(one) for one in CLICKS) and result.get(kind) != click:
            raise Unreadable("a result of another click")
    return results


def _nobody(count: int, code: str, message: str, request_id: str) -> list[Accepted | Refused]:
    return [Refused(code, message, Category.TRANSIENT, note_of(request_id))] * count


def _noted(error: GoogleError) -> Any:
    """As it came, or what matters of it if that is too long."""
    if len(json.dumps(error.raw)) <= MAX_NOTE:
        return error.raw
    return {"errorCode": {error.group: error.value[:200]}, "message": error.message[:1_000]}
