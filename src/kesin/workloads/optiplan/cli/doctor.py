"""`kesin optiplan doctor`: check that orders can be processed here, and say what to fix."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from kesin.foundation.check import DoctorCheck
from kesin.foundation.problems import Problem
from kesin.foundation.terminal import visible
from kesin.store.errors import StoreError
from kesin.workloads.common.cli import open_workload
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.orders.payload import OptiMode
from kesin.workloads.optiplan.pipeline.program import build_launch
from kesin.workloads.optiplan.pipeline.solution import load_schema
from kesin.workloads.optiplan.pipeline.waiting import blocked_orders
from kesin.workloads.optiplan.pipeline.xlsx_template import read_template
from kesin.workloads.optiplan.service import QUEUE
from kesin.workloads.optiplan.stock.offcut import OffcutFilter
from kesin.workloads.optiplan.stock.rack import Rack
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.paths import Paths
from kesin.workloads.optiplan.workshop.rules import rule_warnings

MAX_DOUBTS: Final = 100  # listed
_MODE_MEANING: Final[dict[OptiMode, str]] = {
    "A": "Kesin starts the optimiser",
    "B": "Kesin starts the macro",
    "C": "an operator starts OptiPlanning, then approves",
}


def run_checks(workshop: Workshop) -> Iterator[DoctorCheck]:
    """Run every check, in the order in which to fix failures."""
    mode: OptiMode | None = None
    yield _check("rules", workshop.rules_file, workshop.rules)
    with suppress(OrderProblem):
        rules = workshop.rules()
        mode = rules.opti_mode_default
        yield from (DoctorCheck("rules", "warning", text) for text in rule_warnings(rules))
    yield _check("paths", workshop.paths_file, workshop.paths)
    try:
        paths = workshop.paths()
    except OrderProblem:
        return
    yield _check("template", paths.template, lambda: read_template(paths.template))
    yield _check_writable("import folder", paths.import_folder)
    yield _check_writable("export folder", paths.export_folder)
    for folder in (paths.inbox, paths.processed, paths.failed):
        yield _check_writable(f"saw {folder.name}", folder)
    yield from _check_optimiser(workshop, paths, mode or ("A" if paths.built_in_optimiser else "C"))
    if (xsd := workshop.settings.optiplan_xsd) is not None:
        yield _check("XSD", xsd, lambda: load_schema(xsd))


def check_orders() -> Iterator[DoctorCheck]:
    """Report every order that waits for what cannot be used now."""
    try:
        with open_workload(QUEUE, made_by="start `kesin serve` once") as context:
            blocked = blocked_orders(context.queue)
            doubts, _ = Rack(context.queue).page(OffcutFilter(state="IN_DOUBT"), MAX_DOUBTS)
    except (Problem, StoreError) as problem:
        yield DoctorCheck("orders", "warning", f"cannot be read: {problem}")
        return
    for job in blocked:
        found = f"{job.id} is waiting in {job.state}: {job.error_code}, {job.error_message}"
        yield DoctorCheck.result("orders", ok=False, found=visible(found))
    for offcut in doubts:
        found = f"{offcut.id} is in doubt: record on the “Offcut rack” page whether it was cut"
        yield DoctorCheck("rack", "warning", found)
    if not blocked:
        yield DoctorCheck.result("orders", ok=True, found="no order is blocked")


def _check(name: str, found: object, work: Callable[[], object]) -> DoctorCheck:
    """Report what was found if the work succeeds, else its problem."""
    try:
        work()
    except OrderProblem as problem:
        return DoctorCheck.result(name, ok=False, found=problem.message)
    return DoctorCheck.result(name, ok=True, found=str(found))


def _check_writable(name: str, folder: Path) -> DoctorCheck:
    """Create and delete an empty file; it is hidden, so the machine ignores it."""
    trial = folder / f".kesin-doctor-{secrets.token_hex(4)}.tmp"
    try:
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as problem:
        why = problem.strerror or type(problem).__name__
        return DoctorCheck.result(name, ok=False, found=f"{folder} cannot be written to: {why}")
    return DoctorCheck.result(name, ok=True, found=str(folder))


def _check_optimiser(workshop: Workshop, paths: Paths, mode: OptiMode) -> Iterator[DoctorCheck]:
    yield DoctorCheck.result("mode", ok=True, found=f"{mode}: {_MODE_MEANING[mode]}")
    if mode == "C" and (paths.exe is None or paths.exe.is_file()):
        return
    if mode != "C" and not hasattr(os, "pidfd_open"):
        problem_text = "Kesin starts programs only on Linux: set optiModeDefault to C"
        yield DoctorCheck.result("optimiser", ok=False, found=problem_text)
        return
    macro = workshop.settings.optiplan_macro_command
    yield _check("optimiser", paths.exe or "built in", lambda: build_launch(mode, paths, [], macro))
