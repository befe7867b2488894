"""The channel ``api``: uploadClickConversions of the Google Ads API, over REST."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import httpx

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.batches import Reply, deliver, without_twins
from kesin.workloads.oci.channel import Accepted, Channel, Finding, Refused, Row, Sent, Trouble
from kesin.workloads.oci.checks import TRIAL, findings
from kesin.workloads.oci.conversions import Conversion, google_time, number
from kesin.workloads.oci.credentials import Credentials
from kesin.workloads.oci.google_errors import (
    PARTIAL_FAILURE_UNREADABLE,
    REQUEST_REFUSED,
    TABLE,
    UNREADABLE_RESPONSE,
)
from kesin.workloads.oci.line import Failure, Line, failure_of, note_of
from kesin.workloads.oci.partial_failure import (
    Unreadable,
    errors_by_row,
    failure_errors,
    judge_row,
    partial_errors,
    read_upload,
)
from kesin.workloads.oci.tokens import Tokens
from kesin.workloads.oci.verdicts import judge, read_error
from kesin.workloads.oci.wire import OK, Answer

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
