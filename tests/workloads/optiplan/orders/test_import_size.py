"""An order list is refused by its size before it is parsed, whatever it says about itself."""

import io
import zipfile
from typing import Any

import pytest

from kesin.workloads.optiplan.orders import spreadsheet
from kesin.workloads.optiplan.orders.safe_xlsx import UnreadableSpreadsheet
from kesin.workloads.optiplan.orders.spreadsheet import MAX_CELLS, read_sheets

TYPES = b'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'


def workbook(*sheets: bytes) -> bytes:
    """An archive with just what is looked at before the parser."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", TYPES)
        archive.writestr("xl/workbook.xml", b"<workbook/>")
        for number, sheet in enumerate(sheets):
            archive.writestr(f"xl/worksheets/sheet{number}.xml", sheet)
    return data.getvalue()


def sheet(rows: int, columns: int, cell: bytes = b"<c/>", dimension: bytes = b"") -> bytes:
    lines = (b"<row>" + cell * columns + b"</row>") * rows
    return b"<worksheet>" + dimension + b"<sheetData>" + lines + b"</sheetData></worksheet>"


REFERENCES = b"<worksheet><sheetData>" + b' r="A1"' * (MAX_CELLS + 5_002) + b"</sheetData>"
TOO_MANY = {
    "rows × columns": [sheet(4_801, 250)],
    "in all sheets together": [sheet(2_000, 30), sheet(2_000, 30)],
    "declared only": [sheet(1, 1, dimension=b'<dimension ref="A1:IP4801"/>')],
    "with a prefix": [sheet(4_801, 250, cell=b"<x:c/>")],
    "references without cells": [REFERENCES],
}


@pytest.mark.parametrize("case", TOO_MANY)
def test_a_workbook_with_too_many_cells_is_refused_before_it_is_parsed(case, monkeypatch):
    data = workbook(*TOO_MANY[case])
    assert len(data) < 65_536  # it looks harmless

    def parsed(*_: Any) -> None:
        pytest.fail("parsed")

    monkeypatch.setattr(spreadsheet, "_check_values", parsed)
    with pytest.raises(UnreadableSpreadsheet, match=f"more than {MAX_CELLS} cells"):
        read_sheets(data)


@pytest.mark.parametrize(("columns", "fits"), [(24, True), (26, False)])
def test_a_csv_has_as_many_cells_as_a_workbook_may_have(columns, fits):
    rows = 4_000
    data = (b";" * (columns - 1) + b"\r\n") * rows
    assert (columns * rows <= MAX_CELLS) == fits
    if fits:
        [found] = read_sheets(data + b"18;1;1;1").values()
        assert len(found) == rows + 1
    else:
        with pytest.raises(UnreadableSpreadsheet, match=f"more than {MAX_CELLS} cells"):
            read_sheets(data)
