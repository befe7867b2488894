"""What a backup holds of the workshop: its rules and paths, and files that orders wait for.

Not the machine's folder: a file that the saw has taken must never lie before it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kesin.engine.transfer.backup import Kept
from kesin.foundation.settings import Settings
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.paths import load_paths


def kept(settings: Settings) -> Iterator[Kept | str]:
    """Files below the data folder, under their names there; a sentence for what is elsewhere."""
    workshop = Workshop(settings)
    base = settings.data_dir.absolute()
    if not workshop.paths_file.exists():
        return  # nothing has been set up
    yield _named(base, workshop.rules_file)
    yield _named(base, workshop.paths_file)
    try:
        paths = load_paths(workshop.paths_file)
    except OrderProblem as problem:
        yield f"files of orders: {problem.message}"
        return
    for place in (paths.import_folder, paths.export_folder, paths.rules_folder, paths.template):
        if place.is_relative_to(base):
            yield _named(base, place)
        else:
            yield f"{place}: it lies outside the data folder"
    yield f"{paths.machine_drop_folder}: what the saw has taken must not lie before it again"


def _named(base: Path, place: Path) -> Kept:
    return Kept(f"data/{place.relative_to(base).as_posix()}", place)
