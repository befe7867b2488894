"""Files as people have them: encodings, separators, Google's template, hostile files, preview."""

import csv
import io
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kesin.foundation.problems import Problem
from kesin.workloads.oci.conversions.conversion import Conversion, Unsendable, parse_value
from kesin.workloads.oci.conversions.identifiers import checked_row
from kesin.workloads.oci.conversions.ingest import IngestPreview, import_rows
from kesin.workloads.oci.conversions.parsing import LOCALES, CsvFile, parse_body
from tests.faults.fuzz import answered
from tests.web.conftest import ROOT
from tests.workloads.oci.conversions.csv_files import (
    CLICK,
    EARLIEST,
    ENCODINGS,
    GOOGLE,
    HEADER,
    LATEST,
    defaults,
    line,
    one,
    open_file,
    problem,
    read,
)
from tests.workloads.oci.own_site import OwnSite

# Any row comes back from any file


def simply_written(row: dict[str, Any], day_first: bool, comma: bool) -> list[str]:
    """A row as a spreadsheet of that locale shows it."""
    at: datetime = row["at"]
    day = f"{at.day}/{at.month}" if day_first else f"{at.month}/{at.day}"
    whole, _, cents = f"{row['value']:,.2f}".partition(".")
    amount = f"{whole.replace(',', '.')},{cents}" if comma else f"{whole}.{cents}"
    clock = f"{at.hour}:{at.minute:02}:{at.second:02}"
    return [row["id"], CLICK, row["name"], f"{day}/{at.year} {clock}", amount, "TRY"]


letters = "abcçğıöşüABCÇĞİÖŞÜ019 ;,\t\"'\n-"
texts = st.text(letters, min_size=1, max_size=12).filter(str.strip)
sales = st.fixed_dictionaries(
    {
        "id": st.text("abçğış019-_.", min_size=1, max_size=12),
        "name": texts,
        "at": st.datetimes(EARLIEST, LATEST).map(lambda at: at.replace(microsecond=0)),
        "value": st.decimals(0, 10**9, places=2),
    }
)


