"""The health of a part of the service, and of its disks."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kesin.foundation.settings import Settings

_PROBE_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The health of one part; the service is ready without a part that is not ``needed``."""

    ok: bool
    detail: str
    needed: bool = True


def check_disks(settings: Settings, kept: Iterable[Path]) -> HealthCheck:
    """Check the disks of the data directory, of the database and of what is kept elsewhere."""
    file = settings.database_file
    database = [] if file is None else [file.parent]
    for location in (settings.data_dir, *database, *kept):
        folder = next(
            parent for parent in (location, *location.absolute().parents) if parent.is_dir()
        )
        if shutil.disk_usage(folder).free // 1_000_000 < settings.min_free_mb:
            return HealthCheck(ok=False, detail="is nearly full")
        if not os.access(folder, os.W_OK | os.X_OK) or not _can_write(folder):
            return HealthCheck(ok=False, detail="cannot be written")
    if file is not None and file.exists() and not os.access(file, os.W_OK):
        return HealthCheck(ok=False, detail="cannot be written")
    return HealthCheck(ok=True, detail="has room")


def _can_write(folder: Path) -> bool:
    """Whether a file can be written: a quota shows neither as free space nor as a permission."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return file.write(bytes(_PROBE_BYTES)) == _PROBE_BYTES
    except OSError:
        return False
