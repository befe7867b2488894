"""What both engines promise, and which of them is picked."""

import io
import os
import sys
from dataclasses import replace
from pathlib import Path

import pikepdf
import pytest

from kesin.workloads.pdf import engines, limits
from kesin.workloads.pdf.engines import base as engines_base
from kesin.workloads.pdf.engines import browser_process, pick_engine
from kesin.workloads.pdf.engines.base import Paper, find_chromium
from kesin.workloads.pdf.engines.browser import ChromiumSettings
from kesin.workloads.pdf.engines.chromium import ChromiumEngine
from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine
from kesin.workloads.pdf.errors import RenderFailed
from tests.workloads.pdf.documents import TURKISH, invoice, page, sizes_mm, text
from tests.workloads.pdf.press import BOOK
from tests.workloads.secrets_hidden import assert_no_secrets, command_of, descendants, set_secrets

A4 = Paper()
FIVE = page("".join(f'<p style="break-after: page">page {n}</p>' for n in range(1, 6)))


@pytest.fixture(params=["chromium", "weasyprint"])
def engine(request):
    return request.getfixturevalue(request.param)


def refused(engine, html, paper=A4) -> RenderFailed:
    with pytest.raises(RenderFailed) as caught:
        engine.render(html, paper, timeout_s=30)
    return caught.value


def test_turkish_text_comes_out_as_it_went_in(engine):
    done = engine.render(invoice(), A4, timeout_s=30)
    assert TURKISH in text(done.pdf)
    assert (done.pages, done.engine, done.warnings) == (1, engine.name, ())
    assert sizes_mm(done.pdf) == [(210, 297)]


def test_the_pdf_says_of_itself_what_the_document_does(engine):
    sample = BOOK.get("invoice").sample
    done = engine.render(BOOK.render_html("invoice", sample), A4, timeout_s=30)
    with pikepdf.open(io.BytesIO(done.pdf)) as document:
        assert {name: str(text) for name, text in document.docinfo.items()} == {
            "/Title": f"Fatura {sample['number']}",
            "/Author": sample["seller"]["name"],
            "/CreationDate": "D:" + sample["issued_on"].replace("-", ""),
            "/Producer": "Kesin",
        }


def test_characters_that_no_font_has_are_named(engine):
    body = "<h1>漢字 Ltd 漢</h1><p style='opacity: .5'>\N{LINEAR A SIGN AB001} &#x30AB;</p>"
    done = engine.render(page(body), A4, timeout_s=30)
    assert done.missing_glyphs == ("カ", "字", "漢", "\N{LINEAR A SIGN AB001}")
    assert done.warnings == ("missing glyph: カ (U+30AB), 字 (U+5B57), 漢 (U+6F22), \N{LINEAR A SIGN AB001} (U+10600)",)


def test_only_the_requested_pages_are_printed(engine):
    done = engine.render(FIVE, replace(A4, page_ranges="2, 4-"), timeout_s=30)
    words = text(done.pdf)
    assert [f"page {n}" in words for n in range(1, 6)] == [False, True, False, True, True]
    assert done.pages == 3
    assert refused(engine, FIVE, replace(A4, page_ranges="9")).code == "TEMPLATE_ERROR"


def test_too_many_pages_are_refused(engine, monkeypatch):
    monkeypatch.setattr(limits, "MAX_PAGES", 4)
    problem = refused(engine, FIVE)
    assert (problem.code, problem.details["pages"]) == ("TEMPLATE_ERROR", 5)


def test_an_engine_is_picked_by_its_name():
    assert isinstance(pick_engine("chromium"), ChromiumEngine)
    assert isinstance(pick_engine("weasyprint"), WeasyPrintEngine)
    assert isinstance(pick_engine(), ChromiumEngine)
    with pytest.raises(RenderFailed, match="UNSUPPORTED_PLATFORM"):
        pick_engine("prince")


def test_without_a_browser_weasyprint_is_picked_unless_chromium_is_named(tmp_path):
    settings = ChromiumSettings(executable=str(tmp_path / "none"))
    assert isinstance(pick_engine(None, settings), WeasyPrintEngine)
    with pytest.raises(RenderFailed, match="UNSUPPORTED_PLATFORM"):
        pick_engine("chromium", settings)


def test_without_playwright_there_is_no_chromium_either(monkeypatch):
    monkeypatch.setattr(engines_base, "find_spec", lambda name: None if name == "playwright" else 1)
    assert isinstance(pick_engine(), WeasyPrintEngine)
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    with pytest.raises(RenderFailed, match="UNSUPPORTED_PLATFORM"):
        pick_engine()


def test_a_browser_is_searched_on_the_path_and_in_playwrights_folder(monkeypatch, tmp_path):
    assert find_chromium(sys.executable) == Path(sys.executable)
    assert find_chromium(str(tmp_path / "none")) is None
    shell = tmp_path / "chromium_headless_shell-1200" / "chrome-linux" / "headless_shell"
    shell.parent.mkdir(parents=True)
    shell.touch(0o755)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_chromium() == shell
    (tmp_path / "google-chrome").touch(0o755)
    assert find_chromium() == tmp_path / "google-chrome"


def test_the_full_browser_prints_what_a_headless_shell_prints_and_nothing_is_left_of_it(chromium, monkeypatch):
    """Nor does any of its processes inherit a secret."""
    shown = text(chromium.render(invoice(), A4, timeout_s=30).pdf)
    set_secrets(monkeypatch)
    before = set(descendants(os.getpid()))
    full = ChromiumEngine(ChromiumSettings(executable="chromium"))
    try:
        assert text(full.render(invoice(), A4, timeout_s=30).pdf) == shown
        pids = [pid for pid in descendants(os.getpid()) if pid not in before]
        pids = [pid for pid in pids if command_of(pid)]  # some helpers of Chromium end at once
        commands = [command_of(pid) for pid in pids]
        for part in (b"run-driver", b"--kesin-browser=", b"--type=renderer"):
            assert any(part in command for command in commands), part
        assert_no_secrets(pids)
        mark, drivers = full._browser.mark, browser_process.find_drivers() - before
        assert browser_process.find_marked(mark)
        assert len(drivers) == 1
    finally:
        full.close()
    assert browser_process.find_marked(mark) == []
    assert drivers.isdisjoint(browser_process.find_drivers())
