"""Chromium between documents; what both engines promise is in test_engines."""

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pypdfium2
import pytest

from kesin.foundation.clock import ManualClock
from kesin.workloads.pdf.engines import browser_process, chromium
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.browser import ChromiumSettings, PageSession, WarmBrowser
from kesin.workloads.pdf.engines.chromium import print_options
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.limits import MAX_HTML_BYTES
from tests.workloads.pdf.documents import PICTURE, invoice, page, red_pixels, text
from tests.workloads.pdf.engines_shared import wait_idle
from tests.workloads.pdf.press import BOOK

A4 = Paper()
MIB = 1024 * 1024
SVG = b"""<svg xmlns='http://www.w3.org/2000/svg' width='99' height='99'>
<rect width='99' height='99' fill='red'/></svg>"""
RED_PICTURE = f"data:image/svg+xml;base64,{b64encode(SVG).decode()}"
RED = '<div style="width: 90mm; height: 90mm; background: #f00"></div>'


@pytest.fixture
def engine(chromium):
    return chromium


def printed(engine, html, paper=A4):
    return engine.render(html, paper, timeout_s=60)


def refused(engine, html, paper=A4) -> RenderFailed:
    with pytest.raises(RenderFailed) as caught:
        printed(engine, html, paper)
    return caught.value


def test_upper_case_follows_the_language_of_the_document(engine):
    html = page('<p style="text-transform: uppercase">irmik</p>')
    assert "İRMİK" in text(printed(engine, html).pdf)
    assert "IRMIK" in text(printed(engine, html.replace(' lang="tr"', "")).pdf)


def test_margins_that_leave_no_room_are_an_error_of_the_template(engine):
    assert refused(engine, page("x"), Paper(margin_mm=(200, 0, 200, 0))).code == "TEMPLATE_ERROR"


def test_a_header_alone_does_not_add_the_browsers_own_footer(engine):
    paper = Paper(header_html='<b style="font-size: 12px">Üst</b>', margin_mm=(20, 20, 20, 20))
    words = text(printed(engine, page("<p>orta</p>"), paper).pdf)
    assert sorted(words.split()) == sorted(["Üst", "orta"])
    assert print_options(A4)["display_header_footer"] is False


def test_broken_pictures_and_fonts_are_warnings_and_cost_no_time(engine):
    css = "<style>@font-face { font-family: Gone; src: url(data:font/woff2;base64,AAAA) }</style>"
    words = '<p style="font-family: Gone">ğış</p><p style="font-family: Nobody">₺</p>'
    done = printed(engine, page(f"<img src='data:image/png;base64,AAAA'><img src='{PICTURE}'><img>{words}", css))
    assert set(done.warnings) == {"picture not shown: data:image/png;base64,AAAA", "font not loaded: Gone"}
    assert len(done.warnings) == 2
    assert "ğış" in text(done.pdf)
    assert done.seconds < 10


def test_pictures_far_down_the_page_are_loaded(engine):
    svg = (
        "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='90' height='90'>"
        "<text y='20'>deep</text></svg>"
    )
    html = page(f'<div style="height: 9000px"></div><img loading="lazy" src="{svg}">')
    done = printed(engine, html)
    assert done.warnings == ()
    assert "deep" in text(done.pdf)


def test_styles_and_pictures_within_the_document_are_loaded(engine):
    box = "div { width: 90mm; height: 90mm; background: "
    for css in (
        f"<link rel=stylesheet href='data:text/css,{box} rgb(255 0 0) }}'>",
        f"<style>@import url('data:text/css,{box} rgb(255 0 0) }}')</style>",
        f"<style>{box} url({RED_PICTURE}) }}</style>",
    ):
        done = printed(engine, page("<div></div>", css))
        assert done.warnings == ()
        assert red_pixels(done.pdf) > 10_000


def test_five_mebibytes_of_html_are_printed_and_not_a_byte_more(engine):
    frame = len(page("<!---->").encode())
    largest = page(f"<!--{'x' * (MAX_HTML_BYTES - frame)}-->")
    assert printed(engine, largest).pages == 1
    assert refused(engine, largest + "x").code == "TEMPLATE_ERROR"
    assert refused(engine, "\ud800").code == "TEMPLATE_ERROR"


@pytest.mark.parametrize(("count", "pages"), [(800, 4), pytest.param(20_000, 100, marks=pytest.mark.long)])
def test_thousands_of_rows_are_printed(engine, count, pages):
    table = "<style>td { font: 7px/8px sans-serif; padding: 0 }</style><table>"
    rows = "".join(f"<tr><td>{n}<td>satır<td>1,00" for n in range(count))
    done = engine.render(page(table + rows), A4, timeout_s=120)
    assert pages < done.pages <= 5 * pages
    assert printed(engine, invoice()).pages == 1


def test_a_policy_of_one_document_does_not_reach_the_next(engine):
    strict = "<meta http-equiv=Content-Security-Policy content=\"style-src 'none'\">"
    assert red_pixels(printed(engine, page(RED, strict)).pdf) == 0
    assert red_pixels(printed(engine, page(RED)).pdf) > 10_000


