"""Whatever ends or stops under a document, the next document is printed."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kesin.workloads.pdf.engines import browser, browser_process
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.browser import ChromiumSettings
from kesin.workloads.pdf.engines.chromium import ChromiumEngine
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.safe_fetch import FetchedResource
from tests.workloads.pdf.documents import page
from tests.workloads.pdf.engines_shared import wait_idle
from tests.workloads.pdf.listener import PIXEL

A4 = Paper()
MEANWHILE = page('<img src="https://shop.example/logo.png"><p>x</p>')


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
    settings = ChromiumSettings(javascript=True, is_url_allowed=lambda _: True, new_fetch=lambda: meanwhile)
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
    wait_idle(engine)
    return int(engine.browser_pid)


def group(leader: int) -> list[int]:
    """The living processes of a browser."""
    members = (pid for pid in browser_process._pids() if browser_process._stat(pid)[2:3] == [str(leader)])
    return [pid for pid in members if is_alive(pid)]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and browser_process._stat(pid)[:1] not in (["Z"], [])


@pytest.mark.parametrize(
    ("script", "step", "timeout_s"),
    [
        ("for (;;) {}", "load", 0.5),
        pytest.param("addEventListener('beforeprint', () => { for (;;) {} })", "print", 2, marks=pytest.mark.long),
    ],
    ids=["load", "print"],
)
def test_an_endless_script_is_ended_and_the_browser_lives(engine, monkeypatch, script, step, timeout_s):
    pid = works(engine)
    used_s = iter((1, 1 + timeout_s))  # the whole time: another try would take as long
    monkeypatch.setattr(browser_process, "cpu_seconds", lambda _: next(used_s))
    problem = failed(engine, page(f"<script>{script}</script>"), timeout_s)
    assert (problem.code, problem.message) == (
        "DOCUMENT_TOO_SLOW",
        f"the document was not rendered within {timeout_s:g} s",
    )
    assert problem.details == {"reason": "timeout", "step": step}
    assert works(engine) == pid


def test_a_picture_that_never_comes_is_a_time_out(engine, meanwhile, monkeypatch):
    monkeypatch.setattr(browser_process, "cpu_seconds", lambda _: 1.0)  # idle: another may differ
    over = threading.Event()
    meanwhile.act = [lambda: over.wait(30)]
    problem = failed(engine, MEANWHILE, timeout_s=0.5)
    over.set()
    assert (problem.code, problem.details["step"]) == ("NAVIGATION_TIMEOUT", "load")
    works(engine)


def test_a_script_that_navigates_away_is_an_error_of_the_template(engine):
    problem = failed(engine, page("<script>location = 'https://shop.example/'</script>"))
    assert problem.code == "TEMPLATE_ERROR"
    works(engine)


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


def test_a_browser_killed_under_a_document_does_not_fail_it(engine, meanwhile):
    pid = works(engine)
    meanwhile.act = [lambda: os.kill(pid, signal.SIGKILL)]
    assert engine.render(MEANWHILE, A4, timeout_s=30).pages == 1
    assert works(engine) not in (0, pid)


@pytest.mark.long
def test_a_browser_killed_between_documents_is_replaced(engine):
    pid = works(engine)
    os.kill(pid, signal.SIGKILL)
    assert works(engine) not in (0, pid)


@pytest.mark.parametrize(
    "frozen",
    [
        ("browser", "driver"),
        pytest.param(("browser",), marks=pytest.mark.long),
        pytest.param(("driver",), marks=pytest.mark.long),
    ],
    ids="-".join,
)
def test_a_frozen_browser_or_driver_is_killed_and_replaced(engine, meanwhile, others, monkeypatch, frozen):
    for name in ("CLOSE_CONTEXT_S", "CLOSE_BROWSER_S", "STOP_DRIVER_S"):
        monkeypatch.setattr(browser, name, 0.3)
    pid = works(engine)
    (driver,) = browser_process.find_drivers() - others

    def freeze() -> None:
        for name, frozen_pid in (("browser", pid), ("driver", driver)):
            if name in frozen:
                os.kill(frozen_pid, signal.SIGSTOP)

    meanwhile.act = [freeze]
    monkeypatch.setattr(browser_process, "cpu_seconds", lambda _: 1.0)  # as it was frozen early
    assert failed(engine, MEANWHILE, timeout_s=1).code == "NAVIGATION_TIMEOUT"
    assert meanwhile.act == []
    while group(pid):  # a killed process ends when it is next scheduled; the test's limit bounds it
        os.sched_yield()
    works(engine)
    assert driver not in browser_process.find_drivers()


def test_a_stuck_loop_is_abandoned_and_nothing_is_left_of_it(engine, others, monkeypatch):
    pid = works(engine)
    monkeypatch.setattr(browser, "prepare_s", lambda: 0.2)
    monkeypatch.setattr(browser_process, "_STOP_S", 0.1)
    monkeypatch.setattr(browser_process, "_TASKS_END_S", 0.1)
    release = threading.Event()

    async def stick() -> None:
        release.wait(30)

    stuck, mark = engine._loop, engine._browser.mark
    stuck.start(stick())
    problem = failed(engine, page("x"))
    assert (problem.code, problem.details["reason"]) == ("NAVIGATION_TIMEOUT", "stuck")
    release.set()
    stuck._thread.join(30)
    assert not is_alive(pid)
    assert browser_process.find_marked(mark) == []
    monkeypatch.undo()
    assert browser_process.find_drivers() <= others
    assert (engine._loop, engine._browser) == (None, None)  # as before the first document


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


def test_a_browser_that_does_not_start_says_what_to_install_or_to_set(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 1000)  # root gets no sandbox at all
    for problem, hint in (
        ("No usable sandbox!: PID namespaces supported", "chromium-sandbox"),
        ("Failed to move to new namespace", "chromium-sandbox"),
        ("Socket path too long", "TMPDIR"),
    ):
        assert hint in browser._launch_failure(Exception(problem), sandboxed=True)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    hint = browser._launch_failure(Exception("whatever it said"), sandboxed=True)
    assert "run as another user, or set KESIN_PDF_SANDBOX" in hint


@pytest.mark.long
def test_the_output_of_a_browser_without_its_sandbox_is_recognised(script, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    body = "echo '[1:1] FATAL: No usable sandbox!: PID namespaces supported' >&2; exit 1"
    assert "chromium-sandbox" in launch_failure(script(body))


@pytest.mark.long
def test_a_browser_in_a_folder_of_a_long_name_says_what_to_set(monkeypatch, tmp_path):
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    assert "TMPDIR" in launch_failure()


def test_a_driver_that_does_not_run_says_what_may_be_missing(script, monkeypatch):
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", script("exit 127"))
    assert "libatomic1" in launch_failure()


def test_a_browser_that_never_answers_failed_to_launch_and_is_killed(script, monkeypatch, tmp_path):
    monkeypatch.setattr(browser, "LAUNCH_S", 1.5)
    launch_failure(script("echo $$ > {pid}; exec sleep 1000"))
    if (tmp_path / "pid").exists():  # else the machine was too busy even to start it
        assert not is_alive(int((tmp_path / "pid").read_text("ascii")))


def test_no_browser_at_all_is_an_unsupported_platform(tmp_path):
    engine = ChromiumEngine(ChromiumSettings(executable=str(tmp_path / "none")))
    problem = failed(engine, page("x"))
    engine.close()
    assert problem.code == "UNSUPPORTED_PLATFORM"


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


def test_the_processor_time_of_processes_is_read():
    ours = browser_process.cpu_seconds([os.getpid()])
    assert ours == pytest.approx(time.process_time(), abs=0.5)
    assert browser_process.cpu_seconds([os.getpid(), 1 << 22]) >= ours
