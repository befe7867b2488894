from typing import Any

import pytest

from kesin.lifecycle.errors import Category, Taxonomy, Verdict
from kesin.store.limits import MAX_CODE
from kesin.workloads.oci.google.channel import RowAccepted, RowRefused
from kesin.workloads.oci.google.classify import (
    CODES,
    ERROR_TABLE,
    GoogleError,
    classify_errors,
    classify_response,
    look_up,
    read_error,
    stored_code,
)
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.workloads.oci.fake_google import Wrong, failure, refusal
from tests.workloads.oci.google_library import google_module

ENUMS = [name for name in ERROR_TABLE if not name.endswith("Reason")]  # those of Google Ads
FATAL = {Category.VALIDATION, Category.AUTH, Category.PERMANENT}


def snake(group):
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in group)


def values_of(group):
    module = google_module(f"errors.types.{snake(group)}")
    (outer,) = module.__all__
    return [one.name for one in getattr(getattr(module, outer), outer.removesuffix("Enum"))]


def error(group, value, message="Google says so."):
    return read_error({"errorCode": {group: value}, "message": message})


def taxonomy():
    ours = oci_lifecycle().errors
    mine = {code.name for code in CODES}
    others = tuple(code for code in ours.codes if code.name not in mine)
    return Taxonomy(ours.channels, ours.rules, ours.moves, (*others, *CODES), ours.unknown)


def move_of(*errors, channel="api"):
    judged = classify_errors(errors)
    if isinstance(judged, RowAccepted):
        return taxonomy().resolve(judged.code, channel=channel).move
    return taxonomy().resolve(judged.code, channel=channel, category=judged.category).move


def test_codes_are_unique_and_fit_their_column():
    names = [code.name for code in CODES]
    assert len(names) == len(set(names))
    assert max(map(len, names)) <= MAX_CODE
    values = {stored_code(group, value) for group in ENUMS for value in values_of(group)}
    assert max(map(len, values)) <= MAX_CODE


CATEGORIES = """
    conversionUploadError  UNPARSEABLE_GCLID                VALIDATION
    conversionUploadError  CLICK_NOT_FOUND                  VALIDATION
    conversionUploadError  UNAUTHORIZED_CUSTOMER            AUTH
    conversionUploadError  NO_CONVERSION_ACTION_FOUND       AUTH
    conversionUploadError  EVENT_NOT_FOUND                  TRANSIENT
    conversionUploadError  DUPLICATE_ORDER_ID               TRANSIENT
    conversionUploadError  TOO_MANY_CONVERSIONS_IN_REQUEST  TRANSIENT
    conversionUploadError  ORDER_ID_CONTAINS_PII            PERMANENT
    conversionUploadError  UNKNOWN                          TRANSIENT
    internalError          INTERNAL_ERROR                   TRANSIENT
    quotaError             RESOURCE_EXHAUSTED               RATE_LIMIT
    quotaError             ACCESS_PROHIBITED                AUTH
    databaseError          CONCURRENT_MODIFICATION          TRANSIENT
    databaseError          REQUEST_TOO_LARGE                TRANSIENT
    authorizationError     UNKNOWN                          AUTH
    currencyCodeError      UNSUPPORTED                      VALIDATION
    dateError              LATER_THAN_MAXIMUM_DATE          VALIDATION
    notAllowlistedError    CUSTOMER_NOT_ALLOWLISTED_FOR_THIS_FEATURE  AUTH
"""


def test_errors_have_their_category_and_dates_are_stored_with_their_group():
    for group, value, category in map(str.split, CATEGORIES.strip().splitlines()):
        judged = classify_errors([error(group, value)])
        code = f"DateError_{value}" if group == "dateError" else value
        assert (judged.code, judged.category) == (code, category)


@pytest.mark.parametrize(
    "value", ["ORDER_ID_ALREADY_IN_USE", "CLICK_CONVERSION_ALREADY_EXISTS", "CALL_CONVERSION_ALREADY_EXISTS"]
)
def test_what_google_had_already_is_delivered_and_keeps_its_code(value):
    judged = classify_errors([error("conversionUploadError", value)])
    assert isinstance(judged, RowAccepted)
    assert judged.code == value
    assert taxonomy().resolve(value, channel="api").move == "ack_duplicate"
    assert taxonomy().resolve(value, channel="data_manager").move == "ack_duplicate"
    assert taxonomy().resolve(value, channel="script").move == "ack_failed"


