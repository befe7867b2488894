import os
import signal
import threading
from pathlib import Path

import pytest

from kesin.foundation.clock import SystemClock
from kesin.workloads.pdf.engines import browser, browser_process, chromium
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.chromium import ChromiumEngine
from kesin.workloads.pdf.engines.chromium_settings import ChromiumSettings
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.limits import soft_timeout_s
from kesin.workloads.pdf.safe_fetch import FetchedResource
from tests.workloads.pdf.documents import invoice, page
from tests.workloads.pdf.listener import PIXEL

A4 = Paper()
MEANWHILE = page('<img src="https://shop.example/logo.png"><p>x</p>')
NOW = SystemClock().monotonic


class Meanwhile:
    """Does something in the middle of a document: when the picture in it is asked for."""

    def __init__(self) -> None:
        self.act = []
        self.asked = 0

    def __call__(self, url: str) -> FetchedResource:
        self.asked += 1
        if self.act:
            self.act.pop(0)()
        return FetchedResource("image/png", PIXEL)


@pytest.fixture(scope="module")
def meanwhile():
    return Meanwhile()


@pytest.fixture(scope="module")
def others():
    """Drivers that are none of ours: the tests of pages have a browser in this process too."""
    return browser_process.find_drivers()


@pytest.fixture(scope="module")
def engine(meanwhile, others):
    """Scripts run and pictures are fetched, so that there is a middle of a document."""
    settings = ChromiumSettings(javascript=True, is_url_allowed=lambda _: True, fetch=meanwhile)
    engine = ChromiumEngine(settings)
    yield engine
    engine.close()
    assert browser_process.find_drivers() <= others


def failed(engine, html, timeout_s=30) -> RenderFailed:
    with pytest.raises(RenderFailed) as caught:
        engine.render(html, A4, timeout_s=timeout_s)
    return caught.value


def works(engine) -> None:
    assert engine.render(invoice(), A4, timeout_s=30).pages == 1


def renderers(leader: int) -> list[int]:
    found = [
        pid
        for pid in browser_process._pids()
        if b"--type=renderer" in b" ".join(browser_process._command(pid))
        and browser_process._stat(pid)[2:3] == [str(leader)]
    ]
    assert found
    return found


def test_an_endless_script_is_ended_and_the_browser_lives(engine):
    works(engine)
    pid = engine.browser_pid
    problem = failed(engine, page("<script>for (;;) {}</script>"), timeout_s=2)
    assert (problem.code, problem.details["reason"]) == ("NAVIGATION_TIMEOUT", "timeout")
    assert problem.message == "the document was not printed within 2 s"
    works(engine)
    assert engine.browser_pid == pid


def test_a_script_that_never_ends_while_printing_is_ended_too(engine):
    html = page("<script>addEventListener('beforeprint', () => { for (;;) {} })</script>")
    problem = failed(engine, html, timeout_s=2)
    assert (problem.code, problem.details["step"]) == ("NAVIGATION_TIMEOUT", "print")
    works(engine)


def test_a_picture_that_never_comes_is_a_time_out(engine, meanwhile):
    over = threading.Event()
    meanwhile.act = [lambda: over.wait(30)]
    problem = failed(engine, MEANWHILE, timeout_s=2)
    over.set()
    assert (problem.code, problem.details["step"]) == ("NAVIGATION_TIMEOUT", "load")
    works(engine)


def test_a_script_that_leaves_is_an_error_of_the_template(engine):
    problem = failed(engine, page("<script>location = 'https://shop.example/'</script>"))
    assert problem.code == "TEMPLATE_ERROR"
    works(engine)


def test_a_browser_killed_under_a_document_costs_the_document_nothing(engine, meanwhile):
    works(engine)
    pid = engine.browser_pid
    meanwhile.act = [lambda: os.kill(pid, signal.SIGKILL)]
    assert engine.render(MEANWHILE, A4, timeout_s=30).pages == 1
    assert engine.browser_pid not in (0, pid)


def test_a_crashed_page_costs_the_document_nothing_once(engine, meanwhile):
    works(engine)
    engine.wait_idle()
    pid, crashed = engine.browser_pid, []

    def crash() -> None:
        crashed.append(engine.browser_pid)
        for one in renderers(engine.browser_pid):
            os.kill(one, signal.SIGKILL)

    meanwhile.act = [crash]
    assert engine.render(MEANWHILE, A4, timeout_s=30).pages == 1
    assert engine.browser_pid == pid

    meanwhile.act = [crash, crash]
    problem = failed(engine, MEANWHILE)
    assert (problem.code, problem.details["reason"]) == ("NAVIGATION_TIMEOUT", "crashed")
    assert crashed == [pid] * 3
    works(engine)


def test_a_browser_that_died_between_two_documents_is_replaced(engine):
    works(engine)
    engine.wait_idle()
    os.kill(engine.browser_pid, signal.SIGKILL)
    works(engine)


def test_a_frozen_browser_is_killed_with_its_group(engine, meanwhile):
    works(engine)
    engine.wait_idle()
    pid = engine.browser_pid
    meanwhile.act = [lambda: os.kill(pid, signal.SIGSTOP)]
    began = NOW()
    assert failed(engine, MEANWHILE, timeout_s=2).code == "NAVIGATION_TIMEOUT"
    assert NOW() - began < 2 + browser.CLOSE_S + 3
    assert not [
        one
        for one in browser_process._pids()
        if browser_process._stat(one)[2:3] == [str(pid)] and _alive(one)
    ]
    works(engine)


