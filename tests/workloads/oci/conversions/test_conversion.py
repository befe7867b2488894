"""Parsing a conversion: what is accepted, what is refused, and with which code."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.workloads.oci.conversions.conversion import (
    Conversion,
    RowDefaults,
    Unsendable,
    key_of,
    order_id_of,
    parse_time,
    parse_value,
)

ISTANBUL = ZoneInfo("Europe/Istanbul")
SITE = RowDefaults("north", ISTANBUL, "TRY")
NOW_US = 1_700_000_000 * 1_000_000  # 2023-11-14T22:13:20Z
ROW = {
    "externalId": "sale-1",
    "gclid": "Cj0KCQiA-_abc",
    "conversionName": "Phone sale",
    "conversionTime": "2023-11-10T12:00:00+03:00",
    "conversionValue": 1500.5,
    "conversionCurrency": "TRY",
}


def read(site: RowDefaults = SITE, **changes: Any) -> Conversion:
    row = {name: value for name, value in {**ROW, **changes}.items() if value is not ...}
    return Conversion.parse(row, site, now_us=NOW_US)


def attempt(site: RowDefaults = SITE, **changes: Any) -> Conversion | Unsendable:
    try:
        return read(site, **changes)
    except Unsendable as problem:
        return problem


def wrong(site: RowDefaults = SITE, **changes: Any) -> tuple[str, str]:
    with pytest.raises(Unsendable) as caught:
        read(site, **changes)
    return caught.value.code, caught.value.field


def test_a_whole_row_is_read():
    one = read()
    assert (one.external_id, one.name, one.currency) == ("sale-1", "Phone sale", "TRY")
    assert one.click == ("gclid", "Cj0KCQiA-_abc")
    assert one.at == datetime(2023, 11, 10, 9, tzinfo=UTC)
    assert one.value == Decimal("1500.50")


@pytest.mark.parametrize(
    ("field", "given", "code"),
    [
        ("externalId", ..., "MISSING_EXTERNAL_ID"),
        ("externalId", None, "MISSING_EXTERNAL_ID"),
        ("externalId", "", "MISSING_EXTERNAL_ID"),
        ("externalId", "  ", "INVALID_EXTERNAL_ID"),
        ("externalId", "two\nlines", "INVALID_EXTERNAL_ID"),
        ("externalId", "a\0b", "INVALID_EXTERNAL_ID"),
        ("externalId", "\ud800", "INVALID_EXTERNAL_ID"),
        ("externalId", "x" * 201, "INVALID_EXTERNAL_ID"),
        ("externalId", True, "INVALID_EXTERNAL_ID"),
        ("externalId", 1.5, "INVALID_EXTERNAL_ID"),
        ("externalId", ["a"], "INVALID_EXTERNAL_ID"),
        ("gclid", ..., "MISSING_CLICK_ID"),
        ("gclid", "", "MISSING_CLICK_ID"),
        ("gclid", "  ", "MISSING_CLICK_ID"),
        ("gclid", "short", "INVALID_CLICK_ID_FORMAT"),
        ("gclid", "x" * 513, "INVALID_CLICK_ID_FORMAT"),
        ("gclid", "has a space", "INVALID_CLICK_ID_FORMAT"),
        ("gclid", "tırnaklı-ğ", "INVALID_CLICK_ID_FORMAT"),
        ("gclid", 1234567, "INVALID_CLICK_ID_FORMAT"),
        ("wbraid", "a+b/c=", "INVALID_CLICK_ID_FORMAT"),
        ("conversionName", ..., "MISSING_CONVERSION_NAME"),
        ("conversionName", "", "MISSING_CONVERSION_NAME"),
        ("conversionName", "   ", "INVALID_CONVERSION_NAME"),
        ("conversionName", "x" * 101, "INVALID_CONVERSION_NAME"),
        ("conversionName", "two\nlines", "INVALID_CONVERSION_NAME"),
        ("conversionName", 5, "INVALID_CONVERSION_NAME"),
        ("conversionTime", ..., "MISSING_TIME"),
        ("conversionTime", "", "MISSING_TIME"),
        ("conversionTime", "yesterday", "INVALID_TIME_FORMAT"),
        ("conversionTime", "2023-11-10", "INVALID_TIME_FORMAT"),
        ("conversionTime", "10/11/2023 12:00:00", "INVALID_TIME_FORMAT"),
        ("conversionTime", "2023-02-30T12:00:00", "INVALID_TIME_FORMAT"),
        ("conversionTime", "2023-11-10T25:00:00", "INVALID_TIME_FORMAT"),
        ("conversionTime", "1999-12-31T23:00:00", "INVALID_TIME_FORMAT"),
        ("conversionTime", "0001-01-01T00:00:00+14:00", "INVALID_TIME_FORMAT"),
        ("conversionTime", "9999-12-31T23:59:59-14:00", "INVALID_TIME_FORMAT"),
        ("conversionTime", "2023-11-10T12:00:00+03:00:30", "INVALID_TIME_FORMAT"),
        ("conversionTime", 1699606800, "INVALID_TIME_FORMAT"),
        ("conversionTime", "2023-11-15T12:00:00+03:00", "TIME_IN_FUTURE"),
        ("conversionValue", ..., "INVALID_CONVERSION_VALUE"),
        ("conversionValue", "", "INVALID_CONVERSION_VALUE"),
        ("conversionValue", -0.01, "INVALID_CONVERSION_VALUE"),
        ("conversionValue", float("nan"), "INVALID_CONVERSION_VALUE"),
        ("conversionValue", float("inf"), "INVALID_CONVERSION_VALUE"),
        ("conversionValue", 10**13, "INVALID_CONVERSION_VALUE"),
        ("conversionValue", True, "INVALID_CONVERSION_VALUE"),
        ("conversionValue", "a lot", "INVALID_CONVERSION_VALUE"),
        ("conversionValue", "1e3", "INVALID_CONVERSION_VALUE"),
        ("conversionValue", "NaN", "INVALID_CONVERSION_VALUE"),
        ("conversionValue", "-5", "INVALID_CONVERSION_VALUE"),
        ("conversionValue", "1.500", "INVALID_CONVERSION_VALUE"),
        ("conversionValue", "1,500", "INVALID_CONVERSION_VALUE"),
        ("conversionValue", [1], "INVALID_CONVERSION_VALUE"),
        ("conversionCurrency", "Lira", "INVALID_CURRENCY"),
        ("conversionCurrency", "TL", "INVALID_CURRENCY"),
        ("conversionCurrency", 949, "INVALID_CURRENCY"),
        ("revision", 0, "INVALID_REVISION"),
        ("revision", 100, "INVALID_REVISION"),
        ("revision", "1000", "INVALID_REVISION"),
        ("revision", "two", "INVALID_REVISION"),
        ("revision", True, "INVALID_REVISION"),
    ],
)
def test_what_is_wrong_is_named(field: str, given: Any, code: str):
    assert wrong(**{field: given}) == (code, field)


def test_the_offset_of_a_clock_that_is_a_little_wrong_is_forgiven():
    assert read(conversionTime="2023-11-14T22:40:00+00:00")


def test_a_number_is_an_external_id_too():
    assert read(externalId=4711).external_id == "4711"


def test_spaces_around_are_no_part_of_it():
    one = read(externalId=" sale-1 ", gclid=" Cj0KCQiA ", conversionCurrency=" try ")
    assert (one.external_id, one.gclid, one.currency) == ("sale-1", "Cj0KCQiA", "TRY")


def test_of_several_click_ids_the_gclid_is_sent():
    assert read(gbraid="gbraid-1", wbraid="wbraid-1").click[0] == "gclid"
    assert read(gclid="", gbraid="gbraid-1", wbraid="wbraid-1").click == ("wbraid", "wbraid-1")


def test_a_click_id_is_never_altered():
    assert read(gclid="aBcDeF-_019").click == ("gclid", "aBcDeF-_019")


# Times


@pytest.mark.parametrize(
    ("zone", "given", "told"),
    [
        ("Europe/Istanbul", "2023-11-10T12:00:00", "2023-11-10T12:00:00+03:00"),
        ("Europe/Istanbul", "2023-11-10 12:00:00", "2023-11-10T12:00:00+03:00"),
        ("Europe/Istanbul", "2023-11-10T12:00", "2023-11-10T12:00:00+03:00"),
        ("Europe/Berlin", "2023-07-10T12:00:00", "2023-07-10T12:00:00+02:00"),
        ("Europe/Berlin", "2023-11-10T12:00:00", "2023-11-10T12:00:00+01:00"),
        ("America/New_York", "2023-11-05T01:30:00", "2023-11-05T01:30:00-04:00"),  # twice: first
        ("Europe/Berlin", "2023-03-26T02:30:00", "2023-03-26T02:30:00+01:00"),  # never: 03:30
        ("Asia/Kathmandu", "2023-11-10T12:00:00", "2023-11-10T12:00:00+05:45"),
        ("Europe/Berlin", "2023-11-10T12:00:00Z", "2023-11-10T12:00:00+00:00"),
        ("Europe/Berlin", "2023-11-10T12:00:00-07:00", "2023-11-10T12:00:00-07:00"),
        ("Europe/Berlin", "2023-11-10T12:00:00.999999Z", "2023-11-10T12:00:00+00:00"),
        ("Europe/Berlin", "20231110T120000Z", "2023-11-10T12:00:00+00:00"),
    ],
)
def test_a_time_without_an_offset_is_the_sites(zone: str, given: str, told: str):
    assert parse_time(given, ZoneInfo(zone)).isoformat() == told


def test_a_time_that_never_was_is_told_as_the_clocks_showed_it():
    at = parse_time("2023-03-26T02:30:00", ZoneInfo("Europe/Berlin"))
    item = read(conversionTime=at.isoformat()).script_item("1", ZoneInfo("Europe/Berlin"))
    assert item["conversionTime"] == "2023-03-26 03:30:00+02:00"


def test_where_there_is_no_zone_an_offset_is_needed():
    with pytest.raises(Unsendable):
        parse_time("2023-11-10T12:00:00", None)


# Values


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (0, "0"),
        (1500, "1500"),
        (1500.75, "1500.75"),
        (0.005, "0.01"),
        ("1500", "1500"),
        ("1500.75", "1500.75"),
        ("1500,75", "1500.75"),
        ("1.500,75", "1500.75"),
        ("1,500.75", "1500.75"),
        ("1.500.000", "1500000"),
        ("1,500,000", "1500000"),
        ("1.500.000,5", "1500000.5"),
        ("12,5", "12.5"),
        ("0.125", "0.13"),
        (" 1 500,75 ", "1500.75"),
        ("1\u00a0500,75", "1500.75"),
        ("15,00,000.5", "1500000.5"),
        (10**12, "1000000000000"),
    ],
)
def test_an_amount_may_be_spelled_as_here_or_there(given: Any, value: str):
    assert parse_value(given, "TRY") == Decimal(value)


@pytest.mark.parametrize(
    "given",
    [
        *("1.500", "1,500", "12.345", "999,999"),
        *("12.05.2026", "1.5.0", "1,500,75", "12,34.56", "1500.000,75", "1.500,000.5"),
    ],
)
def test_an_amount_that_reads_two_ways_is_refused(given: str):
    with pytest.raises(Unsendable, match="reads one way"):
        parse_value(given, "TRY")


@pytest.mark.parametrize(
    ("currency", "value"), [("TRY", "12.35"), ("JPY", "12"), ("KWD", "12.346")]
)
def test_an_amount_has_the_digits_of_its_currency(currency: str, value: str):
    assert parse_value(12.3457, currency) == Decimal(value)


# Keys and order ids


def test_an_order_id_tells_nothing_and_fits():
    told = order_id_of("north", "+90 532 000 00 00")
    assert (len(told), told.isalnum()) == (41, True)
    assert "532" not in told


def test_an_order_id_depends_on_site_id_and_revision():
    ids = {
        order_id_of(*one) for one in [("n", "1", 1), ("n", "1", 2), ("s", "1", 1), ("n", "2", 1)]
    }
    assert len(ids) == 4
    assert order_id_of("n", "1") == order_id_of("n", "1", 1)


def test_a_revision_has_a_key_of_its_own():
    assert key_of("sale-1") == "sale-1"
    assert len({key_of("sale-1"), key_of("sale-1", 2), key_of("sale-12")}) == 3


# Anything


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*ROW, "wbraid", "gbraid", "revision"]), values))
def test_anything_is_read_or_refused_by_name(changes: dict):
    one = attempt(**changes)
    if isinstance(one, Unsendable):
        assert one.code
        assert one.field in {*ROW, "wbraid", "gbraid", "revision"}
    else:
        stored = json.loads(json.dumps(one.payload()))
        assert Conversion.from_payload(stored, "north") == one


@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=200),
    st.datetimes(datetime(2000, 1, 2), datetime(2023, 11, 1)),  # noqa: DTZ001  # naive on purpose
    st.sampled_from(["Europe/Istanbul", "Europe/Berlin", "America/New_York", "Pacific/Apia"]),
    st.decimals(0, 10**12, places=2),
)
def test_what_is_stored_is_read_back_as_it_was(external_id: str, at: Any, zone: str, value: Any):
    site = RowDefaults("north", ZoneInfo(zone), "TRY", "Sale")
    changes = {"externalId": external_id, "conversionTime": at.isoformat()}
    one = attempt(site, **changes, conversionValue=str(value))
    if isinstance(one, Unsendable):
        assert one.field in {"externalId", "conversionTime"}
    else:
        assert Conversion.from_payload(json.loads(json.dumps(one.payload())), "north") == one
