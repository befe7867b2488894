"""The one program that optimises: started, looked at and ended by workers that may die any time.

The run folder belongs to the slot, not to a job: its ``program.json`` names the process that uses
the slot, or used it last. A run is a job and a number; a new start wants a new number, and how a
run ended is kept under it. Only Linux tells enough of processes; elsewhere orders go by mode C.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from kesin.foundation.problems import Unavailable
from kesin.foundation.text import storable
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline import program_child
from kesin.workloads.optiplan.pipeline.program_child import (
    MARK,
    OVERTAKEN,
    RECORD,
    STARTED,
    TAIL_BYTES,
    end_marked,
    end_one,
    lives,
    locked,
    read_json,
    write_json,
)
from kesin.workloads.optiplan.pipeline.shared_folder import minding
from kesin.workloads.optiplan.workshop.paths import Paths

MACRO: Final = "RunOptiPlanning.xls"
MACRO_HERE: Final = "{macro}"
OPTIMISER: Final = "kesin.workloads.optiplan.optimizer"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A command, the import files it is for, and the folder it runs in (None: the run's own)."""

    command: tuple[str, ...]
    files: tuple[Path, ...]
    working_folder: Path | None = None


def trigger_for(
    mode: Literal["A", "B"], paths: Paths, files: Sequence[Path], macro: Sequence[str] = ()
) -> Trigger:
    """What to start; raises OrderProblem with what is missing. ``macro`` opens it, in mode B.

    A program of the workshop's runs in its own folder, where such programs look for their settings.
    """
    command = _program(paths) if mode == "A" else _macro(paths, macro)
    folder = paths.exe.parent if paths.exe else None
    return Trigger((*command, *map(str, files)), tuple(files), folder)


def macro_command(told: str) -> list[str]:
    """The words of the command that opens the macro; raises OrderProblem."""
    try:
        return shlex.split(told)
    except ValueError as problem:
        raise OrderProblem(
            OptiCode.OPTI_RUNNER_FAILED,
            f"KESIN_OPTIPLAN_MACRO_COMMAND cannot be taken apart: {problem}",
        ) from None


def _program(paths: Paths) -> list[str]:
    if paths.exe is None:
        return [sys.executable, "-m", OPTIMISER, "--out", str(paths.export_folder)]
    if not _is_there(paths.exe):
        raise OrderProblem(
            OptiCode.OPTI_MODE_A_RUNNER_MISSING,
            f"there is no program at {paths.exe}: correct optiplanningExePath in paths.json",
            {"program": str(paths.exe)},
        )
    return [str(paths.exe)]


def _macro(paths: Paths, command: Sequence[str]) -> list[str]:
    macro = paths.exe.with_name(MACRO) if paths.exe else None
    if macro is None or not _is_there(macro):
        where = f"beside {paths.exe}" if paths.exe else "beside OptiPlanning, which is not set up"
        raise OrderProblem(
            OptiCode.OPTI_MODE_B_MACRO_MISSING,
            f"{MACRO} must lie {where}",
            {"macro": str(macro) if macro else None},
        )
    if not command:
        raise OrderProblem(
            OptiCode.OPTI_RUNNER_FAILED,
            f"mode B is given no command to open the macro with: configure one, with {MACRO_HERE}"
            " where the path of the macro belongs",
            {"macro": str(macro)},
        )
    return [piece.replace(MACRO_HERE, str(macro)) for piece in command]


