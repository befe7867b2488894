"""What is answered while nothing can render: 503, or the HTML in the place of the PDF."""

from __future__ import annotations

from typing import Final

from fastapi import Response
from fastapi.responses import HTMLResponse, JSONResponse

from kesin.foundation.problems import Unavailable
from kesin.workloads.pdf.config import FailSafePolicy
from kesin.workloads.pdf.security import LIBRARY_CSP

PDF_RENDER_UNAVAILABLE: Final = "PDF_RENDER_UNAVAILABLE"
UNAVAILABLE_RETRY_S: Final = 15
FALLBACK: Final = "X-Pdf-Fallback"


def unavailable() -> Unavailable:
    """Nobody renders at the moment."""
    return Unavailable(
        "no worker renders at the moment: try again in a few seconds",
        code=PDF_RENDER_UNAVAILABLE,
    )


def document(html: str, *, framed: bool = False) -> Response:
    """A document of the book as an answer; that it runs nothing is said once more in a header.

    ``framed``: pages of ours may show it.
    """
    ancestors, frames = ("'self'", "SAMEORIGIN") if framed else ("'none'", "DENY")
    return HTMLResponse(
        html,
        headers={
            "Content-Security-Policy": f"{LIBRARY_CSP}; frame-ancestors {ancestors}; sandbox",
            "X-Frame-Options": frames,
            "Content-Disposition": "inline",
            "Cache-Control": "no-store",
        },
    )


def handle_unavailable(policy: FailSafePolicy, html: str | None) -> Response:
    """The answer in the place of a job. Degrading needs the document: without it, 503 as well.

    ``html`` is a document of the book: its values are escaped and it loads nothing.
    """
    if policy is FailSafePolicy.DEGRADE and html is not None:
        answer = document(html)
        answer.headers[FALLBACK] = "html"
        return answer
    told = unavailable()
    return JSONResponse(
        told.body(), status_code=told.status, headers={"Retry-After": str(UNAVAILABLE_RETRY_S)}
    )