@pytest.mark.parametrize("value", ["TOO_RECENT_EVENT", "TOO_RECENT_CALL", "TOO_RECENT_CONVERSION_ACTION"])
def test_a_click_that_google_does_not_know_yet_waits(value):
    assert move_of(error("conversionUploadError", value)) == "too_recent"
    assert taxonomy().resolve(value, channel="api").verdict is Verdict.WAIT


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (["INVALID_CUSTOMER_FOR_CLICK", "UNPARSEABLE_GCLID"], "INVALID_CUSTOMER_FOR_CLICK"),
        (["TOO_RECENT_EVENT", "UNPARSEABLE_GCLID"], "UNPARSEABLE_GCLID"),
        (["EVENT_NOT_FOUND", "TOO_RECENT_EVENT"], "TOO_RECENT_EVENT"),
        (["ORDER_ID_ALREADY_IN_USE", "EVENT_NOT_FOUND"], "EVENT_NOT_FOUND"),
        (["ORDER_ID_CONTAINS_PII", "UNPARSEABLE_GCLID"], "ORDER_ID_CONTAINS_PII"),
        (["UNPARSEABLE_GCLID", "ORDER_ID_CONTAINS_PII"], "UNPARSEABLE_GCLID"),
    ],
)
def test_the_gravest_of_several_errors_decides(values, code):
    judged = classify_errors([error("conversionUploadError", value, value.lower()) for value in values])
    assert isinstance(judged, RowRefused)
    assert judged.code == code
    assert judged.message == "; ".join(value.lower() for value in values)


def test_a_quota_outranks_a_passing_error_and_not_a_young_click():
    quota = error("quotaError", "RESOURCE_EXHAUSTED")
    passing = error("internalError", "INTERNAL_ERROR")
    young = error("conversionUploadError", "TOO_RECENT_EVENT")
    assert classify_errors([passing, quota]).code == "RESOURCE_EXHAUSTED"
    assert classify_errors([quota, young]).code == "TOO_RECENT_EVENT"


def test_a_row_is_delivered_only_if_all_its_errors_say_so():
    had = ["ORDER_ID_ALREADY_IN_USE", "CLICK_CONVERSION_ALREADY_EXISTS"]
    both = [error("conversionUploadError", value) for value in had]
    assert isinstance(classify_errors(both), RowAccepted)
    assert isinstance(classify_errors([*both, error("internalError", "INTERNAL_ERROR")]), RowRefused)
    with pytest.raises(ValueError):
        classify_errors([])


def test_messages_are_joined_once_each_and_bounded():
    errors = [error("fieldError", "REQUIRED", f"m{n % 3}" + "x" * 400) for n in range(9)]
    judged = classify_errors(errors)
    assert len(judged.message) == 1_000
    assert judged.message.count("m0") == 1
    assert classify_errors([error("fieldError", "REQUIRED", "")]).message == "REQUIRED"


@pytest.mark.parametrize(
    "name",
    [
        "ConversionPrecedesClick", "TooRecentConversion", "INVALID_GCLID", "UNPARSEABLE_GCLID",
        "INVALID_FIELD_VALUES_IN_DATE_TIME", "DateError", "RESOURCE_NOT_FOUND",
        "CONVERSION_NOT_FOUND", "INVALID_ARGUMENT",
    ],
)  # fmt: skip
def test_the_fatal_names_of_old_are_never_retried(name):
    for body in (
        {"errorCode": {"someError": name}},
        {"errorCode": name.lower()},
        {"message": f"rejected: {name} (row)"},
    ):
        judged = classify_errors([read_error(body)])
        assert (judged.code, judged.category in FATAL) == (name, True)
        assert move_of(read_error(body)) == "ack_failed"


@pytest.mark.parametrize(
    "name",
    [
        "RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RATE_LIMIT", "BACKEND_ERROR",
        "TEMPORARILY",
    ],
)  # fmt: skip
def test_the_transient_names_of_old_are_retried(name):
    for body in ({"errorCode": {"someError": name}}, {"message": f"{name.lower()} unavailable"}):
        assert classify_errors([read_error(body)]).code == name
        assert move_of(read_error(body)) == "retry_later"


def test_words_of_a_message_count_only_where_there_is_no_code():
    internal = error("internalError", "INTERNAL_ERROR", "INVALID_GCLID RESOURCE_NOT_FOUND")
    assert classify_errors([internal]).code == "INTERNAL_ERROR"
    assert classify_errors([read_error({"message": "XINVALID_GCLIDX happened"})]).code == "UNKNOWN"


def test_the_old_name_for_too_recent_is_fatal_and_googles_own_is_not():
    assert move_of(read_error({"errorCode": {"x": "TooRecentConversion"}})) == "ack_failed"
    own = error("conversionUploadError", "TOO_RECENT_CONVERSION_ACTION", "TooRecentConversion")
    assert move_of(own) == "too_recent"


def test_a_value_that_google_adds_later_says_what_its_group_says():
    assert look_up(error("dateError", "NEW"))[0] == "DateError_NEW"
    assert classify_errors([error("dateError", "NEW")]).category is Category.VALIDATION
    assert classify_errors([error("authorizationError", "NEW")]).category is Category.AUTH
    assert classify_errors([error("conversionUploadError", "NEW")]).category is Category.TRANSIENT
    assert classify_errors([error("conversionUploadError", 77)]).code == "ConversionUploadError_77"