@settings(max_examples=settings.default.max_examples // 2)
@given(
    st.lists(sales, min_size=1, max_size=5, unique_by=lambda row: row["id"]),
    st.sampled_from(ENCODINGS),
    st.sampled_from(",;\t"),
    st.sampled_from(sorted(LOCALES)),
    st.sampled_from(["\r\n", "\n", "\r"]),
)
def test_any_row_comes_back_from_a_file_in_any_encoding_separator_and_locale(rows, encoding, separator, locale, end):
    day_first, sign = LOCALES[locale]
    page = io.StringIO(newline="")
    writer = csv.writer(page, delimiter=separator, lineterminator=end)
    names = [row["name"].replace("\n", " ") for row in rows]
    written = [simply_written(row, bool(day_first), sign == ",") for row in rows]
    for cells, name in zip(written, names, strict=True):
        cells[2] = name
    writer.writerows([HEADER.split(";"), *written])
    text = page.getvalue()
    assume(encoding in {"utf-16", "utf-16-le", "utf-16-be"} or "Å" not in text)
    file = open_file(text.encode(encoding), locale)
    read_rows = file.read()
    expected = {"cp1254": "Windows-1254"}.get(encoding, encoding.upper()[:6].removesuffix("-"))
    assert file.encoding == ("UTF-8" if encoding == "cp1254" and text.isascii() else expected)
    assert file.delimiter == separator
    for row, name, got in zip(rows, names, read_rows, strict=True):
        assert not isinstance(got, Unsendable), got
        assert got["externalId"] == row["id"]
        assert got["conversionName"].strip("'") == name.strip("'") or "'" in name
        assert datetime.fromisoformat(got["conversionTime"]) == row["at"]
        assert parse_value(got["conversionValue"], "TRY") == row["value"]


@given(st.decimals(0, 10**9, places=3), st.sampled_from([",", "."]))
def test_an_amount_without_a_locale_is_read_as_it_is_or_refused(value, sign):
    """A second reading: try both signs; where they differ, nothing may be taken."""
    text = f"{value:,.3f}".replace(",", " ").replace(".", sign).replace(" ", "")
    row = one(value=text)
    readings = {Decimal(text.replace(",", ".")), Decimal(text.replace(",", "").replace(".", ""))}
    if isinstance(row, Unsendable):
        assert len(readings) == 2
    else:
        assert parse_value(row["conversionValue"], "BHD") == value


# Encodings


@pytest.mark.parametrize(
    "data",
    [
        f"{HEADER}\nşi".encode() + "şi".encode("cp1254"),  # two encodings in one file
        b"externalId\n\x81\n",  # undefined in Windows-1254
        "externalId\na\n".encode("utf-16")[:-1],
        "externalId\na\n".encode("utf-32"),
        b"\xff\xfe\x00\xd8a\x00",  # a lone surrogate
        b"PK\x03\x04\x14\x00",
        b"externalId\n\x00\n",
        b"\x00" * 1_000,
    ],
)
def test_what_is_no_text_is_refused_and_nothing_is_replaced(data):
    error = problem(data)
    assert error.code == "not_utf8"
    assert "CSV UTF-8" in error.message


# Google's template


def test_googles_template_with_its_instructions_and_its_zone():
    text = (
        "### INSTRUCTIONS ###,,,,\r\n# set the TimeZone,,,,\r\n,,,,\r\n### TEMPLATE ###,,,,\r\n"
        f"Parameters:TimeZone=America/New_York,,,,\r\n{GOOGLE}\r\n"
        f"{CLICK},Sale,2026-11-10 10:00:00,12.5,USD\r\n"
        f"{CLICK},Sale,2026-11-10 11:00:00+0300,12.5,USD\r\n"
    )
    file = open_file(text)
    first, second = file.read()
    assert first["conversionTime"] == "2026-11-10T10:00:00-05:00"
    assert second["conversionTime"] == "2026-11-10T11:00:00+03:00"  # the row's own wins
    assert file.lines == [7, 8]
    assert file.describe()["timezone"] == "America/New_York"
    assert first["externalId"].startswith("file-")
    assert first["externalId"] != second["externalId"]


@pytest.mark.parametrize("zone", ["-0500", "-05:00", "America/Bogota"])
def test_the_zone_of_a_file_is_a_name_or_an_offset(zone):
    text = f"Parameters:TimeZone={zone};\n{GOOGLE}\n{CLICK},Sale,2026-11-10 10:00:00,1,USD\n"
    [row] = read(text)
    assert row["conversionTime"] == "2026-11-10T10:00:00-05:00"


@pytest.mark.parametrize("zone", ["Mars/Base", "+99", "../../etc/passwd", "+", "x" * 5_000])
def test_a_zone_that_is_none_is_refused(zone):
    text = f"Parameters:TimeZone={zone}\n{GOOGLE}\n{CLICK},Sale,2026-11-10 10:00:00,1,USD\n"
    error = problem(text)
    assert "is not a time zone" in error.message
    assert len(error.message) < 200


@pytest.mark.parametrize("header", ["Order ID", " ORDER ID ", "order_id", "externalId"])
def test_an_order_id_is_the_id_of_a_row(header):
    [row] = read(f"{header},{GOOGLE}\nA-1,{CLICK},Sale,2026-11-10 10:00:00,1,USD\n")
    assert row["externalId"] == "A-1"
    if header == "externalId":  # our own order ids are ignored beside it
        [row] = read(f"orderId,{header},{GOOGLE}\nk00,A-1,{CLICK},Sale,2026-11-10 10:00:00,1,USD\n")
        assert row["externalId"] == "A-1"


def test_a_row_without_an_id_is_known_by_click_name_and_time_however_they_are_written():
    ids = set()
    for when in ("2026-11-10 10:00:00", "10.11.2026 10:00", "2026-11-10T08:00:00+01:00"):
        [row] = read(f"{GOOGLE}\n{CLICK},Sale,{when},1,TRY\n")
        ids.add(row["externalId"])
    [unnamed] = read(f"{GOOGLE}\n{CLICK},,10/11/2026 10:00,99,TRY\n", "tr")
    assert ids == {unnamed["externalId"]}  # the site has the name, and the value is no part of it
    [later] = read(f"{GOOGLE}\n{CLICK},Sale,2026-11-10 10:00:01,1,TRY\n")
    assert later["externalId"] not in ids


def test_leads_without_a_click_differ_by_their_identifiers():
    text = (
        "Email,Phone Number,Conversion Name,Conversion Time,Conversion Value\n"
        "a@example.com,,Lead,2026-11-10 10:00:00,1\nb@example.com,,Lead,2026-11-10 10:00:00,1\n"
    )
    first, second = read(text)
    assert first["externalId"] != second["externalId"]
    assert "example" not in first["externalId"]


def test_a_hash_in_the_column_of_an_address_is_taken_as_one():
    """Google's template has hashes there."""
    of_email = "B4C9A289323B21A01C3E940F150EB9B8C542587F1ABFD8F0E1CC1FFC5E475514"
    text = f"Order ID,Email,Phone Number,{GOOGLE}\nA,{of_email}, {'0' * 64},{CLICK},Sale,x,1,TRY\n"
    [row] = read(text)
    assert "email" not in row
    assert row["hashedEmail"] == of_email
    site = defaults(enhanced=True)
    row["conversionTime"] = "2026-11-10T10:00:00"
    assert Conversion.parse(checked_row(row, site), site).hashes == (of_email.lower(), "0" * 64)


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("Google Click ID,Conversion Name", "no_header"),  # nothing says when
        ("Conversion Time,Conversion Value", "no_header"),  # nor who
        ("Order ID,Order ID,gclid", None),  # the second is one of our own, and ignored
        ("externalId,gclid,Google Click ID", "column_twice"),
        ("externalId,Phone Number,phone", "column_twice"),
        ("externalId,gclid,Satış temsilcisi", "unknown_columns"),
    ],
)
def test_a_header_is_understood_or_refused_by_name(header, code):
    if code is None:
        read(f"{header}\n1,2,{CLICK}\n")
        return
    error = problem(f"{header}\n1,2,3\n")
    assert error.code == code
    if code == "unknown_columns":
        assert "Satış temsilcisi" in error.message


