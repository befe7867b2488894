"""Merges PDFs: pages with their links and forms, and each font once.

Glyphs keep their numbers, so the subsets of a font are united to one that draws the same.
"""

import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import pikepdf
from fontTools.ttLib import TTFont, TTLibError  # type: ignore[import-untyped]
from pikepdf import Dictionary, Name

from kesin.workloads.pdf.uploads.checking import DAMAGED

MAX_TITLE_LENGTH: Final = 120  # of a bookmark
MAX_FONT_BYTES: Final = 8 * 1024 * 1024
_PROGRAMS: Final = ("cvt ", "fpgm", "prep")  # which every glyph may run
_TABLES: Final = frozenset({"glyf", "head", "hhea", "hmtx", "loca", "maxp", *_PROGRAMS})
_BROKEN: Final = (*DAMAGED, TTLibError, struct.error, ArithmeticError, AssertionError, LookupError)
Glyphs = dict[int, tuple[bytes, tuple[int, int]]]  # outline and metrics by number


def merge(merged: pikepdf.Pdf, parts: Iterable[pikepdf.Pdf]) -> None:
    """Add the pages of the parts, which stay open until the PDF is saved."""
    for part in parts:
        merged.add_pages_from(part)
    for page in merged.pages:
        for item in (page.obj, *page.get("/Annots", ())):
            for key in {"/StructParent", "/StructParents"} & set(item.keys()):
                del item[key]  # of the structure of the part, which is not copied
    _unite_fonts(merged)


def add_bookmarks(pdf: pikepdf.Pdf, titles: Iterable[tuple[str, int]]) -> None:
    """Add bookmarks to these pages, counted from 0."""
    with pdf.open_outline() as outline:
        outline.root.extend(pikepdf.OutlineItem(title, page) for title, page in titles)
    pdf.Root.PageMode = Name.UseOutlines


def _unite_fonts(pdf: pikepdf.Pdf) -> None:
    """Let the subsets of each font share one file; those that differ or are broken stay."""
    faces: dict[Any, tuple[Glyphs, list[TTFont], list[Any]]] = {}
    for descriptor in _descriptors(pdf):
        with suppress(*_BROKEN):
            font = _read_font(descriptor.FontFile2)
            name = str(descriptor.FontName).rpartition("+")[2]
            programs = [font.reader[table] if table in font else b"" for table in _PROGRAMS]
            face = (name, font["head"].unitsPerEm, *programs)
            united, fonts, descriptors = faces.setdefault(face, ({}, [], []))
            glyphs = _read_glyphs(font)
            if all(united.get(number, glyph) == glyph for number, glyph in glyphs.items()):
                united |= glyphs
                fonts.append(font)
                descriptors.append(descriptor)
    for united, fonts, descriptors in faces.values():
        with suppress(*_BROKEN):
            data = _build_font(united, fonts)
            file = pdf.make_stream(data, Length1=len(data))
            for descriptor in descriptors:
                descriptor.FontFile2 = file


def _descriptors(pdf: pikepdf.Pdf) -> Iterator[Any]:
    """Yield the fonts whose codes are the numbers of glyphs, so that their tables say no more."""
    for font in pdf.objects:
        if isinstance(font, Dictionary) and font.get("/Subtype") == "/CIDFontType2":
            descriptor = font.get("/FontDescriptor", Dictionary())
            if font.get("/CIDToGIDMap") == "/Identity" and "/FontFile2" in descriptor:
                yield descriptor


def _read_font(file: Any) -> TTFont:
    """Read a font; raises one of ``_BROKEN``."""
    if file.get("/Filter") != "/FlateDecode" or "/DecodeParms" in file:
        raise ValueError("our fonts are compressed in one way")
    data = zlib.decompressobj().decompress(file.read_raw_bytes(), MAX_FONT_BYTES)
    return TTFont(io.BytesIO(data), lazy=True, recalcBBoxes=False, recalcTimestamp=False)


def _read_glyphs(font: TTFont) -> Glyphs:
    """Return the glyphs that are in a subset; empty ones have no outline."""
    glyphs, metrics = font["glyf"].glyphs, font["hmtx"].metrics
    named = enumerate(font.getGlyphOrder())
    all_of_them = {at: (getattr(glyphs[name], "data", b""), metrics[name]) for at, name in named}
    return {number: glyph for number, glyph in all_of_them.items() if glyph[0]}


def _build_font(glyphs: Glyphs, fonts: list[TTFont]) -> bytes:
    font = max(fonts, key=lambda each: int(each["maxp"].numGlyphs))
    for number, (outline, metrics) in glyphs.items():
        name = font.getGlyphName(number)
        font["glyf"].glyphs[name].data, font["hmtx"].metrics[name] = outline, metrics
    for limit in [name for name in vars(font["maxp"]) if name.startswith("max")]:
        setattr(font["maxp"], limit, max(getattr(each["maxp"], limit) for each in fonts))
    for table in {*font.keys()} - _TABLES - {"GlyphOrder"}:
        del font[table]
    font.save(out := io.BytesIO())
    return out.getvalue()
