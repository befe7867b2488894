"""Dates and amounts in files: read by the locale of the site, and never guessed."""

import pytest

from kesin.workloads.oci.conversions.conversion import Conversion, Unsendable, parse_value
from tests.workloads.oci.conversions.csv_files import HEADER, defaults, line, one, open_file, read


@pytest.mark.parametrize(
    ("text", "locale", "iso"),
    [
        ("10.11.2026 10:00", "", "2026-11-10T10:00:00"),
        (" 1.2.2026 9:05:07 ", "", "2026-02-01T09:05:07"),
        ("10.11.2026 10:00", "en-US", "2026-11-10T10:00:00"),  # dots: the day is first everywhere
        ("10.11.2026 10:00 +03:00", "tr", "2026-11-10T10:00:00+03:00"),
        ("10/11/2026 10:00", "tr", "2026-11-10T10:00:00"),
        ("10-11-2026 10:00", "de", "2026-11-10T10:00:00"),
        ("10/11/2026 10:00", "en-GB", "2026-11-10T10:00:00"),
        ("10/11/2026 10:00", "en-US", "2026-10-11T10:00:00"),
        ("10/11/2026 12:00 AM", "en-US", "2026-10-11T00:00:00"),
        ("10/11/2026 12:30:15 pm", "en-US", "2026-10-11T12:30:15"),
        ("10/11/2026, 1:05 PM", "en-US", "2026-10-11T13:05:00"),
        ("11/10/2026 10:00:00 AM", "tr", "2026-11-10T10:00:00"),  # Google's template
        ("11/10/2026 10:00:00 AM", "en-GB", "2026-10-11T10:00:00"),
        ("2026-11-10T10:00:00", "tr", "2026-11-10T10:00:00"),
    ],
)
def test_a_date_is_read_by_the_locale_of_the_site(text, locale, iso):
    assert one(text, locale=locale)["conversionTime"] == iso


@pytest.mark.parametrize("text", ["10/11/2026 10:00", "25/11/2026 10:00", "11-10-2026 10:00"])
def test_a_date_that_reads_two_ways_needs_a_locale(text):
    row = one(text)
    assert (row.code, row.field) == ("INVALID_TIME_FORMAT", "conversionTime")
    assert "set the site's locale" in row.message


@pytest.mark.parametrize(
    ("text", "locale"),
    [
        ("31.02.2026 10:00", ""),
        ("10.13.2026 10:00", ""),
        ("10.11.26 10:00", ""),
        ("10.11.2026", ""),
        ("10.11.2026 25:00", ""),
        ("10/11/2026 13:00 PM", "en-US"),
        ("1\u0660.11.2026 10:00", ""),
    ],
)
def test_a_date_that_is_none_is_refused(text, locale):
    row = one(text, locale=locale)
    with pytest.raises(Unsendable) as caught:
        Conversion.parse(row, defaults())
    assert caught.value.code == "INVALID_TIME_FORMAT"


@pytest.mark.parametrize(
    ("text", "locale", "value"),
    [
        ("1.234,56", "", "1234.56"),
        ("1,234.56", "", "1234.56"),
        ("1234,5", "", "1234.50"),
        ("1 234,56", "fr", "1234.56"),
        ("1\u202f234,56", "fr", "1234.56"),
        ("1\u00a0500,00", "", "1500.00"),
        (" 1500 ", "", "1500.00"),
        ("1.500", "tr", "1500.00"),
        ("1,500", "tr", "1.50"),
        ("1.500", "en-US", "1.50"),
        ("1,500", "en-US", "1500.00"),
        ("1.500.000", "tr", "1500000.00"),
        ("0.500", "tr", "0.50"),
        ("1500", "tr", "1500.00"),
    ],
)
def test_an_amount_is_read_by_the_locale_of_the_site(text, locale, value):
    assert str(parse_value(one(value=text, locale=locale)["conversionValue"], "TRY")) == value


@pytest.mark.parametrize(
    ("text", "locale"), [("1.500", ""), ("1,500", ""), ("12345.678", "tr"), ("9" * 18 + ".500", "")]
)
def test_an_amount_that_reads_two_ways_needs_a_locale(text, locale):
    row = one(value=text, locale=locale)
    assert (row.code, row.field) == ("INVALID_CONVERSION_VALUE", "conversionValue")
    assert "set the site's locale" in row.message


def test_one_value_that_contradicts_the_locale_unsettles_the_form_for_the_whole_file():
    """An American file at a Turkish site: 1,500 is no 1.5 there."""
    lines = [line("10/11/2026 10:00", "1,500"), line("2026-11-10 10:00", "1,500,000")]
    lines += [line("11/25/2026 10:00", "7")]
    first, second, third = read("\n".join([HEADER, *lines]), "tr")
    assert (first.code, third.code) == ("INVALID_CONVERSION_VALUE", "INVALID_TIME_FORMAT")
    assert second["conversionValue"] == "1,500,000"  # it reads one way


def test_the_forms_of_a_file_are_named():
    text = "\n".join([HEADER, line("10.11.2026 10:00", "1.500"), line("10/11/2026 10:00", "7")])
    file = open_file(text, "tr")
    file.read()
    assert file.describe()["forms"] == "1.234,56 · 1234 · dd.mm.yyyy · dd/mm/yyyy"


@pytest.mark.parametrize("text", ["12 50", "1 5", "10 20,5", "1 234 56", "1.500 250", "12\u00a050"])
def test_a_blank_that_parts_no_thousands_is_refused(text):
    with pytest.raises(Unsendable) as caught:
        parse_value(one(value=text)["conversionValue"], "TRY")
    assert caught.value.code == "INVALID_CONVERSION_VALUE"
    with pytest.raises(Unsendable):
        parse_value(text, "TRY")  # of a program, too


@pytest.mark.parametrize("locale", ["", "en-US", "tr"])
def test_a_file_that_writes_the_month_first_with_dots_has_no_such_date_guessed(locale):
    first, second = read(f"{HEADER}\n{line('11.10.2026 10:00')}\n{line('11.25.2026 10:00')}", locale)
    assert first.code == "INVALID_TIME_FORMAT"
    with pytest.raises(Unsendable):
        Conversion.parse(second, defaults())
