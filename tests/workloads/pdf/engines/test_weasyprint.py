"""WeasyPrint in a process of its own; what both engines promise is in test_engines."""

import os
import signal
from pathlib import Path

import pytest

from kesin.workloads.pdf.channel import ChildChannel
from kesin.workloads.pdf.engines import weasyprint as module
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine
from kesin.workloads.pdf.errors import RenderFailed
from tests.workloads.pdf.documents import every_fetch, page, text
from tests.workloads.pdf.listener import listening
from tests.workloads.secrets_hidden import assert_no_secrets, set_secrets

A4 = Paper()


@pytest.fixture
def engine(weasyprint):
    weasyprint.render(page("x"), A4, timeout_s=30)
    return weasyprint


def failed(engine, html, timeout_s=30) -> RenderFailed:
    with pytest.raises(RenderFailed) as caught:
        engine.render(html, A4, timeout_s=timeout_s)
    return caught.value


def test_nothing_is_fetched_no_file_is_read_and_a_warning_names_each_url(engine, tmp_path):
    (tmp_path / "secret.css").write_text("p::after { content: 'leaked' }", "utf-8")
    file = f"file://{tmp_path}/secret.css"
    with listening() as server:
        html = every_fetch(server.url).replace("<head>", f'<head><link rel="stylesheet" href="{file}">')
        done = engine.render(html, A4, timeout_s=30)
        assert (server.connections, server.paths) == (0, [])
        for url in (f"{server.url}/style.css", file):
            assert any(url in warning for warning in done.warnings), url
    assert "the end" in text(done.pdf)
    assert "leaked" not in text(done.pdf)


def test_options_that_it_does_not_support_are_warnings(engine):
    paper = Paper(header_html="<b>x</b>", print_background=False)
    assert len(engine.render(page("x"), paper, timeout_s=30).warnings) == 2


@pytest.mark.parametrize(
    ("used_s", "code"), [(0.5, "DOCUMENT_TOO_SLOW"), pytest.param(0.1, "NAVIGATION_TIMEOUT", marks=pytest.mark.long)]
)
def test_a_document_that_takes_too_long_is_ended(engine, monkeypatch, used_s, code):
    pid = engine._child.process.pid
    times = iter((1, 1 + used_s))
    monkeypatch.setattr(module, "cpu_seconds", lambda _: next(times))
    problem = failed(engine, page("<p>word</p>" * 20_000), timeout_s=0.5)
    assert (problem.code, problem.details["reason"]) == (code, "timeout")
    assert problem.message == "the document was not rendered within 0.5 s"
    assert not Path(f"/proc/{pid}").exists()
    monkeypatch.undo()
    assert engine.render(page("x"), A4, timeout_s=30).pages == 1


def test_a_process_that_dies_under_a_document_fails_it_and_is_replaced_without_our_secrets(engine, monkeypatch):
    first, send = engine.render(page("x"), A4, timeout_s=30).sha256, ChildChannel.send

    def send_and_kill(channel, *message) -> None:
        os.kill(engine._child.process.pid, signal.SIGSTOP)
        send(channel, *message)
        os.kill(engine._child.process.pid, signal.SIGKILL)

    monkeypatch.setattr(ChildChannel, "send", send_and_kill)
    problem = failed(engine, page("x"))
    assert (problem.code, problem.details["reason"]) == ("NAVIGATION_TIMEOUT", "crashed")
    monkeypatch.undo()
    set_secrets(monkeypatch)
    assert engine.render(page("x"), A4, timeout_s=30).sha256 == first
    assert_no_secrets([engine._child.process.pid])


@pytest.mark.long  # in short: one that dies under a document
def test_a_process_that_died_between_two_documents_is_replaced(engine):
    pid = engine._child.process.pid
    os.kill(pid, signal.SIGKILL)
    engine._child.process.wait(10)
    assert engine.render(page("x"), A4, timeout_s=30).pages == 1
    assert engine._child.process.pid != pid


def test_a_process_that_does_not_start_failed_to_launch(monkeypatch):
    monkeypatch.setattr(module, "CHILD_MODULE", "kesin.no_such_module")
    assert failed(WeasyPrintEngine(), page("x")).code == "BROWSER_LAUNCH_FAILED"


def test_without_the_library_the_platform_is_unsupported(monkeypatch):
    monkeypatch.setattr(module, "CHILD_MODULE", "tests.workloads.pdf.without_weasyprint")
    assert failed(WeasyPrintEngine(), page("x")).code == "UNSUPPORTED_PLATFORM"
