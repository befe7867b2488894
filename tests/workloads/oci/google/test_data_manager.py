"""The channel ``data_manager`` against a server that behaves like Google."""

from contextlib import contextmanager
from typing import Any

import pytest
from google.rpc import error_details_pb2

from kesin.foundation.clock import ManualClock
from kesin.lifecycle.errors import Category
from kesin.workloads.oci.google import client
from kesin.workloads.oci.google.channel import RequestStatus, RowAccepted, RowRefused
from kesin.workloads.oci.google.client import MAX_REQUESTS
from kesin.workloads.oci.google.credentials import AccessTokens
from kesin.workloads.oci.google.data_manager import DataManager, destination, event
from tests.workloads.oci.fake_data_manager import Violation, error_body, message, refused, statuses, values_of
from tests.workloads.oci.fake_google import Whole, http_client
from tests.workloads.oci.google_faults import hang_up, silence
from tests.workloads.oci.rows import row, rows

ANY_BODY: tuple[Any, ...] = (b"?", [], {})


@contextmanager
def manager_of(google, timeout_s):
    with http_client(timeout_s, ManualClock().monotonic) as http:
        yield DataManager(http, AccessTokens(http, google.token_url), f"{google.url}/v1")


@pytest.fixture
def manager(google):
    with manager_of(google, 60) as manager:
        yield manager


def only(*numbers):
    """The events of these rows are wrong."""
    orders = {row(number).conversion.order_id for number in numbers}
    return lambda event: "NO_IDENTIFIERS_PROVIDED" if event["transactionId"] in orders else None


def kinds(sent):
    return [type(row) for row in sent.rows]


def test_a_row_is_spelled_as_google_wants_it(google, manager):
    google.manager = "9998887776"
    some = [row(0), row(1, gclid="", gbraid="the-gbraid")]
    sent = manager.upload(google.credentials(login_customer_id="999-888-7776"), some)
    assert sent.rows == [RowAccepted(note={"requestId": "ingest-1"})] * 2
    assert sent.request_ids == ("ingest-1",)
    assert sent.trouble is None
    (came,) = google.came
    assert came.path == "/v1/events:ingest"
    assert came.headers["authorization"] == "Bearer access-1"
    assert came.body == {
        "destinations": [
            {
                "operatingAccount": {"accountType": "GOOGLE_ADS", "accountId": "1234567890"},
                "loginAccount": {"accountType": "GOOGLE_ADS", "accountId": "9998887776"},
                "productDestinationId": "987654321",
            }
        ],
        "events": [
            {
                "adIdentifiers": click,
                "eventTimestamp": time,
                "transactionId": upload.conversion.order_id,
                "conversionValue": 150.5,
                "currency": "TRY",
                "eventSource": "WEB",
            }
            for upload, click, time in zip(
                some,
                [{"gclid": "Cj0KCQ-click_0"}, {"gbraid": "the-gbraid"}],
                ["2026-03-01T14:05:00+03:00", "2026-03-01T14:05:01+03:00"],
                strict=True,
            )
        ],
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("events", 0, "eventTime"), "2026-03-01T14:05:00Z"),  # a field that there is not
        (("events", 0, "eventSource"), "WEBSITE"),  # a value that its enum lacks
        (("destinations", 0, "operatingAccount", "accountType"), "ADWORDS"),
        (("events", 0, "eventTimestamp"), "2026-03-01 14:05:00+03:00"),  # another type
        (("events", 0, "transactionId"), 5),
    ],
)
def test_googles_classes_read_every_request_and_take_nothing_they_do_not_know(google, path, value):
    one = {"adIdentifiers": {"gclid": "a"}, "consent": {"adUserData": "CONSENT_GRANTED"}}
    whole = event(row(1).conversion) | one
    body = {"destinations": [destination(google.credentials())], "events": [whole]}
    assert google.ingest(body, "r-1")[0] == 200
    place: Any = body
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert google.ingest(body, "r-2")[0] == 400
    assert len(google.malformed) == 1
    google.malformed.clear()


def test_no_more_events_go_into_a_request_than_google_takes(google, manager, monkeypatch):
    monkeypatch.setattr(client, "MAX_ROWS", 20)
    sent = manager.upload(google.credentials(), rows(21))
    assert [len(upload) for upload in google.uploads] == [20, 1]
    assert set(kinds(sent)) == {RowAccepted}


def test_named_events_are_dropped_and_the_others_sent_again(google, manager):
    google.event_errors = only(1, 3)
    sent = manager.upload(google.credentials(), rows(5))
    assert [len(upload) for upload in google.uploads] == [5, 3]
    assert kinds(sent) == [RowAccepted, RowRefused, RowAccepted, RowRefused, RowAccepted]
    assert sent.rows[1].code == "NO_IDENTIFIERS_PROVIDED"
    assert sent.rows[1].category is Category.VALIDATION
    assert sent.rows[1].note["errors"][0]["field"] == "events[1].ad_identifiers"
    assert sent.rows[0].note == {"requestId": "ingest-2"}
    assert sent.request_ids == ("ingest-2",)


