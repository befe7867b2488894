"""A spreadsheet's cells, row by row, from XLSX or CSV: what people export, not what they should.

Cells are texts, numbers, or something else that no order list needs (a date, a yes or no); blank
cells are empty texts. Reading is bounded by size before anything is believed.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kesin.workloads.optiplan.orders.safe_xlsx import Bounds, UnsafeXlsx, checked_xlsx

if TYPE_CHECKING:
    from python_calamine import CalamineWorkbook

XLSX: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
CSV: Final = "text/csv"
BOUNDS: Final = Bounds()
CELLS_MAX: Final = 2_000_000  # of all sheets together
_SEPARATORS: Final = ";,"
_LEAST_SEPARATORS: Final = 3  # a line of parts has at least so many
_TAG: Final = rb"(?:[\w.-]+:)?"
_CELL: Final = re.compile(  # its attributes, and whether it has a formula that gave nothing
    rb"<" + _TAG + rb"c\b([^>]*)>"
    rb"(\s*+<" + _TAG + rb"f\b[^>]*(?:/>|>[^<]*</" + _TAG + rb"f>)\s*+"
    rb"(?:<" + _TAG + rb"v\s*+/>|<" + _TAG + rb"v>\s*+</" + _TAG + rb"v>)?\s*+</" + _TAG + rb"c>)?"
)  # fmt: skip  # blanks are never gone back over: a file may hold millions
_TYPE: Final = re.compile(rb"\st\s*=\s*[\"'](\w+)")
_PLACE: Final = re.compile(rb"\sr\s*=\s*[\"']([A-L][0-9]+)")  # right of L nobody looks


class Unreadable(ValueError):
    """A file that is no spreadsheet we take; the message says which are."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet; the first row is number 1."""

    name: str
    rows: Sequence[Sequence[Any]]


def read_sheets(data: bytes) -> list[Sheet]:
    """The sheets people see, the first one first; a CSV is a single sheet."""
    if not data.strip():
        raise Unreadable("the file is empty")
    if data.startswith(b"PK"):
        return _xlsx_sheets(data)
    return [Sheet("", _csv_rows(data))]


def _xlsx_sheets(data: bytes) -> list[Sheet]:
    from python_calamine import CalamineWorkbook, SheetVisibleEnum

    try:
        data = checked_xlsx(data, BOUNDS)
        _check_values(data)
        workbook = CalamineWorkbook.from_filelike(io.BytesIO(data))
        seen = [
            one.name for one in workbook.sheets_metadata if one.visible == SheetVisibleEnum.Visible
        ]
        sheets = _laid_out(workbook, seen)
    except (UnsafeXlsx, Unreadable) as problem:
        raise Unreadable(str(problem)) from None
    except Exception as problem:  # noqa: BLE001 - the library raises anything on a broken file
        raise Unreadable(f"the XLSX cannot be read: {type(problem).__name__}") from None
    if not sheets:
        raise Unreadable("the XLSX has no sheet to be seen")
    return sheets


def _laid_out(workbook: CalamineWorkbook, names: Sequence[str]) -> list[Sheet]:
    """The sheets with every cell between the first and the last that is filled."""
    sheets, cells = [], 0
    for name in names:
        sheet = workbook.get_sheet_by_name(name)
        cells += sheet.total_height * sheet.total_width
        if cells > CELLS_MAX:
            raise Unreadable(
                f"the sheets reach over more than {CELLS_MAX} cells: delete what is not needed"
            )
        sheets.append(Sheet(name, sheet.to_python(skip_empty_area=False)))
    return sheets


def _check_values(data: bytes) -> None:
    """Refuse cells the library would read as empty though somebody wrote something there."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = [archive.read(name) for name in archive.namelist() if name.endswith(".xml")]
    for part in parts:
        for attributes, nothing in _CELL.findall(part) if b"sheetData" in part else ():
            place, kind = _PLACE.search(attributes), _TYPE.search(attributes)
            if place and kind and kind[1] == b"e":
                raise Unreadable(
                    f"the cell {place[1].decode()} holds an error: mend it, save again"
                )
            if place and nothing and not (kind and kind[1] == b"str"):
                raise Unreadable(
                    f"the formula in {place[1].decode()} was never calculated: open the file in a"
                    " spreadsheet program and save it again"
                )


def _csv_rows(data: bytes) -> list[list[str]]:
    if len(data) > BOUNDS.bytes_max:
        raise Unreadable(f"the file has {len(data)} bytes, at most {BOUNDS.bytes_max} are taken")
    if b"\x00" in data:
        raise Unreadable("the file is neither XLSX nor CSV in UTF-8 or Windows-1254")
    text = _decoded(data)
    separator = _separator(text)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error as problem:
        raise Unreadable(f"the CSV cannot be read: {problem}") from None
    if len(rows) > BOUNDS.rows_max:
        raise Unreadable(f"the CSV has {len(rows)} lines, at most {BOUNDS.rows_max} are taken")
    return rows


def _decoded(data: bytes) -> str:
    """UTF-8, or what Excel writes in Turkey."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("cp1254")
    except UnicodeDecodeError:
        raise Unreadable("the CSV is neither UTF-8 nor Windows-1254") from None


def _separator(text: str) -> str:
    """The one more lines are parted by; a decimal comma alone parts too little."""
    lines = text.splitlines()
    return max(
        _SEPARATORS, key=lambda sign: sum(line.count(sign) >= _LEAST_SEPARATORS for line in lines)
    )
