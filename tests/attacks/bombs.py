"""Small files that claim to be very large: workbooks, lists and pictures."""

from __future__ import annotations

import base64
import functools
import io
import struct
import zipfile
import zlib
from collections.abc import Callable

from tests.workloads.optiplan.orders.test_import_size import TYPES, sheet, workbook
from tests.workloads.optiplan.workbooks import SHIPPED, with_part

ENTITIES = b'<!DOCTYPE x [<!ENTITY a "ha">' + b"".join(
    b'<!ENTITY %c "%s">' % (letter, b"&%c;" % (letter - 1) * 10) for letter in range(98, 108)
)
SHEET = "xl/worksheets/sheet1.xml"
SIDE = 30_000


def _lying_size() -> bytes:
    """An archive whose directory says that a part of 30 megabytes has ten bytes."""
    data = workbook(b"<worksheet>" + b" " * 30_000_000 + b"</worksheet>")
    size = struct.pack("<I", 30_000_023)
    assert size in data
    return data.replace(size, struct.pack("<I", 10))


def _overlapping() -> bytes:
    """Many names for the same compressed part."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", TYPES)
        archive.writestr("xl/workbook.xml", b"<workbook/>")
        archive.writestr(SHEET, b"<worksheet>" + b" " * 9_000_000 + b"</worksheet>")
        first = archive.filelist[-1]
        for number in range(100):
            copy = zipfile.ZipInfo(f"xl/worksheets/copy{number}.xml")
            for name in ("CRC", "compress_size", "compress_type", "file_size", "header_offset"):
                setattr(copy, name, getattr(first, name))
            archive.filelist.append(copy)
    return written.getvalue()


def _nested_archives() -> bytes:
    inner = b"\0" * 10_000_000
    for level in range(4):
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(10):
                archive.writestr(f"{level}-{number}.zip", inner)
        inner = written.getvalue()
    return inner


def _shared_string() -> bytes:
    """One string of a megabyte, in each of 90 000 cells."""
    cells = b'<row r="1">' + b'<c t="s"><v>0</v></c>' * 200 + b"</row>"
    data = workbook(b"<worksheet><sheetData>" + cells * 450 + b"</sheetData></worksheet>")
    text = b"<sst><si><t>" + b"x" * 1_000_000 + b"</t></si></sst>"
    return with_part(data, "xl/sharedStrings.xml", text)


def _data_uri(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


@functools.cache
def png(side: int = SIDE, *, pixels: bool = True) -> str:
    """A picture of one colour; of 30 000 × 30 000 dots, a hundred kilobytes."""
    packer = zlib.compressobj(9)
    row = b"\0" * (1 + (side + 7) // 8)
    parts = [packer.compress(row) for _ in range(side if pixels else 1)] + [packer.flush()]
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", b"".join(parts))
    return _data_uri("png", data + _chunk(b"IEND", b""))


WORKBOOKS: dict[str, Callable[[], bytes]] = {
    "4 801 × 250 cells": lambda: workbook(sheet(4_801, 250)),
    "30 MB of zeros": lambda: with_part(SHIPPED, "xl/media/image1.png", b"\0" * 30_000_000),
    "a size that lies": _lying_size,
    "parts that overlap": _overlapping,
    "archives in archives": _nested_archives,
    "a dimension of billions": lambda: workbook(sheet(1, 1, dimension=b'<dimension ref="A1:XFD1048576"/>')),
    "a cell in the last corner": lambda: workbook(sheet(1, 1, b'<c r="XFD1048576"/>')),
    "entities": lambda: workbook(ENTITIES + b"]><worksheet>&k;</worksheet>"),
    "an outside entity": lambda: workbook(
        b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><worksheet>&e;</worksheet>'
    ),
    "200 000 levels": lambda: workbook(
        b"<worksheet><sheetData>" + b"<x>" * 200_000 + b"</x>" * 200_000 + b"</sheetData>"
    ),
    "a long attribute": lambda: workbook(sheet(1, 1, b'<c r="' + b"A" * 15_000_000 + b'"/>')),
    "a shared string": _shared_string,
    "many merged cells": lambda: workbook(
        b"<worksheet><sheetData/>" + b'<mergeCell ref="A1:XFD1048576"/>' * 300_000 + b"</worksheet>"
    ),
    "1 000 parts": lambda: workbook(*[b"<worksheet/>"] * 1_000),
    "UTF-16": lambda: workbook("<?xml version='1.0' encoding='UTF-16'?><x/>".encode("utf-16")),
    "a picture": lambda: base64.b64decode(png().partition(",")[2]),
    "an SVG": lambda: ENTITIES + b'] ><svg xmlns="http://www.w3.org/2000/svg">&k;</svg>',
}
LISTS: dict[str, Callable[[], bytes]] = {
    "4 million cells": lambda: b";" * 4_000_000,
    "4 million rows": lambda: b"\n" * 4_000_000,
    "a quote without an end": lambda: b'"' + b"x;\n" * 1_300_000,
    "quotes": lambda: b'"' * 4_000_000,
    "NULs": lambda: b"\0" * 4_000_000,
    "half characters": lambda: b"\xff\xfe\xd8" * 1_300_000,
}
SAMPLED = (
    *("4 801 × 250 cells", "30 MB of zeros", "entities", "a size that lies"),
    *("a quote without an end", "4 million cells"),
)


PICTURES: dict[str, Callable[[], str]] = {
    "PNG of 30 000 × 30 000": png,  # takes a second to make
    "PNG of 12 000 × 12 000": lambda: png(12_000),
    "PNG that says so only": lambda: png(60_000, pixels=False),
    "GIF": lambda: _data_uri("gif", b"GIF89a" + struct.pack("<HHBBB", 65_535, 65_535, 0, 0, 0)),
    "JPEG": lambda: _data_uri(
        "jpeg",
        b"\xff\xd8\xff\xc0\x00\x11\x08" + struct.pack(">HH", 65_500, 65_500) + b"\x03"
        b"\x01\x22\x00\x02\x11\x01\x03\x11\x01\xff\xd9",
    ),
    "WebP": lambda: _data_uri("webp", b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xff\x3f\x00\xff\x3f\x00" + b"\0" * 8),
    "SVG with entities": lambda: _data_uri("svg+xml", ENTITIES + b"]><svg>&k;</svg>"),
    "SVG under another name": lambda: _data_uri("png", ENTITIES + b"]><svg>&k;</svg>"),
}
