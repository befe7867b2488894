"""What every engine refuses, and how much of its time a document gets."""

from __future__ import annotations

from typing import Final

from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

MAX_HTML_BYTES: Final = 5 * 1024 * 1024
MAX_PDF_BYTES: Final = 50 * 1024 * 1024
MAX_PAGES: Final = 500
GRACE_S: Final = 5.0
SHORT_SHARE: Final = 0.8  # of a limit that is too short to leave so many seconds


def graceful_s(timeout_s: float) -> float:
    """How long a document may take, so that there is time left to take its page away."""
    return max(timeout_s - GRACE_S, min(timeout_s, GRACE_S) * SHORT_SHARE)


def too_long(timeout_s: float) -> str:
    """What is told of a document that was stopped: its limit as it was given."""
    return f"the document was not printed within {timeout_s:g} s"


def check_html(html: str) -> None:
    """Refuse what is too large, or cannot be written as UTF-8."""
    try:
        size = len(html.encode())
    except UnicodeEncodeError:
        raise RenderFailed(
            PdfErrorCode.TEMPLATE_ERROR, "the HTML contains half a character (a lone surrogate)"
        ) from None
    _check_size("the HTML", size, MAX_HTML_BYTES)


def check_pdf(pdf: bytes) -> None:
    """Refuse a file that is too large to keep."""
    _check_size("the PDF", len(pdf), MAX_PDF_BYTES)


def check_pages(pages: int) -> None:
    """Refuse a document that is too long, or has no page at all."""
    if not 0 < pages <= MAX_PAGES:
        raise RenderFailed(
            PdfErrorCode.TEMPLATE_ERROR,
            f"the document has {pages} pages, and 1 to {MAX_PAGES} are allowed",
            details={"pages": pages},
        )


def _check_size(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise RenderFailed(
            PdfErrorCode.TEMPLATE_ERROR,
            f"{what} has {size} bytes, and {limit} are allowed",
            details={"bytes": size},
        )
