import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kesin.foundation.clock import SystemClock
from kesin.workloads.pdf.engines import availability, pick_engine, weasyprint
from kesin.workloads.pdf.engines.availability import find_chromium
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.chromium import ChromiumEngine
from kesin.workloads.pdf.engines.chromium_settings import ChromiumSettings
from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine
from kesin.workloads.pdf.errors import RenderFailed
from tests.workloads.pdf.documents import (
    TURKISH,
    every_fetch,
    invoice,
    page,
    red_pixels,
    sizes_mm,
    text,
)
from tests.workloads.pdf.listener import listening

A4 = Paper()
NOW = SystemClock().monotonic
FIVE = page("".join(f'<p style="break-after: page">page {n}</p>' for n in range(1, 6)))


@pytest.fixture(scope="module")
def engine():
    engine = WeasyPrintEngine()
    yield engine
    engine.close()


def failed(engine, html, paper=A4, timeout_s=30) -> RenderFailed:
    with pytest.raises(RenderFailed) as caught:
        engine.render(html, paper, timeout_s=timeout_s)
    return caught.value


def test_turkish_text_comes_out_as_it_went_in(engine):
    done = engine.render(invoice(), A4, timeout_s=30)
    assert TURKISH in text(done.pdf)
    assert (done.pages, done.engine, done.warnings) == (1, "weasyprint", ())
    assert sizes_mm(done.pdf) == [(210, 297)]


def test_the_same_document_gives_the_same_bytes_in_another_process(engine):
    first = engine.render(invoice(), A4, timeout_s=30).sha256
    assert engine.render(invoice(), A4, timeout_s=30).sha256 == first
    other = WeasyPrintEngine()
    try:
        other.render(FIVE, A4, timeout_s=30)
        assert other.render(invoice(), A4, timeout_s=30).sha256 == first
    finally:
        other.close()


def test_nothing_is_fetched_and_what_was_wanted_is_told(engine):
    with listening() as server:
        done = engine.render(every_fetch(server.url), A4, timeout_s=30)
        assert (server.connections, server.paths) == (0, [])
        assert any(f"{server.url}/style.css" in warning for warning in done.warnings)
    assert "the end" in text(done.pdf)


def test_no_file_is_read(engine, tmp_path):
    (tmp_path / "secret.css").write_text("p::after { content: 'leaked' }", "utf-8")
    link = f'<link rel="stylesheet" href="file://{tmp_path}/secret.css">'
    done = engine.render(page("<p>x</p>", link), A4, timeout_s=30)
    assert "leaked" not in text(done.pdf)
    assert done.warnings


@pytest.mark.parametrize(
    ("paper", "css", "size"),
    [
        (Paper(format="A5"), "", (148, 210)),
        (Paper(landscape=True), "", (297, 210)),
        (Paper(width_mm=100, height_mm=50), "", (100, 50)),
        (Paper(scale=0.5), "", (210, 297)),
        (Paper(), "<style>@page { size: 80mm 60mm }</style>", (80, 60)),
        (Paper(prefer_css_page_size=False), "<style>@page { size: 60mm 80mm }</style>", (210, 297)),
    ],
)
def test_the_sheet_is_the_one_asked_for(engine, paper, css, size):
    assert sizes_mm(engine.render(page("x", css), paper, timeout_s=30).pdf) == [size]


def test_a_scale_makes_things_smaller(engine):
    html = page('<div style="width: 90mm; height: 90mm; background: #f00"></div>')
    whole, half = (
        red_pixels(engine.render(html, Paper(scale=scale), timeout_s=30).pdf)
        for scale in (1.0, 0.5)
    )
    assert 3.8 < whole / half < 4.2


def test_only_the_pages_asked_for_are_printed(engine):
    done = engine.render(FIVE, replace(A4, page_ranges="2, 4-"), timeout_s=30)
    words = text(done.pdf)
    assert [f"page {n}" in words for n in range(1, 6)] == [False, True, False, True, True]
    assert done.pages == 3
    assert failed(engine, FIVE, replace(A4, page_ranges="9")).code == "TEMPLATE_ERROR"


