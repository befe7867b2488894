"""Exact numbers, from JSON and back."""

import json
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.foundation.text import json_number
from kesin.workloads.optiplan.orders.numbers import (
    InBounds,
    format_number,
    format_value,
    parse_number,
    round_to_hundredths,
)

finite = st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6)


@given(finite)
def test_a_number_survives_json(number: float):
    assert parse_number(json.loads(json.dumps(json_number(parse_number(number))))) == parse_number(number)


@given(st.decimals(0, 10_000, places=2))
def test_two_decimals_are_kept_to_the_digit(number: Decimal):
    assert parse_number(float(number)) == number


@given(st.decimals(-1000, 1000, places=4))
def test_rounding_is_half_up_on_what_was_written(number: Decimal):
    rounded = round_to_hundredths(parse_number(float(number)))
    assert rounded == number.quantize(Decimal("0.01"), ROUND_HALF_UP)


@pytest.mark.parametrize(
    ("number", "key"), [(18, "18"), (18.0, "18"), (18.5, "18.5"), (Decimal("18.00"), "18"), (20, "20")]
)
def test_a_thickness_has_one_key(number: Any, key: str):
    assert format_number(parse_number(number)) == key
    assert format_number(Decimal(str(number))) == key


@pytest.mark.parametrize(
    "given_value", [True, False, None, "5", "", [], {}, float("nan"), float("inf"), 10**400, Decimal("NaN")]
)
def test_what_is_no_number_is_refused(given_value: Any):
    with pytest.raises(ValueError, match="must be a"):
        parse_number(given_value)


@pytest.mark.parametrize("given_value", [0, 11, -1, 10**30, 1e300])
def test_bounds_are_kept_and_reported(given_value: Any):
    with pytest.raises(ValueError, match="1…10"):
        InBounds("1", "10").check(given_value)


def test_whole_numbers_may_be_spelled_with_a_fraction_of_zero():
    assert InBounds("1", "10").check_whole(4.0) == 4
    with pytest.raises(ValueError, match="whole"):
        InBounds("1", "10").check_whole(4.5)


@pytest.mark.parametrize(("value", "text"), [(None, "null"), (True, "true"), ("ş", "'ş'"), (Decimal("6.5"), "6.5")])
def test_values_are_shown_as_json_spells_them(value: Any, text: str):
    assert format_value(value) == text


@given(st.text() | st.integers())
def test_what_is_shown_is_short(value: Any):
    assert len(format_value(value)) <= 41


def test_a_number_of_thousands_of_digits_can_be_shown():
    assert "digits" in format_value(10**5000)
