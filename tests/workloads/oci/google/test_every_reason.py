"""Every value of Google's error enums, through the local Google to a verdict.

The names are those of Google's own packages: a new release that adds one fails here.
"""

from collections.abc import Iterator

import pytest

from kesin.foundation.clock import ManualClock
from kesin.lifecycle.errors import Category, Verdict
from kesin.workloads.common.advice import LANGUAGES
from kesin.workloads.oci.google import classify as table
from kesin.workloads.oci.google.channel import RowAccepted, RowRefused
from kesin.workloads.oci.google.classify import ERROR_TABLE, GoogleError, look_up, stored_code
from kesin.workloads.oci.google.client import RequestReply, build_findings
from kesin.workloads.oci.google.credentials import AccessTokens
from kesin.workloads.oci.google.data_manager import DataManager
from kesin.workloads.oci.google.google_ads import GoogleAds
from kesin.workloads.oci.lifecycle import ADVICE, oci_lifecycle
from tests.workloads.oci.fake_data_manager import Violation, refused, statuses
from tests.workloads.oci.fake_data_manager import values_of as data_manager_values
from tests.workloads.oci.fake_google import GoogleServer, Whole, Wrong, http_client
from tests.workloads.oci.google.test_classify import ENUMS, snake, values_of
from tests.workloads.oci.google_library import VERSION
from tests.workloads.oci.rows import rows

FUTURE = "A_REASON_OF_NEXT_YEAR"
VERDICTS = {  # what a worker does with a row
    table.ROW: (Verdict.FAIL, "ack_failed"),
    table.ACCOUNT: (Verdict.FAIL, "ack_failed"),
    table.OUR_FAULT: (Verdict.FAIL, "ack_failed"),
    table.LATER: (Verdict.RETRY, "retry_later"),
    table.QUOTA: (Verdict.RETRY, "retry_later"),
    table.TOO_RECENT: (Verdict.WAIT, "too_recent"),
    table.ALREADY_RECORDED: (Verdict.COMPLETE, "ack_duplicate"),
}
TROUBLE = {Category.AUTH: "AUTH", Category.RATE_LIMIT: "RATE_LIMIT", Category.TRANSIENT: "TRANSIENT"}

# What the reasons that an upload can meet mean; all others would be faults of Kesin.
ERROR_REASONS = """
    row         ERROR_REASON_UNSPECIFIED INVALID_ARGUMENT REQUIRED_FIELD_MISSING INVALID_FORMAT
    row         INVALID_HEX_ENCODING INVALID_BASE64_ENCODING INVALID_SHA256_FORMAT INVALID_EVENT
    row         TOO_MANY_USER_IDENTIFIERS INVALID_NUMBER_FORMAT INVALID_CURRENCY_CODE
    row         NO_IDENTIFIERS_PROVIDED EVENT_TIME_INVALID FIELD_VALUE_TOO_LONG
    row         FIELD_VALUE_TOO_SHORT CUSTOM_VARIABLE_VALUE_CONTAINS_PII
    account     NOT_FOUND PERMISSION_DENIED INVALID_DESTINATION TERMS_AND_CONDITIONS_NOT_SIGNED
    account     INVALID_CONVERSION_ACTION_ID INVALID_CONVERSION_ACTION_TYPE NOT_ALLOWLISTED
    account     DESTINATION_ACCOUNT_NOT_ENABLED_ENHANCED_CONVERSIONS_FOR_LEADS
    account     DESTINATION_ACCOUNT_DATA_POLICY_PROHIBITS_ENHANCED_CONVERSIONS
    account     DESTINATION_ACCOUNT_ENHANCED_CONVERSIONS_TERMS_NOT_SIGNED
    account     OPERATING_ACCOUNT_LOGIN_ACCOUNT_MISMATCH DESTINATION_ACCOUNT_TYPE_MISMATCH
    account     EVENT_SOURCE_AND_DESTINATION_MISMATCH ACCOUNT_INELIGIBLE_FOR_STORE_SALES
    account     UNSUPPORTED_OPERATING_ACCOUNT_FOR_DATA_PARTNER CUSTOM_VARIABLE_NOT_ENABLED
    account     EU_POLITICAL_ADVERTISING_DECLARATION_REQUIRED INVALID_AD_IDENTIFIER_FOR_ACCOUNT
    quota       RESOURCE_EXHAUSTED
    later       INTERNAL_ERROR DEADLINE_EXCEEDED TOO_MANY_EVENTS
    too_recent  CONVERSION_ACTION_TOO_RECENTLY_CREATED
"""
PROCESSING_REASONS = """
    row         UNSPECIFIED EVENT_TOO_OLD DENIED_CONSENT UNKNOWN_CONSENT INVALID_GCLID
    row         INVALID_GBRAID INVALID_WBRAID INVALID_AD_IDENTIFIERS INVALID_EVENT INVALID_FORMAT
    row         CONVERSION_PRECEDES_CLICK INVALID_CLICK CLICK_NOT_FOUND USER_ID_NOT_FOUND
    row         USER_ID_NOT_FOUND_FOR_GCLID ORIGINAL_CONVERSIONS_NOT_FOUND
    account     NO_CONSENT CUSTOM_VARIABLE_NOT_ENABLED INVALID_OPERATING_ACCOUNT_FOR_CLICK
    account     DESTINATION_ACCOUNT_ENHANCED_CONVERSIONS_TERMS_NOT_SIGNED
    account     ONE_PER_CLICK_CONVERSION_ACTION_NOT_PERMITTED_WITH_BRAID
    account     EXTERNAL_ATTRIBUTION_DATA_MISSING
    account     PROCESSING_ERROR_OPERATING_ACCOUNT_MISMATCH_FOR_AD_IDENTIFIER
    later       INTERNAL_ERROR
    too_recent  TOO_RECENT_CLICK
    recorded    DUPLICATE_GCLID DUPLICATE_TRANSACTION_ID
"""
NAMES = {
    "row": table.ROW,
    "account": table.ACCOUNT,
    "quota": table.QUOTA,
    "later": table.LATER,
    "too_recent": table.TOO_RECENT,
    "recorded": table.ALREADY_RECORDED,
}


