"""A file that is there whole or not at all: other programs watch the folders we write into."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

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
