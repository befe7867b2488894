"""Normalised phone numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.workloads.optiplan.customers import normalise_phone
from tests.tables import table

TURKISH = "+905551234567"


@table(
    "text",
    [
        "05551234567",
        "5551234567",
        "905551234567",
        "+905551234567",
        "00905551234567",
        "0555 123 45 67",
        "(0555) 123-45-67",
        "+90 (555) 123 45 67",
        "+90 (0) 555 123 45 67",
        "0090 0555 123 45 67",
        "  0555.123.45.67 ",
        "Tel: 0555 123 45 67",
        "+ 90 555 123 45 67",
        "0555\u00a0123\u00a045\u00a067",
        "+05551234567",
        "٠٥٥٥١٢٣٤٥٦٧",
    ],
)
def test_however_it_is_written_it_is_one_number(text: str):
    assert normalise_phone(text) == TURKISH


@pytest.mark.parametrize(
    ("text", "phone"),
    [
        ("", ""),
        ("yok", ""),
        ("000", ""),
        ("+49 151 2345 6789", "+4915123456789"),
        ("0049 151 2345 6789", "+4915123456789"),
        ("+45 12 34 56 78", "+4512345678"),  # ten digits, but with a country code
        ("112", "+112"),
        ("4445566", "+4445566"),
        ("9055512345", "+909055512345"),  # ten digits are a complete Turkish number
    ],
)
def test_other_numbers_are_left_as_they_are(text: str, phone: str):
    assert normalise_phone(text) == phone


@given(st.integers(10**9, 10**10 - 1), st.sampled_from(["", "0", "90", "+90", "0090", "+90 0"]))
def test_ten_digits_are_found_behind_every_prefix(number: int, prefix: str):
    assert normalise_phone(f"{prefix}{number}") == f"+90{number}"
