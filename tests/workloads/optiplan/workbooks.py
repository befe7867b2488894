"""Workbooks to test with: the shipped one, changed ones, and unsafe ones."""

import io
import zipfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import openpyxl
from openpyxl.worksheet.worksheet import Worksheet
from python_calamine import CalamineWorkbook

SHIPPED = files("kesin.workloads.optiplan").joinpath("templates/Excel_sablon.xlsx").read_bytes()
HEADINGS = (
    "Material",
    "Length",
    "Width",
    "Min Q.",
    "GrainI",
    "Description",
    "Upper strip mat.",
    "Lower strip mat.",
    "Left strip mat.",
    "Right strip mat.",
    "II Description",
    "Description 1",
)


def cells_of(data: bytes, sheet: str) -> list[list[Any]]:
    """Read cells with another library than the writer's; empty cells are ``""``."""
    book = CalamineWorkbook.from_filelike(io.BytesIO(data))
    return book.get_sheet_by_name(sheet).to_python(skip_empty_area=False)


def changed(change: Callable[[Worksheet], object], data: bytes = SHIPPED) -> bytes:
    book = openpyxl.load_workbook(io.BytesIO(data))
    change(book.worksheets[0])
    return saved(book)


def sheet_of(rows: Sequence[Sequence[Any]], title: str = "Liste") -> bytes:
    book = openpyxl.Workbook()
    book.worksheets[0].title = title
    for row in rows:
        book.worksheets[0].append(list(row))
    return saved(book)


def saved(book: openpyxl.Workbook) -> bytes:
    written = io.BytesIO()
    book.save(written)
    return written.getvalue()


def part_of(data: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(name)


def with_part(data: bytes, name: str, content: bytes) -> bytes:
    """The same archive with one part replaced or added."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(written, "w") as new:
        for part in old.infolist():
            if part.filename != name:
                new.writestr(part.filename, old.read(part), zipfile.ZIP_DEFLATED)
        new.writestr(name, content, zipfile.ZIP_DEFLATED)
    return written.getvalue()
