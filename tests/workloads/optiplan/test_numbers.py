"""Exact numbers, from JSON and back."""

import json
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.workloads.optiplan.orders.numbers import (
    as_json,
    between,
    exact,
    hundredths,
    key_of,
    shown,
    whole_between,
)

finite = st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6)


@given(finite)
def test_a_number_survives_json(number: float):
    assert exact(json.loads(json.dumps(as_json(exact(number))))) == exact(number)


@given(st.decimals(0, 10_000, places=2))
def test_two_decimals_are_kept_to_the_digit(number: Decimal):
    assert exact(float(number)) == number


@given(st.decimals(-1000, 1000, places=4))
def test_rounding_is_half_up_on_what_was_written(number: Decimal):
    rounded = hundredths(exact(float(number)))
    assert rounded == number.quantize(Decimal("0.01"), ROUND_HALF_UP)


@pytest.mark.parametrize(
    ("number", "rounded"),
    [(0.125, "0.13"), (2.675, "2.68"), (1.005, "1.01"), (600.005, "600.01"), (0.124, "0.12")],
)
def test_ties_round_away_from_zero(number: float, rounded: str):
    assert str(hundredths(exact(number))) == rounded  # round() and toFixed() get these wrong


@pytest.mark.parametrize(
    ("number", "key"),
    [(18, "18"), (18.0, "18"), (18.5, "18.5"), (Decimal("18.00"), "18"), (20, "20")],
)
def test_a_thickness_has_one_key(number: Any, key: str):
    assert key_of(exact(number)) == key
    assert key_of(Decimal(str(number))) == key


@pytest.mark.parametrize(
    "given_value",
    [True, False, None, "5", "", [], {}, float("nan"), float("inf"), 10**400, Decimal("NaN")],
)
def test_what_is_no_number_is_refused(given_value: Any):
    with pytest.raises(ValueError, match="must be a"):
        exact(given_value)


@pytest.mark.parametrize("given_value", [0, 11, -1, 10**30, 1e300])
def test_bounds_are_kept_and_told(given_value: Any):
    with pytest.raises(ValueError, match="1…10"):
        between("1", "10")(given_value)


def test_whole_numbers_may_be_spelled_with_a_fraction_of_zero():
    assert whole_between(1, 10)(4.0) == 4
    with pytest.raises(ValueError, match="whole"):
        whole_between(1, 10)(4.5)


@pytest.mark.parametrize(
    ("value", "told"), [(None, "null"), (True, "true"), ("ş", "'ş'"), (Decimal("6.5"), "6.5")]
)
def test_values_are_shown_as_json_spells_them(value: Any, told: str):
    assert shown(value) == told


@given(st.from_type(type).flatmap(lambda kind: st.text() | st.integers()))
def test_what_is_shown_is_short(value: Any):
    assert len(shown(value)) <= 41


def test_a_number_of_thousands_of_digits_can_be_shown():
    assert "digits" in shown(10**5000)