def test_a_frozen_driver_is_replaced(engine, meanwhile, others):
    works(engine)
    engine.wait_idle()
    (driver,) = browser_process.find_drivers() - others
    meanwhile.act = [lambda: os.kill(driver, signal.SIGSTOP)]
    assert failed(engine, MEANWHILE, timeout_s=2).code == "NAVIGATION_TIMEOUT"
    works(engine)
    assert driver not in browser_process.find_drivers()


def test_a_stuck_loop_is_left_behind(engine, monkeypatch):
    works(engine)
    engine.wait_idle()
    monkeypatch.setattr(chromium, "_PREPARE_S", 0.5)
    monkeypatch.setattr(browser_process, "_STOP_S", 0.1)
    release = threading.Event()

    async def stick() -> None:
        release.wait(30)

    stuck, pid = engine._loop, engine.browser_pid
    stuck.start(stick())
    problem = failed(engine, invoice())
    assert (problem.code, problem.details["reason"]) == ("NAVIGATION_TIMEOUT", "stuck")
    release.set()
    stuck._thread.join(30)
    assert not _alive(pid)
    monkeypatch.undo()
    works(engine)


def test_nothing_is_left_after_closing(engine, others):
    works(engine)
    mark = engine._browser.mark
    assert browser_process.find_marked(mark)
    engine.close()
    assert browser_process.find_marked(mark) == []
    assert browser_process.find_drivers() <= others
    works(engine)  # and it can be used again


def test_a_browser_that_exits_at_once_failed_to_launch(script):
    engine = ChromiumEngine(ChromiumSettings(executable=script("exit 3")))
    problem = failed(engine, invoice())
    engine.close()
    assert problem.code == "BROWSER_LAUNCH_FAILED"


@pytest.mark.parametrize("words", ["FATAL: No usable sandbox!", "Failed to move to new namespace"])
def test_a_browser_without_its_sandbox_says_what_to_install(words, script, monkeypatch):
    monkeypatch.setattr(browser.os, "getuid", lambda: 1000)  # root gets no sandbox at all
    told = script(f"echo '[1:1] {words}: PID namespaces supported' >&2; exit 1")
    engine = ChromiumEngine(ChromiumSettings(executable=told))
    problem = failed(engine, invoice())
    engine.close()
    assert problem.code == "BROWSER_LAUNCH_FAILED"
    assert "chromium-sandbox" in str(problem)


def test_a_browser_in_a_folder_of_a_long_name_says_what_to_set(monkeypatch, tmp_path):
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    engine = ChromiumEngine(ChromiumSettings())
    problem = failed(engine, invoice())
    engine.close()
    assert problem.code == "BROWSER_LAUNCH_FAILED"
    assert "TMPDIR" in str(problem)


def test_a_driver_that_does_not_run_says_what_may_be_missing(script, monkeypatch):
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", script("exit 127"))
    engine = ChromiumEngine(ChromiumSettings())
    problem = failed(engine, invoice())
    engine.close()
    assert problem.code == "BROWSER_LAUNCH_FAILED"
    assert "libatomic1" in str(problem)


def test_a_browser_that_never_answers_failed_to_launch_and_is_killed(script, monkeypatch, tmp_path):
    monkeypatch.setattr(browser, "LAUNCH_S", 4.0)
    engine = ChromiumEngine(ChromiumSettings(executable=script("echo $$ > {pid}; exec sleep 1000")))
    problem = failed(engine, invoice())
    engine.close()
    assert problem.code == "BROWSER_LAUNCH_FAILED"
    if (tmp_path / "pid").exists():  # else the machine was too busy even to start it
        assert not _alive(int((tmp_path / "pid").read_text("ascii")))


def test_no_browser_at_all_is_an_unsupported_platform(tmp_path):
    engine = ChromiumEngine(ChromiumSettings(executable=str(tmp_path / "none")))
    problem = failed(engine, invoice())
    engine.close()
    assert problem.code == "UNSUPPORTED_PLATFORM"


def test_a_document_leaves_time_for_taking_its_page_away():
    assert [soft_timeout_s(limit) for limit in (60, 10, 8, 5, 1)] == [55, 5, 4, 4, 0.8]


def test_profiles_of_the_dead_are_swept_and_those_in_use_are_not(tmp_path):
    dead = tmp_path / "playwright_chromiumdev_profile-dead"
    other = tmp_path / "another"
    link = tmp_path / "playwright_chromiumdev_profile-link"
    dead.mkdir()
    (dead / "Default").write_text("x", "utf-8")
    other.mkdir()
    link.symlink_to(other)
    for name in ("empty", "full/x"):
        (tmp_path / f"playwright-artifacts-{name}").mkdir(parents=True)
    born_us = int(dead.stat().st_mtime * 1_000_000)
    assert browser_process.delete_stale_profiles(tmp_path, now_us=lambda: born_us + 1_000_000) == []
    assert browser_process.delete_stale_profiles(
        tmp_path, now_us=lambda: born_us + 999_000_000
    ) == [dead]
    assert other.exists()
    browser_process.delete_stale_profiles(tmp_path, now_us=lambda: born_us + 90_000_000_000)
    assert [one.name for one in tmp_path.glob("*-artifacts-*")] == ["playwright-artifacts-full"]


def test_the_sandbox_is_on_unless_root_or_told_otherwise(monkeypatch):
    for user, on in ((1000, True), (0, False)):
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        assert ChromiumSettings().sandboxed is on
        assert ChromiumSettings(sandbox="on").sandboxed is True
        assert ChromiumSettings(sandbox="off").sandboxed is False


@pytest.fixture
def script(tmp_path):
    def write(body: str) -> str:
        path = tmp_path / "chromium"
        path.write_text("#!/bin/sh\n" + body.format(pid=tmp_path / "pid") + "\n", "utf-8")
        path.chmod(0o755)
        return str(path)

    return write


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and browser_process._stat(pid)[:1] not in (["Z"], [])
