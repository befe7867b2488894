"""A response with status 200 credits only rows with a result and no error."""

import copy
import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.google.channel import RowAccepted, RowRefused
from kesin.workloads.oci.google.google_ads import MAX_NOTE_LENGTH, MAX_NOTED_ERRORS, click_conversion, read_upload
from tests.workloads.oci.fake_google import Wrong, upload_error, upload_response
from tests.workloads.oci.rows import row, rows

ACTION = "customers/1/conversionActions/2"
BAD = upload_error("UNPARSEABLE_GCLID")
HAD = upload_error("ORDER_ID_ALREADY_IN_USE", "order_id")


def answer(some, wrong):
    sent = [click_conversion(one.conversion, ACTION) for one in some]
    return upload_response(sent, wrong)


def credited(body, some):
    return {n for n, one in enumerate(read_upload(body, some)) if isinstance(one, RowAccepted)}


def snaked(value):
    if isinstance(value, dict):
        return {
            "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in name): snaked(one)
            for name, one in value.items()
        }
    return [snaked(one) for one in value] if isinstance(value, list) else value


def errors_of(body):
    return body["partialFailureError"]["details"][0]["errors"]


def nobody(body, some):
    outcomes = read_upload(body, some, "r-1")
    return {(outcome.code, outcome.category) for outcome in outcomes} == {
        ("PARTIAL_FAILURE_UNREADABLE", Category.TRANSIENT)
    }


def test_each_error_meets_the_row_that_it_names():
    some = rows(5)
    wrong = {0: [BAD], 3: [upload_error("TOO_RECENT_EVENT"), upload_error("CLICK_NOT_FOUND")]}
    outcomes = read_upload(answer(some, wrong), some, "r-1")
    assert [isinstance(outcome, RowAccepted) for outcome in outcomes] == [0, 1, 1, 0, 1]
    assert (outcomes[0].code, outcomes[3].code) == ("UNPARSEABLE_GCLID", "CLICK_NOT_FOUND")
    assert outcomes[3].message == "What TOO_RECENT_EVENT means.; What CLICK_NOT_FOUND means."
    assert outcomes[1].note == {"requestId": "r-1"}
    assert (outcomes[3].note or {})["requestId"] == "r-1"
    assert [error["errorCode"] for error in (outcomes[3].note or {})["errors"]] == [
        {"conversionUploadError": "TOO_RECENT_EVENT"},
        {"conversionUploadError": "CLICK_NOT_FOUND"},
    ]


def test_snake_case_is_read_as_well():
    some = rows(3)
    body = snaked(answer(some, {1: [BAD], 2: [HAD]}))
    assert "partial_failure_error" in body
    outcomes = read_upload(body, some)
    assert [outcome.code for outcome in outcomes] == [None, "UNPARSEABLE_GCLID", "ORDER_ID_ALREADY_IN_USE"]
    assert isinstance(outcomes[2], RowAccepted)


def test_the_index_is_that_of_the_conversions_wherever_it_stands_in_the_path():
    some = rows(3)
    body = answer(some, {2: [BAD]})
    location = errors_of(body)[0]["location"]
    location["fieldPathElements"].insert(0, {"fieldName": "operations", "index": 0})
    assert credited(body, some) == {0, 1}


@pytest.mark.parametrize(
    "mangle",
    [
        lambda body: body.update(partialFailureError={}),
        lambda body: body.update(partialFailureError="something went wrong"),
        lambda body: body["partialFailureError"].update(details=[]),
        lambda body: body["partialFailureError"].update(details={"errors": []}),
        lambda body: body["partialFailureError"].update(details=["?"]),
        lambda body: body["partialFailureError"]["details"][0].pop("errors"),
        lambda body: body["partialFailureError"]["details"][0].update(errors={}),
        lambda body: errors_of(body).append("?"),
        lambda body: errors_of(body)[0].pop("location"),
        lambda body: errors_of(body)[0].update(location="conversions[1]"),
        lambda body: errors_of(body)[0]["location"].update(fieldPathElements=[]),
        lambda body: errors_of(body)[0]["location"]["fieldPathElements"][0].pop("index"),
        lambda body: errors_of(body)[0]["location"]["fieldPathElements"][0].update(index=3),
        lambda body: errors_of(body)[0]["location"]["fieldPathElements"][0].update(index=-1),
        lambda body: errors_of(body)[0]["location"]["fieldPathElements"][0].update(index=True),
        lambda body: errors_of(body)[0]["location"]["fieldPathElements"][0].update(index=1.0),
        lambda body: errors_of(body)[0]["location"]["fieldPathElements"][0].update(index="٣"),
        lambda body: body["results"].pop(),
        lambda body: body["results"].append({}),
        lambda body: body["results"].insert(0, None),
        lambda body: body.update(results={}),
        lambda body: body.pop("results"),
        lambda body: body["results"].reverse(),
        lambda body: body.clear(),
        lambda body: (body.clear(), body.update(error={"code": 500})),
    ],
)
def test_an_answer_that_cannot_be_read_credits_nobody(mangle):
    some = rows(3)
    body = answer(some, {1: [BAD]})
    mangle(body)
    assert nobody(body, some)


