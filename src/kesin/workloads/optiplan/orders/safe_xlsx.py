"""Safety checks before an XLSX is opened: libraries unpack and allocate whatever a file claims.

A few kilobytes can unpack to gigabytes, and one cell in the last corner makes a sheet of billions.
Both are detected here in the parts, before a library reads them. The library gets an archive that
is repacked from the checked parts, because it may follow other names and sizes than we did.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kesin.foundation.messages import MessageError

_MAX_PARTS: Final = 300
_LETTERS: Final = 26
_REFERENCE_ATTRIBUTE: Final = re.compile(rb"\sr\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_EMPTY_ROW: Final = re.compile(  # LibreOffice writes some at the very end; they hold no cells
    rb"<(?:[\w.-]+:)?row(?:\s+[\w:.-]+\s*=\s*(?:\"[^\"<]*\"|'[^'<]*'))*\s*/>"
)
_DIMENSION: Final = re.compile(
    rb"<(?:[\w.-]+:)?dimension\s+ref\s*=\s*[\"']"
    rb"([A-Za-z]{1,3})([0-9]{1,7}):([A-Za-z]{1,3})([0-9]{1,7})[\"']"
)
_DIMENSION_WITHIN: Final = 10_000  # bytes; it stands before the cells
_ROW_OR_CELL: Final = re.compile(rb"<(?:[\w.-]+:)?(row|c)(?=[\s/>])")
_CELL_REFERENCE: Final = re.compile(rb"([A-Za-z]{0,3})([0-9]{1,7})")
_DECLARED_ENCODING: Final = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([^\"']*)")
_REQUIRED_PARTS: Final = frozenset({"[Content_Types].xml", "xl/workbook.xml"})
_FOREIGN_PARTS: Final = frozenset({"content.xml", "mimetype", "xl/workbook.bin"})


class UnreadableSpreadsheet(MessageError):
    """A file that cannot be read as a spreadsheet, or is not safe to open."""


@dataclass(frozen=True, slots=True)
class XlsxBounds:
    """The largest workbook to accept."""

    max_bytes: int = 5_000_000
    max_unpacked_bytes: int = 20_000_000
    max_rows: int = 5_000
    max_columns: int = 256
    max_cells: int = 1_000_000  # of all sheets together


def repack_xlsx(data: bytes, bounds: XlsxBounds) -> bytes:
    """Repack a workbook from its checked parts, without pictures; raises UnreadableSpreadsheet."""
    return pack_zip(check_xlsx(data, bounds), zipfile.ZIP_STORED)


def pack_zip(files: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Pack files into an archive without dates: the same files give the same bytes."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return output.getvalue()


def check_xlsx(data: bytes, bounds: XlsxBounds) -> dict[str, bytes]:
    """Return the XML parts of an XLSX that is within the bounds and safe; else raise."""
    most = bounds.max_bytes
    if len(data) > most:
        raise UnreadableSpreadsheet("the file is %(n)s bytes; at most %(most)s are accepted", n=len(data), most=most)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _checked_parts(archive, bounds)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as problem:
        why = "the file is not an XLSX: %(problem)s"
        raise UnreadableSpreadsheet(why, problem=problem) from None
    except (RuntimeError, NotImplementedError):  # a password, or an unusual compression
        raise UnreadableSpreadsheet("the file is password-protected or uses unsupported compression") from None
    except UnreadableSpreadsheet:
        raise
    except Exception as problem:  # noqa: BLE001 - the library raises anything on a broken file
        why = type(problem).__name__
        raise UnreadableSpreadsheet("the file is not an XLSX: %(problem)s", problem=why) from None


def _checked_parts(archive: zipfile.ZipFile, bounds: XlsxBounds) -> dict[str, bytes]:
    parts = archive.infolist()
    names = {part.filename for part in parts}
    if len(parts) > _MAX_PARTS or len(names) != len(parts):
        raise UnreadableSpreadsheet("the archive has too many files, or the same file twice")
    if not names >= _REQUIRED_PARTS or names & _FOREIGN_PARTS:
        raise UnreadableSpreadsheet("the file is not an XLSX: it is a zip without a workbook")
    unpacked, most = sum(part.file_size for part in parts), bounds.max_unpacked_bytes
    if unpacked > most:
        raise UnreadableSpreadsheet(
            "the file unpacks to %(n)s bytes; at most %(most)s are accepted", n=unpacked, most=most
        )
    xml_parts = [part for part in parts if part.filename.endswith((".xml", ".rels"))]
    texts = {part.filename: archive.read(part) for part in xml_parts}
    cells = 0
    for text in texts.values():
        cells += _check_xml(text, bounds, bounds.max_cells - cells)
    return texts


def _check_xml(text: bytes, bounds: XlsxBounds, max_cells: int) -> int:
    """Raise UnreadableSpreadsheet for a part that is not safe; return how many cells it has."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    declared = _DECLARED_ENCODING.match(text)
    encoding = declared[1].lower() if declared else b"utf-8"
    if not text.startswith(b"<") or b"\x00" in text or encoding not in {b"utf-8", b"us-ascii"}:
        raise UnreadableSpreadsheet("the file contains XML that is not UTF-8")
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise UnreadableSpreadsheet("the file declares XML entities, which no workbook needs")
    if b"sheetData" not in text:
        return 0
    _check_declared(text, bounds, max_cells)
    cells = _check_counts(text, bounds, max_cells)
    _check_references(text, bounds, max_cells)
    return cells


