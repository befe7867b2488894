from base64 import b64encode
from dataclasses import replace

import pypdfium2
import pytest

from kesin.foundation.clock import ManualClock
from kesin.workloads.pdf.engines import browser, browser_process
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.chromium import ChromiumEngine, print_options
from kesin.workloads.pdf.engines.chromium_settings import ChromiumSettings
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.limits import MAX_HTML_BYTES
from kesin.workloads.pdf.templating.library import TemplateLibrary
from tests.workloads.pdf.documents import (
    PICTURE,
    TURKISH,
    invoice,
    page,
    red_pixels,
    sizes_mm,
    text,
)

A4 = Paper()
RED_PICTURE = (
    "data:image/svg+xml;base64,"
    + b64encode(
        b"<svg xmlns='http://www.w3.org/2000/svg' width='99' height='99'>"
        b"<rect width='99' height='99' fill='red'/></svg>"
    ).decode()
)
RED = '<div style="width: 90mm; height: 90mm; background: #f00"></div>'


@pytest.fixture(scope="module")
def engine():
    engine = ChromiumEngine()
    yield engine
    engine.close()


def refused(engine, html, paper=A4) -> RenderFailed:
    with pytest.raises(RenderFailed) as caught:
        engine.render(html, paper, timeout_s=30)
    return caught.value


def test_turkish_text_comes_out_as_it_went_in(engine):
    done = engine.render(invoice(), A4, timeout_s=30)
    assert TURKISH in text(done.pdf)
    assert (done.pages, done.engine, done.warnings) == (1, "chromium", ())
    assert sizes_mm(done.pdf) == [(210, 297)]


def test_upper_case_follows_the_language_of_the_document(engine):
    html = page('<p style="text-transform: uppercase">irmik</p>')
    assert "İRMİK" in text(engine.render(html, A4, timeout_s=30).pdf)
    html = html.replace(' lang="tr"', "")
    assert "IRMIK" in text(engine.render(html, A4, timeout_s=30).pdf)


@pytest.mark.parametrize(
    ("paper", "css", "size"),
    [
        (Paper(format="A5"), "", (148, 210)),
        (Paper(landscape=True), "", (297, 210)),
        (Paper(width_mm=100, height_mm=50), "", (100, 50)),
        (Paper(), "<style>@page { size: 80mm 60mm }</style>", (80, 60)),
        (Paper(prefer_css_page_size=False), "<style>@page { size: 60mm 80mm }</style>", (210, 297)),
    ],
)
def test_the_sheet_is_the_one_asked_for(engine, paper, css, size):
    assert sizes_mm(engine.render(page("x", css), paper, timeout_s=30).pdf) == [size]


def test_only_the_pages_asked_for_are_printed(engine):
    html = page("".join(f'<p style="break-after: page">page {n}</p>' for n in range(1, 6)))
    done = engine.render(html, replace(A4, page_ranges="2, 4-"), timeout_s=30)
    words = text(done.pdf)
    assert [f"page {n}" in words for n in range(1, 6)] == [False, True, False, True, True]
    for ranges in ("9", "3-2", "x", "-", "0"):
        assert refused(engine, html, replace(A4, page_ranges=ranges)).code == "TEMPLATE_ERROR"


def test_margins_that_leave_no_room_are_an_error_of_the_template(engine):
    assert refused(engine, page("x"), Paper(margin_mm=(200, 0, 200, 0))).code == "TEMPLATE_ERROR"


def test_a_header_alone_brings_no_footer_of_the_browsers(engine):
    paper = Paper(header_html='<b style="font-size: 12px">Üst</b>', margin_mm=(20, 20, 20, 20))
    words = text(engine.render(page("<p>orta</p>"), paper, timeout_s=30).pdf)
    assert sorted(words.split()) == sorted(["Üst", "orta"])
    assert print_options(A4)["display_header_footer"] is False


def test_broken_pictures_are_told_and_cost_nothing(engine):
    html = page(f"<img src='data:image/png;base64,AAAA'><img src='{PICTURE}'><img><p>x")
    done = engine.render(html, A4, timeout_s=30)
    assert done.warnings == ("picture not shown: data:image/png;base64,AAAA",)
    assert done.seconds < 10


def test_pictures_far_down_the_page_are_loaded(engine):
    svg = (
        "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='90' height='90'>"
        "<text y='20'>deep</text></svg>"
    )
    html = page(f'<div style="height: 9000px"></div><img loading="lazy" src="{svg}">')
    done = engine.render(html, A4, timeout_s=30)
    assert done.warnings == ()
    assert "deep" in text(done.pdf)


def test_styles_and_pictures_within_the_document_are_loaded(engine):
    box = "div { width: 90mm; height: 90mm; background: "
    for css in (
        f"<link rel=stylesheet href='data:text/css,{box} rgb(255 0 0) }}'>",
        f"<style>@import url('data:text/css,{box} rgb(255 0 0) }}')</style>",
        f"<style>{box} url({RED_PICTURE}) }}</style>",
    ):
        done = engine.render(page("<div></div>", css), A4, timeout_s=30)
        assert done.warnings == ()
        assert red_pixels(done.pdf) > 10_000


