"""The process in which WeasyPrint computes: one document after the other, from a socket.

It has an alarm set over every document that the system itself carries out, so that it ends in the
middle of a computation even if nobody is left to end it.
"""

from __future__ import annotations

import json
import logging
import math
import resource
import signal
import socket
import sys
from typing import Any, Final

from kesin.workloads.pdf.engines.base import Paper, pages_in
from kesin.workloads.pdf.engines.weasyprint import LENGTH
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.limits import check_pages

MEMORY_BYTES: Final = 4 * 1024 * 1024 * 1024
_ALARM_AFTER_S: Final = 5
_WARNINGS_SHOWN: Final = 20
_LETTERS_SHOWN: Final = 300


class _Said(logging.Handler):
    """What WeasyPrint complains about: pictures it could not get, rules it does not know."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()[:_LETTERS_SHOWN]
        if len(self.lines) < _WARNINGS_SHOWN and line not in self.lines:
            self.lines.append(line)


def page_rules(paper: Paper) -> str:
    """The sheet as CSS; weaker than what the document says, unless the paper must win.

    WeasyPrint scales whole pages, so a scaled document is laid out on a sheet that is as much
    larger or smaller, and comes out in the right size.
    """
    width, height = paper.size_mm
    if paper.landscape:
        width, height = height, width
    must = "" if paper.prefer_css_page_size and paper.scale == 1 else " !important"
    margin = " ".join(f"{side / paper.scale:g}mm" for side in paper.margin_mm)
    size = f"{width / paper.scale:g}mm {height / paper.scale:g}mm"
    outline = "" if paper.outline else "* { bookmark-level: none !important }"
    return f"@page {{ size: {size}{must}; margin: {margin}{must} }} {outline}"


def rendered(html: str, paper: Paper) -> tuple[dict[str, Any], bytes]:
    """The PDF, how many pages it has, and what was noticed."""
    from weasyprint import CSS, HTML  # type: ignore[import-untyped]
    from weasyprint.urls import URLFetcher  # type: ignore[import-untyped]

    said = _Said()
    logger = logging.getLogger("weasyprint")
    logger.addHandler(said)
    try:
        fetcher = URLFetcher(allowed_protocols=("data",), allow_redirects=False)
        document = HTML(string=html, url_fetcher=fetcher).render(
            stylesheets=[CSS(string=page_rules(paper), url_fetcher=fetcher)],
            pdf_tags=paper.tagged,
        )
        check_pages(len(document.pages))
        kept = [
            document.pages[page - 1] for page in pages_in(paper.page_ranges, len(document.pages))
        ]
        pdf = document.copy(kept).write_pdf(zoom=paper.scale, pdf_tags=paper.tagged)
    finally:
        logger.removeHandler(said)
    return {"pages": len(kept), "warnings": said.lines + _left_out(paper)}, bytes(pdf or b"")


def _left_out(paper: Paper) -> list[str]:
    left = []
    if paper.header_html or paper.footer_html:
        left.append("weasyprint prints no header_html and footer_html: use CSS margin boxes")
    if not paper.print_background:
        left.append("weasyprint always prints backgrounds")
    return left


def _answer(head: dict[str, Any], html: bytes) -> tuple[dict[str, Any], bytes]:
    told = head["paper"]
    paper = Paper(**{**told, "margin_mm": tuple(told["margin_mm"])})
    try:
        return rendered(html.decode(), paper)
    except RenderFailed as problem:
        return {"code": problem.code, "message": problem.message, "details": problem.details}, b""
    except MemoryError:
        message = "the document needs more memory than there is for one"
        return {"code": PdfErrorCode.TEMPLATE_ERROR, "message": message}, b""
    except Exception as problem:  # noqa: BLE001 - whatever it was, the parent tells it
        message = f"{type(problem).__name__}: {problem}"[:_LETTERS_SHOWN]
        return {"code": PdfErrorCode.UNKNOWN, "message": message}, b""


def serve(connection: socket.socket) -> None:
    """Answer until the other side hangs up."""
    stream = connection.makefile("rwb")

    def say(head: dict[str, Any], body: bytes = b"") -> None:
        text = json.dumps(head).encode()
        stream.write(LENGTH.pack(len(text)) + text + LENGTH.pack(len(body)) + body)
        stream.flush()

    def part() -> bytes:
        size = stream.read(LENGTH.size)
        return stream.read(LENGTH.unpack(size)[0]) if len(size) == LENGTH.size else b""

    try:
        import weasyprint
    except (ImportError, OSError) as problem:  # OSError: Pango is missing
        message = f"WeasyPrint cannot be loaded here: {problem}"[:_LETTERS_SHOWN]
        say({"code": PdfErrorCode.UNSUPPORTED_PLATFORM, "message": message})
        return
    logging.getLogger("weasyprint").propagate = False
    say({"version": weasyprint.__version__})
    while head := part():
        asked = json.loads(head)
        signal.alarm(math.ceil(asked["limit_s"]) + _ALARM_AFTER_S)
        answer = _answer(asked, part())
        signal.alarm(0)
        say(*answer)


def main() -> None:
    """Serve on the socket whose number we were given."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
