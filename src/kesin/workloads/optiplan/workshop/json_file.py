"""Atomic file writes, and the workshop's settings files as JSON."""

import json
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeVar

from kesin.foundation import files
from kesin.foundation.messages import Message
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem

T = TypeVar("T")
_MAX_BYTES: Final = 1_000_000


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file that others may read; its folder is created if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(path, data)


def remove_unfinished(folder: Path, prefix: str) -> None:
    """Remove unfinished files with this prefix that a killed process has left."""
    for leftover in folder.glob(f".{prefix}*{files.UNFINISHED_SUFFIX}"):
        with suppress(OSError):
            leftover.unlink()


def read_shipped(name: str) -> bytes:
    """Read a file that comes with Kesin, with which a workshop starts."""
    return resources.files("kesin.workloads.optiplan").joinpath("templates", name).read_bytes()


def write_json_file(file: Path, content: Any) -> None:
    """Replace a JSON file atomically, indented for readers; raises OrderProblem."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        write_atomically(file, f"{text}\n".encode())
    except OSError as problem:
        raise _file_problem(file, "%(file)s cannot be written: %(problem)s", problem) from problem


def read_settings_file(file: Path, read: Callable[[Any], T]) -> T:
    """Read a JSON file with ``read``, which validates it; an OrderProblem names the file."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES)  # a longer file is cut off and fails to parse
        body = json.loads(data.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as problem:
        raise _file_problem(file, "%(file)s cannot be read: %(problem)s", problem) from None
    try:
        return read(body)
    except OrderProblem as problem:
        why, details = Message(problem.message), {**problem.details, "file": str(file)}
        message = Message("%(field)s: %(problem)s", field=file, problem=why)
        raise OrderProblem(OptiCode.CONFIG_UNAVAILABLE, message, details) from None


def _file_problem(file: Path, message: str, problem: Exception) -> OrderProblem:
    code, details = OptiCode.CONFIG_UNAVAILABLE, {"file": str(file)}
    return OrderProblem(code, message, details, file=file, problem=problem)
