"""What is started to have an order optimised, in the modes that start something.

A is a program with the files as arguments, B a macro that a configured command opens. Mode C is
the operator, for whom nothing is started. There is never a shell in between.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kesin.workloads.optiplan.codes import OptiCode, OrderProblem
from kesin.workloads.optiplan.paths import Paths

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
