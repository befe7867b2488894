"""Makes PDFs reproducible: a document's <title> and <meta> replace what Chromium writes there."""

import html as html_module
import io
import re
import unicodedata
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

import pikepdf

from kesin.workloads.pdf.engines import archive
from kesin.workloads.pdf.engines.base import MAX_NAMED, PRODUCER, Paper
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed, TemplateError
from kesin.workloads.pdf.limits import check_pages, check_pdf

_TEXTS: Final = {  # from the names that WeasyPrint reads too
    "/Title": "title",
    "/Author": "author",
    "/Subject": "description",
    "/Keywords": "keywords",
    "/Creator": "generator",
}
_DATES: Final = {"/CreationDate": "dcterms.created", "/ModDate": "dcterms.modified"}
_CELL_ID: Final = re.compile(rb"/ID \(node(\d{8})\)")
_ANY_ID: Final = re.compile(rb"\(node(\d{8})\)")
_PLAIN: Final = Paper()

# A PDF that is the same at every run, the number of its pages, and characters that no font has.
NormalisedPdf = tuple[bytes, int, tuple[str, ...]]


def normalise_pdf(data: bytes, about: Mapping[str, str], html: str = "", paper: Paper = _PLAIN) -> NormalisedPdf:
    """Return a document's PDF with its title and <meta> elements (``about``); checks the limits."""
    check_pdf(data)
    texts = {key: about.get(name, "").strip() for key, name in _TEXTS.items()}
    dates = {key: _format_date(about.get(name, "").strip()) for key, name in _DATES.items()}
    information = {key: text for key, text in (texts | dates).items() if text}
    information["/Producer"] = PRODUCER
    out = io.BytesIO()
    try:
        with pikepdf.open(io.BytesIO(_renumber_cells(data)), attempt_recovery=False) as pdf:
            _sort_cells(pdf)
            pages = int(pdf.Root.Pages.Count)
            check_pages(pages)
            missing = find_missing_characters(pdf, html)
            level = paper.finish(pdf, information) if paper.finish is not None else ""
            pdf.trailer["/Info"] = pdf.make_indirect(pikepdf.Dictionary(information))
            if paper.conformance and not missing:  # which fails anyway
                archive.conform(pdf, paper.conformance, information, level)
            archive.drop_id(pdf)
            pdf.save(out, **(archive.SAVED if paper.conformance else {}), deterministic_id=True)
    except RecursionError:
        raise TemplateError("the document is nested too deeply") from None
    except archive.DAMAGED as problem:
        why = "no PDF was produced: %(problem)s"
        raise RenderFailed(PdfErrorCode.UNKNOWN, why, problem=problem) from problem
    return out.getvalue(), pages, missing


def _renumber_cells(data: bytes) -> bytes:
    """Number the headings of tables from 1, in their order; the browser numbers as it likes."""
    numbers = {number: at for at, number in enumerate(dict.fromkeys(_CELL_ID.findall(data)), 1)}
    return _ANY_ID.sub(lambda cell: b"(node%08d)" % numbers.get(cell[1], int(cell[1])), data)


def _sort_cells(pdf: pikepdf.Pdf) -> None:
    structure = pdf.Root.get("/StructTreeRoot")
    if structure is not None and "/IDTree" in structure:
        index = pikepdf.NameTree.new(pdf)
        for name, cell in sorted(pikepdf.NameTree(structure.IDTree).items()):
            index[name] = cell
        structure.IDTree = index.obj


def _format_date(text: str) -> str:
    """Format a date of ISO 8601, with or without a time; what is none is left out."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return ""
    if len(text) == len("2026-11-16"):
        return f"D:{date.year:04}{date:%m%d}"
    zone = f"{date:%z}"
    return f"D:{date.year:04}{date:%m%d%H%M%S}" + (f"{zone[:3]}'{zone[3:5]}'" if zone else "")


UNNAMED: Final = "\N{REPLACEMENT CHARACTER}"  # for one that the document's text does not show
MAX_READ_BYTES: Final = 128 * 1024 * 1024  # of decompressed streams
_NO_TEXT: Final = ("/Width", "/Length1", "/FunctionType")  # pictures, fonts, shadings
_TOKEN: Final = re.compile(rb"/F(\d+) [\d.]+ Tf|/ActualText <FEFF([0-9A-F]+)>|<([0-9A-F]+)>|\bEMC\b")
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
