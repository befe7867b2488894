"""The channel ``api`` against a server that behaves like Google."""

from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import count

import pytest

from kesin.foundation.clock import ManualClock
from kesin.lifecycle.errors import Category
from kesin.workloads.oci.google import http as wire
from kesin.workloads.oci.google.channel import RowAccepted, RowRefused
from kesin.workloads.oci.google.credentials import AccessTokens
from kesin.workloads.oci.google.google_ads import GoogleAds
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.workloads.oci.fake_google import Whole, Wrong, error_body, http_client, refusal, upload_error
from tests.workloads.oci.google_faults import cut_off, hang_up, nonsense, without_end
from tests.workloads.oci.rows import row, rows

TRANSIENT, AUTH, RATE_LIMIT = "TRANSIENT", "AUTH", "RATE_LIMIT"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def client(clock):
    with http_client(10, clock.monotonic) as client:
        yield client


def channel_to(google, client, base_url=None, version="v26"):
    tokens = AccessTokens(client, google.token_url)
    return GoogleAds(client, tokens, f"{base_url or google.url}/{version}")


@pytest.fixture
def ads(google, client, clock):
    return channel_to(google, client)


def kinds(sent):
    return [type(row) for row in sent.rows]


def codes(sent):
    return {row.code for row in sent.rows}


def test_a_row_is_spelled_as_google_wants_it(google, ads):
    some = [
        row(0),
        row(1, gclid="", wbraid="the-wbraid", gbraid="the-gbraid", value=Decimal(150)),
        row(2, at=datetime(2026, 3, 1, 12, tzinfo=UTC)),
    ]
    sent = ads.upload(google.credentials(customer_id="123-456-7890"), some)
    assert kinds(sent) == [RowAccepted] * 3
    assert sent.trouble is None
    assert sent.request_ids == ("request-1",)
    assert [row.note for row in sent.rows] == [{"requestId": "request-1"}] * 3
    (came,) = google.came
    assert came.path == "/v26/customers/1234567890:uploadClickConversions"
    assert came.headers["authorization"] == "Bearer access-1"
    assert "developer-token" not in came.headers
    assert "login-customer-id" not in came.headers
    assert came.body["partialFailure"] is True
    common = {"conversionAction": google.action, "currencyCode": "TRY"}
    assert came.body["conversions"] == [
        {**common, **click, "conversionDateTime": time, "conversionValue": value, "orderId": upload.conversion.order_id}
        for upload, click, time, value in zip(
            some,
            [{"gclid": "Cj0KCQ-click_0"}, {"wbraid": "the-wbraid"}, {"gclid": "Cj0KCQ-click_2"}],
            ["2026-03-01 14:05:00+03:00", "2026-03-01 14:05:01+03:00", "2026-03-01 12:00:00+00:00"],
            [150.5, 150, 150.5],
            strict=True,
        )
    ]


def test_a_manager_and_a_developer_token_are_named_where_they_are_set(google, ads):
    google.manager = "9998887776"
    credentials = google.credentials(login_customer_id="999-888-7776", developer_token="dev")
    assert kinds(ads.upload(credentials, rows(1))) == [RowAccepted]
    (came,) = google.came
    assert came.headers["login-customer-id"] == "9998887776"
    assert came.headers["developer-token"] == "dev"


def test_twins_are_sent_one_after_the_other(google, ads):
    some = [row(0), row(1), row(0), row(2, gclid=row(1).conversion.gclid, at=row(1).conversion.at)]
    sent = ads.upload(google.credentials(), some)
    assert [len(upload) for upload in google.uploads] == [2, 2]
    assert [row.code for row in sent.rows] == [None, None, "ORDER_ID_ALREADY_IN_USE", "CLICK_CONVERSION_ALREADY_EXISTS"]
    assert sent.request_ids == ("request-1", "request-2")


# Tokens


def test_a_token_that_ends_in_the_middle_is_renewed_once(google, ads):
    ads.upload(google.credentials(), rows(1))
    google.expire_tokens()
    sent = ads.upload(google.credentials(), [row(7)])
    assert kinds(sent) == [RowAccepted]
    assert len(google.token_requests) == 2
    assert len(google.came) == 3


def test_a_token_that_is_refused_twice_stops_the_site(google, ads):
    no = refusal(401, "UNAUTHENTICATED", Wrong("authentication_error", "NOT_ADS_USER", ""))
    google.then(no, no)
    sent = ads.upload(google.credentials(), rows(2))
    assert [(row.code, row.category) for row in sent.rows] == [("NOT_ADS_USER", Category.AUTH)] * 2
    assert (sent.trouble.kind, sent.trouble.code) == (AUTH, "NOT_ADS_USER")
    assert len(google.came) == 2


