"""The Data Manager API of the local Google, in the classes of Google's own package.

The classes of ``google-ads-datamanager`` parse every request: a field, an enum value or a type that
they do not know is refused, and remembered as ``malformed``. They make the answers too.
"""

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2

DOMAIN = "datamanager.googleapis.com"
MAX_EVENTS, MAX_DESTINATIONS, MAX_IDENTIFIERS = 2_000, 10, 10
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]+")

Answer = tuple[int, dict[str, Any]]  # HTTP status and body


class Violation(NamedTuple):
    """What is wrong with a field; the reason is a value of ``ErrorReason``."""

    field: str
    reason: str
    description: str = "bad"


@cache
def package() -> Any:
    """The messages and enums of the package; no test waits for its import unasked."""
    return importlib.import_module("google.ads.datamanager_v1.types")


def message(name: str) -> Any:
    """An empty protobuf message of the package."""
    return getattr(package(), name).pb()()


def values_of(enum: str) -> list[str]:
    """Every name of an enum of the package."""
    return [value.name for value in getattr(package(), enum)]


def error_body(code: int, status: str, text: str, *details: Any) -> dict[str, Any]:
    """The body of an HTTP error, as every Google API spells it."""
    error_status = status_pb2.Status(code=code, message=text)
    for detail in details:
        error_status.details.add().Pack(detail)
    return {"error": {**json_format.MessageToDict(error_status), "status": status}}


def refused(code: int, status: str, reason: str, *violations: Violation, domain: str = DOMAIN) -> Answer:
    """A refusal with the details of every error of this API: reason, fields, id of the request."""
    details: list[Any] = [error_details_pb2.ErrorInfo(reason=reason, domain=domain)]
    if violations:
        bad = error_details_pb2.BadRequest()
        for field, why, text in violations:
            bad.field_violations.add(field=field, reason=why, description=text)
        details.append(bad)
    details.append(error_details_pb2.RequestInfo(request_id="refused-request"))
    return code, error_body(code, status, "There was a problem with the request.", *details)


def statuses(*destinations: dict[str, Any]) -> dict[str, Any]:
    """The body of a request's status, with an entry a destination."""
    response = message("RetrieveRequestStatusResponse")
    for status in destinations:
        json_format.ParseDict(status, response.request_status_per_destination.add())
    return json_format.MessageToDict(response)


def ingested(request_id: str, warnings: Iterable[Violation] = ()) -> dict[str, Any]:
    """The body of an accepted request; the reason of a warning is one of ``WarningReason``."""
    response = message("IngestEventsResponse")
    response.request_id = request_id
    for field, reason, text in warnings:
        value = package().WarningReason[reason].value
        response.field_warnings.add(field=field, reason=value, description=text)
    return json_format.MessageToDict(response)


