"""Single cells: unambiguous, or rejected."""

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.workloads.optiplan.orders.list_cells import (
    read_edge,
    read_grain,
    read_number,
    read_quantity,
    read_size_mm,
    read_text,
)

BANDS = ("040", "1mm", "2mm")


@pytest.mark.parametrize(
    ("cell", "number"),
    [(722, "722"), (722.5, "722.5"), ("722", "722"), ("722,5", "722.5"), (" 722.50 ", "722.5"),
     ("1 960", "1960"), ("1\u00a0960", "1960"), ("0", "0")],
)  # fmt: skip
def test_numbers_as_people_write_them(cell: Any, number: str):
    assert read_number(cell) == Decimal(number)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("1.960", "could mean 1960 or 1.960"),
        ("1,960", "could mean 1960 or 1.960"),
        ("", "is empty"),
        (None, "is empty"),
        ("72O", "must be a number, got '72O'"),
        ("-5", "must be a number"),
        ("1.960,5", "must be a number"),
        ("722 mm", "must be a number"),
        (True, "must be a number"),
        (date(2026, 3, 1), "must be a number, got '2026-03-01'"),
        ("=5", "must be a number"),
    ],
)
def test_what_is_no_clear_number_is_refused(cell: Any, expected: str):
    with pytest.raises(ValueError, match=re.escape(expected)):
        read_number(cell)


@given(st.decimals("0.1", "10000", places=2), st.sampled_from(".,"))
def test_a_size_reads_the_same_with_point_and_comma(size: Decimal, sign: str):
    assert read_size_mm(str(size).replace(".", sign)) == size


@pytest.mark.parametrize(
    ("read", "cell", "expected"),
    [
        *((read_size_mm, cell, r"0\.1…10000") for cell in ("0", 0.05, 10_001, "99999")),
        *((read_quantity, cell, "must") for cell in (0, "0", 1.5, "2,5", 10_001)),
    ],
)
def test_sizes_and_quantities_have_bounds(read: Callable[[Any], Any], cell: Any, expected: str):
    with pytest.raises(ValueError, match=expected):
        read(cell)


@pytest.mark.parametrize(
    ("cell", "grain"),
    [("", 0), (None, 0), (0, 0), (2.0, 2), ("1", 1), ("3-Material", 3), ("1-Boyuna", 1),
     ("2 - Enine", 2), ("0-Material", 0)],
)  # fmt: skip
def test_grain_is_a_number_or_begins_with_one(cell: Any, grain: int):
    assert read_grain(cell) == grain


@pytest.mark.parametrize("cell", [4, -1, 1.5, "boyuna", "12", "1x"])
def test_an_unknown_grain_is_refused(cell: Any):
    with pytest.raises(ValueError, match="0, 1, 2 or 3"):
        read_grain(cell)


@pytest.mark.parametrize(
    ("band", "cells"),
    [
        (None, ["", None, " ", 0, 0.0, "0", "yok", "YOK", "hayir", "Hayır", "HAYIR", "HAYİR"]),
        (None, ["false", "FALSE", False, "Bant Yok", "-"]),
        ("2mm", ["x", "X", "✓", 1, "1", "var", "evet", True, "2 mm"]),
        ("1mm", ["1MM"]),
        ("040", ["040"]),
    ],
)
def test_an_edge_is_empty_ticked_or_names_its_band(band: str | None, cells: list[Any]):
    assert [cell for cell in cells if read_edge(cell, "2mm", BANDS) != band] == []


@pytest.mark.parametrize("cell", [2, 40, 0.4, "0,4", "2"])
def test_a_number_that_may_be_a_tick_or_a_band_is_refused(cell: Any):
    with pytest.raises(ValueError, match="write x, or one of 040, 1mm, 2mm"):
        read_edge(cell, "1mm", BANDS)


@pytest.mark.parametrize(("cell", "text"), [(35.0, "35"), (" a ", "a"), (None, ""), (0.5, "0.5")])
def test_text_is_what_people_see(cell: Any, text: str):
    assert read_text(cell) == text