def _is_there(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:  # a folder that may not be entered
        return False


RUNS_KEPT: Final = 100
_START_S: Final = 60.0
_END_S: Final = 10.0
_TRIES: Final = 3
_JOB_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_OUR_SETTINGS: Final = "KESIN_"  # passwords among them, which are no business of the program's


class StillRunning(Unavailable):
    """A program that does not end though it was killed; waiting may help."""


@dataclass(frozen=True, slots=True)
class Running:
    """It is at work on this machine."""

    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """It has ended; below zero is the signal that ended it, 127 that it could not be started."""

    exit: int
    timed_out: bool
    tail: str  # the last it said


@dataclass(frozen=True, slots=True)
class Never:
    """It does not run and told no end: it was never started, or was killed with its minder."""


def start(run_folder: Path, job_id: str, run: int, trigger: Trigger, timeout_s: float) -> None:
    """Have the program running when this returns, unless this run has ended already.

    Any other program is ended first, so the caller must hold the slot. Raises OrderProblem if it
    cannot be started, StillRunning if the earlier one does not end, FolderAway.
    """
    if not timeout_s > 0:
        raise ValueError(f"timeout_s must be more than 0, got {timeout_s}")
    if not isinstance(look(run_folder, job_id, run), Never):
        return
    _check_startable(trigger)
    with minding(run_folder):
        run_folder.mkdir(parents=True, exist_ok=True)
        mark = _take_ticket(run_folder, job_id, run)
        _forget_old_runs(run_folder)
        status_file = _status_file(run_folder, job_id, run)
        code = _launch(status_file, mark, trigger, timeout_s)
        left = read_json(run_folder / RECORD) == _ticket(job_id, run, mark)
        if code not in (STARTED, OVERTAKEN) or left:  # overtaken: another caller's program counts
            raise _failed(f"the program's minder ended with {code}", _last_of(status_file))


def look(run_folder: Path, job_id: str, run: int) -> Running | Ended | Never:
    """How it stands with a run; raises FolderAway."""
    status_file = _status_file(run_folder, job_id, run)
    with minding(run_folder):
        if ended := _end_of(status_file):
            return ended
        record = read_json(run_folder / RECORD) or {}
        if (record.get("job_id"), record.get("run")) == (job_id, run) and lives(record):
            return Running(record["pid"])
        return _end_of(status_file) or Never()  # it may have ended between the two questions


def end_earlier(run_folder: Path) -> None:
    """End whatever program has the slot, and all it started; raises StillRunning, FolderAway.

    A ticket nobody has claimed yet is torn up. A process of another machine cannot be ended from
    here and is forgotten: the program is pinned to one.
    """
    with minding(run_folder):
        if not (run_folder / RECORD).exists():
            return
        with locked(run_folder):
            record = read_json(run_folder / RECORD) or {}
            if "pid" not in record:
                (run_folder / RECORD).unlink(missing_ok=True)
                return
        mark = str(record.get("mark", ""))
        if not end_one(record, _END_S) or (mark and not end_marked(mark, within_s=_END_S)):
            raise StillRunning(
                f"the program of job {record.get('job_id')} was killed and does not end",
                details={"pid": record["pid"]},
            )
        with locked(run_folder):
            if read_json(run_folder / RECORD) == record:
                (run_folder / RECORD).unlink()


def _take_ticket(run_folder: Path, job_id: str, run: int) -> str:
    mark = secrets.token_hex(16)
    for _ in range(_TRIES):
        end_earlier(run_folder)
        with locked(run_folder):
            if "pid" not in (read_json(run_folder / RECORD) or {}):
                write_json(run_folder / RECORD, _ticket(job_id, run, mark))
                return mark
    raise StillRunning("others start programs as often as this one ends them")


def _ticket(job_id: str, run: int, mark: str) -> dict[str, Any]:
    return {"job_id": job_id, "run": run, "mark": mark}


def _launch(status_file: Path, mark: str, trigger: Trigger, timeout_s: float) -> int:
    own = {name: value for name, value in os.environ.items() if not name.startswith(_OUR_SETTINGS)}
    minder = [sys.executable, "-I", "-S", program_child.__file__, str(status_file.absolute())]
    with status_file.with_suffix(".log").open("ab") as log:
        try:
            return subprocess.run(  # noqa: S603 - no shell, and the command is configured
                [*minder, str(timeout_s), "--", *trigger.command],
                env={**own, MARK: mark},
                cwd=trigger.working_folder or status_file.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                timeout=_START_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            end_earlier(status_file.parent)
            raise _failed(f"the program did not start within {_START_S:g} s") from None
        except (OSError, ValueError) as problem:
            raise _failed(f"the program cannot be started: {problem}") from None


def _check_startable(trigger: Trigger) -> None:
    if not hasattr(os, "pidfd_open"):
        raise _failed("programs are started on Linux only; elsewhere use mode C")
    for file in trigger.files:
        with minding(file):
            if not file.is_file():
                raise _failed(f"the import file {file} is gone")


def _forget_old_runs(run_folder: Path) -> None:
    """Keep the last so many ends and logs; the slot's own run is always among them."""
    for ending in (".json", ".log"):
        runs = run_folder.glob(f"*.*{ending}")
        for old in sorted(runs, key=_written_ns, reverse=True)[RUNS_KEPT:]:
            old.unlink(missing_ok=True)


def _written_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _end_of(status_file: Path) -> Ended | None:
    told: dict[str, Any] = read_json(status_file) or {}
    try:
        tail = storable(str(told["log_tail"]))
        return Ended(int(told["exit"]), bool(told["timed_out"]), tail)
    except (KeyError, TypeError, ValueError):
        return None


def _status_file(run_folder: Path, job_id: str, run: int) -> Path:
    if not _JOB_ID.fullmatch(job_id) or run < 0:
        raise ValueError(f"expected a job's id and the number of a run, got {job_id!r}, {run}")
    return run_folder / f"{job_id}.{run}.json"


def _last_of(status_file: Path) -> str:
    with status_file.with_suffix(".log").open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - TAIL_BYTES))
        return storable(log.read().decode("utf-8", errors="replace"))


def _failed(message: str, tail: str = "") -> OrderProblem:
    return OrderProblem(OptiCode.OPTI_RUNNER_FAILED, message, {"tail": tail} if tail else None)
