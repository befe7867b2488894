"""The channel ``api``: conversions and adjustments to the Google Ads API, over REST."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.foundation.text import json_number
from kesin.lifecycle.errors import Category
from kesin.workloads.oci.conversions.actions import ListedAction
from kesin.workloads.oci.conversions.conversion import CLICK_KINDS, Conversion, format_google_time
from kesin.workloads.oci.google import classify as table
from kesin.workloads.oci.google import client
from kesin.workloads.oci.google.channel import (
    ConnectionTrouble,
    Finding,
    RequestFailure,
    RowAccepted,
    RowRefused,
    UploadResult,
    UploadRow,
)
from kesin.workloads.oci.google.classify import GoogleError, classify_errors, get_either, read_error
from kesin.workloads.oci.google.credentials import GoogleCredentials
from kesin.workloads.oci.google.http import BAD_REQUEST, OK, GoogleResponse, count_of, dig, objects, text_at

Outcomes = list[RowAccepted | RowRefused]

_IDENTIFIERS: Final = {"hashedEmail": "hashedEmail", "hashedPhone": "hashedPhoneNumber"}
_OWN_DATA: Final = {"userIdentifierSource": "FIRST_PARTY"}
ACTIONS_QUERY: Final = (  # the script asks the same
    "SELECT conversion_action.id, conversion_action.name, conversion_action.status, "
    "conversion_action.counting_type, conversion_action.click_through_lookback_window_days "
    "FROM conversion_action WHERE conversion_action.type = 'UPLOAD_CLICKS' "
    "ORDER BY conversion_action.name LIMIT 500"
)
# The method of an upload, and its rows as errors name them: of conversions, and of adjustments.
CONVERSIONS: Final = ("uploadClickConversions", "conversions")
ADJUSTMENTS: Final = ("uploadConversionAdjustments", "conversion_adjustments")
_FIELDS: Final = {"conversions": "conversions", "conversion_adjustments": "conversionAdjustments"}
_TYPES: Final = {"RETRACT": "RETRACTION", "RESTATE": "RESTATEMENT"}
FAILURE_TYPE: Final = "GoogleAdsFailure"
NO_OBJECT: Final = Message("the response is not a JSON object")
MAX_DIGITS: Final = 10
MAX_PAGES: Final = 20  # of ten thousand rows each
MAX_NOTED_ERRORS: Final = 5  # errors noted per row
MAX_NOTE_LENGTH: Final = 2_000  # characters of each


class UnreadableResponse(ValueError):
    """A response that does not say which row it is about."""


def read_upload(body: Any, rows: Sequence[UploadRow], request_id: str = "") -> Outcomes:
    """Read a response with status 200: one outcome per row."""
    count = len(rows)
    if not isinstance(body, dict):
        return [_refused(table.UNREADABLE_RESPONSE, NO_OBJECT, request_id)] * count
    try:
        failed = errors_by_row(partial_errors(body), count, _kind(rows)[1])
        results = _results(body, rows)
    except UnreadableResponse as problem:
        return [_refused(table.PARTIAL_FAILURE_UNREADABLE, str(problem), request_id)] * count
    accepted = RowAccepted(note=client.event_note(request_id))
    neither = Message("Google shows neither a result nor an error for this row")
    no_result = _refused(table.PARTIAL_FAILURE_UNREADABLE, neither, request_id)
    outcomes: Outcomes = [accepted if result else no_result for result in results]
    for position, errors in failed.items():
        outcomes[position] = classify_row(errors, request_id)
    return outcomes


def classify_row(errors: Sequence[GoogleError], request_id: str) -> RowAccepted | RowRefused:
    """Classify all errors of a row; its note holds the errors."""
    noted = [_note_error(error) for error in errors[:MAX_NOTED_ERRORS]]
    return replace(classify_errors(errors), note=client.event_note(request_id, errors=noted))


def partial_errors(body: Mapping[str, Any]) -> list[Any]:
    """The errors of the rows; raises UnreadableResponse for a partial failure without errors."""
    status = get_either(body, "partialFailureError", "partial_failure_error")
    if status is None:
        return []
    if not (errors := failure_errors(status)):
        raise UnreadableResponse("a partial failure without errors")
    return errors


def failure_errors(status: Any) -> list[Any]:
    """The errors in the details of a status; raises UnreadableResponse."""
    details = dig(status, "details")
    if not isinstance(details, list):
        raise UnreadableResponse("a failure without details")
    errors: list[Any] = []
    for detail in details:
        if not isinstance(detail, dict):
            raise UnreadableResponse("a failure with details in an unrecognised format")
        entries = detail.get("errors")
        if isinstance(entries, list):
            errors += entries
        elif entries is not None or str(detail.get("@type", FAILURE_TYPE)).endswith(FAILURE_TYPE):
            raise UnreadableResponse("a failure whose errors are not a list")
    return errors


def _kind(rows: Sequence[UploadRow]) -> tuple[str, str]:
    return ADJUSTMENTS if rows and rows[0].adjusted else CONVERSIONS


def errors_by_row(errors: Sequence[Any], count: int, field: str = CONVERSIONS[1]) -> dict[int, list[GoogleError]]:
    """Group the errors by row; raises UnreadableResponse for an error of no row."""
    grouped: dict[int, list[GoogleError]] = {}
    for error in errors:
        index = _index(error, field)
        if index is None or not 0 <= index < count:
            why = Message("an error for row %(row)s of %(n)s", row=index, n=count)
            raise UnreadableResponse(why)
        grouped.setdefault(index, []).append(read_error(error))
    return grouped


def _index(error: Any, field: str) -> int | None:
    elements = get_either(dig(error, "location"), "fieldPathElements", "field_path_elements")
    for element in objects(elements):
        if get_either(element, "fieldName", "field_name") == field:
            index = element.get("index")
            if isinstance(index, str) and index.isascii() and index.isdecimal():
                return int(index) if len(index) < MAX_DIGITS else None
            return index if isinstance(index, int) and not isinstance(index, bool) else None
    return None


def _results(body: Mapping[str, Any], rows: Sequence[UploadRow]) -> list[Any]:
    """One result per row, empty for failed rows; raises UnreadableResponse on a mismatch."""
    results = body.get("results")
    if not isinstance(results, list) or len(results) != len(rows):
        raise UnreadableResponse(Message("the results do not match the %(n)s rows", n=len(rows)))
    for result, row in zip(results, rows, strict=True):
        if not isinstance(result, dict):
            raise UnreadableResponse("a result that is not an object")
        kind, click = row.conversion.click or ("gclid", None)
        if any(result.get(click_kind) for click_kind in CLICK_KINDS) and result.get(kind) != click:
            raise UnreadableResponse("a result for another click")
        if result.get("orderId", row.conversion.order_id) != row.conversion.order_id:
            raise UnreadableResponse("a result of another order")
    return results


def _refused(code: str, message: str, request_id: str = "") -> RowRefused:
    return RowRefused(code, message, Category.TRANSIENT, client.event_note(request_id))


def _note_error(error: GoogleError) -> Any:
    """The error as received, or its code and message if it is too long."""
    if len(json.dumps(error.raw)) <= MAX_NOTE_LENGTH:
        return error.raw
    return {"errorCode": {error.group: error.value[:200]}, "message": error.message[:1_000]}


_SITE_WIDE_CODES: Final = {  # reported per row, but about Google as a whole
    value
    for group in ("internalError", "quotaError", "databaseError")
    for value, meaning in table.ERROR_TABLE[group].values.items()
    if meaning.category in {Category.TRANSIENT, Category.RATE_LIMIT}
} | {table.UNREADABLE_RESPONSE, table.PARTIAL_FAILURE_UNREADABLE}


class GoogleAds(client.GoogleChannel):
    """Uploads with partial failure: each row has its own outcome."""

    def upload(self, credentials: GoogleCredentials, rows: Sequence[UploadRow]) -> UploadResult:
        """Send these rows, all of one kind; always returns one outcome per row."""
        return client.deliver(rows, client.separate_twins(rows), partial(self._upload, credentials))

    def check(self, credentials: GoogleCredentials, *, adjusts: bool = False) -> list[Finding]:
        """Check token, account and action with a row that is only validated."""
        adjusted = ("RESTATE", client.TRIAL_CONVERSION.at) if adjusts else None
        trial = [UploadRow("", client.TRIAL_CONVERSION, adjusted)]
        return client.build_findings(self._upload(credentials, trial, validate_only=True))

    def _upload(
        self, credentials: GoogleCredentials, rows: Sequence[UploadRow], *, validate_only: bool = False
    ) -> client.RequestReply | RequestFailure:
        method, field = _kind(rows)
        body = {
            _FIELDS[field]: [_row_of(row, credentials) for row in rows],
            "partialFailure": True,
            **({"validateOnly": True} if validate_only else {}),
        }
        response = self._post(credentials, f":{method}", body)
        if isinstance(response, RequestFailure):
            return response
        if response.status != OK:
            return _read_refusal(response, len(rows), field)
        if validate_only:
            return client.RequestReply(_validation_result(response))
        outcomes = read_upload(response.body, rows, response.request_id)
        return client.RequestReply(outcomes, _common_trouble(outcomes), response.request_id)

    def list_actions(self, credentials: GoogleCredentials) -> list[ListedAction] | RequestFailure:
        """The conversion actions of the account that take uploads of clicks, by name."""
        rows = self.search(credentials, ACTIONS_QUERY)
        if isinstance(rows, RequestFailure):
            return rows
        return [_listed(action) for each in rows if (action := dig(each, "conversionAction"))]

    def search(self, credentials: GoogleCredentials, query: str) -> list[Any] | RequestFailure:
        """The rows of a query, of all pages."""
        rows, body = list[Any](), {"query": query}
        for _ in range(MAX_PAGES):
            response = self._post(credentials, "/googleAds:search", body)
            if isinstance(response, RequestFailure) or response.status != OK:
                return response if isinstance(response, RequestFailure) else client.failure_of(response)
            if not isinstance(response.body, dict):
                return RequestFailure(_refused(table.UNREADABLE_RESPONSE, NO_OBJECT))
            rows += objects(response.body.get("results"))
            body["pageToken"] = text_at(response.body, "nextPageToken")
            if not body["pageToken"]:
                break
        return rows

    def _post(
        self, credentials: GoogleCredentials, path: str, body: Mapping[str, Any]
    ) -> GoogleResponse | RequestFailure:
        token, login = credentials.developer_token, credentials.login_customer_id
        headers = {"developer-token": token, "login-customer-id": login}
        given = {name: value for name, value in headers.items() if value}
        path = f"customers/{credentials.customer_id}{path}"
        return self._send(credentials, "POST", path, headers=given, json=body)


def _listed(action: Any) -> ListedAction:
    """An action of the answer, which leaves out what has no value; JSON has int64 as text."""
    return text_at(action, "status"), {
        "name": text_at(action, "name"),
        "id": str(dig(action, "id")),
        "counting": text_at(action, "countingType") or "MANY_PER_CLICK",
        "lookback_days": count_of(dig(action, "clickThroughLookbackWindowDays") or 30),
    }


def _row_of(row: UploadRow, credentials: GoogleCredentials) -> dict[str, Any]:
    action = credentials.resource_name(row.conversion.action)
    return adjustment_of(row, action) if row.adjusted else click_conversion(row.conversion, action)


def click_conversion(conversion: Conversion, action: str) -> dict[str, Any]:
    """The conversion as Google's ClickConversion: who it was, time with offset, order id."""
    people = conversion.sent_identifiers.items()
    identifiers = [{_IDENTIFIERS[name]: value, **_OWN_DATA} for name, value in people]
    consent = conversion.consent.get("adUserData")
    return {
        **(dict([conversion.click]) if conversion.click else {}),
        **({"userIdentifiers": identifiers} if identifiers else {}),
        "conversionAction": action,
        "conversionDateTime": format_google_time(conversion.at),
        "conversionValue": json_number(conversion.value),
        "currencyCode": conversion.currency,
        "orderId": conversion.order_id,
        # Google takes no adPersonalization with conversions.
        **({"consent": {"adUserData": consent.upper()}} if consent else {}),
    }


