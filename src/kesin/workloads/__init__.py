"""Trades: the workloads that stand on the engine. Adding one is a folder and a line here.

A package of somebody else's plugs in without a line: it names its `Workload` in the entry-point
group ``kesin.workloads``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from kesin.engine.workload import Panel, Workload, WorkloadContext
from kesin.foundation.logs import Logger
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.task import task_lifecycle
from kesin.workloads.oci import OCI
from kesin.workloads.optiplan import OPTIPLAN
from kesin.workloads.pdf import PDF, PDF_BATCHES, PDF_WEBHOOKS

__all__ = ["LIFECYCLES", "WORKLOADS", "Panel", "Workload", "WorkloadContext", "workloads"]

log = Logger("kesin.workloads")
GROUP: Final = "kesin.workloads"

WORKLOADS: Final[tuple[Workload, ...]] = (
    OCI,
    PDF,
    PDF_BATCHES,
    PDF_WEBHOOKS,
    OPTIPLAN,
)
LIFECYCLES: dict[str, Callable[[], Lifecycle]] = {
    **{one.name: one.lifecycle for one in WORKLOADS},
    "task": task_lifecycle,
}


def workloads() -> dict[str, Workload]:
    """Every workload by name: ours first, then what other packages bring."""
    found = {one.name: one for one in WORKLOADS}
    for point in entry_points(group=GROUP):
        one = _loaded(point)
        if one is None:
            continue
        if one.name in found:
            log.warning("workload_name_taken", workload=one.name, package=_package(point))
        else:
            found[one.name] = one
    return found


def _loaded(point: EntryPoint) -> Workload | None:
    """The workload behind an entry point; a broken package must not stop the others."""
    try:
        one = point.load()
    except Exception:  # whatever a stranger's module throws
        log.exception("workload_not_loaded", entry_point=point.name, package=_package(point))
        return None
    if isinstance(one, Workload):
        return one
    log.warning("not_a_workload", entry_point=point.name, package=_package(point))
    return None


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"
