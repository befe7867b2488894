"""The optimiser program: workers start, poll and end it, and may crash at any time.

The run folder belongs to the slot, not to a job: its ``program.json`` names the process that uses
the slot or used it last. A job and a number identify a run; every start needs a new number, and the
result of a run is stored under it. Only Linux reports enough about processes; on other systems
orders use mode C.
"""

import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kesin.foundation.child_environment import child_environment
from kesin.foundation.messages import Message
from kesin.foundation.problems import Unavailable
from kesin.foundation.text import storable
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.payload import OptiMode
from kesin.workloads.optiplan.pipeline import program_child
from kesin.workloads.optiplan.pipeline.program_child import RECORD, lock_record, read_json
from kesin.workloads.optiplan.pipeline.shared_folder import list_plain_files, translate_os_errors
from kesin.workloads.optiplan.workshop.paths import Paths

MACRO: Final = "RunOptiPlanning.xls"
MACRO_PLACEHOLDER: Final = "{macro}"
OPTIMISER: Final = "kesin.workloads.optiplan.optimizer"


@dataclass(frozen=True, slots=True)
class ProgramLaunch:
    """A command, its import files and its working folder (None: the run folder)."""

    command: tuple[str, ...]
    files: tuple[Path, ...]
    working_folder: Path | None = None


def build_launch(
    mode: OptiMode, paths: Paths, files: Sequence[Path], macro_command: str = "", own_options: Sequence[str] = ()
) -> ProgramLaunch:
    """Build the command; ``macro_command`` is for mode B, ``own_options`` for our optimiser."""
    command = _macro_command(paths, macro_command) if mode == "B" else _program_command(paths, own_options)
    folder = paths.exe.parent if paths.exe else None
    return ProgramLaunch((*command, *map(str, files)), tuple(files), folder)


def _program_command(paths: Paths, own_options: Sequence[str]) -> list[str]:
    if paths.exe is None:
        out = str(paths.export_folder)
        return [sys.executable, "-m", OPTIMISER, *own_options, "--out", out]
    if not os.path.isfile(paths.exe):  # noqa: PTH113 - false in a folder that cannot be read
        why = "there is no program at %(file)s: correct optiplanningExePath in paths.json"
        code, details = OptiCode.OPTI_MODE_A_RUNNER_MISSING, {"program": str(paths.exe)}
        raise OrderProblem(code, why, details, file=paths.exe)
    return [str(paths.exe)]


def _macro_command(paths: Paths, text: str) -> list[str]:
    try:
        command = shlex.split(text)
    except ValueError as problem:
        why = "KESIN_OPTIPLAN_MACRO_COMMAND cannot be parsed: %(problem)s"
        raise _runner_failed(Message(why, problem=problem)) from None
    macro = paths.exe.with_name(MACRO) if paths.exe else None
    if macro is None or not os.path.isfile(macro):  # noqa: PTH113 - as above
        where = paths.exe or Message("OptiPlanning, which is not set up")
        why, details = "%(file)s must be next to %(where)s", {"macro": macro and str(macro)}
        code = OptiCode.OPTI_MODE_B_MACRO_MISSING
        raise OrderProblem(code, why, details, file=MACRO, where=where)
    if not command:
        why = "mode B has no command that opens the macro: configure one, with %(macro)s in place of the macro's path"
        code, details = OptiCode.OPTI_RUNNER_FAILED, {"macro": str(macro)}
        raise OrderProblem(code, why, details, macro=MACRO_PLACEHOLDER)
    return [piece.replace(MACRO_PLACEHOLDER, str(macro)) for piece in command]


MAX_KEPT_RUNS: Final = 100
_START_TIMEOUT_S: Final = 60.0
_KILL_TIMEOUT_S: Final = 10.0
_MAX_START_ATTEMPTS: Final = 3
_JOB_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
# A Windows program under Wine needs these.
_DESKTOP_VARIABLES: Final = (
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"),
    *("WINEPREFIX", "WINEARCH", "WINEDEBUG", "WINEDLLOVERRIDES", "WINELOADER", "WINESERVER"),
)


class StillRunning(Unavailable):
    """A killed program has not ended; waiting may help."""


@dataclass(frozen=True, slots=True)
class ProgramRunning:
    """The program runs on this machine."""

    pid: int


@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """The program has ended; a negative exit is a signal, 127 means that it could not start."""

    exit: int
    timed_out: bool
    tail: str  # the end of its output


def start(run_folder: Path, job_id: str, run: int, launch: ProgramLaunch, timeout_s: float) -> None:
    """Start a run, once, in the slot that the caller holds; raises OrderProblem, StillRunning."""
    if read_state(run_folder, job_id, run) is not None:
        return
    _check_startable(launch)
    with translate_os_errors(run_folder):
        run_folder.mkdir(parents=True, exist_ok=True)
        mark = _write_ticket(run_folder, job_id, run)
        _delete_old_runs(run_folder)
        status_file = _status_file(run_folder, job_id, run)
        code = _launch(status_file, mark, launch, timeout_s)
        unclaimed = read_json(run_folder / RECORD) == _ticket(job_id, run, mark)
        # If overtaken, another caller's program has the slot: that is no failure.
        if code not in (program_child.STARTED, program_child.OVERTAKEN) or unclaimed:
            why = Message("the program's supervisor ended with %(problem)s", problem=code)
            raise _runner_failed(why, _log_tail(status_file))


