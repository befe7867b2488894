"""Finds characters that no font has: Chromium prints each as an empty box, glyph 0 of some font.

A character that shares its glyph with another is named in the PDF (/ActualText). The first that a
font lacks is not: it is one of the document's characters that no glyph of the PDF stands for.
"""

import html as html_module
import re
import unicodedata
import zlib
from collections.abc import Iterator
from typing import Final

import pikepdf

from kesin.workloads.pdf.engines.base import MAX_NAMED

UNNAMED: Final = "\N{REPLACEMENT CHARACTER}"  # for one that the document's text does not show
MAX_READ_BYTES: Final = 128 * 1024 * 1024  # of decompressed streams
_NO_TEXT: Final = ("/Width", "/Length1", "/FunctionType")  # pictures, fonts, shadings
_TOKEN: Final = re.compile(
    rb"/F(\d+) [\d.]+ Tf|/ActualText <FEFF([0-9A-F]+)>|<([0-9A-F]+)>|\bEMC\b"
)
_BOX: Final = re.compile(rb"<(?:[0-9A-F]{4})*?0000(?:[0-9A-F]{4})*>")  # most contents have none
_RANGE: Final = re.compile(rb"<([0-9A-F]+)> <([0-9A-F]+)>(?: <([0-9A-F]+)>)?")
_MARKUP: Final = re.compile(r"<!--.*?-->|<title\b.*?</title>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def find_missing_characters(pdf: pikepdf.Pdf, html: str) -> tuple[str, ...]:
    """Return the characters of a document that are empty boxes in its PDF, in order."""
    narrow: set[bytes] = set()  # fonts with codes of one byte; all others have two
    contents: list[bytes] = []
    printed: set[str] = set()
    for number, stream in _read_objects(pdf):
        if not stream:
            narrow.add(b"%d" % number)  # its name in contents: /F7 is object 7
        elif b"beginbfchar" in stream or b"beginbfrange" in stream:
            printed |= _mapped_characters(stream)
        elif b" Tf" in stream:
            contents.append(stream)
    if not narrow and not any(map(_BOX.search, contents)):
        return ()
    boxes: set[str] = set()  # the texts that they stand for, "" if unknown
    for content in contents:
        for text, is_box in _drawn_texts(content, narrow):
            if is_box:
                boxes.add(text)
            else:
                printed.update(text)
    missing = {c for text in boxes for c in text if len(text) == 1 or c not in printed}
    if "" in boxes:
        shown = set(html_module.unescape(_MARKUP.sub(" ", html))) - printed
        missing |= {c for c in shown if not c.isascii() and unicodedata.category(c)[0] not in "CZ"}
    return tuple(sorted(missing)[:MAX_NAMED]) or ((UNNAMED,) if boxes else ())


def _read_objects(pdf: pikepdf.Pdf) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the stream of objects that may hold text; fonts of Type 3 have none."""
    left = MAX_READ_BYTES
    for item in pdf.objects:
        if isinstance(item, pikepdf.Stream) and not any(key in item for key in _NO_TEXT) and left:
            data = item.read_raw_bytes()
            if item.get("/Filter") == "/FlateDecode":
                data = zlib.decompressobj().decompress(data, left)
            left = max(left - len(data), 0)
            if data:
                yield item.objgen[0], data
        elif isinstance(item, pikepdf.Dictionary) and item.get("/Subtype") == "/Type3":
            yield item.objgen[0], b""


def _drawn_texts(content: bytes, narrow: set[bytes]) -> Iterator[tuple[str, bool]]:
    """Yield the named text of every string of glyphs, and whether a box is among them."""
    width, text = 4, ""
    for font, actual, codes in _TOKEN.findall(content):
        if font:
            width = 2 if font in narrow else 4
        elif codes:
            zero, starts = b"0" * width, range(0, len(codes), width)
            yield text, zero in codes and any(codes[at : at + width] == zero for at in starts)
        else:
            text = _decode(actual)  # none at the end of a named text


def _mapped_characters(table: bytes) -> set[str]:
    """Return the characters that a font's /ToUnicode maps glyphs to."""
    characters: set[str] = set()
    for first, last, start in _RANGE.findall(table.partition(b"endcodespacerange")[2]):
        if start:
            begin = int(start, 16)
            characters.update(map(chr, range(begin, begin + int(last, 16) - int(first, 16) + 1)))
        else:
            characters.update(_decode(last))
    return characters


def _decode(utf16: bytes) -> str:
    return bytes.fromhex(utf16.decode()).decode("utf-16-be", "replace")