def test_a_programs_file_needs_ids_and_has_no_locale():
    """What comes over the API: it has no preview."""
    with pytest.raises(Problem, match="externalId or Order ID"):
        parse_body(f"{GOOGLE}\n{CLICK},Sale,2026-11-10 10:00:00,1,TRY\n".encode(), "text/csv")
    _, [row] = parse_body(f"{HEADER}\n{line(value='1.500')}\n".encode(), "text/csv")
    assert isinstance(row, Unsendable)


def test_a_column_that_the_site_does_not_take_is_shown_with_a_dash():
    text = f"{HEADER};Email\n{line()};a@example.com\n"
    files = {on: open_file(text, enhanced=on) for on in (False, True)}
    for file in files.values():
        file.read()
    assert files[False].describe()["columns"].endswith("Email → –")
    assert files[True].describe()["columns"].endswith("Email → email")


@pytest.mark.parametrize(
    "above",
    [
        "Parameters:EntityType=OFFLINECONVERSION;TimeZone=+0100;",
        "Parameters: TimeZone = Europe/Berlin",
        '"Parameters:EntityType=OFFLINECONVERSION;TimeZone=+0100;",,,',
    ],
)
def test_the_zone_of_a_file_is_found_wherever_it_stands_among_the_parameters(above):
    [row] = read(f"{above}\n{HEADER}\n{line()}")
    assert row["conversionTime"] == "2026-11-10T10:00:00+01:00"


# Hostile files


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        ("externalId" + "!" * 200_000 + "\nsale-1\n", 1),
        (HEADER + '\nsale-1;"open\n' + "sale-2;x\n" * 1_000, "not_csv"),
        (HEADER + "\n" + line() + '\nsale-2;"' + "x\n" * 20_000, "not_csv"),
        ("externalId," * 20_000 + "\n1\n", "column_twice"),
        ("x" * 100_000 + "\n", "no_header"),
        (",".join(f"c{n}" for n in range(20_000)) + ",externalId\n", "unknown_columns"),
        ("externalId" + "," * 20_000 + "\n1" + "," * 20_000 + "\n", 1),
        (HEADER + "\n" + ";" * 200_000, 0),
        ("\n" * 60_000, 0),
        ("Parameters:TimeZone=UTC\n" * 20_000, "no_header"),
        ('"' * 200_001, "not_csv"),
        ("#" * 200_000, "no_header"),
        (HEADER + "\n" + "sale\n" * 10_001, "too_large"),
    ],
)
def test_a_hostile_file_is_refused_or_read_in_time_that_grows_with_it(data, outcome):
    started = time.process_time()
    result = answered(Problem, read, data, "tr")
    if isinstance(result, Problem):
        assert (result.code, len(result.message) < 3_000) == (outcome, True)
    else:
        assert len(result) == outcome
    assert time.process_time() - started < 5  # quadratic ones take a minute


def test_an_open_quote_is_named_by_the_line_that_opens_it():
    error = problem(f'{HEADER}\n{line()}\n"two\nlines";x\nsale-3;"open\nsale-4;x\n')
    assert error.message == "line 5 is not valid CSV: a quote is opened but never closed"


# The preview


def test_a_preview_says_what_the_import_then_does_and_stores_nothing(site: OwnSite):
    site.change_settings(locale="tr")
    site.post([site.row(9), site.row(1)])
    at = site.oci.ago(3_600)
    header = f"{HEADER};revision;adUserData"
    lines = [f"sale-{n};{CLICK};Phone sale;{at};1.500;TRY;;" for n in (1, 2, 2, 3)]
    lines += [f"sale-4;;Phone sale;{at};1.500;TRY;;", f"sale-5;{CLICK};Phone sale;{at};5;EUR;;denied"]
    lines += [f"sale-6;{CLICK};Phone sale;{at};0;TRY;2;", f"sale-9;{CLICK};x;{at};1,5;TRY;1;"]
    place = site.place
    file = CsvFile(io.BytesIO("\n".join([header, *lines]).encode()), frozenset(), place.defaults)
    rows, preview = file.read(), IngestPreview()
    shown = [result.result for result in preview.add(place, rows, ROOT)]
    assert shown == [*("corrected", "queued", "duplicate", "queued", "rejected", "queued"), *("rejected", "corrected")]
    assert preview.sums == {"TRY": Decimal("4501.50"), "EUR": Decimal(5)}
    assert len(site.jobs()) == 2
    assert CLICK not in repr(preview.first)
    assert preview.first[0]["conversionValue"] == 1_500
    assert datetime.fromisoformat(preview.first[0]["conversionTime"]).astimezone(UTC)
    assert [result.result for result in import_rows(place, rows, ROOT)] == shown


def test_only_the_first_rows_of_a_preview_are_kept_over_all_batches(site: OwnSite):
    preview, place = IngestPreview(), site.place
    for start in range(0, 30, 6):
        preview.add(place, [site.row(n) for n in range(start, start + 6)], ROOT)
    assert [row["externalId"] for row in preview.first] == [f"sale-{n}" for n in range(10)]
