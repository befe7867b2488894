"""Spreadsheets as rows: XLSX and CSV, as Excel and similar programs write them."""

import openpyxl
import pytest

from kesin.workloads.optiplan.orders.safe_xlsx import UnreadableSpreadsheet
from kesin.workloads.optiplan.orders.spreadsheet import read_sheets
from tests.workloads.optiplan.workbooks import SHIPPED, part_of, saved, sheet_of, with_part


def rows(data: bytes) -> list[list[object]]:
    (found,) = read_sheets(data).values()
    return [list(row) for row in found]


def reason(data: bytes) -> str:
    with pytest.raises(UnreadableSpreadsheet) as caught:
        read_sheets(data)
    return str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1254", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("separator", [";", ","])
def test_csv_in_every_usual_spelling(encoding: str, separator: str):
    text = f"RENK: Açık Meşe\r\n18MM{separator}722{separator}580{separator}4\r\n"
    assert rows(text.encode(encoding)) == [["RENK: Açık Meşe"], ["18MM", "722", "580", "4"]]


def test_a_decimal_comma_and_a_quoted_separator_stay_in_their_cell():
    assert rows(b"a;722,5;4;0\nb;1,5;3;0") == [["a", "722,5", "4", "0"], ["b", "1,5", "3", "0"]]
    assert rows(b'"a,b",1,2,3\n') == [["a,b", "1", "2", "3"]]


def test_the_rows_of_a_workbook_keep_their_numbers_and_hidden_sheets_are_not_read():
    assert rows(sheet_of([[], ["", 1.5], [None, "ş"]])) == [["", ""], ["", 1.5], ["", "ş"]]
    book = openpyxl.Workbook()
    book.worksheets[0]["A1"] = "seen"
    hidden = book.create_sheet("Gizli")
    hidden["A1"] = "hidden"
    hidden.sheet_state = "hidden"
    assert rows(saved(book)) == [["seen"]]


def with_cells(cells: str) -> bytes:
    name = "xl/worksheets/sheet1.xml"
    sheet = part_of(sheet_of([["x"]]), name).decode()
    row = f'<row r="2">{cells}</row></sheetData>'
    return with_part(sheet_of([["x"]]), name, sheet.replace("</sheetData>", row).encode())


def test_formulas_are_read_as_what_they_gave_and_errors_right_of_the_list_do_no_harm():
    given = with_cells(
        '<c r="A2"><f>1+1</f><v>2</v></c><c r="B2" t="str"><f>IF(1,"","x")</f><v></v></c><c r="C2"><v>3</v></c>'
        '<c r="M2" t="e"><v>#REF!</v></c>'
    )
    assert rows(given)[1][:3] == [2, "", 3]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ('<c r="G2"><f>1+1</f></c>', "the formula in G2 has never been calculated"),
        ('<c r="G2"><f>1+1</f><v/></c>', "the formula in G2 has never been calculated"),
        ('<c r="G2"><f>1+1</f><v></v></c>', "the formula in G2 has never been calculated"),
        ('<c s="1" r="G2"><f t="shared" si="0"/></c>', "the formula in G2 has never been calculated"),
        ('<c r="G2" t="e"><v>#REF!</v></c>', "the cell G2 contains an error"),
        ("<c t='e' r='G2'><f>A1/0</f><v>#DIV/0!</v></c>", "the cell G2 contains an error"),
    ],
)
def test_a_formula_without_a_value_is_not_an_empty_cell(cell: str, expected: str):
    assert expected in reason(with_cells(cell))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "empty"),
        (b" \r\n ", "empty"),
        ("a;b".encode("utf-16")[:-1], "neither XLSX nor CSV"),
        (b"\xd0\xcf\x11\xe0\x00\x00", "neither XLSX nor CSV"),
        (b"x\x81\x8d\xff", "neither XLSX nor CSV in UTF-8, UTF-16 or Windows-1254"),
        (b'a,b,c,"open', "the CSV cannot be read"),
        (b"a\n" * 5001, "5001 lines"),
        (b"a" * 5_000_001, "5000001 bytes"),
        (b"PK\x03\x04", "not an XLSX"),
        (with_part(SHIPPED, "xl/workbook.xml", b"<x/>"), ""),
    ],
)
def test_what_cannot_be_read_is_reported(data: bytes, expected: str):
    assert expected in reason(data)


def test_millions_of_blanks_in_a_cell_are_read_once():
    name, blanks = "xl/worksheets/sheet1.xml", b" " * 5_000_000
    list_file = sheet_of([["18MM"]])
    cell = b'<row r="2"><c r="A2"><f>1</f>' + blanks + b"<v>7</v></c></row></sheetData>"
    content = part_of(list_file, name).replace(b"</sheetData>", cell)
    assert rows(with_part(list_file, name, content))[1] == [7]
