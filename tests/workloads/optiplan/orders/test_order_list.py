"""Order lists: all rows are valid, or the list is rejected with every problem."""

from decimal import Decimal
from typing import Any

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.workloads.optiplan.errors import OptiCode
from kesin.workloads.optiplan.orders.order_list import BadOrderList, ListDefaults, read_order_file
from kesin.workloads.optiplan.orders.payload import Payload, payload_hash
from kesin.workloads.optiplan.pipeline.transform import transform_order
from kesin.workloads.optiplan.workshop.rules import default_rules
from tests.workloads.optiplan.workbooks import saved, sheet_of

HEAD: list[list[Any]] = [
    ["18MM 210*280", "", "RENK:", "Açık Meşe"],
    ["Kalınlık", "Boy", "En", "Adet", "Grain", "U1", "U2", "K1", "K2", "Delik 1", "Delik 2", "Not"],
]
ROW: list[Any] = ["", 722, 580, 4, 1, "x", "", "2mm", 0, "D5", "D6", "sol yan"]


def read(rows: list[list[Any]], *, name: str = "Ali Usta.xlsx", **defaults: Any) -> Payload:
    return read_order_file(
        name, sheet_of(rows), order_id="S-17", customer_phone="0555 123 45 67", defaults=ListDefaults(**defaults)
    )


def problems(rows: list[list[Any]], **defaults: Any) -> list[tuple[int, str, str]]:
    with pytest.raises(BadOrderList) as caught:
        read(rows, **defaults)
    return [(problem.row, problem.column, problem.message) for problem in caught.value.problems]


def csv_of(rows: list[list[Any]]) -> str:
    return "\r\n".join(";".join(str(cell) for cell in row) for row in rows)


def test_a_row_becomes_a_part():
    order = read([*HEAD, ROW], color="Beyaz", thickness_mm=Decimal(8))  # the list goes first
    assert (order.order_id, order.customer_phone) == ("S-17", "0555 123 45 67")
    assert order.customer_snapshot_name == "Ali Usta"
    assert order.plate_size
    assert (order.plate_size.width_mm, order.plate_size.height_mm) == (2100, 2800)
    (part,) = order.parts
    assert part.model_dump() == {
        "id": "r3",
        "part_type": "GOVDE",
        "material_code": "18MM 210*280",
        "length_cm": Decimal("72.2"),
        "width_cm": 58,
        "quantity": 4,
        "grain": 1,
        "color": "Açık Meşe",
        "thickness_mm": 18,
        "edge_up": "1mm",
        "edge_lo": None,
        "edge_sx": "2mm",
        "edge_dx": None,
        "iidesc": None,
        "desc1": "D6 sol yan",
        "delik_kodu": "D5",
    }


def test_a_list_can_be_cut():
    order = read([*HEAD, ROW, ["8MM ARKALIK", 700, 560, 1]])
    made, _ = transform_order(order, default_rules())
    assert [(batch.part_type, batch.thickness_mm) for batch in made] == [("GOVDE", 18), ("ARKALIK", 8)]
    assert made[0].rows[0][10] == "D5"


def test_csv_and_xlsx_give_the_same_order():
    data = csv_of([*HEAD, ROW]).encode("cp1254")
    order = read_order_file(
        "Ali Usta.csv", data, order_id="S-17", customer_phone="0555 123 45 67", defaults=ListDefaults()
    )
    assert payload_hash(order) == payload_hash(read([*HEAD, ROW]))


def test_blank_rows_and_cells_right_of_the_list_do_not_count_and_short_rows_are_filled_up():
    order = read([*HEAD, [], ROW, ["", " "], [*ROW, "", "notes"], [], ["", 722, 580, 4]])
    assert [part.id for part in order.parts] == ["r4", "r6", "r8"]
    short = order.parts[-1]
    assert (short.grain, short.edge_up, short.desc1, short.delik_kodu) == (0, None, None, None)


def test_what_a_list_leaves_unsaid_comes_from_the_defaults():
    order = read(
        [["", 722, 580, 4, "", "x"]],
        color="Beyaz",
        thickness_mm=Decimal(8),
        part_type="ARKALIK",
        material_code="M1",
        band="2mm",
        opti_mode="C",
    )
    (part,) = order.parts
    assert (part.color, part.thickness_mm, part.part_type) == ("Beyaz", 8, "ARKALIK")
    assert (part.material_code, part.edge_up, part.grain) == ("M1", "2mm", 0)
    assert order.opti_mode == "C"
    assert order.plate_size is None


def test_every_row_that_is_wrong_is_reported_with_its_column():
    reported = problems(
        [
            *HEAD,
            ROW,
            ["", "72O", 580, 4],
            ["", 722, "", 0.5],
            ["", 722, 20_000, 4, 7],
            ["", 722, 580, 4, 1, "", 2],
            ["TOPLAM", "", "", ""],
        ]
    )
    assert [problem[:2] for problem in reported] == [
        (4, "B"),
        (5, "C"),
        (5, "D"),
        (6, "C"),
        (6, "E"),
        (7, "G"),
        (8, "B"),
        (8, "C"),
        (8, "D"),
    ]
    assert reported[0][2] == "must be a number, got '72O'"


