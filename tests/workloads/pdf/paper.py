"""Renders HTML to real PDFs and reads back their text, as a reader would see it."""

import logging
from functools import cache

import pypdfium2

from kesin.workloads.pdf.engines.weasyprint_child import keep_fonts

SAMPLE_PAGES = {"invoice": 1, "conversion_report": 1, "cutting_plan": 2}
FOOT_PT = 57  # the margin below, with the number of the page

keep_fonts()


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@cache
def weasy(html: str) -> tuple[bytes, list[str]]:
    """Render with WeasyPrint: the PDF and the warnings; a page that requests any URL fails."""
    from weasyprint import HTML
    from weasyprint.urls import URLFetcher

    fetcher = URLFetcher(allowed_protocols=("data",), allow_redirects=False, fail_on_errors=True)
    messages, logger = _Messages(), logging.getLogger("weasyprint")
    logger.addHandler(messages)
    try:
        return HTML(string=html, url_fetcher=fetcher).write_pdf(), messages.texts
    finally:
        logger.removeHandler(messages)


def pages(pdf: bytes) -> list[str]:
    """Return the text of every page, with white space collapsed."""
    document = pypdfium2.PdfDocument(pdf)
    try:
        return [_text(document[number]) for number in range(len(document))]
    finally:
        document.close()


def _text(page: pypdfium2.PdfPage) -> str:
    text = page.get_textpage()
    try:
        return " ".join(text.get_text_range().split())
    finally:
        text.close()
        page.close()


def last_page_share(pdf: bytes) -> float:
    """How far down the text of the last page reaches, without the line at its foot."""
    with pypdfium2.PdfDocument(pdf) as document:
        leaf = document[len(document) - 1]
        text = leaf.get_textpage()
        bottoms = [text.get_charbox(at)[1] for at in range(text.count_chars())]
        return float(1 - min(each for each in bottoms if each > FOOT_PT) / leaf.get_height())


def text(html: str) -> str:
    return "\n".join(pages(weasy(html)[0]))