def test_a_missing_font_gives_way_to_another(engine):
    css = "<style>@font-face { font-family: Gone; src: url(data:font/woff2;base64,AAAA) }</style>"
    html = page('<p style="font-family: Gone">ğış</p><p style="font-family: Nobody">₺</p>', css)
    done = engine.render(html, A4, timeout_s=30)
    assert done.warnings == ("font not loaded: Gone",)
    assert "ğış" in text(done.pdf)


def test_five_mebibytes_of_html_are_printed_and_not_a_byte_more(engine):
    frame = len(page("<!---->").encode())
    most = page(f"<!--{'x' * (MAX_HTML_BYTES - frame)}-->")
    assert engine.render(most, A4, timeout_s=60).pages == 1
    assert refused(engine, most + "x").code == "TEMPLATE_ERROR"
    assert refused(engine, "\ud800").code == "TEMPLATE_ERROR"


@pytest.mark.parametrize(
    ("count", "pages"), [(4_000, 20), pytest.param(20_000, 100, marks=pytest.mark.long)]
)
def test_thousands_of_rows_are_printed(engine, count, pages):
    table = "<style>td { font: 7px/8px sans-serif; padding: 0 }</style><table>"
    rows = "".join(f"<tr><td>{n}<td>satır<td>1,00" for n in range(count))
    done = engine.render(page(table + rows), A4, timeout_s=120)
    assert pages < done.pages <= 5 * pages
    assert engine.render(invoice(), A4, timeout_s=30).pages == 1


def test_too_many_pages_are_refused(engine):
    html = page('<p style="break-after: page">x</p>' * 501)
    problem = refused(engine, html)
    assert (problem.code, problem.details["pages"]) == ("TEMPLATE_ERROR", 501)


def test_a_policy_of_one_document_does_not_reach_the_next(engine):
    strict = "<meta http-equiv=Content-Security-Policy content=\"style-src 'none'\">"
    assert red_pixels(engine.render(page(RED, strict), A4, timeout_s=30).pdf) == 0
    assert red_pixels(engine.render(page(RED), A4, timeout_s=30).pdf) > 10_000


def test_a_document_of_the_book_leaves_nothing_in_the_page_to_wipe(engine, monkeypatch):
    tidy, wiped = browser.WarmBrowser.renew, []

    async def noted(self, *, heavy: bool, wipe: bool) -> None:
        wiped.append(wipe)
        await tidy(self, heavy=heavy, wipe=wipe)

    monkeypatch.setattr(browser.WarmBrowser, "renew", noted)
    book = TemplateLibrary.load()
    for name in book.names:
        engine.render(book.render_html(name, book.get(name).sample), A4, timeout_s=30)
    engine.wait_idle()
    assert wiped == [False] * len(book.names)


def test_the_same_document_gives_the_same_bytes_every_time_and_everywhere(engine):
    first = engine.render(invoice(), A4, timeout_s=30)
    engine.render(page("another"), A4, timeout_s=30)
    assert engine.render(invoice(), A4, timeout_s=30).sha256 == first.sha256
    tagged = replace(A4, tagged=True, outline=True)
    assert len({engine.render(invoice(), tagged, timeout_s=30).sha256 for _ in range(2)}) == 1


def test_the_time_of_printing_is_forgotten(engine):
    document = pypdfium2.PdfDocument(engine.render(invoice(), A4, timeout_s=30).pdf)
    about = document.get_metadata_dict()
    document.close()
    assert about["CreationDate"] == about["ModDate"] == "D:20000101000000+00'00'"
    assert about["Title"] == "Belge"


def test_another_browser_and_a_context_of_its_own_give_the_same_bytes(engine):
    """A browser is replaced after so many documents, and when it is old."""
    first = engine.render(invoice(), A4, timeout_s=30)
    clock = ManualClock()
    settings = ChromiumSettings(isolation="context", browser_renders=2, browser_age_s=3600)
    other = ChromiumEngine(settings, clock=clock)
    pids = []
    try:
        for _ in range(4):
            assert other.render(invoice(), A4, timeout_s=30).sha256 == first.sha256
            if len(pids) == 2:
                clock.advance(3601)
            other.wait_idle()
            pids.append(other.browser_pid)
        assert other.launches == 3
        assert pids[0] != pids[1] != pids[2] == pids[3]
    finally:
        other.close()


def test_memory_stays_flat_and_a_swollen_browser_is_replaced(engine, monkeypatch, request):
    for _ in range(10):
        engine.render(invoice(), A4, timeout_s=30)
    engine.wait_idle()
    pid, before = engine.browser_pid, browser_process.memory_bytes(engine.browser_pid)
    for _ in range(60 if request.config.getoption("--long") else 20):
        engine.render(invoice(), A4, timeout_s=30)
    engine.wait_idle()
    assert engine.browser_pid == pid
    assert browser_process.memory_bytes(pid) - before < 150 * 1024 * 1024

    monkeypatch.setattr(browser_process, "memory_bytes", lambda _: 10**12)
    for _ in range(25):  # it is looked at now and then
        engine.render(page("x"), A4, timeout_s=30)
    engine.wait_idle()
    assert engine.browser_pid not in (0, pid)
