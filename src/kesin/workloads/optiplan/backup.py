"""The workshop's part of a backup: its rules, its paths and the files of its orders.

The machine's folder is left out: a file that the saw has taken must never be offered to it again.
"""

from collections.abc import Iterator
from pathlib import Path

from kesin.engine.transfer.backup import BackupFile
from kesin.foundation.settings import Settings
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.paths import load_paths


def backup_files(settings: Settings) -> Iterator[BackupFile | str]:
    """List the files and folders below the data folder, and a sentence for each one left out."""
    workshop = Workshop(settings)
    base = settings.data_dir.absolute()
    if not workshop.paths_file.exists():
        return  # nothing has been set up
    yield _backup_file(base, workshop.rules_file)
    yield _backup_file(base, workshop.paths_file)
    try:
        paths = load_paths(workshop.paths_file)
    except OrderProblem as problem:
        yield f"files of orders: {problem.message}"
        return
    for place in (paths.import_folder, paths.export_folder, paths.rules_folder, paths.template):
        if place.is_relative_to(base):
            yield _backup_file(base, place)
        else:
            yield f"{place}: it lies outside the data folder"
    yield f"{paths.machine_drop_folder}: what the saw has taken must not lie before it again"


def _backup_file(base: Path, path: Path) -> BackupFile:
    return BackupFile(f"data/{path.relative_to(base).as_posix()}", path)
