"""Renders HTML to real PDFs and reads back their text, as a reader would see it."""

from functools import cache
from shutil import which

import pypdfium2
from weasyprint import HTML
from weasyprint.urls import URLFetcher

FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
]
CHROMIUM = which("chromium")


@cache
def weasy(html):
    """Render with WeasyPrint; a page that requests more than its own data fails."""
    fetcher = URLFetcher(allowed_protocols=("data",), allow_redirects=False, fail_on_errors=True)
    return HTML(string=html, url_fetcher=fetcher).write_pdf()


@cache
def chromium(html):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page = browser.new_context(java_script_enabled=False, offline=True).new_page()
            page.set_content(html)
            return page.pdf(prefer_css_page_size=True, print_background=True)
        finally:
            browser.close()


def pages(pdf):
    """Return the text of every page, with white space collapsed."""
    document = pypdfium2.PdfDocument(pdf)
    try:
        return [_text(document[number]) for number in range(len(document))]
    finally:
        document.close()


def _text(page):
    text = page.get_textpage()
    try:
        return " ".join(text.get_text_range().split())
    finally:
        text.close()
        page.close()


@cache
def text(html):
    return "\n".join(pages(weasy(html)))
