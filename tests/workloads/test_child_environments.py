"""No child process inherits a secret: each kind is started, and /proc shows its environment.

Those of the engines of PDFs are looked at in `pdf/engines`, where tests start them anyway.
"""

import ast
import os
import signal
import sys
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
from tests.workloads.optiplan.programs import HANG, Whistle, program
from tests.workloads.secrets_hidden import SECRETS, assert_no_secrets, environment_of, set_secrets

STARTERS = {"Popen", "run", "call", "check_call", "check_output", "getoutput"}
OTHER_STARTERS = ("os.exec", "os.spawn", "os.posix_spawn", "os.system", "multiprocessing.")


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    set_secrets(monkeypatch)


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


def test_the_processes_of_the_service_open_the_passwords_of_pdfs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kesin.cli.support.supervisor.Stop", object)  # it is not started
    supervisor = supervisor_for(load_settings(), workloads())
    assert supervisor is not None
    assert supervisor.opens_secrets is True


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
