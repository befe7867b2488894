"""Whether an XLSX may be opened at all: libraries unpack and lay out whatever a file claims.

A few kilobytes can claim gigabytes, a single cell in the last corner a sheet of billions. Both are
found here by looking at the parts, before any library believes them. What a library gets is packed
anew from the parts that were looked at: it may follow other names and sizes than we did.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import Final

_PARTS_MAX: Final = 300
_LETTERS: Final = 26
_REFERENCE: Final = re.compile(rb"\sr\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_EMPTY_ROW: Final = re.compile(  # LibreOffice puts some at the very end; no cell can hide in one
    rb"<(?:[\w.-]+:)?row(?:\s+[\w:.-]+\s*=\s*(?:\"[^\"<]*\"|'[^'<]*'))*\s*/>"
)
_ROW_OR_CELL: Final = re.compile(rb"<(?:[\w.-]+:)?(row|c)(?=[\s/>])")
_PLACE: Final = re.compile(rb"([A-Za-z]{0,3})([0-9]{1,7})")
_DECLARED: Final = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([^\"']*)")
_NEEDED: Final = frozenset({"[Content_Types].xml", "xl/workbook.xml"})
_OF_OTHERS: Final = frozenset({"content.xml", "mimetype", "xl/workbook.bin"})


class UnsafeXlsx(ValueError):
    """A file that is no workbook, or one nobody should open."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a workbook may be."""

    bytes_max: int = 5_000_000
    unpacked_max: int = 20_000_000
    rows_max: int = 5_000
    columns_max: int = 256


def checked_xlsx(data: bytes, bounds: Bounds) -> bytes:
    """The same workbook, of parts that were looked at and no others; raises UnsafeXlsx.

    Pictures and the like are left out: nobody reads a sheet from them.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in _parts(data, bounds).items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return packed.getvalue()


def check_xlsx(data: bytes, bounds: Bounds) -> None:
    """Raise UnsafeXlsx unless this is an XLSX within the bounds, without tricks."""
    _parts(data, bounds)


def _parts(data: bytes, bounds: Bounds) -> dict[str, bytes]:
    if len(data) > bounds.bytes_max:
        raise UnsafeXlsx(f"the file has {len(data)} bytes, at most {bounds.bytes_max} are taken")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _checked_parts(archive, bounds)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as problem:
        raise UnsafeXlsx(f"the file is no XLSX: {problem}") from None
    except (RuntimeError, NotImplementedError):  # a password, a way of packing nobody uses
        raise UnsafeXlsx("the file is locked, or packed in an unusual way") from None
    except UnsafeXlsx:
        raise
    except Exception as problem:  # noqa: BLE001 - the library raises anything on a broken file
        raise UnsafeXlsx(f"the file is no XLSX: {type(problem).__name__}") from None


def _checked_parts(archive: zipfile.ZipFile, bounds: Bounds) -> dict[str, bytes]:
    parts = archive.infolist()
    names = {part.filename for part in parts}
    if len(parts) > _PARTS_MAX or len(names) != len(parts):
        raise UnsafeXlsx("the file has too many parts, or one part twice")
    if not names >= _NEEDED or names & _OF_OTHERS:
        raise UnsafeXlsx("the file is no XLSX: it is packed, but holds no workbook")
    unpacked = sum(part.file_size for part in parts)
    if unpacked > bounds.unpacked_max:
        raise UnsafeXlsx(
            f"the file unpacks to {unpacked} bytes, at most {bounds.unpacked_max} are taken"
        )
    looked_at = [part for part in parts if part.filename.endswith((".xml", ".rels"))]
    texts = {part.filename: archive.read(part) for part in looked_at}
    for text in texts.values():
        _check_xml(text, bounds)
    return texts


def _check_xml(text: bytes, bounds: Bounds) -> None:
    text = text.removeprefix(b"\xef\xbb\xbf")
    declared = _DECLARED.match(text)
    encoding = declared[1].lower() if declared else b"utf-8"
    if not text.startswith(b"<") or b"\x00" in text or encoding not in {b"utf-8", b"us-ascii"}:
        raise UnsafeXlsx("the file holds XML that is no UTF-8")
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise UnsafeXlsx("the file declares XML entities, as no workbook does")
    if b"sheetData" not in text:
        return
    _check_counts(text, bounds)
    for found in _REFERENCE.finditer(_EMPTY_ROW.sub(b"", text)):
        place = _PLACE.fullmatch(found[1] if found[1] is not None else found[2])
        if place is None:
            raise UnsafeXlsx("a sheet has a cell whose place cannot be read")
        row, column = int(place[2]), _column(place[1].upper())
        if row > bounds.rows_max or column > bounds.columns_max:
            raise UnsafeXlsx(
                f"a sheet reaches to {place[0].decode()}, at most {bounds.rows_max} rows and"
                f" {bounds.columns_max} columns are taken: delete what lies beyond"
            )


def _check_counts(text: bytes, bounds: Bounds) -> None:
    """Rows and cells that tell no place come after the one before: so many may there be."""
    rows = cells = 0
    for found in _ROW_OR_CELL.finditer(text):
        if found[1] == b"c":
            cells += 1
        else:
            rows, cells = rows + 1, 0
        if rows > bounds.rows_max or cells > bounds.columns_max:
            raise UnsafeXlsx(
                f"a sheet has more than {bounds.rows_max} rows or {bounds.columns_max} columns"
            )


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * _LETTERS + letter - ord("A") + 1
    return number