@pytest.mark.parametrize("field", ["events.events[1].ad_identifiers", "events[1]"])
def test_an_event_is_recognised_in_either_path(google, manager, field):
    wrong = Violation(field, "NEW_ONE", "no")
    google.then(Whole(*refused(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", wrong)))
    sent = manager.upload(google.credentials(), rows(2))
    assert kinds(sent) == [RowAccepted, RowRefused]
    assert (sent.rows[1].code, sent.rows[1].category) == ("NEW_ONE", Category.VALIDATION)


def test_unnamed_events_are_found_by_halving(google, manager):
    google.names_events = False
    google.event_errors = only(5, 60)
    sent = manager.upload(google.credentials(), rows(64))
    refused = [n for n, row in enumerate(sent.rows) if isinstance(row, RowRefused)]
    assert refused == [5, 60]
    assert {sent.rows[n].code for n in refused} == {"INVALID_ARGUMENT"}
    assert len(google.recorded) == 62
    assert len(google.came) <= MAX_REQUESTS


def test_an_event_that_is_not_in_the_request_blames_nobody(google, manager):
    wrong = Violation("events[7]", "")
    google.then(Whole(*refused(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", wrong)))
    assert kinds(manager.upload(google.credentials(), rows(2))) == [RowAccepted] * 2


def test_a_wrong_destination_stops_the_site(google, manager):
    wrong = "customers/1234567890/conversionActions/1"
    credentials = google.credentials(conversion_action_resource_name=wrong)
    sent = manager.upload(credentials, rows(3))
    assert {(row.code, row.category) for row in sent.rows} == {("INVALID_CONVERSION_ACTION_ID", Category.AUTH)}
    assert (sent.trouble.kind, sent.trouble.code) == ("AUTH", "INVALID_CONVERSION_ACTION_ID")
    assert len(google.came) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (Whole(503), "TRANSIENT", "HTTP_503"),
        (Whole(404), "AUTH", "HTTP_404"),
        (Whole(429, headers={"Retry-After": "60"}), "RATE_LIMIT", "HTTP_429"),
        (Whole(200, b"<html>"), "TRANSIENT", "UNREADABLE_RESPONSE"),
        (Whole(200, {}), "TRANSIENT", "UNREADABLE_RESPONSE"),
        (Whole(200, {"requestId": 5}), "TRANSIENT", "UNREADABLE_RESPONSE"),
        (hang_up, "TRANSIENT", "CONNECTION_FAILED"),
        (silence, "TRANSIENT", "TIMEOUT"),
    ],
)
def test_a_request_that_fails_credits_nobody(google, answer, kind, code):
    google.then(answer)
    with manager_of(google, 0.2 if answer is silence else 60) as manager:
        sent = manager.upload(google.credentials(), rows(3))
    assert [(row.code, row.category) for row in sent.rows] == [(code, kind)] * 3
    assert (sent.trouble.kind, sent.trouble.code) == (kind, code)


def test_a_quota_tells_how_long_to_wait(google, manager):
    wait = error_details_pb2.RetryInfo()
    wait.retry_delay.FromMilliseconds(12_500)
    google.then(Whole(429, error_body(429, "RESOURCE_EXHAUSTED", "slow down", wait)))
    sent = manager.upload(google.credentials(), rows(1))
    assert sent.trouble.code == "RESOURCE_EXHAUSTED"
    assert sent.trouble.retry_after_s == 12.5


def test_warnings_are_kept_with_the_row(google, manager):
    reasons = values_of("WarningReason")
    google.warnings = [Violation("events[0].cart_data", one, f"for {one}") for one in reasons * 2]
    (result,) = manager.upload(google.credentials(), rows(1)).rows
    assert (
        [one.get("reason") for one in result.note["warnings"]]
        == [
            None,  # the value 0, which JSON leaves out
            *reasons[1:],
            *[None, *reasons[1:]][: 20 - len(reasons)],
        ]
    )
    assert result.note["warnings"][1] == {
        "field": "events[0].cart_data",
        "reason": reasons[1],
        "description": f"for {reasons[1]}",
    }


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("SUCCESS", "SUCCESS"),
        ("PARTIAL_SUCCESS", "PARTIAL_SUCCESS"),
        ("FAILED", "FAILURE"),
        ("PROCESSING", "PROCESSING"),
        ("REQUEST_STATUS_UNKNOWN", "UNKNOWN"),
        (5, "UNKNOWN"),
    ],
)
def test_how_an_accepted_request_ended(google, manager, given, status):
    counts = [{"recordCount": "3", "reason": "PROCESSING_ERROR_REASON_INVALID_GCLID"}]
    google.statuses["the-id"] = {"requestStatus": given, "errorInfo": {"errorCounts": counts}}
    outcome = manager.status(google.credentials(), "the-id")
    errors = {"PROCESSING_ERROR_REASON_INVALID_GCLID": 3}
    assert outcome == RequestStatus(status, {"errors": errors})
    assert google.came[-1].path == "/v1/requestStatus:retrieve?requestId=the-id"


def test_every_status_of_google_has_been_tried():
    enum = message("RequestStatusPerDestination").DESCRIPTOR.enum_types_by_name["RequestStatus"]
    marks = test_how_an_accepted_request_ended.pytestmark
    assert set(enum.values_by_name) == {given for given, _ in marks[0].args[1]} - {5}


def test_a_status_that_is_not_googles_is_read_too(google, manager):
    counts = [{"recordCount": "3", "reason": "NEW"}, "?", {"recordCount": {}}]
    strange: list[Any] = ["FAILURE", "?", None, [], 7]
    for given in strange:
        status = {"requestStatus": given, "errorInfo": {"errorCounts": counts}}
        google.then(Whole(200, {"requestStatusPerDestination": [status, "?"]}))
        outcome = manager.status(google.credentials(), "x")
        assert outcome.status == ("FAILURE" if given == "FAILURE" else "UNKNOWN")
        assert outcome.details == {"errors": {"NEW": 3, "UNKNOWN": 0}}


def test_an_accepted_request_is_known_by_its_id_and_no_other(google, manager):
    sent = manager.upload(google.credentials(), rows(3))
    [request_id] = sent.request_ids
    assert manager.status(google.credentials(), request_id).status == "SUCCESS"
    status = manager.status(google.credentials(), "another")
    assert (status.status, status.details["code"]) == ("UNKNOWN", "INVALID_REQUEST_ID")


def test_the_counts_of_all_destinations_and_their_warnings_are_added(google, manager):
    gclid, internal = ("PROCESSING_ERROR_REASON_INVALID_GCLID", "PROCESSING_ERROR_REASON_INTERNAL_ERROR")
    warning = "PROCESSING_WARNING_REASON_INTERNAL_ERROR"
    first, second = ([{"recordCount": 2, "reason": one}] for one in (gclid, internal))
    one = {
        "requestStatus": "PARTIAL_SUCCESS",
        "errorInfo": {"errorCounts": first},
        "warningInfo": {"warningCounts": [{"recordCount": 5, "reason": warning}]},
    }
    other = {"requestStatus": "FAILED", "errorInfo": {"errorCounts": [*first, *second]}}
    google.then(Whole(200, statuses(one, other)))
    outcome = manager.status(google.credentials(), "x")
    errors = {gclid: 4, internal: 2}
    assert outcome == RequestStatus("FAILURE", {"errors": errors, "warnings": {warning: 5}})


def test_events_that_google_had_before_are_not_missing(google, manager):
    had = [
        {"recordCount": 1, "reason": f"PROCESSING_ERROR_REASON_DUPLICATE_{one}"} for one in ("GCLID", "TRANSACTION_ID")
    ]
    lost = {"recordCount": 1, "reason": "PROCESSING_ERROR_REASON_CLICK_NOT_FOUND"}
    ends = []
    for state in ("FAILED", "PARTIAL_SUCCESS", "PROCESSING"):
        for counts in ([], had, [*had, lost]):
            status = {"requestStatus": state, "errorInfo": {"errorCounts": counts}}
            google.then(Whole(200, statuses(status)))
            ends.append(manager.status(google.credentials(), "x").status)
    assert ends == [
        *("FAILURE", "SUCCESS", "FAILURE"),
        *("PARTIAL_SUCCESS", "SUCCESS", "PARTIAL_SUCCESS"),
        *("PROCESSING", "PROCESSING", "PROCESSING"),
    ]


@pytest.mark.parametrize(
    ("answer", "details"),
    [
        *((Whole(200, body), {"errors": {}}) for body in ANY_BODY),
        (Whole(500), "HTTP_500"),
        (hang_up, "CONNECTION_FAILED"),
    ],
)
def test_a_status_that_says_nothing_or_is_not_given_is_unknown(google, manager, answer, details):
    google.then(answer)
    status = manager.status(google.credentials(), "x")
    assert status.status == "UNKNOWN"
    assert details in (status.details, status.details.get("code"))


def names(findings):
    return [(finding.name, finding.ok) for finding in findings]


def test_a_check_validates_and_records_nothing(google, manager):
    assert names(manager.check(google.credentials())) == [("token", True), ("account", True), ("action", True)]
    assert google.came[0].body["validateOnly"] is True
    assert google.recorded == {}


@pytest.mark.parametrize("named", [True, False])
def test_a_check_passes_when_only_its_fake_click_is_refused(google, manager, named):
    google.names_events = named
    google.event_errors = lambda _event: "INVALID_EVENT"
    assert names(manager.check(google.credentials()))[-1] == ("action", True)


def test_a_check_finds_what_is_wrong(google, manager):
    wrong = "customers/1234567890/conversionActions/1"
    token = manager.check(google.credentials(client_secret="bad"))
    account = manager.check(google.credentials(customer_id="1111111111"))
    action = manager.check(google.credentials(conversion_action_resource_name=wrong))
    google.then(Whole(503))
    down = manager.check(google.credentials())
    google.then(Whole(200, b"?"))
    strange = manager.check(google.credentials())
    assert names(token)[-1] == ("token", False)
    assert names(account)[-1] == ("account", False)
    assert names(action)[-1] == ("action", False)
    assert names(down)[-1] == names(strange)[-1] == ("account", False)
    assert "try again" in down[-1].advice
