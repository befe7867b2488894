"""The channel ``data_manager``: events:ingest of the Data Manager API, which replaces the other.

One bad event sinks its request and nothing of it is recorded. The ones Google names are dropped,
the rest is sent again; where it names none, the request is halved. What is accepted is judged
later and only as a whole: ``status`` asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import httpx

from kesin.lifecycle.errors import Category
from kesin.store.limits import MAX_MESSAGE
from kesin.workloads.oci.conversions.conversion import Conversion, number
from kesin.workloads.oci.google.batching import Reply, deliver, in_chunks
from kesin.workloads.oci.google.channel import (
    Accepted,
    Channel,
    Finding,
    Refused,
    Row,
    Sent,
    State,
    Status,
    Trouble,
)
from kesin.workloads.oci.google.classify import GoogleError, look_up
from kesin.workloads.oci.google.client import Failure, Line, failure_of, note_of
from kesin.workloads.oci.google.connection_check import TRIAL, findings
from kesin.workloads.oci.google.credentials import Credentials
from kesin.workloads.oci.google.error_table import UNREADABLE_RESPONSE
from kesin.workloads.oci.google.google_ads import judge_row
from kesin.workloads.oci.google.http import OK, Answer, details_of
from kesin.workloads.oci.google.oauth import Tokens

MAX_WARNINGS: Final = 20
MAX_DESTINATIONS: Final = 10
_BAD_REQUEST: Final = 400
_EVENT: Final = re.compile(r"(?:^|\.)events\[([0-9]{1,9})\]")
_DESTINATION: Final = re.compile(r"(?:^|\.)destinations?\b", re.IGNORECASE)

_STATES: Final[Mapping[str, State]] = {
    "FAILURE": "FAILURE",
    "FAILED": "FAILURE",
    "PARTIAL_SUCCESS": "PARTIAL_SUCCESS",
    "PROCESSING": "PROCESSING",
    "SUCCESS": "SUCCESS",
}
_ORDER: Final[tuple[State, ...]] = (
    "FAILURE", "PARTIAL_SUCCESS", "PROCESSING", "UNKNOWN", "SUCCESS",
)  # fmt: skip


class DataManager(Channel):
    """Ingests events. Accepted means received: Google looks at them afterwards."""

    def __init__(
        self,
        client: httpx.Client,
        tokens: Tokens,
        *,
        base_url: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._base = f"{base_url.rstrip('/')}/v1"
        self._line = Line(client, tokens, monotonic=monotonic)

    def ready(self, credentials: Credentials) -> Trouble | None:
        """Whether there is a token."""
        return self._line.ready(credentials)

    def upload(self, credentials: Credentials, rows: Sequence[Row]) -> Sent:
        """Send these conversions; one answer a row, whatever happens."""

        def send(part: Sequence[Row]) -> Reply | Failure:
            answer = self._ingest(credentials, [row.conversion for row in part])
            if isinstance(answer, Failure):
                return answer
            if answer.status != OK:
                return _refused(answer, len(part))
            return _accepted(answer, len(part))

        return deliver(rows, in_chunks(len(rows)), send)

    def check(self, credentials: Credentials) -> list[Finding]:
        """Token, account and action, by an event that is only validated."""
        answer = self._ingest(credentials, [TRIAL], validate_only=True)
        if isinstance(answer, Failure):
            return findings(answer)
        if answer.status == OK:
            return findings(Reply([]) if isinstance(answer.body, dict) else _accepted(answer, 1))
        return findings(_refused(answer, 1))

    def status(self, credentials: Credentials, request_id: str) -> Status:
        """How an accepted request ended; UNKNOWN while Google does not say."""
        url = f"{self._base}/requestStatus:retrieve"
        answer = self._line.ask(credentials, "GET", url, params={"requestId": request_id})
        if isinstance(answer, Answer) and answer.status == OK:
            return _status(answer.body)
        refused = (answer if isinstance(answer, Failure) else failure_of(answer)).refused
        return Status("UNKNOWN", {"code": refused.code, "message": refused.message})

    def _ingest(
        self,
        credentials: Credentials,
        conversions: Sequence[Conversion],
        *,
        validate_only: bool = False,
    ) -> Answer | Failure:
        body: dict[str, Any] = {
            "destinations": [destination(credentials)],
            "events": [event(one) for one in conversions],
        }
        if validate_only:
            body["validateOnly"] = True
        return self._line.ask(credentials, "POST", f"{self._base}/events:ingest", json=body)


def destination(credentials: Credentials) -> dict[str, Any]:
    """The conversion action, in the account that owns it."""
    action = credentials.conversion_action_resource_name.rpartition("/")[2]
    told: dict[str, Any] = {
        "operatingAccount": _account(credentials.customer_id),
        "productDestinationId": action,
    }
    if credentials.login_customer_id:
        told["loginAccount"] = _account(credentials.login_customer_id)
    return told


def event(conversion: Conversion) -> dict[str, Any]:
    """As Google wants it; the transaction id is what it knows a resend by."""
    kind, click = conversion.click
    return {
        "adIdentifiers": {kind: click},
        "eventTimestamp": conversion.at.isoformat(timespec="seconds"),
        "transactionId": conversion.order_id,
        "conversionValue": number(conversion.value),
        "currency": conversion.currency,
        "eventSource": "WEB",
    }


def _account(account_id: str) -> dict[str, str]:
    return {"accountType": "GOOGLE_ADS", "accountId": account_id}


def _accepted(answer: Answer, count: int) -> Reply:
    """Only a request id proves that Google has the events."""
    told = answer.body if isinstance(answer.body, dict) else {}
    request_id = told.get("requestId")
    if not isinstance(request_id, str) or not request_id:
        refused = Refused(
            UNREADABLE_RESPONSE, "the answer has no requestId", Category.TRANSIENT,
            note_of(answer.request_id),
        )  # fmt: skip
        trouble = Trouble("TRANSIENT", refused.code, refused.message)
        return Reply([refused] * count, trouble)
    warnings = told.get("fieldWarnings")
    more = {"warnings": warnings[:MAX_WARNINGS]} if isinstance(warnings, list) and warnings else {}
    accepted = Accepted(note=note_of(request_id[:200], **more))
    return Reply([accepted] * count, request_id=request_id[:200])


def _refused(answer: Answer, count: int) -> Reply | Failure:
    """Drop the events Google names; the others may be sent again."""
    failure = failure_of(answer)
    if answer.status != _BAD_REQUEST or failure.trouble is not None:
        return failure
    named: dict[int, list[GoogleError]] = {}
    for violation in _violations(answer.body):
        field = str(violation.get("field", ""))
        error = _violation_error(violation)
        found = _EVENT.search(field)
        if found:
            named.setdefault(int(found[1]), []).append(error)
        elif _DESTINATION.search(field):
            return _wrong_destination(error, answer)
    if not named or not all(position < count for position in named):
        return failure
    judged = {one: judge_row(errors, answer.request_id) for one, errors in named.items()}
    return Reply([judged.get(position) for position in range(count)])


def _wrong_destination(error: GoogleError, answer: Answer) -> Failure:
    code, says = look_up(error)
    if says.category is not Category.AUTH:
        code = "INVALID_DESTINATION"
    message = (error.message or code)[:MAX_MESSAGE]
    refused = Refused(code, message, Category.AUTH, note_of(answer.request_id))
    return Failure(refused, Trouble("AUTH", code, message))


def _violations(body: Any) -> list[dict[str, Any]]:
    found = []
    for detail in details_of(body):
        violations = detail.get("fieldViolations")
        found += violations if isinstance(violations, list) else []
    return [one for one in found if isinstance(one, dict)]


def _violation_error(violation: Mapping[str, Any]) -> GoogleError:
    reason = violation.get("reason")
    reason = reason if isinstance(reason, str) and reason else "INVALID_ARGUMENT"
    message = violation.get("description")
    message = message if isinstance(message, str) else ""
    return GoogleError("errorReason", reason, message, dict(violation))


def _status(body: Any) -> Status:
    told = body if isinstance(body, dict) else {}
    each = told.get("requestStatusPerDestination")
    states: list[State] = []
    errors: dict[str, int] = {}
    for one in each[:MAX_DESTINATIONS] if isinstance(each, list) else ():
        if not isinstance(one, dict):
            continue
        states.append(_STATES.get(str(one.get("requestStatus")), "UNKNOWN"))
        info = one.get("errorInfo")
        counts = info.get("errorCounts") if isinstance(info, dict) else None
        for count in counts[:100] if isinstance(counts, list) else ():
            if isinstance(count, dict):
                reason = str(count.get("reason", "UNKNOWN"))[:100]
                errors[reason] = errors.get(reason, 0) + _whole(count.get("recordCount"))
    return Status(min(states, key=_ORDER.index, default="UNKNOWN"), {"errors": errors})


def _whole(given: Any) -> int:
    """A count; int64 is text in JSON."""
    text = str(given)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0  # noqa: PLR2004