def test_a_problem_reads_as_a_sentence_and_as_json_and_of_very_many_the_first_are_reported():
    with pytest.raises(BadOrderList) as caught:
        read([*HEAD, ["", 722, "x", 4], ROW])
    problem = caught.value
    assert (problem.code, problem.status) == (OptiCode.VALIDATION, 422)
    assert problem.message == "row 3: this looks like a part, but not all of B, C and D are numbers"
    assert problem.details["rows"] == [
        {"row": 3, "column": "", "message": "this looks like a part, but not all of B, C and D are numbers"}
    ]
    with pytest.raises(BadOrderList) as caught:
        read([*HEAD, ROW, *[["", "x", "y", "z"]] * 100])
    assert len(caught.value.problems) == 200
    assert caught.value.message.endswith("and 295 more")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([["18MM"], ROW], "no colour is given"),
        ([["RENK: Beyaz"], ROW], "no thickness is given"),
        ([["18MM", "8MM", "RENK: Beyaz"], ROW], "several thicknesses are given"),
        ([["RENK: Beyaz"], ["nothing", "here"]], "no row has numbers"),
        ([["RENK: Beyaz"], ["18MM", *ROW[1:]], ["8MM", *ROW[1:]], ROW], "no thickness is given"),
    ],
)
def test_what_no_row_says_is_a_problem_of_the_file(rows: list[list[Any]], expected: str):
    row, column, message = problems(rows)[0]
    assert (row, column) == (0, "")
    assert expected in message


def test_one_thickness_in_column_a_is_the_lists_and_counted_rows_keep_that_of_the_heading():
    order = read([["RENK: Beyaz"], [18, *ROW[1:]], ROW])
    assert [part.thickness_mm for part in order.parts] == [18, 18]
    order = read([*HEAD, [1, *ROW[1:]], [2, *ROW[1:]], [3, *ROW[1:]]])
    assert {part.thickness_mm for part in order.parts} == {Decimal(18)}


def test_column_a_makes_a_back():
    noted = [*ROW[:11], "arkalık kanalı"]  # a note does not
    parts = read([*HEAD, *([word, *ROW[1:]] for word in ("ARKALIK", "Arkalık", "arkalik 8MM")), noted]).parts
    assert [part.part_type for part in parts] == ["ARKALIK"] * 3 + ["GOVDE"]


def test_two_sheets_with_parts_are_one_too_many():
    book = openpyxl.Workbook()
    for sheet in (book.worksheets[0], book.create_sheet("Ikinci")):
        for row in (*HEAD, ROW):
            sheet.append(row)
    with pytest.raises(BadOrderList, match="Sheet and Ikinci both contain parts"):
        read_order_file("x.xlsx", saved(book), order_id="S", customer_phone="", defaults=ListDefaults())


def test_what_the_order_refuses_is_reported_by_its_row_or_of_the_file():
    long = [*ROW[:9], "D" * 251, "", ""]
    assert problems([*HEAD, ROW, long]) == [(4, "J", "must be at most 250 characters long")]
    assert problems([["18MM", "RENK: " + "x" * 101], ROW])[0][:2] == (2, "")
    with pytest.raises(BadOrderList, match="the file: order_id: must not be empty"):
        read_order_file("x.xlsx", sheet_of([*HEAD, ROW]), order_id="", customer_phone="", defaults=ListDefaults())


def test_the_file_is_named_after_the_customer():
    data = csv_of([*HEAD, ROW]).encode()
    for name, customer in (
        ("C:\\Siparişler\\Ayşe Hanım.xlsx", "Ayşe Hanım"),
        ("/tmp/x/Ali.csv", "Ali"),
        ("bad\x00\nname.csv", "bad name"),
        ("", None),
        (".xlsx", ".xlsx"),
        ("x" * 1000, "x" * 250),
    ):
        order = read_order_file(name, data, order_id="S", customer_phone="", defaults=ListDefaults())
        assert order.customer_snapshot_name == customer


sizes_mm = st.decimals("0.1", "10000", places=2)


@given(st.lists(st.tuples(sizes_mm, sizes_mm, st.integers(1, 10_000)), min_size=1, max_size=8))
@settings(max_examples=25)
def test_no_row_is_lost_and_no_size_is_altered(rows: list[tuple[Decimal, Decimal, int]]):
    body = [["", f"{length}", f"{width}", quantity, 0] for length, width, quantity in rows]
    data = csv_of([*HEAD, *body]).encode()
    order = read_order_file("x.csv", data, order_id="S", customer_phone="", defaults=ListDefaults())
    assert [(p.length_cm * 10, p.width_cm * 10, p.quantity) for p in order.parts] == rows
