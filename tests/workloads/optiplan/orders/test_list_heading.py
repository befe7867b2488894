"""The heading of an order list."""

from decimal import Decimal
from typing import Any

import pytest

from kesin.workloads.optiplan.orders.list_cells import material_label, read_heading, row_thicknesses_mm


@pytest.mark.parametrize(
    ("rows", "thickness"),
    [
        ([["18MM"]], "18"),
        ([["", "", "KALINLIK 18 mm"]], "18"),
        ([["18MM 210*280"]], "18"),
        ([["18,5MM"]], "18.5"),
        ([[18.0]], "18"),
        ([["18"]], "18"),
        ([["5MM"], [18]], "5"),  # a text with MM takes precedence
        ([["18MM", "18mm"]], "18"),
        ([["KOMMA 5"]], None),
        ([[722]], None),
        ([[]], None),
        ([[""]] * 10 + [["18MM"]], None),  # only ten rows are read
    ],
)
def test_the_thickness(rows: list[list[Any]], thickness: str | None):
    measured = read_heading(rows).thickness_mm
    assert measured == (None if thickness is None else Decimal(thickness))


def test_several_thicknesses_are_none_and_are_reported():
    heading = read_heading([["18MM", "BANT 2MM"]])
    assert heading.thickness_mm is None
    assert heading.thicknesses_mm == (18, 2)


@pytest.mark.parametrize(
    ("text", "plate"),
    [
        ("210*280", (2100, 2800)),
        ("2100x2800", (2100, 2800)),
        ("183 X 366", (1830, 3660)),
        ("18MM 2100×2800", (2100, 2800)),
        ("levha", None),
    ],
)
def test_the_plate_is_in_millimetres_or_centimetres(text: str, plate: Any):
    assert read_heading([[text]]).plate_mm == plate


@pytest.mark.parametrize(
    ("row", "color"),
    [
        (["RENK: Açık Meşe"], "Açık Meşe"),
        (["", "renk :", "Beyaz"], "Beyaz"),
        (["RENK:", ""], None),
        (["RENK"], None),
        (["RENK:", 113.0], "113"),
    ],
)
def test_the_colour_is_in_the_cell_or_the_next(row: list[Any], color: str | None):
    assert read_heading([row]).color == color


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([18, 18, 8], [18, 18, 8]),
        (["18MM", "", "8 mm ARKALIK"], [18, None, 8]),
        ([1, 2, 3], [None] * 3),  # the column numbers the rows
        ([1], [None]),
        (["1.", "2."], [None] * 2),
        ([2, 3, 4], [2, 3, 4]),
        ([722, ""], [None, None]),
        (["raf", "1.960"], [None, None]),
        (list(range(1, 80)), [None] * 79),
    ],
)
def test_column_a_may_say_the_thickness_of_each_row(column: list[Any], expected: list[Any]):
    assert row_thicknesses_mm([[cell] for cell in column]) == expected


def test_a_board_has_the_label_optiplanning_lists():
    assert material_label(Decimal(18), (Decimal(2100), Decimal(2800))) == "18MM 210*280"
    assert material_label(Decimal("18.5"), None) == "18.5MM"
