"""The channel ``api``: uploadClickConversions of the Google Ads API, over REST."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import httpx

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.conversions.conversion import (
    CLICKS,
    Conversion,
    google_time,
    number,
)
from kesin.workloads.oci.google.batching import Reply, deliver, without_twins
from kesin.workloads.oci.google.channel import (
    Accepted,
    Channel,
    Finding,
    Refused,
    Row,
    Sent,
    Trouble,
)
from kesin.workloads.oci.google.classify import GoogleError, either, judge, read_error
from kesin.workloads.oci.google.client import Failure, Line, failure_of, note_of
from kesin.workloads.oci.google.connection_check import TRIAL, findings
from kesin.workloads.oci.google.credentials import Credentials
from kesin.workloads.oci.google.error_table import (
    PARTIAL_FAILURE_UNREADABLE,
    REQUEST_REFUSED,
    TABLE,
    UNREADABLE_RESPONSE,
)
from kesin.workloads.oci.google.http import OK, Answer
from kesin.workloads.oci.google.oauth import Tokens

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


_BAD_REQUEST: Final = 400
_NOT_THE_ROWS: Final = frozenset(  # told of each row, and true of Google as a whole
    {UNREADABLE_RESPONSE, PARTIAL_FAILURE_UNREADABLE}
    | {
        value
        for group in ("internalError", "quotaError", "databaseError")
        for value, says in TABLE[group].values.items()
        if says.category in {Category.TRANSIENT, Category.RATE_LIMIT}
    }
)


class GoogleAds(Channel):
    """Uploads with partial failure: each row has its own fate."""

    def __init__(
        self,
        client: httpx.Client,
        tokens: Tokens,
        *,
        base_url: str,
        version: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._base = f"{base_url.rstrip('/')}/{version}"
        self._line = Line(client, tokens, monotonic=monotonic)

    def ready(self, credentials: Credentials) -> Trouble | None:
        """Whether there is a token."""
        return self._line.ready(credentials)

    def upload(self, credentials: Credentials, rows: Sequence[Row]) -> Sent:
        """Send these conversions; one answer a row, whatever happens."""

        def send(part: Sequence[Row]) -> Reply | Failure:
            answer = self._ask(credentials, [row.conversion for row in part])
            if isinstance(answer, Failure):
                return answer
            if answer.status != OK:
                named = _named(answer, len(part)) if answer.status == _BAD_REQUEST else None
                return named or failure_of(answer)
            request_id = answer.request_id
            answers = read_upload(answer.body, part, request_id)
            return Reply(answers, _trouble_of(answers), request_id)

        return deliver(rows, without_twins(rows), send)

    def check(self, credentials: Credentials) -> list[Finding]:
        """Token, account and action, by a conversion that is only validated."""
        answer = self._ask(credentials, [TRIAL], validate_only=True)
        if isinstance(answer, Failure):
            return findings(answer)
        if answer.status == OK:
            return findings(Reply(_validated(answer)))
        reply = _named(answer, 1) if answer.status == _BAD_REQUEST else None
        return findings(reply or failure_of(answer))

    def _ask(
        self,
        credentials: Credentials,
        conversions: Sequence[Conversion],
        *,
        validate_only: bool = False,
    ) -> Answer | Failure:
        action = credentials.conversion_action_resource_name
        body: dict[str, Any] = {
            "conversions": [click_conversion(one, action) for one in conversions],
            "partialFailure": True,
        }
        if validate_only:
            body["validateOnly"] = True
        headers = {}
        if credentials.developer_token:
            headers["developer-token"] = credentials.developer_token
        if credentials.login_customer_id:
            headers["login-customer-id"] = credentials.login_customer_id
        url = f"{self._base}/customers/{credentials.customer_id}:uploadClickConversions"
        return self._line.ask(credentials, "POST", url, headers=headers, json=body)


def click_conversion(conversion: Conversion, action: str) -> dict[str, Any]:
    """As Google wants it: one click id, the time with its offset, its order id."""
    kind, click = conversion.click
    return {
        kind: click,
        "conversionAction": action,
        "conversionDateTime": google_time(conversion.at),
        "conversionValue": number(conversion.value),
        "currencyCode": conversion.currency,
        "orderId": conversion.order_id,
    }


def _named(answer: Answer, count: int) -> Reply | None:
    """A refused request that names rows; None if some error names none."""
    error = answer.body.get("error") if isinstance(answer.body, dict) else None
    try:
        grouped = errors_by_row(failure_errors(error), count)
    except Unreadable:
        return None
    if not grouped:
        return None
    judged = {one: judge_row(errors, answer.request_id) for one, errors in grouped.items()}
    other = Refused(
        REQUEST_REFUSED,
        "refused with other rows of its request, and not recorded",
        Category.TRANSIENT,
        note_of(answer.request_id),
    )
    rows = [judged.get(position, other) for position in range(count)]
    return Reply(rows, _trouble_of(list(judged.values())), answer.request_id)


def _trouble_of(answers: Sequence[Accepted | Refused]) -> Trouble | None:
    """The site is wrong, not its rows, when every one of them meets the same kind of wall."""
    refused = [one for one in answers if isinstance(one, Refused)]
    if not refused or len(refused) < len(answers):
        return None
    first = refused[0]
    if all(one.category is Category.AUTH for one in refused):
        return Trouble("AUTH", first.code, first.message)
    if all(one.code in _NOT_THE_ROWS for one in refused):
        return Trouble("TRANSIENT", first.code, first.message)
    return None


def _validated(answer: Answer) -> list[Accepted | Refused]:
    """What a validated request says of its one row: errors, and never a result."""
    if not isinstance(answer.body, dict):
        return [Refused(UNREADABLE_RESPONSE, "the answer is no JSON object", Category.TRANSIENT)]
    try:
        errors = partial_errors(answer.body)
    except Unreadable as problem:
        return [Refused(PARTIAL_FAILURE_UNREADABLE, str(problem), Category.TRANSIENT)]
    return [judge([read_error(one) for one in errors])] if errors else []
