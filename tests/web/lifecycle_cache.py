"""A cache of the lifecycles of the workloads: each test has a service of its own.

A lifecycle is a value: the same limits make the same one. To make, check and hash those of all
workloads takes longer than most requests. So does the check of the schemas of all templates.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from kesin.engine.workload import Workload
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.task import task_lifecycle
from kesin.store.declarations import declared_moves
from kesin.store.sql import rules
from kesin.workloads import built_in
from kesin.workloads.oci import lifecycle as oci
from kesin.workloads.oci.lifecycle import adjustment_lifecycle
from kesin.workloads.optiplan.workshop import config as optiplan
from kesin.workloads.pdf import lifecycle as pdf
from kesin.workloads.pdf.lifecycle import batch_lifecycle, webhook_lifecycle

_hash = Lifecycle.__hash__
_check_schema = Draft202012Validator.check_schema
_batches = cache(batch_lifecycle)
_cached: dict[str, Callable[[], Lifecycle]] = {
    "oci": lambda: oci.with_settings(oci.oci_lifecycle),
    "oci_adjustments": cache(adjustment_lifecycle),
    "pdf_batches": lambda: _batches(pdf.configured_ttl_hours()),
    "pdf_webhooks": cache(webhook_lifecycle),
}
TASK = Workload("task", cache(task_lifecycle), "Anything")


def _hash_once(lifecycle: Lifecycle) -> int:
    known: int | None = lifecycle.__dict__.get("_hash")
    if known is None:
        known = lifecycle.__dict__["_hash"] = _hash(lifecycle)
    return known


@cache
def _check_text(schema: str) -> None:
    _check_schema(json.loads(schema))


def _check_once(schema: Any) -> None:
    """Each valid schema is checked once."""
    _check_text(json.dumps(schema))


def make_once() -> None:
    """From now on, in this process."""
    Draft202012Validator.check_schema = _check_once  # type: ignore[method-assign,assignment]
    Lifecycle.__hash__ = _hash_once  # type: ignore[method-assign,assignment]
    oci.oci_lifecycle = cache(oci.oci_lifecycle)
    pdf.pdf_lifecycle = cache(pdf.pdf_lifecycle)
    optiplan.optiplan_lifecycle = cache(optiplan.optiplan_lifecycle)  # type: ignore[attr-defined]
    rules.declared_moves = cache(declared_moves)  # type: ignore[attr-defined]


@cache
def workloads() -> dict[str, Workload]:
    """Those of Kesin, and one for anything."""
    ours = {
        workload.name: replace(workload, lifecycle=_cached.get(workload.name, workload.lifecycle))
        for workload in built_in()
    }
    return {**ours, TASK.name: TASK}
