"""Atomic file writes, and the workshop's settings files as JSON."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

from kesin.foundation.messages import Message
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem

T = TypeVar("T")
UNFINISHED_SUFFIX: Final = ".tmp"
_NO_FOLDER_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a hidden file, sync it to disk, then rename it to its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED_SUFFIX}")
    try:
        with hidden.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
    except BaseException:
        with suppress(OSError):
            hidden.unlink()
        raise
    with suppress(OSError):  # some network shares do not support it
        sync_folder(path.parent)


def remove_unfinished(folder: Path, prefix: str) -> None:
    """Remove unfinished files with this prefix that a killed process has left."""
    for leftover in folder.glob(f".{prefix}*{UNFINISHED_SUFFIX}"):
        with suppress(OSError):
            leftover.unlink()


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk, where the file system supports it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as problem:
        if problem.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


_MAX_BYTES: Final = 1_000_000


def read_shipped(name: str) -> bytes:
    """Read a file that comes with Kesin, with which a workshop starts."""
    return files("kesin.workloads.optiplan").joinpath("templates", name).read_bytes()


def read_json_file(file: Path) -> Any:
    """Read a JSON file; raises OrderProblem if it cannot be read."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES)  # a longer file is cut off and fails to parse
        return json.loads(data.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as problem:
        raise _file_problem(file, "%(file)s cannot be read: %(problem)s", problem) from None


def read_object(file: Path) -> dict[str, Any] | None:
    """Return the JSON object in the file; None if the file is missing or holds none."""
    try:
        content = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def write_json_file(file: Path, content: Any) -> None:
    """Replace a JSON file atomically, indented for readers; raises OrderProblem."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        write_atomically(file, f"{text}\n".encode())
    except OSError as problem:
        raise _file_problem(file, "%(file)s cannot be written: %(problem)s", problem) from problem


def read_settings_file(file: Path, read: Callable[[Any], T]) -> T:
    """Read a JSON file with ``read``, which validates it; an OrderProblem names the file."""
    body = read_json_file(file)
    try:
        return read(body)
    except OrderProblem as problem:
        why, details = Message(problem.message), {**problem.details, "file": str(file)}
        message = Message("%(field)s: %(problem)s", field=file, problem=why)
        raise OrderProblem(OptiCode.CONFIG_UNAVAILABLE, message, details) from None


def _file_problem(file: Path, message: str, problem: Exception) -> OrderProblem:
    code, details = OptiCode.CONFIG_UNAVAILABLE, {"file": str(file)}
    return OrderProblem(code, message, details, file=file, problem=problem)
