"""Whatever ends or stops under a document, the next document is printed."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
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
from tests.workloads.pdf.documents import page
from tests.workloads.pdf.listener import PIXEL

A4 = Paper()
MEANWHILE = page('<img src="https://shop.example/logo.png"><p>x</p>')
NOW = SystemClock().monotonic


class Meanwhile:
    """Does something in the middle of a document: when its picture is requested."""

    def __init__(self) -> None:
        self.act: list[Callable[[], object]] = []

    def __call__(self, url: str) -> FetchedResource:
        if self.act:
            self.act.pop(0)()
        return FetchedResource("image/png", PIXEL)


@pytest.fixture(scope="module")
def meanwhile():
    return Meanwhile()


@pytest.fixture(scope="module")
def others() -> set[int]:
    """The drivers of other browsers in this process."""
    return browser_process.find_drivers()


@pytest.fixture(scope="module")
def engine(meanwhile, others) -> Iterator[ChromiumEngine]:
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


def works(engine) -> int:
    """Print a document, wait until the next page is ready, and return the browser's process."""
    assert engine.render(page("x"), A4, timeout_s=30).pages == 1
    engine.wait_idle()
    return int(engine.browser_pid)


def group(leader: int) -> list[int]:
    """The living processes of a browser."""
    members = (
        pid for pid in browser_process._pids() if browser_process._stat(pid)[2:3] == [str(leader)]
    )
    return [pid for pid in members if is_alive(pid)]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and browser_process._stat(pid)[:1] not in (["Z"], [])


def test_an_endless_script_is_ended_and_the_browser_lives(engine):
    pid = works(engine)
    problem = failed(engine, page("<script>for (;;) {}</script>"), timeout_s=1)
    assert (problem.code, problem.details["reason"]) == ("NAVIGATION_TIMEOUT", "timeout")
    assert problem.message == "the document was not printed within 1 s"
    html = page("<script>addEventListener('beforeprint', () => { for (;;) {} })</script>")
    problem = failed(engine, html, timeout_s=2)
    assert (problem.code, problem.details["step"]) == ("NAVIGATION_TIMEOUT", "print")
    assert works(engine) == pid


def test_a_picture_that_never_comes_is_a_time_out(engine, meanwhile):
    works(engine)
    over = threading.Event()
    meanwhile.act = [lambda: over.wait(30)]
    problem = failed(engine, MEANWHILE, timeout_s=2)
    over.set()
    assert (problem.code, problem.details["step"]) == ("NAVIGATION_TIMEOUT", "load")
    works(engine)


def test_a_script_that_navigates_away_is_an_error_of_the_template(engine):
    problem = failed(engine, page("<script>location = 'https://shop.example/'</script>"))
    assert problem.code == "TEMPLATE_ERROR"
    works(engine)


def test_a_browser_killed_under_or_between_documents_fails_none(engine, meanwhile):
    pid = works(engine)
    meanwhile.act = [lambda: os.kill(pid, signal.SIGKILL)]
    assert engine.render(MEANWHILE, A4, timeout_s=30).pages == 1
    engine.wait_idle()
    second = engine.browser_pid
    assert second not in (0, pid)
    os.kill(second, signal.SIGKILL)
    assert works(engine) not in (0, second)


def test_a_page_that_crashes_once_fails_no_document_and_twice_fails_it(engine, meanwhile):
    pid, crashed = works(engine), []

    def crash() -> None:
        crashed.append(engine.browser_pid)
        renderers = [
            member
            for member in group(engine.browser_pid)
            if b"--type=renderer" in b" ".join(browser_process._command(member))
        ]
        assert renderers
        for member in renderers:
            os.kill(member, signal.SIGKILL)

    meanwhile.act = [crash]
    assert engine.render(MEANWHILE, A4, timeout_s=30).pages == 1
    assert engine.browser_pid == pid

    meanwhile.act = [crash, crash]
    problem = failed(engine, MEANWHILE)
    assert (problem.code, problem.details["reason"]) == ("NAVIGATION_TIMEOUT", "crashed")
    assert crashed == [pid] * 3
    works(engine)


def test_a_frozen_browser_is_killed_with_its_group(engine, meanwhile):
    pid = works(engine)
    meanwhile.act = [lambda: os.kill(pid, signal.SIGSTOP)]
    began = NOW()
    assert failed(engine, MEANWHILE, timeout_s=2).code == "NAVIGATION_TIMEOUT"
    assert NOW() - began < 2 + browser.CLOSE_S + 3
    assert group(pid) == []
    works(engine)


def test_a_frozen_driver_is_replaced(engine, meanwhile, others, monkeypatch):
    for name in ("CLOSE_CONTEXT_S", "CLOSE_BROWSER_S", "STOP_DRIVER_S"):
        monkeypatch.setattr(browser, name, 0.5)
    works(engine)
    (driver,) = browser_process.find_drivers() - others
    meanwhile.act = [lambda: os.kill(driver, signal.SIGSTOP)]
    assert failed(engine, MEANWHILE, timeout_s=2).code == "NAVIGATION_TIMEOUT"
    works(engine)
    assert driver not in browser_process.find_drivers()