def test_what_it_cannot_do_is_told(engine):
    paper = Paper(header_html="<b>x</b>", print_background=False)
    assert len(engine.render(page("x"), paper, timeout_s=30).warnings) == 2


def test_too_many_pages_are_refused(engine):
    problem = failed(engine, page('<p style="break-after: page">x</p>' * 501))
    assert problem.code == "TEMPLATE_ERROR"


def test_a_document_that_takes_too_long_is_ended(engine):
    engine.render(page("x"), A4, timeout_s=30)
    pid = engine.child_pid
    began = NOW()
    problem = failed(engine, page("<p>word</p>" * 100_000), timeout_s=1)
    assert (problem.code, problem.details["reason"]) == ("NAVIGATION_TIMEOUT", "timeout")
    assert problem.message == "the document was not printed within 1 s"
    assert NOW() - began < 5
    assert not Path(f"/proc/{pid}").exists()
    assert engine.render(page("x"), A4, timeout_s=30).pages == 1


def test_a_process_that_dies_under_a_document_is_told_and_replaced(engine, monkeypatch):
    send = weasyprint._Child.send

    def send_and_kill(child, *what) -> None:
        os.kill(child.pid, signal.SIGSTOP)
        send(child, *what)
        os.kill(child.pid, signal.SIGKILL)

    monkeypatch.setattr(weasyprint._Child, "send", send_and_kill)
    problem = failed(engine, page("x"))
    assert (problem.code, problem.details["reason"]) == ("NAVIGATION_TIMEOUT", "crashed")
    monkeypatch.undo()
    assert engine.render(page("x"), A4, timeout_s=30).pages == 1


def test_a_process_that_died_between_two_documents_is_replaced(engine):
    engine.render(page("x"), A4, timeout_s=30)
    os.kill(engine.child_pid, signal.SIGKILL)
    engine._child._process.wait(10)
    assert engine.render(page("x"), A4, timeout_s=30).pages == 1


def test_a_process_that_does_not_start_failed_to_launch(monkeypatch):
    monkeypatch.setattr(weasyprint, "CHILD_MODULE", "kesin.no_such_module")
    assert failed(WeasyPrintEngine(), page("x")).code == "BROWSER_LAUNCH_FAILED"


def test_without_the_library_the_platform_is_unsupported(monkeypatch):
    monkeypatch.setattr(weasyprint, "find_spec", lambda _: None)
    assert failed(WeasyPrintEngine(), page("x")).code == "UNSUPPORTED_PLATFORM"


def test_the_engine_named_is_the_one_picked():
    assert isinstance(pick_engine("chromium"), ChromiumEngine)
    assert isinstance(pick_engine("weasyprint"), WeasyPrintEngine)
    assert isinstance(pick_engine(), ChromiumEngine)
    with pytest.raises(RenderFailed, match="UNSUPPORTED_PLATFORM"):
        pick_engine("prince")


def test_without_a_browser_weasyprint_is_picked_unless_chromium_was_asked_for(tmp_path):
    settings = ChromiumSettings(executable=str(tmp_path / "none"))
    assert isinstance(pick_engine(None, settings), WeasyPrintEngine)
    with pytest.raises(RenderFailed, match="UNSUPPORTED_PLATFORM"):
        pick_engine("chromium", settings)


def test_without_playwright_there_is_no_chromium_either(monkeypatch):
    monkeypatch.setattr(availability, "find_spec", lambda name: None if name == "playwright" else 1)
    assert isinstance(pick_engine(), WeasyPrintEngine)
    monkeypatch.setattr(availability, "find_spec", lambda _: None)
    with pytest.raises(RenderFailed, match="UNSUPPORTED_PLATFORM"):
        pick_engine()


def test_a_browser_is_looked_for_where_it_may_be(monkeypatch, tmp_path):
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