@pytest.mark.parametrize("is_down", [False, True])
def test_without_a_token_nothing_is_sent_and_no_row_pays(google, ads, is_down):
    code, kind = ("TOKEN_UNAVAILABLE", TRANSIENT) if is_down else ("INVALID_GRANT", AUTH)
    if is_down:
        google.tokens_then(Whole(503))
    sent = ads.upload(google.credentials(refresh_token="gone"), rows(2))
    for refused in sent.rows:
        assert (refused.code, refused.category, refused.was_sent) == (code, kind, False)
    assert (sent.trouble.kind, sent.trouble.code) == (kind, code)
    assert google.came == []


# Requests that fail as a whole


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (
            partial(refusal, 403, "PERMISSION_DENIED", Wrong(
                "not_allowlisted_error", "CUSTOMER_NOT_ALLOWLISTED_FOR_THIS_FEATURE", "")),
            AUTH, "CUSTOMER_NOT_ALLOWLISTED_FOR_THIS_FEATURE",
        ),
        (Whole(404, b"<html>no</html>"), AUTH, "HTTP_404"),
        (Whole(503, error_body(503, "UNAVAILABLE", "later")), TRANSIENT, "UNAVAILABLE"),
        (Whole(302, headers={"Location": "/x"}), TRANSIENT, "HTTP_302"),
        (Whole(200, b"<html>Welcome</html>"), TRANSIENT, "UNREADABLE_RESPONSE"),
        (Whole(200, b"[" * 100_000), TRANSIENT, "UNREADABLE_RESPONSE"),
        (Whole(200, {}), TRANSIENT, "PARTIAL_FAILURE_UNREADABLE"),
        (Whole(200, b"zzz", {"Content-Encoding": "gzip"}), TRANSIENT, "CONNECTION_FAILED"),
        (hang_up, TRANSIENT, "CONNECTION_FAILED"),
        (cut_off, TRANSIENT, "CONNECTION_FAILED"),
        (nonsense, TRANSIENT, "CONNECTION_FAILED"),
    ],
)  # fmt: skip
def test_a_request_that_fails_credits_nobody(google, ads, answer, kind, code):
    google.then(answer)
    sent = ads.upload(google.credentials(), rows(3))
    assert [(row.code, row.category) for row in sent.rows] == [(code, kind)] * 3
    assert (sent.trouble.kind, sent.trouble.code) == (kind, code)
    assert len(google.came) == 1
    resolved = oci_lifecycle().errors.resolve(code, channel="api", category=Category(kind))
    assert resolved.category == kind


def test_an_answer_without_end_is_not_read_to_it(google, client, monkeypatch):
    seconds = count()
    client.monotonic = Stepping(seconds).monotonic
    ads = channel_to(google, client)
    google.then(without_end)
    assert codes(ads.upload(google.credentials(), rows(1))) == {"TIMEOUT"}
    assert next(seconds) < 100
    monkeypatch.setattr(wire, "MAX_RESPONSE_BYTES", 10)
    google.then(Whole(200, {"results": "x" * 100}))
    assert codes(ads.upload(google.credentials(), rows(1))) == {"UNREADABLE_RESPONSE"}


class Stepping:
    """A clock that moves whenever it is looked at."""

    def __init__(self, seconds):
        self._seconds = seconds

    def now(self):
        return None

    def monotonic(self):
        return next(self._seconds)


def test_credentials_that_no_header_can_carry_stop_the_site(google, ads):
    sent = ads.upload(google.credentials(developer_token="ğü"), rows(1))
    assert codes(sent) == {"REQUEST_UNSENDABLE"}
    assert not sent.rows[0].was_sent
    assert sent.trouble.kind == AUTH


@pytest.mark.parametrize(
    ("answer", "wait_s"),
    [
        (Whole(429, headers={"Retry-After": "120"}), 120),
        (Whole(429, headers={"Retry-After": "9999999"}), 86_400),
        (
            Whole(429, headers={
                "Date": "Sun, 01 Mar 2026 12:00:00 GMT",
                "Retry-After": "Sun, 01 Mar 2026 12:05:00 GMT",
            }),
            300,
        ),
        (Whole(429, headers={"Retry-After": "Sun, 01 Mar 2026 12:05:00 GMT"}), None),
        (Whole(429, headers={"Retry-After": "soon"}), None),
        (Whole(429), None),
        (
            partial(refusal, 429, "RESOURCE_EXHAUSTED", Wrong(
                "quota_error", "RESOURCE_EXHAUSTED", ""), retry_s=900), 900,
        ),
    ],
)  # fmt: skip
def test_a_rate_limit_is_kept(google, ads, answer, wait_s):
    google.then(answer)
    sent = ads.upload(google.credentials(), rows(2))
    assert {row.category for row in sent.rows} == {Category.RATE_LIMIT}
    assert sent.trouble.kind == RATE_LIMIT
    assert sent.trouble.retry_after_s == wait_s


# Refused requests and who is to blame


def test_a_refused_request_that_names_a_row_blames_that_row(google, ads):
    google.then(refusal(400, "INVALID_ARGUMENT", upload_error("UNPARSEABLE_GCLID"), index=1))
    sent = ads.upload(google.credentials(), rows(3))
    assert [(row.code, row.category) for row in sent.rows] == [
        ("REQUEST_REFUSED", Category.TRANSIENT),
        ("UNPARSEABLE_GCLID", Category.VALIDATION),
        ("REQUEST_REFUSED", Category.TRANSIENT),
    ]
    assert sent.trouble is None
    assert len(google.came) == 1


