"""Files that claim too much are rejected before a library opens them."""

import io
import struct
import zipfile
import zlib

import pytest

from kesin.workloads.optiplan.orders.safe_xlsx import UnreadableSpreadsheet, XlsxBounds, check_xlsx, repack_xlsx
from tests.workloads.optiplan.workbooks import SHIPPED, part_of, with_part

SHEET = "xl/worksheets/sheet1.xml"


def reason(data: bytes, bounds: XlsxBounds | None = None) -> str:
    with pytest.raises(UnreadableSpreadsheet) as caught:
        check_xlsx(data, bounds or XlsxBounds())
    return str(caught.value)


def test_a_bomb_is_not_unpacked_and_a_large_file_is_not_opened():
    check_xlsx(SHIPPED, XlsxBounds())
    bomb = with_part(SHIPPED, "xl/media/image1.png", b"\x00" * 30_000_000)
    assert len(bomb) < 100_000
    assert "unpacks to" in reason(bomb)
    assert "at most 10 are accepted" in reason(SHIPPED, XlsxBounds(max_bytes=10))


def test_a_cell_far_out_is_not_laid_out_and_a_place_that_cannot_be_read_not_trusted():
    sheet = part_of(SHIPPED, SHEET)
    for place in (b"XFD1048576", b"A5001", b"IW1", b"A9999999"):
        far_out = sheet.replace(b'r="A1"', b"r='" + place + b"'")
        assert f"extends to {place.decode()}" in reason(with_part(SHIPPED, SHEET, far_out))
    for place in (b"&#88;FD1048576", b"", b"A0x5", b"A99999999999"):
        unclear = sheet.replace(b'r="A1"', b'r = "' + place + b'"')
        assert "cannot be read" in reason(with_part(SHIPPED, SHEET, unclear))
    another = sheet.replace(b'r="A1"', b'r="XFD1"')
    assert "extends to" in reason(with_part(SHIPPED, "xl/other.xml", another))


def with_last_row(row: bytes) -> bytes:
    sheet = part_of(SHIPPED, SHEET).replace(b"</sheetData>", row + b"</sheetData>")
    return with_part(SHIPPED, SHEET, sheet)


def test_an_empty_row_at_the_very_end_does_no_harm_and_hides_no_cell():
    check_xlsx(with_last_row(b'<row r="1048576" ht=\'12.8\' hidden="false"/>'), XlsxBounds())
    for row in (
        b'<row r="1048576"><c t="n"><v>1</v></c></row>',
        b"<!-- <row a=' --><row r='1'><c r=\"A1048576\"><v>1</v></c></row><!-- '/> -->",
        b'<row a="/>" r="1048576"><c><v>1</v></c></row>',
    ):
        assert "1048576" in reason(with_last_row(row))


@pytest.mark.parametrize(
    "content",
    [
        b'<!DOCTYPE x [<!ENTITY a "b">]><x/>',
        '<?xml version="1.0" encoding="utf-16"?><x/>'.encode("utf-16"),
        b'<?xml version="1.0" encoding="cp037"?><x/>',
        "<x/>".encode("cp037"),
        b"",
    ],
)
def test_strange_xml_is_refused(content: bytes):
    reason(with_part(SHIPPED, "docProps/app.xml", content))


def with_rows(rows: bytes) -> bytes:
    sheet = part_of(SHIPPED, SHEET)
    begin, end = sheet.index(b"<sheetData>") + len(b"<sheetData>"), sheet.index(b"</sheetData>")
    return with_part(SHIPPED, SHEET, sheet[:begin] + rows + sheet[end:])


@pytest.mark.parametrize(
    "rows", [b"<row>" + b"<c/>" * 300 + b"</row>", b"<row/>" * 6_000, b"<x:row>" + b"<x:c />" * 300]
)
def test_rows_and_cells_that_tell_no_place_are_counted(rows: bytes):
    assert "more than 5000 rows or 256 columns" in reason(with_rows(rows))


def test_a_workbook_that_was_checked_says_the_same_without_what_was_not_looked_at():
    assert part_of(repack_xlsx(SHIPPED, XlsxBounds()), SHEET) == part_of(SHIPPED, SHEET)
    for name in ("xl/worksheets/sheet1.dat", "xl/worksheets/sheet1.XML"):
        safe = repack_xlsx(with_part(SHIPPED, name, b"<worksheet/>"), XlsxBounds())
        with zipfile.ZipFile(io.BytesIO(safe)) as archive:
            assert name not in archive.namelist()


def test_what_lies_behind_the_size_that_a_part_claims_is_not_handed_on():
    far_out = b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    data = bytearray(with_last_row(far_out))
    seen = part_of(bytes(data), SHEET).partition(far_out)[0]
    entry = data.rindex(SHEET.encode()) - 46  # its line in the table at the end of the archive
    struct.pack_into("<I", data, entry + 16, zlib.crc32(seen))
    struct.pack_into("<I", data, entry + 24, len(seen))
    assert part_of(repack_xlsx(bytes(data), XlsxBounds()), SHEET) == seen


def packed(*names: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in names:
            archive.writestr(name, "<x/>")
    return written.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK",
        b"no zip at all",
        SHIPPED[:-100],
        packed(),
        packed("[Content_Types].xml", "content.xml", "mimetype"),
        packed("[Content_Types].xml", "xl/workbook.xml", "xl/workbook.bin"),
        packed("[Content_Types].xml", "xl/workbook.xml", *(f"{n}.xml" for n in range(300))),
    ],
)
def test_what_is_no_xlsx_is_refused(data: bytes):
    reason(data)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_part_that_is_there_twice_is_refused():
    assert "twice" in reason(packed("[Content_Types].xml", "xl/workbook.xml", "a.xml", "a.xml"))
