"""Trades: the workloads that stand on the engine. Adding one is a folder and a line here."""

from __future__ import annotations

from collections.abc import Callable

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.task import task_lifecycle
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle

LIFECYCLES: dict[str, Callable[[], Lifecycle]] = {
    "oci": oci_lifecycle,
    "pdf": pdf_lifecycle,
    "optiplan": optiplan_lifecycle,
    "task": task_lifecycle,
}