def test_a_stuck_loop_is_abandoned(engine, monkeypatch):
    pid = works(engine)
    monkeypatch.setattr(chromium, "_PREPARE_S", 0.5)
    monkeypatch.setattr(browser_process, "_STOP_S", 0.1)
    release = threading.Event()

    async def stick() -> None:
        release.wait(30)

    stuck = engine._loop
    stuck.start(stick())
    problem = failed(engine, page("x"))
    assert (problem.code, problem.details["reason"]) == ("NAVIGATION_TIMEOUT", "stuck")
    release.set()
    stuck._thread.join(30)
    assert not is_alive(pid)
    monkeypatch.undo()
    works(engine)


def test_nothing_is_left_after_closing(engine, others):
    works(engine)
    mark = engine._browser.mark
    assert browser_process.find_marked(mark)
    engine.close()
    assert browser_process.find_marked(mark) == []
    assert browser_process.find_drivers() <= others


@pytest.fixture
def script(tmp_path):
    def write(body: str) -> str:
        path = tmp_path / "chromium"
        path.write_text("#!/bin/sh\n" + body.format(pid=tmp_path / "pid") + "\n", "utf-8")
        path.chmod(0o755)
        return str(path)

    return write


def launch_failure(executable: str = "") -> str:
    """The message of a browser that does not start."""
    engine = ChromiumEngine(ChromiumSettings(executable=executable))
    problem = failed(engine, page("x"))
    engine.close()
    assert problem.code == "BROWSER_LAUNCH_FAILED"
    return str(problem)


def test_a_browser_without_its_sandbox_says_what_to_install(script, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 1000)  # root gets no sandbox at all
    body = "echo '[1:1] FATAL: No usable sandbox!: PID namespaces supported' >&2; exit 1"
    assert "chromium-sandbox" in launch_failure(script(body))
    other = browser._launch_failure(Exception("Failed to move to new namespace"), sandboxed=True)
    assert "chromium-sandbox" in other


def test_a_browser_in_a_folder_of_a_long_name_says_what_to_set(monkeypatch, tmp_path):
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    assert "TMPDIR" in launch_failure()


def test_a_driver_that_does_not_run_says_what_may_be_missing(script, monkeypatch):
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", script("exit 127"))
    assert "libatomic1" in launch_failure()


def test_a_browser_that_never_answers_failed_to_launch_and_is_killed(script, monkeypatch, tmp_path):
    monkeypatch.setattr(browser, "LAUNCH_S", 3.0)
    launch_failure(script("echo $$ > {pid}; exec sleep 1000"))
    if (tmp_path / "pid").exists():  # else the machine was too busy even to start it
        assert not is_alive(int((tmp_path / "pid").read_text("ascii")))


def test_no_browser_at_all_is_an_unsupported_platform(tmp_path):
    engine = ChromiumEngine(ChromiumSettings(executable=str(tmp_path / "none")))
    problem = failed(engine, page("x"))
    engine.close()
    assert problem.code == "UNSUPPORTED_PLATFORM"


def test_a_document_leaves_time_for_closing_its_page():
    assert [soft_timeout_s(limit) for limit in (60, 10, 8, 5, 1)] == [55, 5, 4, 4, 0.8]


def test_stale_profiles_are_deleted_and_those_in_use_are_not(tmp_path):
    dead = tmp_path / "playwright_chromiumdev_profile-dead"
    other = tmp_path / "another"
    link = tmp_path / "playwright_chromiumdev_profile-link"
    dead.mkdir()
    (dead / "Default").write_text("x", "utf-8")
    other.mkdir()
    link.symlink_to(other)
    for name in ("empty", "full/x"):
        (tmp_path / f"playwright-artifacts-{name}").mkdir(parents=True)
    created_us = int(dead.stat().st_mtime * 1_000_000)

    def delete_after(seconds: int) -> list[Path]:
        now_us = created_us + seconds * 1_000_000
        return browser_process.delete_stale_profiles(tmp_path, now_us=lambda: now_us)

    assert [delete_after(1), delete_after(999)] == [[], [dead]]
    assert other.exists()
    delete_after(90_000)
    assert [path.name for path in tmp_path.glob("*-artifacts-*")] == ["playwright-artifacts-full"]


def test_the_sandbox_is_on_unless_root_or_set_otherwise(monkeypatch):
    for user, on in ((1000, True), (0, False)):
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        assert ChromiumSettings().sandboxed is on
        assert ChromiumSettings(sandbox="on").sandboxed is True
        assert ChromiumSettings(sandbox="off").sandboxed is False
