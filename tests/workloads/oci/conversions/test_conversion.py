"""Parsing a conversion: what is accepted, what is refused, and with which code."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
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


def wrong(site: RowDefaults = SITE, **changes: Any) -> tuple[str, str]:
    with pytest.raises(Unsendable) as caught:
        read(site, **changes)
    return caught.value.code, caught.value.field


def test_a_whole_row_is_read():
    row = read()
    assert (row.external_id, row.name, row.currency) == ("sale-1", "Phone sale", "TRY")
    assert row.click == ("gclid", "Cj0KCQiA-_abc")
    assert row.at == datetime(2023, 11, 10, 9, tzinfo=UTC)
    assert row.value == Decimal("1500.50")


BAD: dict[tuple[str, str], list[Any]] = {  # (field, code): values; ... stands for no field at all
    ("externalId", "MISSING_EXTERNAL_ID"): [..., None, ""],
    ("externalId", "INVALID_EXTERNAL_ID"): [*("  ", "two\nlines", "a\0b", "\ud800", "x" * 201, True, 1.5, ["a"])],
    ("gclid", "MISSING_CLICK_ID"): [..., "", "  "],
    ("gclid", "INVALID_CLICK_ID_FORMAT"): [*("short", "x" * 513, "has a space", "tırnaklı-ğ", 1234567)],
    ("wbraid", "INVALID_CLICK_ID_FORMAT"): ["a+b/c="],
    ("conversionName", "MISSING_CONVERSION_NAME"): [..., ""],
    ("conversionName", "INVALID_CONVERSION_NAME"): ["   ", "x" * 101, "two\nlines", 5],
    ("conversionTime", "MISSING_TIME"): [..., ""],
    ("conversionTime", "INVALID_TIME_FORMAT"): [
        *("yesterday", "2023-11-10", "10/11/2023 12:00:00", 1699606800),
        *("2023-02-30T12:00:00", "2023-11-10T25:00:00", "1999-12-31T23:00:00"),
        *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
        "2023-11-10T12:00:00+03:00:30",
    ],
    ("conversionTime", "TIME_IN_FUTURE"): ["2023-11-15T12:00:00+03:00"],
    ("conversionTime", "EXPIRED"): ["2023-08-16T22:13:20+00:00", "2021-01-01T00:00:00Z"],
    ("conversionValue", "INVALID_CONVERSION_VALUE"): [
        *(..., "", -0.01, float("nan"), float("inf"), 10**13, True, [1]),
        *("a lot", "1e3", "NaN", "-5", "1.500", "1,500"),
    ],
    ("conversionCurrency", "INVALID_CURRENCY"): ["Lira", "TL", 949, "ZZZ", "TRL"],
    ("revision", "INVALID_REVISION"): [0, 100, "1000", "two", True],
}


@pytest.mark.parametrize(("field", "code"), BAD)
def test_what_is_wrong_is_named(field: str, code: str):
    for value in BAD[field, code]:
        assert wrong(**{field: value}) == (code, field), value


def test_a_conversion_is_taken_until_the_last_second_of_its_click():
    assert read(conversionTime="2023-08-16T22:13:21+00:00")
    assert read(conversionTime="2023-11-14T22:40:00+00:00")  # a clock half an hour fast is forgiven


def test_spaces_around_are_dropped_and_a_number_is_an_external_id_too():
    row = read(externalId=" sale-1 ", gclid=" Cj0KCQiA ", conversionCurrency=" try ")
    assert (row.external_id, row.gclid, row.currency) == ("sale-1", "Cj0KCQiA", "TRY")
    assert read(externalId=4711).external_id == "4711"


def test_of_several_click_ids_the_gclid_is_sent_unaltered():
    assert read(gclid="aBcDeF-_019", gbraid="gbraid-1").click == ("gclid", "aBcDeF-_019")
    assert read(gclid="", gbraid="gbraid-1", wbraid="wbraid-1").click == ("wbraid", "wbraid-1")


# Times


@pytest.mark.parametrize(
    ("zone", "given", "read_as"),
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
def test_a_time_without_an_offset_is_in_the_zone_of_the_site(zone: str, given: str, read_as: str):
    assert parse_time(given, ZoneInfo(zone)).isoformat() == read_as


def test_where_there_is_no_zone_an_offset_is_needed():
    with pytest.raises(Unsendable):
        parse_time("2023-11-10T12:00:00", None)


@pytest.mark.parametrize(
    ("zone", "given", "exported"),
    [
        ("Europe/Berlin", "2023-10-01T10:00:00+00:00", "2023-10-01 12:00:00+02:00"),
        ("Europe/Berlin", "2023-11-01T10:00:00+00:00", "2023-11-01 11:00:00+01:00"),
        ("America/St_Johns", "2023-11-01T10:00:00+00:00", "2023-11-01 07:30:00-02:30"),
        ("UTC", "2023-11-01T10:00:00+05:45", "2023-11-01 04:15:00+00:00"),
        ("America/New_York", "2023-10-10T12:00:00", "2023-10-10 12:00:00-04:00"),
        ("America/Santiago", "2023-09-03T00:30:00", "2023-09-03 01:30:00-03:00"),  # it never was
    ],
)
def test_a_time_is_exported_in_the_zone_of_the_site_as_its_clocks_showed_it(zone: str, given: str, exported: str):
    at = parse_time(given, ZoneInfo(zone))
    assert read(conversionTime=at.isoformat()).script_item("1", ZoneInfo(zone))["conversionTime"] == exported


# Values


def test_an_amount_may_be_spelled_in_turkish_or_english():
    amounts = {
        0: "0",
        1500: "1500",
        1500.75: "1500.75",
        0.005: "0.01",
        10**12: "1000000000000",
        "1500": "1500",
        "1500.75": "1500.75",
        "1500,75": "1500.75",
        "12,5": "12.5",
        "1.500,75": "1500.75",
        "1,500.75": "1500.75",
        "1.500.000": "1500000",
        "1,500,000": "1500000",
        "1.500.000,5": "1500000.5",
        "15,00,000.5": "1500000.5",
        "0.125": "0.13",
        " 1 500,75 ": "1500.75",
        "1\u00a0500,75": "1500.75",
    }
    for amount, value in amounts.items():
        assert parse_value(amount, "TRY") == Decimal(value), amount


@pytest.mark.parametrize(
    "given",
    [
        *("1.500", "1,500", "12.345", "999,999"),
        *("12.05.2026", "1.5.0", "1,500,75", "12,34.56", "1500.000,75", "1.500,000.5"),
    ],
)
def test_an_ambiguous_amount_is_refused(given: str):
    with pytest.raises(Unsendable, match="unambiguous number"):
        parse_value(given, "TRY")


@pytest.mark.parametrize(("currency", "value"), [("TRY", "12.35"), ("JPY", "12"), ("KWD", "12.346")])
def test_an_amount_has_the_digits_of_its_currency(currency: str, value: str):
    assert parse_value(12.3457, currency) == Decimal(value)


# Keys and order ids


def test_an_order_id_reveals_nothing_and_fits():
    order_id = order_id_of("north", "+90 532 000 00 00")
    assert (len(order_id), order_id.isalnum()) == (41, True)
    assert "532" not in order_id


def test_each_revision_of_each_row_of_each_site_has_an_order_id_and_a_key_of_its_own():
    ids = {order_id_of(*one) for one in [("n", "1", 1), ("n", "1", 2), ("s", "1", 1), ("n", "2", 1)]}
    assert len(ids) == 4
    assert order_id_of("n", "1") == order_id_of("n", "1", 1)
    assert key_of("sale-1") == "sale-1"
    assert len({key_of("sale-1"), key_of("sale-1", 2), key_of("sale-12")}) == 3


# Stored rows; any body at all is read in tests/faults/test_parsers_oci.py


@settings(max_examples=25)
@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=200),
    st.datetimes(datetime(2000, 1, 2), datetime(2023, 11, 1)),  # noqa: DTZ001  # naive on purpose
    st.sampled_from(["Europe/Istanbul", "Europe/Berlin", "America/New_York", "Pacific/Apia"]),
    st.decimals(0, 10**12, places=2),
)
def test_what_is_stored_is_read_back_as_it_was(external_id: str, at: Any, zone: str, value: Any):
    site = RowDefaults("north", ZoneInfo(zone), "TRY", "Sale")
    changes = {"externalId": external_id, "conversionTime": at.isoformat()}
    try:
        conversion = read(site, **changes, conversionValue=str(value))
    except Unsendable as problem:
        assert problem.field in {"externalId", "conversionTime"}  # noqa: PT017  # some are valid
    else:
        stored = json.loads(json.dumps(conversion.payload()))
        assert Conversion.from_payload(stored, site) == conversion
