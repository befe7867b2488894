"""The channel ``data_manager``: events:ingest of the Data Manager API, successor of Google Ads'.

One bad event fails its request, and nothing of it is recorded. The events Google names are
dropped and the rest is sent again; if it names none, the request is halved. Google processes an
accepted request later and reports on it only as a whole: ``status`` asks for it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.foundation.text import json_number
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.errors import Category
from kesin.store.limits import MAX_MESSAGE
from kesin.workloads.oci.conversions.conversion import Conversion
from kesin.workloads.oci.google import classify as table
from kesin.workloads.oci.google import client
from kesin.workloads.oci.google.channel import (
    BAD_STATES,
    Channel,
    ConnectionTrouble,
    Finding,
    RequestFailure,
    RequestState,
    RequestStatus,
    RowAccepted,
    RowRefused,
    UploadResult,
    UploadRow,
)
from kesin.workloads.oci.google.circuit_breaker import WORKER_ACTOR, open_credentials
from kesin.workloads.oci.google.classify import TROUBLES, GoogleError, look_up
from kesin.workloads.oci.google.credentials import GoogleCredentials
from kesin.workloads.oci.google.google_ads import classify_row
from kesin.workloads.oci.google.http import BAD_REQUEST, OK, GoogleResponse, count_of, details_of, dig, objects, text_at
from kesin.workloads.oci.site import UPLOADS, SiteContext

_IDENTIFIERS: Final = {"hashedEmail": "emailAddress", "hashedPhone": "phoneNumber"}
MAX_WARNINGS: Final = 20
MAX_DESTINATIONS: Final = 10
_EVENT: Final = re.compile(r"(?:^|\.)events\[([0-9]{1,9})\]")
_DESTINATION: Final = re.compile(r"(?:^|\.)destinations?\b(?:\[([0-9]{1,9})\])?", re.IGNORECASE)

_WORST_FIRST: Final[tuple[RequestState, ...]] = (
    "FAILURE", "PARTIAL_SUCCESS", "PROCESSING", "UNKNOWN", "SUCCESS",
)  # fmt: skip
_STATES: Final[Mapping[str, RequestState]] = {state: state for state in _WORST_FIRST} | {
    "FAILED": "FAILURE"  # another name
}


class DataManager(client.GoogleChannel):
    """Ingests events. Accepted means received: Google processes them later."""

    def upload(self, credentials: GoogleCredentials, rows: Sequence[UploadRow]) -> UploadResult:
        """Send these conversions; always returns one outcome per row."""
        return client.deliver(rows, _split_by_action(rows), partial(self._ingest, credentials))

    def check(self, credentials: GoogleCredentials, **_kind: bool) -> list[Finding]:
        """Check token, account and action with an event; an adjustment is one too."""
        trial = [UploadRow("", client.TRIAL_CONVERSION)]
        return client.build_findings(self._ingest(credentials, trial, validate_only=True))

    def status(self, credentials: GoogleCredentials, request_id: str) -> RequestStatus:
        """The state of an accepted request; UNKNOWN while Google does not say."""
        path, params = "requestStatus:retrieve", {"requestId": request_id}
        response = self._send(credentials, "GET", path, params=params)
        if isinstance(response, GoogleResponse) and response.status == OK:
            return _parse_status(response.body)
        failure = response if isinstance(response, RequestFailure) else client.failure_of(response)
        refused = failure.refused
        return RequestStatus("UNKNOWN", {"code": refused.code, "message": refused.message})

    def _ingest(
        self, credentials: GoogleCredentials, rows: Sequence[UploadRow], *, validate_only: bool = False
    ) -> client.RequestReply | RequestFailure:
        conversions = [row.conversion for row in rows]
        ids = [conversion.action_id for conversion in conversions]
        body = {
            "destinations": [destination(credentials, each) for each in dict.fromkeys(ids)],
            "events": [event(conversion) for conversion in conversions],
            **({"encoding": "HEX"} if any(each.sent_identifiers for each in conversions) else {}),
            **({"validateOnly": True} if validate_only else {}),
        }
        response = self._send(credentials, "POST", "events:ingest", json=body)
        if isinstance(response, RequestFailure):
            return response
        if response.status != OK:
            return _read_refusal(response, len(rows), ids)
        if validate_only and isinstance(response.body, dict):
            return client.RequestReply([])
        return _read_acceptance(response, len(rows))


def _split_by_action(rows: Sequence[UploadRow]) -> list[client.Positions]:
    """Split the rows so that no request has more actions than Google takes destinations."""
    ids, parts = [row.conversion.action_id for row in rows], list[client.Positions]()
    known = list(dict.fromkeys(ids))
    for start in range(0, len(known), MAX_DESTINATIONS):
        own = {*known[start : start + MAX_DESTINATIONS]}
        parts += client.chunk_positions([at for at, action_id in enumerate(ids) if action_id in own])
    return parts


def destination(credentials: GoogleCredentials, action_id: str = "") -> dict[str, Any]:
    """The conversion action, in the account that owns it; its id is also its reference."""
    login, usual = credentials.login_customer_id, credentials.conversion_action_resource_name
    return {
        "operatingAccount": _account(credentials.customer_id),
        "productDestinationId": action_id or usual.rpartition("/")[2],
        **({"reference": action_id} if action_id else {}),
        **({"loginAccount": _account(login)} if login else {}),
    }


def event(conversion: Conversion) -> dict[str, Any]:
    """The conversion as a Google event; Google recognises a resend by its transaction id."""
    people = conversion.sent_identifiers.items()
    identifiers = [{_IDENTIFIERS[name]: value} for name, value in people]
    consent = {name: f"CONSENT_{said.upper()}" for name, said in conversion.consent.items()}
    return {
        **({"adIdentifiers": dict([conversion.click])} if conversion.click else {}),
        **({"userData": {"userIdentifiers": identifiers}} if identifiers else {}),
        "eventTimestamp": conversion.at.isoformat(timespec="seconds"),
        "transactionId": conversion.order_id,
        "conversionValue": json_number(conversion.value),
        "currency": conversion.currency,
        "eventSource": "WEB",
        **({"consent": consent} if consent else {}),
        # Without a reference Google would record it for every action of the request.
        **({"destinationReferences": [conversion.action.id]} if conversion.action else {}),
    }


def _account(account_id: str) -> dict[str, str]:
    return {"accountType": "GOOGLE_ADS", "accountId": account_id}


def _read_acceptance(response: GoogleResponse, count: int) -> client.RequestReply:
    """Only a request id proves that Google has the events."""
    if not (request_id := text_at(response.body, "requestId")[:200]):
        why, note = Message("the response has no requestId"), client.event_note(response.request_id)
        refused = RowRefused(table.UNREADABLE_RESPONSE, why, Category.TRANSIENT, note)
        trouble = ConnectionTrouble("TRANSIENT", refused.code, refused.message)
        return client.RequestReply([refused] * count, trouble)
    warnings = dig(response.body, "fieldWarnings")
    extra = {"warnings": warnings[:MAX_WARNINGS]} if isinstance(warnings, list) and warnings else {}
    accepted = RowAccepted(note=client.event_note(request_id, **extra))
    return client.RequestReply([accepted] * count, request_id=request_id)


def _read_refusal(
    response: GoogleResponse, count: int, ids: Sequence[str] = ()
) -> client.RequestReply | RequestFailure:
    """Refuse the events Google names, or those of an action; the others are sent again."""
    failure, sent_to = client.failure_of(response), list(dict.fromkeys(ids))
    if response.status != BAD_REQUEST or failure.trouble is not None:
        return failure
    named: dict[int, list[GoogleError]] = {}  # by event
    lists = [objects(detail.get("fieldViolations")) for detail in details_of(response.body)]
    for violation in chain.from_iterable(lists):
        field = str(violation.get("field", ""))
        reason = text_at(violation, "reason") or "INVALID_ARGUMENT"
        error = GoogleError("errorReason", reason, text_at(violation, "description"), violation)
        if match := _EVENT.search(field):
            named.setdefault(int(match[1]), []).append(error)
        elif destinations := _DESTINATION.search(field):
            wrong = _wrong_destination(error, response)
            number = 0 if len(sent_to) == 1 else int(destinations[1] or len(sent_to))
            if number >= len(sent_to) or (len(sent_to) == 1 and wrong.trouble):
                return wrong
            bad = sent_to[number]
            return client.RequestReply([wrong.refused if each == bad else None for each in ids])
    if not named or not all(position < count for position in named):
        return failure
    classified = {at: classify_row(errors, response.request_id) for at, errors in named.items()}
    return client.RequestReply([classified.get(position) for position in range(count)])


def _wrong_destination(error: GoogleError, response: GoogleResponse) -> RequestFailure:
    code, meaning = look_up(error)
    if meaning.category not in TROUBLES:
        code, meaning = "INVALID_DESTINATION", table.ACCOUNT
    message = (error.message or code)[:MAX_MESSAGE]
    refused = RowRefused(code, message, meaning.category, client.event_note(response.request_id))
    if meaning == table.TOO_RECENT:  # the rows of this action wait, the site is in order
        return RequestFailure(refused)
    return RequestFailure(refused, ConnectionTrouble(TROUBLES[meaning.category], code, message))


def _parse_status(body: Any) -> RequestStatus:
    states: list[RequestState] = []
    errors, warnings = Counter[str](), Counter[str]()
    for status in objects(dig(body, "requestStatusPerDestination"))[:MAX_DESTINATIONS]:
        state = _STATES.get(str(status.get("requestStatus")), "UNKNOWN")
        counts = _parse_counts(dig(status, "errorInfo", "errorCounts"))
        matches = [look_up(GoogleError("processingErrorReason", reason, "")) for reason in counts]
        # Events that Google left out because it has them are not missing.
        all_there = matches and all(meaning == table.ALREADY_RECORDED for _, meaning in matches)
        states.append("SUCCESS" if state in BAD_STATES and all_there else state)
        errors.update(counts)
        warnings.update(_parse_counts(dig(status, "warningInfo", "warningCounts")))
    details = {"errors": errors, **({"warnings": warnings} if warnings else {})}
    return RequestStatus(min(states, key=_WORST_FIRST.index, default="UNKNOWN"), details)


def _parse_counts(counts: Any) -> Counter[str]:
    result = Counter[str]()
    for count in objects(counts)[:100]:
        result[str(count.get("reason", "UNKNOWN"))[:100]] += count_of(count.get("recordCount"))
    return result


FIRST_POLL_S: Final = 1_800
MAX_POLL_PAUSE_S: Final = 6 * 3_600
MAX_POLLS: Final = 8  # about a day and a half; then it is recorded as it is
MAX_SILENT_POLLS: Final = 100  # without a response, half an hour apart
MAX_PENDING: Final = 200  # requests per site; older ones are dropped
POLL_BATCH: Final = 10
_NO_CLICK: Final = "PROCESSING_ERROR_REASON_CLICK_NOT_FOUND"
MAX_REASONS: Final = 3  # of a refused request, in its warning


def remember_requests(site: SiteContext, ids: Sequence[str], clickless: Counter[str]) -> None:
    """Store these requests for polling, with the number of their rows that have no click."""
    if not ids:
        return
    ask_at = site.queue.now() + FIRST_POLL_S * SECOND_US
    first = {"tries": 0, "askAt": ask_at}
    new = [first | {"requestId": it, "clickless": clickless[it]} for it in ids]
    with site.locked_metadata(UPLOADS) as uploads:
        waiting = [*uploads.get("pending", []), *new]
        uploads["pending"] = waiting[-MAX_PENDING:]
    why = "never checked: too many requests were waiting"
    for request in waiting[:-MAX_PENDING]:
        _add_note(site, request["requestId"], "UNKNOWN", why)


def poll_requests(site: SiteContext, channel: Channel) -> None:
    if not isinstance(channel, DataManager):
        return
    now = site.queue.now()
    pending = (site.read_metadata(UPLOADS) or {}).get("pending", [])
    due = [request for request in pending if request["askAt"] <= now][:POLL_BATCH]
    credentials = open_credentials(site) if due else None
    if not isinstance(credentials, GoogleCredentials):
        return
    for request in due:
        result = channel.status(credentials, request["requestId"])
        errors = Counter[str](result.details.get("errors"))
        if set(errors) == {_NO_CLICK} and errors[_NO_CLICK] <= request.get("clickless", 0):
            result = result._replace(status="SUCCESS")  # most people come without a click on an ad
        _record_status(site, request, result)
        if result.status == "UNKNOWN":  # Google does not respond: the others can wait
            return


def _record_status(site: SiteContext, request: dict[str, Any], result: RequestStatus) -> None:
    now, request_id = site.queue.now(), request["requestId"]
    silent = result.status == "UNKNOWN"
    tries, silences = request["tries"] + (not silent), request.get("silences", 0) + silent
    undecided = silent or result.status == "PROCESSING"
    over = not undecided or tries >= MAX_POLLS or silences >= MAX_SILENT_POLLS
    with site.locked_metadata(UPLOADS) as uploads:
        pending = uploads.get("pending", [])
        others = [other for other in pending if other["requestId"] != request_id]
        if len(others) == len(pending):
            return  # another process recorded it first
        if not over:
            pause_s = min(FIRST_POLL_S * 2**tries, MAX_POLL_PAUSE_S)
            ask_at = now + pause_s * SECOND_US
            others.append({**request, "tries": tries, "silences": silences, "askAt": ask_at})
        elif result.status in BAD_STATES:
            refused = {"requestId": request_id, "status": result.status, "at": now}
            reasons = Counter[str](result.details.get("errors")).most_common(MAX_REASONS)
            uploads["refused"] = {**refused, "errors": dict(reasons)}
        elif result.status == "SUCCESS":
            uploads.pop("refused", None)
        uploads["pending"] = others
    if over:
        _add_note(site, request_id, result.status, result.details)


def _add_note(site: SiteContext, request_id: str, status: str, details: Any) -> None:
    note = {"requestId": request_id, "status": status, "details": details}
    site.note_event("upload_status", WORKER_ACTOR, **note)
