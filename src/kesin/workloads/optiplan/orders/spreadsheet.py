"""Rows of bounded XLSX and CSV: texts, numbers, unused other values; blank cells are ""."""

import csv
import io
import itertools
import re
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kesin.foundation.problems import Problem
from kesin.workloads.common.columns import detect_encoding
from kesin.workloads.optiplan.orders import safe_xlsx
from kesin.workloads.optiplan.orders.safe_xlsx import UnreadableSpreadsheet

XLSX: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
CSV: Final = "text/csv"
MAX_CELLS: Final = 100_000  # of all sheets together; a list has twelve columns
BOUNDS: Final = safe_xlsx.XlsxBounds(max_cells=MAX_CELLS)
Rows = Sequence[Sequence[Any]]
_SEPARATORS: Final = ";,"
_MIN_SEPARATORS: Final = 3  # in a line of parts
_TAG: Final = rb"(?:[\w.-]+:)?"
_CELL: Final = re.compile(  # its attributes, and a formula without a result
    rb"<" + _TAG + rb"c\b([^>]*)>"
    rb"(\s*+<" + _TAG + rb"f\b[^>]*(?:/>|>[^<]*</" + _TAG + rb"f>)\s*+"
    rb"(?:<" + _TAG + rb"v\s*+/>|<" + _TAG + rb"v>\s*+</" + _TAG + rb"v>)?\s*+</" + _TAG + rb"c>)?"
)  # fmt: skip  # possessive blanks: no backtracking over millions of them
_TYPE: Final = re.compile(rb"\st\s*=\s*[\"'](\w+)")
# Columns right of L are not read.
_CELL_REFERENCE: Final = re.compile(rb"\sr\s*=\s*[\"']([A-L][0-9]+)")


def read_sheets(data: bytes) -> dict[str, Rows]:
    """Read the rows of the visible sheets, by name and in order; a CSV is a single sheet."""
    if not data.strip():
        raise UnreadableSpreadsheet("the file is empty")
    if data.startswith(b"PK"):
        return _xlsx_sheets(data)
    return {"": _csv_rows(data)}


def _xlsx_sheets(data: bytes) -> dict[str, Rows]:
    """Read the visible sheets, from the first cell to the last filled one."""
    from python_calamine import CalamineWorkbook, SheetVisibleEnum

    sheets, cells = dict[str, Rows](), 0
    try:
        parts = safe_xlsx.check_xlsx(data, BOUNDS)
        _check_values(parts.values())
        packed = safe_xlsx.pack_zip(parts, zipfile.ZIP_STORED)
        workbook = CalamineWorkbook.from_filelike(io.BytesIO(packed))
        for state in workbook.sheets_metadata:
            if state.visible == SheetVisibleEnum.Visible:
                sheet = workbook.get_sheet_by_name(state.name)
                cells += sheet.total_height * sheet.total_width
                if cells > MAX_CELLS:
                    raise safe_xlsx.too_many_cells(BOUNDS)  # noqa: TRY301
                sheets[state.name] = sheet.to_python(skip_empty_area=False)
    except UnreadableSpreadsheet:
        raise
    except Exception as problem:  # noqa: BLE001 - the library raises anything on a broken file
        why = "the XLSX cannot be read: %(problem)s"
        raise UnreadableSpreadsheet(why, problem=type(problem).__name__) from None
    if not sheets:
        raise UnreadableSpreadsheet("the XLSX has no visible sheet")
    return sheets


def _check_values(parts: Iterable[bytes]) -> None:
    """Raise for cells that the library would read as empty although they hold something."""
    for part in parts:
        for attributes, empty_formula in _CELL.findall(part) if b"sheetData" in part else ():
            reference, kind = _CELL_REFERENCE.search(attributes), _TYPE.search(attributes)
            if reference and kind and kind[1] == b"e":
                why = "the cell %(cell)s contains an error: fix it and save again"
                raise UnreadableSpreadsheet(why, cell=reference[1].decode())
            if reference and empty_formula and not (kind and kind[1] == b"str"):
                why = (
                    "the formula in %(cell)s has never been calculated:"
                    " open the file in a spreadsheet program and save it again"
                )
                raise UnreadableSpreadsheet(why, cell=reference[1].decode())


def _csv_rows(data: bytes) -> list[list[str]]:
    if len(data) > BOUNDS.max_bytes:
        why = "the file is %(n)s bytes; at most %(most)s are accepted"
        raise UnreadableSpreadsheet(why, n=len(data), most=BOUNDS.max_bytes)
    try:
        text = io.StringIO(data.decode(detect_encoding(io.BytesIO(data))[1]), newline="")
        reader = csv.reader(text, delimiter=_separator(text.getvalue()), strict=True)
        rows = list(itertools.islice(reader, BOUNDS.max_rows))
        lines = len(rows) + sum(1 for _ in reader)  # counted without storing them
    except Problem:
        why = "the file is neither XLSX nor CSV in UTF-8, UTF-16 or Windows-1254"
        raise UnreadableSpreadsheet(why) from None
    except csv.Error as problem:
        why = "the CSV cannot be read: %(problem)s"
        raise UnreadableSpreadsheet(why, problem=problem) from None
    if lines > BOUNDS.max_rows:
        why = "the CSV has %(n)s lines; at most %(most)s are accepted"
        raise UnreadableSpreadsheet(why, n=lines, most=BOUNDS.max_rows)
    if sum(map(len, rows)) > MAX_CELLS:
        raise safe_xlsx.too_many_cells(BOUNDS)
    return rows


def _separator(text: str) -> str:
    """Choose the separator that splits more lines; a decimal comma alone splits too little."""
    lines = text.splitlines()[: BOUNDS.max_rows]  # a file with more is refused
    return max(_SEPARATORS, key=lambda character: sum(line.count(character) >= _MIN_SEPARATORS for line in lines))