def _check_declared(text: bytes, bounds: XlsxBounds, max_cells: int) -> None:
    """Check the size that a sheet declares, before anything in it is counted."""
    if declared := _DIMENSION.search(text[:_DIMENSION_WITHIN]):
        rows = int(declared[4]) - int(declared[2]) + 1
        columns = _column(declared[3].upper()) - _column(declared[1].upper()) + 1
        if rows <= bounds.max_rows and columns <= bounds.max_columns and rows * columns > max_cells:
            raise too_many_cells(bounds)


def _check_references(text: bytes, bounds: XlsxBounds, max_cells: int) -> None:
    for number, match in enumerate(_REFERENCE_ATTRIBUTE.finditer(_EMPTY_ROW.sub(b"", text))):
        if number > max_cells + bounds.max_rows:
            raise too_many_cells(bounds)
        reference = _CELL_REFERENCE.fullmatch(match[1] if match[1] is not None else match[2])
        if reference is None:
            raise UnreadableSpreadsheet("a sheet has a cell whose position cannot be read")
        row, column = int(reference[2]), _column(reference[1].upper())
        if row > bounds.max_rows or column > bounds.max_columns:
            raise UnreadableSpreadsheet(
                "a sheet extends to %(cell)s; at most %(rows)s rows and %(columns)s columns are "
                "accepted: delete the cells beyond that",
                cell=reference[0].decode(),
                rows=bounds.max_rows,
                columns=bounds.max_columns,
            )


def too_many_cells(bounds: XlsxBounds) -> UnreadableSpreadsheet:
    """The refusal of a workbook with more cells than the bounds allow."""
    return UnreadableSpreadsheet(
        "the sheets have more than %(most)s cells: delete the unused cells", most=bounds.max_cells
    )


def _check_counts(text: bytes, bounds: XlsxBounds, max_cells: int) -> int:
    """Count rows and cells too: those without a reference follow the one before."""
    rows = cells = total = 0
    for match in _ROW_OR_CELL.finditer(text):
        if match[1] == b"c":
            cells += 1
            total += 1
            if total > max_cells:
                raise too_many_cells(bounds)
        else:
            rows, cells = rows + 1, 0
        if rows > bounds.max_rows or cells > bounds.max_columns:
            why = "a sheet has more than %(rows)s rows or %(columns)s columns"
            raise UnreadableSpreadsheet(why, rows=bounds.max_rows, columns=bounds.max_columns)
    return total


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * _LETTERS + letter - ord("A") + 1
    return number