def meanings(text: str, prefix: str = "") -> dict[str, table.Meaning]:
    lines = [line.split() for line in text.strip().splitlines()]
    return {
        name if name.startswith("PROCESSING_") else prefix + name: NAMES[kind]
        for kind, *names in lines
        for name in names
    }


@pytest.fixture
def channels(google: GoogleServer) -> Iterator[tuple[GoogleAds, DataManager]]:
    with http_client(60, ManualClock().monotonic) as client:
        tokens = AccessTokens(client, google.token_url)
        ads = GoogleAds(client, tokens, f"{google.url}/{VERSION}")
        yield ads, DataManager(client, tokens, f"{google.url}/v1")


def check(outcome: RowAccepted | RowRefused, code: str, meaning: table.Meaning, channel: str):
    """The outcome has this code, its category and its verdict; there is advice on it."""
    assert outcome.code == code
    is_had = meaning == table.ALREADY_RECORDED
    assert isinstance(outcome, RowAccepted if is_had else RowRefused), code
    category = None if isinstance(outcome, RowAccepted) else outcome.category
    resolved = oci_lifecycle().errors.resolve(code, channel=channel, category=category)
    assert (resolved.verdict, resolved.move) == VERDICTS[meaning], code
    assert resolved.category is meaning.category
    assert is_had or category is meaning.category
    assert has_advice(code, resolved.category), code


def has_advice(code: str, category: Category) -> bool:
    """Whether a text is about the code; that of the category is enough for a value of later."""
    kind = category if FUTURE in code or "999" in code else None
    return all(ADVICE.find(code, kind, one).means != ADVICE.find(None, None, one).means for one in LANGUAGES)


def test_every_error_of_google_ads_that_a_conversion_can_meet(google, channels):
    """Each value is the partial failure of a row; the last is one that the package lacks."""
    met = [group for group in ENUMS if group != table.ADJUSTMENTS]
    tried = [(group, value) for group in met for value in [*values_of(group), "999"]]
    sent = rows(len(tried))
    wrong = {
        one.conversion.order_id: Wrong(snake(group), value) for one, (group, value) in zip(sent, tried, strict=True)
    }
    google.row_errors = lambda row: [wrong[row["orderId"]]]
    outcomes = channels[0].upload(google.credentials(), sent).rows
    for (group, value), outcome in zip(tried, outcomes, strict=True):
        known = ERROR_TABLE[group]
        assert value == "999" or value in known.values
        check(outcome, stored_code(group, value), known.values.get(value, known.default), "api")


def test_the_table_says_of_every_reason_what_it_means():
    expected = meanings(ERROR_REASONS)
    found = {name: ERROR_TABLE["errorReason"].values[name] for name in data_manager_values("ErrorReason")}
    assert found == {name: expected.get(name, table.OUR_FAULT) for name in found}
    expected = meanings(PROCESSING_REASONS, "PROCESSING_ERROR_REASON_")
    values = data_manager_values("ProcessingErrorReason")
    found = {name: ERROR_TABLE["processingErrorReason"].values[name] for name in values}
    assert found == {name: expected.get(name, table.OUR_FAULT) for name in found}


