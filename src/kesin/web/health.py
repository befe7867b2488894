"""The health of a part of the service, of its disks and of its workloads."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.settings import Settings
from kesin.store.errors import StoreError

_PROBE_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The health of one part; the service is ready without a part that is not ``needed``."""

    ok: bool
    detail: str
    needed: bool = True


def find_disk_problems(settings: Settings, workloads: Iterable[Workload]) -> Iterator[tuple[Path, str]]:
    """Yield the data directory, the database and files of workloads whose disk has a problem."""
    file = settings.database_file
    lists = (each.backup_files(settings) for each in workloads if each.backup_files is not None)
    files = (entry.path for entries in lists for entry in entries if not isinstance(entry, str))
    for location in (settings.data_dir, *([] if file is None else [file.parent]), *files):
        folder = next(parent for parent in (location, *location.absolute().parents) if parent.is_dir())
        if shutil.disk_usage(folder).free // 1_000_000 < settings.min_free_mb:
            yield location, "is nearly full"
        elif not os.access(folder, os.W_OK | os.X_OK) or not _can_write(folder):
            yield location, "cannot be written"
    if file is not None and file.exists() and not os.access(file, os.W_OK):
        yield file, "cannot be written"


def check_workload(workload: Workload, context: WorkloadContext) -> HealthCheck | None:
    """Return the health that a workload reports; None if it reports none."""
    read = getattr(workload.pages() if workload.pages else None, "health", None)
    if read is None:
        return None
    try:
        checked: HealthCheck = read(context)
    except StoreError as problem:  # its store has a check of its own
        return HealthCheck(ok=False, detail=str(problem), needed=False)
    except Exception as problem:  # noqa: BLE001  # whatever it is, it is not ready
        return HealthCheck(ok=False, detail=type(problem).__name__)
    return checked


def _can_write(folder: Path) -> bool:
    """Whether a file can be written: a quota shows neither as free space nor as a permission."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return file.write(bytes(_PROBE_BYTES)) == _PROBE_BYTES
    except OSError:
        return False