@pytest.fixture
def renewals(monkeypatch) -> list[dict[str, bool]]:
    """What each document asked of the page."""
    renew, seen = WarmBrowser.renew, []

    async def record(self, **how: bool) -> None:
        seen.append(how)
        await renew(self, **how)

    monkeypatch.setattr(WarmBrowser, "renew", record)
    return seen


def test_a_shipped_template_leaves_nothing_in_the_page_to_wipe(engine, renewals):
    for name in BOOK.names:
        printed(engine, BOOK.render_html(name, BOOK.get(name).sample))
    wait_idle(engine)
    assert [renewal["wipe"] for renewal in renewals] == [False] * len(BOOK.names)


def test_a_refused_document_keeps_its_page_unless_it_is_large(engine, renewals, monkeypatch):
    paper = Paper(tagged=True, conformance=("pdf/ua-1",))
    for most in (MIB, 1_000):
        monkeypatch.setattr(chromium, "_HEAVY_BYTES", most)
        assert refused(engine, page("<h2>a</h2>"), paper).code == "NOT_CONFORMING"
    wait_idle(engine)
    assert [renewal["heavy"] for renewal in renewals] == [False, True]


def test_the_same_document_gives_the_same_bytes_without_the_time_of_printing(engine):
    first = printed(engine, invoice())
    printed(engine, page("another"))
    assert printed(engine, invoice()).sha256 == first.sha256
    tagged = replace(A4, tagged=True, outline=True)
    assert len({printed(engine, invoice(), tagged).sha256 for _ in range(2)}) == 1
    document = pypdfium2.PdfDocument(first.pdf)
    metadata = document.get_metadata_dict()
    document.close()
    assert {name: text for name, text in metadata.items() if text} == {"Title": "Belge", "Producer": "Kesin"}


def test_a_document_in_a_page_of_its_own_shares_it_with_none_before_or_after(engine, monkeypatch):
    sessions, print_document = list[PageSession](), chromium._print_document

    def recorded(session: PageSession, *args: Any) -> Any:
        sessions.append(session)
        return print_document(session, *args)

    monkeypatch.setattr(chromium, "_print_document", recorded)
    own, pdfs = replace(A4, own_page=True), set[bytes]()
    for paper in (A4, own, own, A4, A4):
        pdfs.add(printed(engine, page("<p>bizim"), paper).pdf)
        wait_idle(engine)
    assert len(pdfs) == 1
    assert len({id(session) for session in sessions[:4]}) == 4
    assert sessions[3] is sessions[4]
    assert [session.lost.done() for session in sessions] == [True, True, True, False, False]


def test_what_the_check_of_html_cannot_see_is_harmless(engine):
    inner = "<meta http-equiv='refresh' content='0;url=data:text/html,x'>"
    failure = refused(engine, f"<svg><title>{inner}</title></svg><p>x", Paper(own_page=True))
    assert failure.code == "TEMPLATE_ERROR"
    framed = "<svg><title><iframe srcdoc='<p>gizli'></iframe><base href='http://a.b/'></title></svg>"
    shown = printed(engine, f"{framed}<p>burada", Paper(own_page=True))
    assert text(shown.pdf).split() == ["burada"]


def test_a_context_of_its_own_and_a_new_browser_give_the_same_bytes(engine):
    first = printed(engine, invoice())
    engine.switch(isolation="context", browser_renders=1)  # it has printed more than that
    pid = engine.browser_pid
    assert printed(engine, invoice()).sha256 == first.sha256
    wait_idle(engine)
    assert engine.browser_pid not in (0, pid)
    engine.switch(isolation="context")
    assert printed(engine, invoice()).sha256 == first.sha256


def test_a_browser_is_replaced_after_so_many_documents_when_it_is_old_or_has_grown(monkeypatch):
    clock, memory = ManualClock(), [100 * MIB]
    monkeypatch.setattr(browser_process, "memory_bytes", lambda _: memory[0])
    settings = ChromiumSettings(browser_renders=60, browser_age_s=3600, memory_growth_mib=512)

    def used_up(renders: int, mib: int, *, heavy: bool = False) -> bool:
        warm = WarmBrowser(settings, clock)
        warm._launched_at = clock.monotonic()
        memory[0] = 100 * MIB
        assert not warm._is_used_up(heavy=False)  # the first document sets the baseline
        warm._renders, memory[0] = renders, mib * MIB
        return warm._is_used_up(heavy=heavy)

    assert [used_up(renders, 100) for renders in (59, 60)] == [False, True]
    assert [used_up(25, mib) for mib in (612, 613)] == [False, True]
    assert [used_up(24, 613, heavy=heavy) for heavy in (False, True)] == [False, True]
    old = WarmBrowser(settings, clock)
    old._launched_at = clock.monotonic()
    clock.advance(3599)
    assert not old._is_used_up(heavy=False)
    clock.advance(1)
    assert old._is_used_up(heavy=False)


@pytest.mark.long
def test_memory_stays_flat(engine):
    printed(engine, invoice())
    wait_idle(engine)
    pid, before = engine.browser_pid, browser_process.memory_bytes(engine.browser_pid)
    for _ in range(60):
        printed(engine, invoice())
    wait_idle(engine)
    assert engine.browser_pid == pid
    assert browser_process.memory_bytes(pid) - before < 150 * MIB