def read_state(run_folder: Path, job_id: str, run: int) -> ProgramRunning | ProgramEnded | None:
    """Read the state of a run; None: never started, or it died with its supervisor."""
    status_file = _status_file(run_folder, job_id, run)
    with translate_os_errors(run_folder):
        if ended := _read_end(status_file):
            return ended
        record = read_json(run_folder / RECORD) or {}
        is_ours = (record.get("job_id"), record.get("run")) == (job_id, run)
        if is_ours and program_child.is_alive(record):
            return ProgramRunning(record["pid"])
        # The program may have ended between the two reads.
        return _read_end(status_file)


def end_current(run_folder: Path) -> None:
    """End the slot's program and its children, on this machine only; raises StillRunning."""
    with translate_os_errors(run_folder):
        if not (run_folder / RECORD).exists():
            return
        with lock_record(run_folder):
            record = read_json(run_folder / RECORD) or {}
            if "pid" not in record:
                (run_folder / RECORD).unlink(missing_ok=True)
                return
        mark = str(record.get("mark", ""))
        has_ended = program_child.kill_process(record, _KILL_TIMEOUT_S)
        if has_ended and mark:
            has_ended = program_child.kill_marked(mark, within_s=_KILL_TIMEOUT_S)
        if not has_ended:
            why = f"the program of job {record.get('job_id')} was killed but has not ended"
            raise StillRunning(why, details={"pid": record["pid"]})
        with lock_record(run_folder):
            if read_json(run_folder / RECORD) == record:
                (run_folder / RECORD).unlink()


def _write_ticket(run_folder: Path, job_id: str, run: int) -> str:
    mark = secrets.token_hex(16)
    for _ in range(_MAX_START_ATTEMPTS):
        end_current(run_folder)
        with lock_record(run_folder):
            if "pid" not in (read_json(run_folder / RECORD) or {}):
                program_child.write_json(run_folder / RECORD, _ticket(job_id, run, mark))
                return mark
    raise StillRunning("other processes start programs as often as this one ends them")


def _ticket(job_id: str, run: int, mark: str) -> dict[str, Any]:
    return {"job_id": job_id, "run": run, "mark": mark}


def _launch(status_file: Path, mark: str, launch: ProgramLaunch, timeout_s: float) -> int:
    supervisor = [sys.executable, "-I", "-S", program_child.__file__, str(status_file.absolute())]
    with status_file.with_suffix(".log").open("ab") as log:
        try:
            return subprocess.run(  # noqa: S603 - no shell, and the command is configured
                [*supervisor, str(timeout_s), "--", *launch.command],
                env={**child_environment(*_DESKTOP_VARIABLES), program_child.MARK: mark},
                cwd=launch.working_folder or status_file.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                timeout=_START_TIMEOUT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            end_current(status_file.parent)
            why = Message("the program did not start within %(n)s s", n=f"{_START_TIMEOUT_S:g}")
            raise _runner_failed(why) from None
        except (OSError, ValueError) as problem:
            why = Message("the program cannot be started: %(problem)s", problem=problem)
            raise _runner_failed(why) from None


def _check_startable(launch: ProgramLaunch) -> None:
    if not hasattr(os, "pidfd_open"):
        raise _runner_failed("programs can be started only on Linux; elsewhere, use mode C")
    for file in launch.files:
        with translate_os_errors(file):
            if not file.is_file():
                raise _runner_failed(Message("the import file %(file)s is missing", file=file))


def _delete_old_runs(run_folder: Path) -> None:
    """Delete all but the newest results and logs; the slot's own run is always kept."""
    for pattern in ("*.*.json", "*.*.log"):
        runs = [file for file in list_plain_files(run_folder) if file.path.match(pattern)]
        for old in sorted(runs, key=lambda run: run.modified_ns, reverse=True)[MAX_KEPT_RUNS:]:
            old.path.unlink(missing_ok=True)


def _read_end(status_file: Path) -> ProgramEnded | None:
    status: dict[str, Any] = read_json(status_file) or {}
    try:
        tail = storable(str(status["log_tail"]))
        return ProgramEnded(int(status["exit"]), bool(status["timed_out"]), tail)
    except (KeyError, TypeError, ValueError):
        return None


def _status_file(run_folder: Path, job_id: str, run: int) -> Path:
    if not _JOB_ID.fullmatch(job_id) or run < 0:
        raise ValueError(f"expected a job's id and the number of a run, got {job_id!r}, {run}")
    return run_folder / f"{job_id}.{run}.json"


def _log_tail(status_file: Path) -> str:
    with status_file.with_suffix(".log").open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - program_child.TAIL_BYTES))
        return storable(log.read().decode("utf-8", errors="replace"))


def _runner_failed(message: str, tail: str = "") -> OrderProblem:
    return OrderProblem(OptiCode.OPTI_RUNNER_FAILED, message, {"tail": tail} if tail else None)
