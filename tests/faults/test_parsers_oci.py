"""Conversions from producers, answers from Google: whatever comes is a value or our refusal."""

import csv
import io
import json
from collections.abc import Mapping
from datetime import UTC
from functools import cache
from typing import Any

import httpx
from hypothesis import example
from hypothesis import strategies as st

from kesin.foundation.problems import Invalid, Problem
from kesin.foundation.text import decode_json, escape_cell, storable
from kesin.workloads.oci.conversions.conversion import Conversion, RowDefaults, Unsendable
from kesin.workloads.oci.conversions.parsing import MAX_ROWS, RowSource, parse_body
from kesin.workloads.oci.google import data_manager
from kesin.workloads.oci.google.channel import RowAccepted, RowRefused
from kesin.workloads.oci.google.client import failure_of
from kesin.workloads.oci.google.credentials import GoogleCredentials, _lifetime_s, _refusal
from kesin.workloads.oci.google.google_ads import click_conversion, read_upload
from kesin.workloads.oci.google.http import MAX_RETRY_AFTER_S, GoogleResponse, retry_after_s
from tests.faults.fuzz import answered, broken, broken_json, broken_text, given
from tests.workloads.oci.fake_google import upload_error, upload_response
from tests.workloads.oci.rows import rows

TYPES = {"csv": "text/csv", "ndjson": "application/x-ndjson", "json": "application/json"}
SITE = RowDefaults("north", UTC, "TRY", "Sale")
ROW = {
    "externalId": "sale-1",
    "gclid": "Cj0KCQ-click_1",
    "conversionName": "Sale",
    "conversionTime": "2026-03-01T14:05:00+03:00",
    "conversionValue": "1500,75",
    "conversionCurrency": "TRY",
    "revision": "2",
}
CSV = ",".join(ROW) + "\r\n" + '"sale, 1",Cj0KCQ-click_1,Sale,2026-03-01T14:05:00,12.5,TRY,1\r\n'
VALID = {
    "csv": [CSV, CSV.replace(",", ";"), "\ufeff" + CSV.replace(",", "\t"), '"a\t\t"\texternalId\nx'],
    "ndjson": [json.dumps(ROW) + "\n" + json.dumps({**ROW, "conversionValue": 3}) + "\n"],
    "json": [json.dumps({"siteId": "north", "conversions": [ROW, ROW]}), json.dumps([ROW, ROW])],
}
bodies = st.sampled_from(sorted(VALID)).flatmap(
    lambda kind: st.tuples(st.just(kind), broken(*map(str.encode, VALID[kind])))
)


def read(body, kind):
    parsed = answered(Problem, parse_body, body, kind)
    return parsed.code if isinstance(parsed, Problem) else parsed


@given(bodies)
def test_a_body_is_rows_or_a_problem_and_a_row_is_a_conversion_or_a_reason(given_body):
    kind, body = given_body
    parsed = read(body, TYPES[kind])
    if isinstance(parsed, str):
        return
    _, read_rows = parsed
    assert len(read_rows) <= MAX_ROWS
    for row in read_rows:
        if isinstance(row, Unsendable):
            continue
        conversion = answered(Unsendable, Conversion.parse, row, SITE)
        if isinstance(conversion, Unsendable):
            assert conversion.code
            continue
        payload = conversion.payload()
        assert Conversion.from_payload(json.loads(json.dumps(payload)), SITE) == conversion
        assert storable(json.dumps(payload, ensure_ascii=False)).encode()


@given(bodies, st.integers(1, 3))
@example(("csv", b"\n" + CSV.replace(",", ";").encode()), 1)
def test_a_file_in_parts_says_what_the_same_body_says_as_a_whole(given_body, size):
    kind, body = given_body
    whole = read(body, TYPES[kind])
    source = RowSource(kind, io.BytesIO(body), len(body))
    parts = answered(Problem, lambda: [row for batch in source.batches(size) for _, row in batch])
    if isinstance(parts, Problem):
        assert isinstance(whole, str)
        return
    if isinstance(whole, str):  # nothing in it, or the first half of a mark
        assert parts == []
        return
    assert [row_values(one) for one in parts] == [row_values(one) for one in whole[1]]


def row_values(row):
    return row.code if isinstance(row, Unsendable) else repr(row)


@given(st.lists(broken_text("=1+2", "-a;'b", "sale, 1", "'"), min_size=1, max_size=4))
def test_a_dead_letter_that_comes_back_says_what_it_said(values):
    values = [storable(one) for one in values]
    page = io.StringIO(newline="")
    csv.writer(page).writerows([["externalId", "gclid"], *(["x", escape_cell(one)] for one in values)])
    _, rows = parse_body(page.getvalue().encode(), TYPES["csv"])
    assert [row["gclid"] for row in rows if isinstance(row, Mapping)] == values