class DataManagerApi:
    """Accepts events as a whole or not at all, and reports on accepted requests."""

    account: str
    manager: str
    action_ids: Any  # a property of the server

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.event_errors: Callable[[dict[str, Any]], str | None] = lambda _event: None
        self.names_events = True  # whether a refused request says which fields it is about
        self.warnings: list[Violation] = []  # of every accepted request
        self.statuses: dict[str, dict[str, Any]] = {}  # request id → the status of a destination
        self.malformed: list[str] = []  # what Google's classes could not read
        self.recorded: dict[str, dict[str, Any]] = {}  # by order or transaction id
        self.recorded_for: dict[str, list[str]] = {}  # the ids of the actions of an event
        self._accepted: dict[str, list[tuple[Any, int]]] = {}  # destinations, with their events

    def parse(self, fields: Any, into: Any) -> Any:
        """Read JSON with Google's classes; raises ParseError."""
        try:
            return json_format.ParseDict(fields, into)
        except json_format.ParseError as problem:
            self.malformed.append(str(problem))
            raise

    def ingest(self, body: dict[str, Any], request_id: str) -> Answer:
        try:
            asked = self.parse(body, message("IngestEventsRequest"))
        except json_format.ParseError as problem:
            return 400, error_body(400, "INVALID_ARGUMENT", str(problem))
        accounts = {to.operating_account.account_id for to in asked.destinations}
        logins = {to.login_account.account_id for to in asked.destinations}
        if accounts != {self.account} or logins != {self.manager}:
            return refused(403, "PERMISSION_DENIED", "PERMISSION_DENIED")
        wrong = [*_wrong_request(asked), *self._wrong_destinations(asked), *_wrong_events(asked)]
        for index, event in enumerate(body["events"]):
            if reason := self.event_errors(event):
                wrong.append(Violation(f"events[{index}].ad_identifiers", reason))
        if wrong:
            named = wrong if self.names_events else []
            return refused(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", *named)
        if not asked.validate_only:
            self._record(asked, body["events"], request_id)
        return 200, ingested(request_id, self.warnings)

    def _wrong_destinations(self, asked: Any) -> Iterator[Violation]:
        kind = package().ProductAccount.AccountType.GOOGLE_ADS
        for number, to in enumerate(asked.destinations):
            field = f"destinations[{number}]"
            accounts = [to.operating_account, *([to.login_account] if self.manager else [])]
            if not all(one.account_type == kind for one in accounts):
                yield Violation(f"{field}.operating_account", "INVALID_DESTINATION")
            if to.product_destination_id not in self.action_ids:
                yield Violation(f"{field}.product_destination_id", "INVALID_CONVERSION_ACTION_ID")

    def _record(self, asked: Any, events: list[dict[str, Any]], request_id: str) -> None:
        self.recorded.update((event["transactionId"], event) for event in events)
        ids = {to.reference: to.product_destination_id for to in asked.destinations}
        counts: Counter[str] = Counter()
        for event in asked.events:  # without a reference it is for all of them
            meant = list(event.destination_references or ids)
            self.recorded_for[event.transaction_id] = [ids[one] for one in meant]
            counts.update(meant)
        self._accepted[request_id] = [(to, counts[to.reference]) for to in asked.destinations]

    def status(self, query: dict[str, str]) -> Answer:
        """The status of a request, destination by destination, in the order of the request."""
        request_id = self.parse(query, message("RetrieveRequestStatusRequest")).request_id
        given = self.statuses.get(request_id)
        known = self._accepted.get(request_id, [] if given is None else [(None, 1)])
        if not known:
            return refused(400, "INVALID_ARGUMENT", "INVALID_REQUEST_ID")
        entries = []
        for to, count in known:
            entry: dict[str, Any] = {"eventsIngestionStatus": {"recordCount": count}}
            if to is not None:
                entry["destination"] = json_format.MessageToDict(to)
            entries.append({**entry, **(given or {"requestStatus": "SUCCESS"})})
        return 200, statuses(*entries)


def _wrong_request(asked: Any) -> Iterator[Violation]:
    references = [to.reference for to in asked.destinations]
    if len(asked.events) > MAX_EVENTS:
        yield Violation("events", "TOO_MANY_EVENTS")
    if not 1 <= len(references) <= MAX_DESTINATIONS:
        yield Violation("destinations", "TOO_MANY_DESTINATIONS")
    if len(set(references)) < len(references):
        yield Violation("destinations", "DUPLICATE_DESTINATION_REFERENCE")
    people = any(event.HasField("user_data") for event in asked.events)
    if people != (asked.encoding == package().Encoding.HEX):
        yield Violation("encoding", "REQUIRED_FIELD_MISSING")


def _wrong_events(asked: Any) -> Iterator[Violation]:
    references = {to.reference for to in asked.destinations}
    for index, event in enumerate(asked.events):
        clicks, people = event.ad_identifiers, event.user_data.user_identifiers
        hashes = [one.email_address or one.phone_number for one in people]
        for field, reason, is_wrong in (
            ("ad_identifiers", "NO_IDENTIFIERS_PROVIDED", not (clicks.ListFields() or people)),
            ("ad_identifiers", "INVALID_ARGUMENT", bool(clicks.gbraid and clicks.wbraid)),
            ("user_data", "TOO_MANY_USER_IDENTIFIERS", len(people) > MAX_IDENTIFIERS),
            ("user_data", "INVALID_SHA256_FORMAT", not all(map(_SHA256.fullmatch, hashes))),
            ("event_timestamp", "REQUIRED_FIELD_MISSING", not event.HasField("event_timestamp")),
            ("event_source", "REQUIRED_FIELD_MISSING", not event.event_source),
            # A validated request takes a number, the real one does not.
            ("transaction_id", "INVALID_FORMAT", _NUMBER.fullmatch(event.transaction_id or "0")),
            ("currency", "INVALID_CURRENCY_CODE", len(event.currency) != 3),
            ("destination_references", "INVALID_DESTINATION",
             not references.issuperset(event.destination_references)),
        ):  # fmt: skip
            if is_wrong:
                yield Violation(f"events[{index}].{field}", reason)
