"""The two settings files of the workload, read and written as JSON."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.payload import field_problems, refused

UNFINISHED: Final = ".tmp"


def write_whole(path: Path, data: bytes) -> None:
    """Write beside the file, make sure it is on the disk, then give it its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
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
    _sync(path.parent)


def drop_unfinished(folder: Path, beginning: str) -> None:
    """Remove what a killed process left of files whose names begin so."""
    for left in folder.glob(f".{beginning}*{UNFINISHED}"):
        with suppress(OSError):
            left.unlink()


def _sync(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):  # Windows keeps names in order by itself
        return
    with suppress(OSError):  # nor does every network share know how
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_BYTES_MAX: Final = 1_000_000


def read_json_file(file: Path) -> Any:
    """What the file holds; raises OrderProblem when it cannot be read."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_BYTES_MAX)  # of a longer file, what is left is no JSON
        return json.loads(data.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as problem:
        raise OrderProblem(
            OptiCode.CONFIG_UNAVAILABLE, f"{file} cannot be read: {problem}", {"file": str(file)}
        ) from None


def read_object(file: Path) -> dict[str, Any] | None:
    """Return the JSON object in the file; None if the file is missing or holds none."""
    try:
        content = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def write_json_file(file: Path, content: Any) -> None:
    """Replace the file in one go, spelled for people; raises OrderProblem when that fails."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        write_whole(file, f"{text}\n".encode())
    except OSError as problem:
        raise OrderProblem(
            OptiCode.CONFIG_UNAVAILABLE, f"{file} cannot be written: {problem}", {"file": str(file)}
        ) from problem


@contextmanager
def in_our_words() -> Iterator[None]:
    """What pydantic finds wrong with settings somebody sends, as an OrderProblem."""
    try:
        yield
    except ValidationError as problem:
        raise refused(list(field_problems(problem))) from None


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """What is wrong with settings that lie in a file, with its name."""
    try:
        yield
    except OrderProblem as problem:
        raise OrderProblem(
            OptiCode.CONFIG_UNAVAILABLE,
            f"{file}: {problem.message}",
            {**problem.details, "file": str(file)},
        ) from None