def reasons() -> list[tuple[str, table.Meaning]]:
    group = ERROR_TABLE["errorReason"]
    names = [*data_manager_values("ErrorReason"), FUTURE]
    return [(name, group.values.get(name, group.default)) for name in names]


def test_every_reason_of_the_data_manager_for_an_event(google, channels):
    """The request is refused once and names every event with a reason of its own."""
    tried = reasons()
    sent = rows(len(tried) + 1)
    orders = [one.conversion.order_id for one in sent]
    wrong = dict(zip(orders, (name for name, _ in tried), strict=False))
    google.event_errors = lambda event: wrong.get(event["transactionId"])
    result = channels[1].upload(google.credentials(), sent)
    *refusals, good = result.rows
    assert (type(good), result.trouble, len(google.came)) == (RowAccepted, None, 2)
    for (name, meaning), outcome in zip(tried, refusals, strict=True):
        check(outcome, name, meaning, "data_manager")
        assert outcome.note["requestId"] == "refused-request"


def test_every_reason_of_the_data_manager_for_a_request_that_names_no_event(google, channels):
    for name, meaning in reasons():
        google.then(Whole(*refused(400, "INVALID_ARGUMENT", name)))
        result = channels[1].upload(google.credentials(), rows(1))
        check(result.rows[0], name, meaning, "data_manager")
        is_trouble = meaning != table.TOO_RECENT and name != "TOO_MANY_EVENTS"
        kind = TROUBLE.get(meaning.category) if is_trouble else None
        assert (result.trouble.kind if result.trouble else None) == kind, name


def test_every_reason_of_the_data_manager_for_a_destination(google, channels):
    """What is wrong with the only action stops the site, unless it passes."""
    for name, meaning in reasons():
        known = meaning.category in TROUBLE
        code, meant = (name, meaning) if known else ("INVALID_DESTINATION", table.ACCOUNT)
        wrong = Violation("destinations[0].product_destination_id", name)
        google.then(Whole(*refused(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", wrong)))
        result = channels[1].upload(google.credentials(), rows(2))
        for outcome in result.rows:
            check(outcome, code, meant, "data_manager")
        kind = None if meant == table.TOO_RECENT else TROUBLE[meant.category]
        assert (result.trouble.kind if result.trouble else None) == kind, name
    assert len(google.came) == len(reasons())


@pytest.mark.parametrize("field", ["destinations", "destinations[0]", "destination"])
def test_rows_of_an_action_that_is_too_new_wait_and_the_site_is_in_order(google, channels, field):
    reason = "CONVERSION_ACTION_TOO_RECENTLY_CREATED"
    wrong = refused(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", Violation(field, reason))
    google.then(Whole(*wrong), Whole(*wrong))
    result = channels[1].upload(google.credentials(), rows(5))
    assert [one.code for one in result.rows] == [reason] * 5
    assert (result.trouble, len(google.came)) == (None, 1)
    assert all(finding.ok for finding in channels[1].check(google.credentials()))
    assert all(finding.ok for finding in build_findings(RequestReply(result.rows)))


def test_every_reason_for_which_events_are_left_out_later(google, channels):
    """The counts come as Google's classes make them; what they mean decides how it ended."""
    group, manager = ERROR_TABLE["processingErrorReason"], channels[1]
    for name in [*data_manager_values("ProcessingErrorReason"), FUTURE, 999]:
        count = {"recordCount": 2, "reason": 0 if name == FUTURE else name}
        body = statuses({"requestStatus": "PARTIAL_SUCCESS", "errorInfo": {"errorCounts": [count]}})
        [sent] = body["requestStatusPerDestination"][0]["errorInfo"]["errorCounts"]
        sent.update({"reason": name} if name == FUTURE else {})  # no class of today makes it
        google.then(Whole(200, body))
        outcome = manager.status(google.credentials(), "x")
        is_zero = name == "PROCESSING_ERROR_REASON_UNSPECIFIED"  # JSON leaves it out
        assert outcome.details == {"errors": {"UNKNOWN" if is_zero else str(name): 2}}
        code, meaning = look_up(GoogleError("processingErrorReason", str(name), ""))
        assert meaning == group.values.get(str(name), group.default)
        was_had = meaning == table.ALREADY_RECORDED
        assert outcome.status == ("SUCCESS" if was_had else "PARTIAL_SUCCESS"), name
        resolved = oci_lifecycle().errors.resolve(code, channel="data_manager", category=meaning.category)
        assert (resolved.verdict, resolved.move) == VERDICTS[meaning], name
        assert has_advice(code, resolved.category), name