def test_a_refused_request_that_names_rows_for_the_account_stops_the_site(google, ads):
    wrong = Wrong("request_error", "RESOURCE_NAME_MALFORMED", "conversion_action")
    google.then(refusal(400, "INVALID_ARGUMENT", wrong, index=0))
    sent = ads.upload(google.credentials(), rows(2))
    assert [row.category for row in sent.rows] == [Category.AUTH, Category.TRANSIENT]
    assert (sent.trouble.kind, sent.trouble.code) == (AUTH, "RESOURCE_NAME_MALFORMED")


@pytest.mark.parametrize("index", [None, 9])
def test_a_refused_request_that_names_nobody_is_halved(google, ads, index):
    no = refusal(400, "INVALID_ARGUMENT", Wrong("field_error", "REQUIRED"), index=index)
    google.then(no, no)
    sent = ads.upload(google.credentials(), rows(4))
    assert [len(upload) for upload in google.uploads] == [4, 2, 1, 1, 2]
    assert kinds(sent) == [RowAccepted] * 4
    google.then(no, no, no)
    sent = ads.upload(google.credentials(), [row(n) for n in range(10, 14)])
    assert kinds(sent) == [RowRefused, RowAccepted, RowAccepted, RowAccepted]
    assert (sent.rows[0].code, sent.rows[0].category) == ("REQUIRED", Category.VALIDATION)


def test_an_account_that_refuses_every_row_is_trouble_of_the_site(google, ads):
    wrong = "customers/1/conversionActions/2"
    sent = ads.upload(google.credentials(conversion_action_resource_name=wrong), rows(3))
    assert {row.category for row in sent.rows} == {Category.AUTH}
    assert (sent.trouble.kind, sent.trouble.code) == (AUTH, "NO_CONVERSION_ACTION_FOUND")


def test_one_row_that_is_credited_shows_that_the_site_is_well(google, ads):
    google.row_errors = lambda conversion: (
        [] if conversion["gclid"].endswith("_1") else [upload_error("INVALID_CUSTOMER_FOR_CLICK")]
    )
    sent = ads.upload(google.credentials(), rows(3))
    assert [getattr(row, "category", None) for row in sent.rows] == [Category.AUTH, None, Category.AUTH]
    assert sent.trouble is None


# The check


def names(findings):
    return [(finding.name, finding.ok) for finding in findings]


ALL_FINE = [("token", True), ("account", True), ("action", True)]


def test_a_check_validates_one_fake_click_and_records_nothing(google, ads):
    assert names(ads.check(google.credentials())) == ALL_FINE
    (came,) = google.came
    assert came.body["validateOnly"] is True
    assert came.body["partialFailure"] is True
    assert len(came.body["conversions"]) == 1
    assert google.recorded == {}


def test_a_check_finds_what_is_wrong(google, client):
    unknown = {"conversion_action_resource_name": "customers/1234567890/conversionActions/1"}
    cases: list[tuple[dict[str, str], str, int, str]] = [
        ({"refresh_token": "gone"}, "v26", 0, "INVALID_GRANT"),
        ({"customer_id": "1111111111"}, "v26", 1, "USER_PERMISSION_DENIED"),
        ({}, "v19", 1, "UNSUPPORTED_VERSION"),  # Google retired it
        (unknown, "v26", 2, "NO_CONVERSION_ACTION_FOUND"),
    ]
    for changes, version, failing, code in cases:
        findings = channel_to(google, client, version=version).check(google.credentials(**changes))
        assert names(findings) == [*ALL_FINE[:failing], (ALL_FINE[failing][0], False)]
        assert code in findings[-1].detail
        assert findings[-1].advice


def test_a_check_of_an_action_that_is_hours_old_passes(google, ads):
    google.row_errors = lambda _row: [upload_error("TOO_RECENT_CONVERSION_ACTION")]
    assert names(ads.check(google.credentials())) == ALL_FINE


def test_a_check_that_google_does_not_answer_is_not_passed(google, ads):
    for answer in (Whole(503), Whole(429), hang_up, Whole(200, b"?"), Whole(200, {"partialFailureError": {}})):
        google.then(answer)
        assert names(ads.check(google.credentials())) == [("token", True), ("account", False)]


def test_no_secret_is_in_any_answer(google, ads):
    credentials = google.credentials()
    answers: list[object] = [ads.upload(credentials, rows(2))]
    google.then(Whole(503), hang_up)
    answers += [ads.upload(credentials, rows(2)), ads.upload(credentials, rows(2))]
    answers += [ads.check(google.credentials(client_secret="bad-s3cret"))]
    shown = repr(answers)
    for secret in ("the-refresh-token", "the-client-secret", "bad-s3cret", "access-"):
        assert secret not in shown
