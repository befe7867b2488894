"""The two settings files of the workload, read and written as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from kesin.workloads.optiplan.atomic import write_whole
from kesin.workloads.optiplan.codes import OptiCode, OrderProblem
from kesin.workloads.optiplan.payload import field_problems, refused

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
