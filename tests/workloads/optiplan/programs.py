"""Programs to run instead of OptiPlanning, and ways to wait for them."""

import json
import os
import select
import sys
from pathlib import Path
from typing import Any

from kesin.workloads.optiplan.pipeline.program import ProgramEnded, ProgramLaunch, ProgramRunning, read_state
from kesin.workloads.optiplan.pipeline.program_child import RECORD, start_ticks

WAIT_S = 60
HANG = "import signal; signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


def program(code: str, *files: Path) -> ProgramLaunch:
    """A program of a few lines of Python."""
    return ProgramLaunch((sys.executable, "-I", "-S", "-c", code, *map(str, files)), files)


class Whistle:
    """A named pipe through which programs report their process ids."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "whistle"
        os.mkfifo(self.path)
        self._handle = os.open(self.path, os.O_RDWR)

    @property
    def blow(self) -> str:
        """The code with which a program reports its process id."""
        return f"import os; open({str(self.path)!r}, 'w').write(f'{{os.getpid()}} '); "

    def hear(self, count: int = 1) -> list[int]:
        heard = b""
        while heard.count(b" ") < count:
            ready, _, _ = select.select([self._handle], [], [], WAIT_S)
            assert ready, "nobody whistled"
            heard += os.read(self._handle, 1000)
        return [int(pid) for pid in heard.split()]

    def is_silent(self) -> bool:
        return not select.select([self._handle], [], [], 0)[0]

    def close(self) -> None:
        os.close(self._handle)


def with_child(first: str, then: str, *, own_session: bool = False) -> str:
    """Build the code of a program that starts another and goes on."""
    return (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-I', '-S', '-c', "
        f"{first!r}], start_new_session={own_session}); {then}"
    )


def wait_for_end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([handle], [], [], WAIT_S)
        assert ready, f"{pid} does not end"
    finally:
        os.close(handle)


def outcome(run_folder: Path, job_id: str, run: int) -> ProgramEnded | None:
    """Wait for the end of a run; returns its state."""
    while isinstance(state := read_state(run_folder, job_id, run), ProgramRunning):
        wait_for_end(state.pid)
    return state


def is_alive(pid: int) -> bool:
    return start_ticks(pid) is not None


def record(run_folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run_folder / RECORD).read_bytes())
    return content
