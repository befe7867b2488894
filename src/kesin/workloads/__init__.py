"""The registry of workloads: those that come with Kesin, and those of other packages.

A new workload of ours is a folder and a line here. Another package plugs one in without a line: it
names its `Workload` in the entry-point group ``kesin.workloads``. Nothing is imported before it is
asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from kesin.engine.workload import Workload
    from kesin.lifecycle.declare import Lifecycle

ENTRY_POINTS: Final = "kesin.workloads"
BUILT_IN: Final = {  # workload → module:attribute
    "oci": "kesin.workloads.oci:OCI",
    "oci_adjustments": "kesin.workloads.oci:OCI_ADJUSTMENTS",
    "pdf": "kesin.workloads.pdf:PDF",
    "pdf_batches": "kesin.workloads.pdf:PDF_BATCHES",
    "pdf_webhooks": "kesin.workloads.pdf:PDF_WEBHOOKS",
    "optiplan": "kesin.workloads.optiplan:OPTIPLAN",
}
COMMAND_GROUPS: Final = {  # help lines of their commands, shown without loading them
    "oci": "Upload offline conversions to Google Ads.",
    "pdf": "Make PDFs from HTML templates.",
    "optiplan": "Process cutting orders for the saw.",
}


@cache
def built_in() -> tuple[Workload, ...]:
    places = (place.split(":") for place in BUILT_IN.values())
    return tuple(getattr(import_module(module), attribute) for module, attribute in places)


def has_plug_ins() -> bool:
    """Whether another package may bring a workload; read without importlib.metadata.

    A package in an archive cannot be looked into like this: it may.
    """
    for folder in map(Path, dict.fromkeys(sys.path)):
        if folder.is_file():
            return True
        for file in folder.glob("*.*-info/entry_points.txt"):
            if f"[{ENTRY_POINTS}]".encode() in file.read_bytes():
                return True
    return False


def workloads() -> dict[str, Workload]:
    """Every workload by name: ours first, then those of other packages."""
    from kesin.foundation.logs import Logger

    known = {workload.name: workload for workload in built_in()}
    for entry_point in _entry_points(tuple(sys.path)):
        workload = _load(entry_point)
        if workload is None:
            continue
        if workload.name in known:
            Logger("kesin.workloads").warning(
                "workload_name_taken", workload=workload.name, package=_package(entry_point)
            )
        else:
            known[workload.name] = workload
    return known


@cache
def _entry_points(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Those of packages on the path; reading all packages takes longer than most commands."""
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINTS) if has_plug_ins() else ())


def lifecycles() -> dict[str, Callable[[], Lifecycle]]:
    """The lifecycles that a queue can be opened with by name: ours first."""
    from kesin.lifecycle.task import task_lifecycle

    ours = {workload.name: workload.lifecycle for workload in built_in()}
    known = {name: workload.lifecycle for name, workload in workloads().items()}
    return {**ours, "task": task_lifecycle, **known}


def _load(entry_point: EntryPoint) -> Workload | None:
    """The workload behind an entry point; a broken package must not stop the others."""
    from kesin.engine.workload import Workload
    from kesin.foundation.logs import Logger

    log = Logger("kesin.workloads")
    names: dict[str, Any] = {"entry_point": entry_point.name, "package": _package(entry_point)}
    try:
        loaded = entry_point.load()
    except Exception:  # whatever the package raises while it is imported
        log.exception("workload_not_loaded", **names)
        return None
    if isinstance(loaded, Workload):
        return loaded
    log.warning("not_a_workload", **names)
    return None


def _package(entry_point: EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist else "unknown"
