"""Makes PDFs reproducible: a document's <title> and <meta> replace what Chromium writes there."""

import io
import re
import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import pikepdf

from kesin.workloads.pdf.engines import archive
from kesin.workloads.pdf.engines.base import PRODUCER, Paper
from kesin.workloads.pdf.engines.glyphs import find_missing_characters
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
_DAMAGED: Final = (pikepdf.PdfError, zlib.error, AttributeError, TypeError, ValueError)

# A PDF that is the same at every run, the number of its pages, and characters that no font has.
NormalisedPdf = tuple[bytes, int, tuple[str, ...]]


def normalise_pdf(
    data: bytes, about: Mapping[str, str], html: str = "", paper: Paper = _PLAIN
) -> NormalisedPdf:
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
            if "/ID" in pdf.trailer:
                del pdf.trailer["/ID"]  # the first half of an old identifier would be kept
            pdf.save(out, **(archive.SAVED if paper.conformance else {}), deterministic_id=True)
    except RecursionError:
        raise TemplateError("the document is nested too deeply") from None
    except _DAMAGED as problem:
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