def adjustment_of(row: UploadRow, action: str) -> dict[str, Any]:
    """The row as Google's ConversionAdjustment; only a restatement has a value."""
    conversion, (kind, at) = row.conversion, row.adjusted or ("RESTATE", row.conversion.at)
    value = {"adjustedValue": json_number(conversion.value), "currencyCode": conversion.currency}
    return {
        "orderId": conversion.order_id,
        "conversionAction": action,
        "adjustmentType": _TYPES[kind],
        "adjustmentDateTime": format_google_time(at),
        **({"restatementValue": value} if kind == "RESTATE" else {}),
    }


def _read_refusal(response: GoogleResponse, count: int, field: str) -> client.RequestReply | RequestFailure:
    """Read a refused request; if an error names no row, it failed as a whole."""
    try:
        grouped = errors_by_row(failure_errors(dig(response.body, "error")), count, field)
    except UnreadableResponse:
        grouped = {}
    if not grouped or response.status != BAD_REQUEST:
        return client.failure_of(response)
    request_id = response.request_id
    classified = {row: classify_row(errors, request_id) for row, errors in grouped.items()}
    with_others = Message("refused along with the other rows in its request, and not recorded")
    other = _refused(table.REQUEST_REFUSED, with_others, request_id)
    rows = [classified.get(position, other) for position in range(count)]
    return client.RequestReply(rows, _common_trouble(list(classified.values())), request_id)


def _common_trouble(outcomes: Sequence[RowAccepted | RowRefused]) -> ConnectionTrouble | None:
    """The trouble of the site, if every row is refused for the same site-wide reason."""
    refused = [refusal for refusal in outcomes if isinstance(refusal, RowRefused)]
    if not refused or len(refused) < len(outcomes):
        return None
    first = refused[0]
    if all(refusal.category is Category.AUTH for refusal in refused):
        return ConnectionTrouble("AUTH", first.code, first.message)
    if all(refusal.code in _SITE_WIDE_CODES for refusal in refused):
        return ConnectionTrouble("TRANSIENT", first.code, first.message)
    return None


def _validation_result(response: GoogleResponse) -> Outcomes:
    """The errors of a validated request with one row; it never has results."""
    if not isinstance(response.body, dict):
        return [_refused(table.UNREADABLE_RESPONSE, NO_OBJECT)]
    try:
        errors = partial_errors(response.body)
    except UnreadableResponse as problem:
        return [_refused(table.PARTIAL_FAILURE_UNREADABLE, str(problem))]
    return [classify_errors([read_error(error) for error in errors])] if errors else []