def test_an_enum_nobody_knows_is_tried_again_under_a_name_that_means_nothing_else():
    judged = classify_errors([error("someNewError", "ORDER_ID_ALREADY_IN_USE")])
    assert judged == RowRefused("SomeNewError_ORDER_ID_ALREADY_IN_USE", "Google says so.", Category.TRANSIENT)


def test_both_spellings_are_read():
    snake_case = {
        "error_code": {"conversion_upload_error": "CLICK_NOT_FOUND"},
        "message": "m",
        "details": {"unpublished_error_code": "HIDDEN"},
    }
    assert read_error(snake_case) == GoogleError(
        "conversionUploadError", "CLICK_NOT_FOUND", "m (unpublished code: HIDDEN)", snake_case
    )


@pytest.mark.parametrize("body", [None, [], "x", {"errorCode": []}, {"errorCode": {"a": {}}}])
def test_whatever_an_error_looks_like_it_is_read(body):
    assert classify_errors([read_error(body)]).category is Category.TRANSIENT


AUTH, LATER, ROWS = "AUTH", "TRANSIENT", None


@pytest.mark.parametrize(
    ("status", "category", "trouble"),
    [
        (400, Category.VALIDATION, ROWS),
        (401, Category.AUTH, AUTH),
        (403, Category.AUTH, AUTH),
        (404, Category.AUTH, AUTH),
        (408, Category.TRANSIENT, LATER),
        (409, Category.TRANSIENT, LATER),
        (413, Category.TRANSIENT, ROWS),
        (429, Category.RATE_LIMIT, "RATE_LIMIT"),
        (302, Category.TRANSIENT, LATER),
        (500, Category.TRANSIENT, LATER),
        (503, Category.TRANSIENT, LATER),
        (504, Category.TRANSIENT, LATER),
    ],
)
def test_a_status_says_enough_where_the_body_says_nothing(status, category, trouble):
    body: Any
    for body in (None, [], "x", {}, {"error": []}, {"error": {"details": [1]}}):
        refused = RowRefused(f"HTTP_{status}", f"Google returned {status}", category)
        assert classify_response(status, body) == (refused, trouble)


@pytest.mark.parametrize(
    ("status", "named", "wrong", "code", "trouble"),
    [
        (400, "INVALID_ARGUMENT", ("request_error", "UNSUPPORTED_VERSION"), None, AUTH),
        (400, "INVALID_ARGUMENT", ("request_error", "INVALID_CUSTOMER_ID"), None, AUTH),
        (400, "INVALID_ARGUMENT", ("request_error", "RESOURCE_NAME_MALFORMED"), None, AUTH),
        (400, "INVALID_ARGUMENT", ("internal_error", "TRANSIENT_ERROR"), None, LATER),
        (400, "INVALID_ARGUMENT", ("database_error", "REQUEST_TOO_LARGE"), None, ROWS),
        (400, "INVALID_ARGUMENT", ("field_error", "REQUIRED"), None, ROWS),
        (403, "PERMISSION_DENIED", ("authorization_error", "USER_PERMISSION_DENIED"), None, AUTH),
        (429, "RESOURCE_EXHAUSTED", ("quota_error", "RESOURCE_EXHAUSTED"), None, "RATE_LIMIT"),
        (429, "RESOURCE_EXHAUSTED", ("quota_error", "ACCESS_PROHIBITED"), None, AUTH),
        (500, "INTERNAL", ("internal_error", "INTERNAL_ERROR"), None, LATER),
        (500, "INTERNAL", ("field_error", "REQUIRED"), "INTERNAL", LATER),
        (503, "UNAVAILABLE", ("field_error", "REQUIRED"), "UNAVAILABLE", LATER),
    ],
)
def test_an_http_error_is_named_by_what_its_body_says(status, named, wrong, code, trouble):
    group, value = wrong
    body = refusal(status, named, Wrong(group, value, "")).body
    refused, found = classify_response(status, body)
    assert (refused.code, found) == (code or wrong[1], trouble)
    resolved = taxonomy().resolve(refused.code, category=refused.category)
    assert resolved.category is refused.category


def test_the_reasons_of_other_apis_are_read():
    detail = {"reason": "SERVICE_DISABLED", "domain": "googleapis.com"}
    body = {"error": {"status": "PERMISSION_DENIED", "message": "off", "details": [detail]}}
    refused, _ = classify_response(403, body)
    assert refused == RowRefused("SERVICE_DISABLED", "off", Category.AUTH)


def test_an_index_at_zero_is_written_out_by_googles_own_classes():
    failure_message = failure([(0, Wrong("conversion_upload_error", "CLICK_NOT_FOUND"))])
    assert failure_message.errors[0].location.field_path_elements[0].HasField("index")
