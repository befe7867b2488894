"""No child process inherits a secret: each kind is started, and /proc shows its environment."""

import ast
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import kesin
from kesin.cli.commands.serve import supervisor_for
from kesin.cli.support.supervisor import WorkerProcesses
from kesin.foundation.child_environment import child_environment
from kesin.foundation.settings import load_settings
from kesin.workloads import workloads
from kesin.workloads.optiplan.pipeline.program import end_current, start
from kesin.workloads.optiplan.pipeline.program_child import MARK
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.browser import ChromiumSettings
from kesin.workloads.pdf.engines.chromium import ChromiumEngine
from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine
from tests.workloads.optiplan.programs import HANG, Whistle, program

CANARY = "canary-that-nobody-may-see"
SECRETS = {
    "KESIN_SECRET_KEYS": f"k1:{CANARY}",
    "KESIN_CRON_SECRET": CANARY,
    "KESIN_DATABASE_URL": f"postgresql://kesin:{CANARY}@localhost/kesin",
    "KESIN_PDF_WEBHOOK_SECRET": CANARY,
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "PGPASSWORD": CANARY,
    "SOME_TOKEN": CANARY,
}
STARTERS = {"Popen", "run", "call", "check_call", "check_output", "getoutput"}
OTHER_STARTERS = ("os.exec", "os.spawn", "os.posix_spawn", "os.system", "multiprocessing.")


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def environment_of(pid: int) -> dict[str, str]:
    text = ""
    for _ in range(10_000):  # it is empty for a moment while a program starts
        text = text or Path(f"/proc/{pid}/environ").read_text("utf-8", errors="replace")
    return dict(entry.partition("=")[::2] for entry in text.split("\0") if entry)


def descendants(pid: int) -> Iterator[int]:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text("ascii").split()):
                yield child
                yield from descendants(child)


def command_of(pid: int) -> bytes:
    """Its command line; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def assert_no_secrets(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        environment = environment_of(pid)
        assert CANARY not in str(environment), (pid, sorted(environment))


def test_chromium_and_its_driver():
    before = set(descendants(os.getpid()))
    engine = ChromiumEngine(ChromiumSettings())
    try:
        engine.render("<p>x</p>", Paper(), timeout_s=30)
        pids = [pid for pid in descendants(os.getpid()) if pid not in before]
        pids = [pid for pid in pids if command_of(pid)]  # some helpers of Chromium end at once
        commands = [command_of(pid) for pid in pids]
        assert any(b"run-driver" in command for command in commands)
        assert any(b"--kesin-browser=" in command for command in commands)
        assert any(b"--type=renderer" in command for command in commands)
        assert_no_secrets(pids)
    finally:
        engine.close()


def test_weasyprint():
    engine = WeasyPrintEngine()
    try:
        engine.render("<p>x</p>", Paper(), timeout_s=30)
        assert_no_secrets([engine.child_pid])
    finally:
        engine.close()


def test_the_optimiser_program_and_its_supervisor(tmp_path: Path):
    whistle = Whistle(tmp_path)
    try:
        start(tmp_path / "slot", "job-1", 1, program(whistle.blow + HANG), 60)
        [pid] = whistle.hear()
        supervisor = int(Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[1])
        assert_no_secrets([pid, supervisor])
        assert MARK in environment_of(pid)
    finally:
        end_current(tmp_path / "slot")
        whistle.close()


@pytest.mark.parametrize("opens_secrets", [True, False])
def test_worker_processes_get_the_keys_only_for_work_that_opens_secrets(opens_secrets: bool):
    command = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]
    processes = WorkerProcesses(command, 1, 1, opens_secrets)
    try:
        processes.reap_and_start()
        environment = environment_of(*processes.pids)
    finally:
        for pid in processes.pids:
            os.kill(pid, signal.SIGKILL)
        processes.kill()
    assert "KESIN_CRON_SECRET" not in environment
    assert ("KESIN_SECRET_KEYS" in environment) == opens_secrets
    assert environment["KESIN_DATABASE_URL"] == SECRETS["KESIN_DATABASE_URL"]  # it has to sign in


def test_the_processes_of_the_service_do_not_open_secrets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kesin.cli.support.supervisor.Stop", object)  # it is not started
    supervisor = supervisor_for(load_settings(), workloads())
    assert supervisor is not None
    assert supervisor._processes.opens_secrets is False


def test_a_child_keeps_what_programs_need():
    ours = {"PATH": "/bin", "LC_ALL": "C", "EXTRA": "2", "OTHER": "3", "KESIN_LOG": "json"}
    environment = child_environment("EXTRA", environment=ours)
    assert environment == {"PATH": "/bin", "LC_ALL": "C", "EXTRA": "2"}


def test_every_start_of_a_process_names_its_environment():
    """Only the supervisor of the optimiser program inherits: its own environment is minimal."""
    root = Path(kesin.__file__).parent
    without = []
    for file in sorted(root.rglob("*.py")):
        text = file.read_text("utf-8")
        if not any(word in text for word in ("subprocess", *OTHER_STARTERS)):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            call = ast.unparse(node.func)
            starts = call.startswith("subprocess.") and node.func.attr in STARTERS
            starts |= call.startswith(OTHER_STARTERS) or "create_subprocess" in call
            if starts and "env" not in {keyword.arg for keyword in node.keywords}:
                without.append(file.relative_to(root).as_posix())
    assert without == ["workloads/optiplan/pipeline/program_child.py"]