@pytest.mark.parametrize("body", [None, [], "ok", 5, True])
def test_an_answer_that_is_no_object_credits_nobody(body):
    outcomes = read_upload(body, rows(2))
    assert [(outcome.code, outcome.category) for outcome in outcomes] == [
        ("UNREADABLE_RESPONSE", Category.TRANSIENT)
    ] * 2


def test_a_row_with_neither_result_nor_error_is_not_credited():
    some = rows(3)
    body = answer(some, {})
    body["results"][1] = {}
    outcomes = read_upload(body, some)
    assert [type(outcome) for outcome in outcomes] == [RowAccepted, RowRefused, RowAccepted]
    assert (outcomes[1].code, outcomes[1].category) == ("PARTIAL_FAILURE_UNREADABLE", Category.TRANSIENT)


def test_an_error_outweighs_a_result():
    some = rows(2)
    body = answer(some, {})
    body["partialFailureError"] = answer(some, {1: [BAD]})["partialFailureError"]
    assert credited(body, some) == {0}


def test_a_braid_is_recognised_in_its_result():
    some = [row(0, gclid="", wbraid="some-wbraid"), row(1, gclid="", gbraid="some-gbraid")]
    assert credited(answer(some, {}), some) == {0, 1}


def test_other_details_beside_the_failure_do_no_harm():
    some = rows(2)
    body = answer(some, {1: [BAD]})
    more = {"@type": "type.googleapis.com/google.rpc.DebugInfo", "detail": "x"}
    body["partialFailureError"]["details"].append(more)
    assert credited(body, some) == {0}


SEVERAL = rows(6)
LATE = Wrong("date_error", "LATER_THAN_MAXIMUM_DATE", "conversion_date_time")
ALLOWED = {0, 3, 5}

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 8) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


@settings(max_examples=25)
@given(st.data())
def test_no_mangling_of_an_answer_credits_more_than_the_honest_one(data):
    wrong = {1: [BAD], 2: [upload_error("TOO_RECENT_EVENT")], 4: [LATE, BAD]}
    body = answer(SEVERAL, wrong)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([one for one in places(body) if one]))
        holder, key = at(body, path[:-1]), path[-1]
        what = data.draw(st.sampled_from(["drop", "replace", "repeat", "shuffle"]))
        if what == "drop":
            del holder[key]
        elif what == "replace" and "errorCode" not in path and path[0] != "results":
            holder[key] = data.draw(anything)
        elif what == "repeat" and isinstance(holder, list):
            holder.insert(data.draw(st.integers(0, len(holder))), copy.deepcopy(holder[key]))
        elif what == "shuffle" and isinstance(holder[key], list):
            holder[key] = data.draw(st.permutations(holder[key]))
        if not isinstance(body, dict) or not body:
            break
    outcomes = read_upload(body, SEVERAL)
    assert len(outcomes) == len(SEVERAL)
    assert {n for n, outcome in enumerate(outcomes) if isinstance(outcome, RowAccepted)} <= ALLOWED


def steps(count):
    """Lines of Python that the reading takes."""
    some = rows(count)
    body = answer(some, {n: [BAD] for n in range(count)})
    taken = 0

    def trace(_frame, event, _argument):
        nonlocal taken
        taken += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        outcomes = read_upload(body, some)
    finally:
        sys.settrace(before)
    assert len(outcomes) == count
    return taken


def test_reading_is_linear_in_rows_and_errors():
    small, large = steps(50), steps(500)
    assert large < 10.5 * small


def test_many_errors_of_one_row_are_kept_in_part():
    some = rows(1)
    long = Wrong("field_error", "REQUIRED", "gclid", "x" * 10_000)
    body = answer(some, {0: [long] * 50})
    result: Any
    (result,) = read_upload(body, some)
    assert len(result.note["errors"]) == MAX_NOTED_ERRORS
    assert all(len(json.dumps(error)) <= MAX_NOTE_LENGTH for error in result.note["errors"])
    assert len(result.message) == 1_000