SENT = rows(3)
FAILURE = {
    "error": {
        "code": 400,
        "status": "INVALID_ARGUMENT",
        "message": "Request contains an invalid argument.",
        "details": [
            {"retryDelay": "30s", "reason": "RATE_LIMIT_EXCEEDED"},
            {"fieldViolations": [{"field": "events[1].a", "reason": "X", "description": "y"}]},
            {"errors": [{"errorCode": {"quotaError": "RESOURCE_EXHAUSTED"}, "message": "m",
                         "details": {"quotaErrorDetails": {"retryDelay": "5s"}}}]},
        ],
    }
}  # fmt: skip
STATUS = {
    "requestStatusPerDestination": [
        {"requestStatus": "PARTIAL_SUCCESS", "errorInfo": {"errorCounts": [{"recordCount": "3", "reason": "BAD"}]}}
    ]
}


@cache
def google_answer() -> Any:
    """Not at once: the library that it is made with takes two seconds to import."""
    sent = [click_conversion(one.conversion, "customers/1/conversionActions/2") for one in SENT]
    wrong = {1: [upload_error("UNPARSEABLE_GCLID")], 2: [upload_error("CLICK_NOT_FOUND")]}
    return upload_response(sent, wrong)


@given(st.deferred(lambda: broken_json(google_answer())))
def test_an_answer_credits_or_refuses_every_row_it_was_asked_for(body):
    answers = read_upload(body, SENT, "r-1")
    assert len(answers) == len(SENT)
    assert all(isinstance(one, RowAccepted | RowRefused) for one in answers)
    json.dumps([one.note for one in answers])


@given(st.deferred(lambda: broken(json.dumps(google_answer()).encode(), json.dumps(FAILURE).encode())))
def test_bytes_from_google_are_json_or_nothing(content):
    body = decode_json(content.decode("utf-8", "replace"))
    assert len(read_upload(body, SENT)) == len(SENT)


@given(
    broken_json(FAILURE, {}, []),
    st.sampled_from([200, 400, 401, 403, 408, 413, 429, 500, 503]),
    broken_text("120", "Wed, 21 Oct 2026 07:28:00 GMT", ""),
    broken_text("Wed, 21 Oct 2026 07:27:00 GMT", ""),
)
@example({"error": {"status": "\0"}}, 503, "", "")
def test_a_failure_is_judged_whatever_its_body_says(body, status, pause, date):
    headers = {"retry-after": visible(pause), "date": visible(date), "request-id": "r"}
    answer = GoogleResponse(status, httpx.Headers(headers), body)
    wait_s = retry_after_s(answer)
    assert wait_s is None or 0 <= wait_s <= MAX_RETRY_AFTER_S
    failure = failure_of(answer)
    assert failure.refused.code
    assert storable(failure.refused.message) == failure.refused.message
    assert data_manager._read_refusal(answer, 3)


def visible(text):
    return text.encode("ascii", "ignore").decode().replace("\r", "").replace("\n", "")


@given(broken_json({"requestId": "r-1", "fieldWarnings": [{"a": 1}]}, STATUS))
def test_data_manager_is_read_whatever_it_says(body):
    assert data_manager._parse_status(body).status
    assert len(data_manager._read_acceptance(GoogleResponse(200, httpx.Headers(), body), 3).rows) == 3


CREDENTIALS = {
    "customer_id": "123-456-7890",
    "client_id": "client",
    "client_secret": "s3cret",
    "refresh_token": "t0ken",
    "conversion_action_resource_name": "customers/1234567890/conversionActions/1",
}


@example({**CREDENTIALS, "customer_id": " - "})
@example({**CREDENTIALS, "client_secret": " "})
@given(broken_json(CREDENTIALS).filter(lambda value: isinstance(value, dict)))
def test_credentials_are_taken_or_refused_by_name_and_never_by_value(document):
    credentials = answered(Invalid, GoogleCredentials.parse, document)
    if isinstance(credentials, Invalid):
        assert "s3cret" not in credentials.message
        assert "t0ken" not in credentials.message
        return
    assert GoogleCredentials.parse(json.loads(credentials.to_text())) == credentials


@given(broken_json({"error": "invalid_grant", "error_description": "s3cret is bad"}, {"error": "x"}))
def test_a_token_endpoint_is_never_repeated_with_a_secret_in_it(body):
    known = GoogleCredentials.parse(CREDENTIALS)
    refusal = _refusal(400, body if isinstance(body, dict) else {}, known)
    assert "s3cret" not in str(refusal)
    assert storable(str(refusal)) == str(refusal)


@given(broken_json({"expires_in": 3599}))
def test_the_life_of_a_token_is_a_number_of_seconds(body):
    given_s = body.get("expires_in") if isinstance(body, dict) else body
    assert 0 <= _lifetime_s(given_s) < 10**6
