"""Performs the steps of a job; with PDFs of clients in a process with limits: this module.

Merged PDFs keep their links and forms, and have each font once: glyphs keep their numbers, so the
subsets of a font are united to one that draws the same.
"""

import io
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pikepdf
from fontTools.ttLib import TTFont, TTLibError  # type: ignore[import-untyped]
from pikepdf import Dictionary, Name

from kesin.workloads.pdf.channel import ChildLimits, Reply, run_in_child, serve_task
from kesin.workloads.pdf.engines.archive import DAMAGED, SAVED, drop_id
from kesin.workloads.pdf.engines.base import PRODUCER
from kesin.workloads.pdf.errors import TemplateError
from kesin.workloads.pdf.limits import check_pages, check_pdf
from kesin.workloads.pdf.steps.marking import Attachment, mark

_MODULE: Final = "kesin.workloads.pdf.steps.finishing"
LIMITS: Final = ChildLimits(cpu_s=60, wall_s=120, memory_bytes=2 * 1024 * 1024 * 1024)
BATCH_LIMITS: Final = LIMITS._replace(cpu_s=300, wall_s=600)
_PERMISSIONS: Final = {
    "print": ("print_lowres", "print_highres"),
    "copy": ("extract",),
    "annotate": ("modify_annotation",),
    "forms": ("modify_form",),
    "assemble": ("modify_assembly",),
}


class JobSteps(NamedTuple):
    """The parts around the document of a job, in their order, and the other steps by kind."""

    before: Sequence[Mapping[str, Any]]
    after: Sequence[Mapping[str, Any]]
    others: Mapping[str, Any]


def parse_steps(then: Iterable[Mapping[str, Any]]) -> JobSteps:
    steps = [item for step in then for item in step.items()]
    before = [content for kind, content in reversed(steps) if kind == "prepend"]
    after = [content for kind, content in steps if kind == "append"]
    others = {kind: content for kind, content in steps if kind not in {"append", "prepend"}}
    return JobSteps(before, after, others)


def finish_pdf(
    parts: Sequence[tuple[bytes, str]], main: int, files: Sequence[Attachment] = (), **how: Any
) -> tuple[bytes, int]:
    """Finish PDFs, each with a title in case it has none; ``main`` is the index of our own."""
    head = {"parts": [[len(pdf), title] for pdf, title in parts], "main": main, **how}
    head["files"] = [[len(each.data), *each[:-1]] for each in files]
    body = b"".join([*(pdf for pdf, _ in parts), *(each.data for each in files)])
    alone = len(parts) == 1
    reply, pdf = finish(head, body) if alone else run_in_child(_MODULE, head, body, LIMITS)
    return pdf, reply["pages"]


def finish(head: dict[str, Any], body: bytes) -> Reply:
    """Return the number of pages and the PDF; raises RenderFailed."""
    listed = head.get("files", [])
    ends = accumulate((size for size, *_ in [*head["parts"], *listed]), initial=0)
    data, own = [body[start:end] for start, end in pairwise(ends)], len(head["parts"])
    embedded = zip(listed, data[own:], strict=True)
    files = [Attachment._make([*facts, each]) for (_, *facts), each in embedded]
    out = io.BytesIO()
    try:
        with ExitStack() as opened, pikepdf.new() as merged:
            pdfs = map(io.BytesIO, data[:own])
            parts = [opened.enter_context(pikepdf.open(each)) for each in pdfs]
            pages = sum(len(part.pages) for part in parts)
            check_pages(pages)
            pdf = main = parts[head["main"]]
            if len(parts) > 1:
                pdf = merged
                merge(pdf, parts)
                add_bookmarks(pdf, _bookmarks(parts, [title for _, title in head["parts"]]))
                pdf.Root.Lang = main.Root.get("/Lang", "")
            information = {key: str(text) for key, text in main.docinfo.items()}
            mark(pdf, information, head, files)
            information["/Producer"] = PRODUCER
            pdf.trailer["/Info"] = pdf.make_indirect(pikepdf.Dictionary(information))
            drop_id(pdf)
            lock = _encryption(head) if "encrypt" in head else None
            pdf.save(out, **SAVED, encryption=lock, deterministic_id=lock is None)
    except (*DAMAGED, RecursionError) as problem:
        raise TemplateError("the parts cannot be merged: %(problem)s", problem=problem) from None
    check_pdf(out.getvalue())
    return {"pages": pages}, out.getvalue()


def merge_files(parts: Iterable[Path], path: Path, titles: Sequence[tuple[str, int]] = ()) -> None:
    """Merge the files of a batch, of which uploads may be parts; raises RenderFailed."""
    head = {"files": [*map(str, parts)], "path": str(path), "titles": titles}
    run_in_child(_MODULE, head, b"", BATCH_LIMITS)


def _merge_files(head: dict[str, Any]) -> Reply:
    """Sources stay open until the result is saved, which copies their streams."""
    try:
        with ExitStack() as sources, pikepdf.new() as merged:
            merge(merged, (sources.enter_context(pikepdf.open(part)) for part in head["files"]))
            if head["titles"]:
                add_bookmarks(merged, head["titles"])
            merged.save(head["path"], **SAVED, deterministic_id=True)
    except (*DAMAGED, RecursionError) as problem:
        raise TemplateError("the parts cannot be merged: %(problem)s", problem=problem) from None
    return {}, b""


def _bookmarks(parts: list[pikepdf.Pdf], titles: list[str]) -> Iterator[tuple[str, int]]:
    first_pages = accumulate((len(part.pages) for part in parts[:-1]), initial=0)
    for part, title, page in zip(parts, titles, first_pages, strict=True):
        own = str(part.docinfo.get("/Title", ""))
        yield (own or title or f"page {page + 1}")[:MAX_TITLE_LENGTH], page


def _encryption(head: dict[str, Any]) -> pikepdf.Encryption:
    allow = head["encrypt"].get("allow")  # None: everything
    flags = {flag: allow is None or kind in allow for kind, each in _PERMISSIONS.items() for flag in each}
    permissions = pikepdf.Permissions(**flags, modify_other=allow is None, accessibility=True)
    user, owner = head["passwords"].get("user", ""), head["passwords"]["owner"]
    return pikepdf.Encryption(owner=owner, user=user, R=6, allow=permissions)


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


if __name__ == "__main__":
    serve_task(lambda head, body: _merge_files(head) if "path" in head else finish(head, body))
