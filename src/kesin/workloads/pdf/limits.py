"""Limits that every engine enforces: the sizes of a document, and its share of the timeout."""

from typing import Final

from kesin.workloads.pdf.errors import DOCUMENT_TOO_SLOW, PdfErrorCode, RenderFailed, TemplateError

MAX_HTML_BYTES: Final = 5 * 1024 * 1024
MAX_PDF_BYTES: Final = 50 * 1024 * 1024
MAX_PAGES: Final = 500
MAX_CONFORMING_OBJECTS: Final = 40_000  # their check takes up to half a millisecond each
MAX_UPLOADED_OBJECTS: Final = 200_000
GRACE_S: Final = 5
BUSY_SHARE: Final = 0.6  # of one processor; with less, the engine hung or had no time
SHORT_TIMEOUT_SHARE: Final = 0.8  # of a timeout that is too short to leave GRACE_S


def soft_timeout_s(timeout_s: float) -> float:
    """Return how long a document may take, so that there is time left to close its page."""
    return max(timeout_s - GRACE_S, min(timeout_s, GRACE_S) * SHORT_TIMEOUT_SHARE)


def timeout_failure(timeout_s: float, *, busy: float, **details: str) -> RenderFailed:
    """Build the error of a document that was late; not retried if it kept a processor busy."""
    code = DOCUMENT_TOO_SLOW if busy >= BUSY_SHARE else PdfErrorCode.NAVIGATION_TIMEOUT
    why, about = "the document was not rendered within %(n)s s", {"reason": "timeout", **details}
    return RenderFailed(code, why, details=about, n=f"{timeout_s:g}")


def check_html(html: str) -> None:
    """Reject HTML that is too large or cannot be encoded as UTF-8."""
    try:
        size = len(html.encode())
    except UnicodeEncodeError:
        raise TemplateError("the HTML contains half a character (a lone surrogate)") from None
    _check_size("the HTML", size, MAX_HTML_BYTES)


def check_pdf(pdf: bytes) -> None:
    _check_size("the PDF", len(pdf), MAX_PDF_BYTES)


def check_pages(pages: int) -> None:
    if not 0 < pages <= MAX_PAGES:
        why = "the document has %(n)s pages; 1 to %(most)s are allowed"
        raise TemplateError(why, details={"pages": pages}, n=pages, most=MAX_PAGES)


def _check_size(name: str, size: int, limit: int) -> None:
    if size > limit:
        why = "%(what)s is %(n)s bytes; at most %(most)s are allowed"
        raise TemplateError(why, details={"bytes": size}, what=name, n=size, most=limit)
