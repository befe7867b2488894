"""Makes PDFs reproducible: what differs between two runs of the same job is replaced.

Chromium writes itself and the time of printing into the information dictionary, and nothing else
that changes. What the document says of itself takes their place: its title and its <meta> elements,
under the names that WeasyPrint reads too.
"""

import io
import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import pikepdf

from kesin.workloads.pdf.engines.base import PRODUCER
from kesin.workloads.pdf.engines.glyphs import find_missing_characters
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.limits import check_pages, check_pdf

_TEXTS: Final = {
    "/Title": "title",
    "/Author": "author",
    "/Subject": "description",
    "/Keywords": "keywords",
    "/Creator": "generator",
}
_DATES: Final = {"/CreationDate": "dcterms.created", "/ModDate": "dcterms.modified"}
_DAMAGED: Final = (pikepdf.PdfError, zlib.error, AttributeError, TypeError, ValueError)


class NormalisedPdf(NamedTuple):
    """A PDF that is the same at every run."""

    pdf: bytes
    pages: int
    missing_glyphs: tuple[str, ...]


def normalise_pdf(data: bytes, about: Mapping[str, str], html: str = "") -> NormalisedPdf:
    """Return the PDF of a document with what the document says of itself; checks the limits.

    ``about`` holds the title and the <meta> elements by name.
    """
    check_pdf(data)
    out = io.BytesIO()
    try:
        with pikepdf.open(io.BytesIO(data), attempt_recovery=False) as pdf:
            pages = int(pdf.Root.Pages.Count)
            missing = find_missing_characters(pdf, html)
            information = pikepdf.Dictionary(_build_information(about))
            pdf.trailer["/Info"] = pdf.make_indirect(information)
            if "/ID" in pdf.trailer:
                del pdf.trailer["/ID"]  # the first half of an old identifier would be kept
            pdf.save(out, deterministic_id=True)
    except _DAMAGED as problem:
        why = "no PDF came out: %(problem)s"
        raise RenderFailed(PdfErrorCode.UNKNOWN, why, problem=problem) from problem
    check_pages(pages)
    return NormalisedPdf(out.getvalue(), pages, missing)


def _build_information(about: Mapping[str, str]) -> dict[str, str]:
    texts = {key: about.get(name, "").strip() for key, name in _TEXTS.items()}
    dates = {key: _format_date(about.get(name, "").strip()) for key, name in _DATES.items()}
    return {key: text for key, text in (texts | dates).items() if text} | {"/Producer": PRODUCER}


def _format_date(text: str) -> str:
    """Format a date of ISO 8601, with or without a time; what is none is left out."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return ""
    if len(text) == len("2026-11-16"):
        return f"D:{date:%Y%m%d}"
    zone = f"{date:%z}"
    return f"D:{date:%Y%m%d%H%M%S}" + (f"{zone[:3]}'{zone[3:5]}'" if zone else "")
