"""`kesin optiplan doctor`: check that orders can be processed here, and say what to fix."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kesin.foundation.check import DoctorCheck
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.orders.payload import OptiMode
from kesin.workloads.optiplan.pipeline.program import build_launch, parse_macro_command
from kesin.workloads.optiplan.pipeline.xlsx_template import read_template
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.paths import Paths

_MODE_MEANING: Final[dict[OptiMode, str]] = {
    "A": "Kesin starts the optimiser",
    "B": "Kesin starts the macro",
    "C": "an operator starts OptiPlanning, then approves",
}


def run_checks(workshop: Workshop) -> Iterator[DoctorCheck]:
    """Run every check, in the order in which to fix failures."""
    mode: OptiMode | None = None
    try:
        rules = workshop.rules()
        yield DoctorCheck.result("rules", ok=True, found=str(workshop.rules_file))
        mode = rules.opti_mode_default
    except OrderProblem as problem:
        yield DoctorCheck.result("rules", ok=False, found=problem.message)
    try:
        paths = workshop.paths()
    except OrderProblem as problem:
        yield DoctorCheck.result("paths", ok=False, found=problem.message)
        return
    yield DoctorCheck.result("paths", ok=True, found=str(workshop.paths_file))
    yield _check_template(paths)
    yield _check_writable("import folder", paths.import_folder)
    yield _check_writable("export folder", paths.export_folder)
    for folder in (paths.inbox, paths.processed, paths.failed):
        yield _check_writable(f"machine {folder.name}", folder)
    yield from _check_optimiser(workshop, paths, mode or ("A" if paths.built_in_optimiser else "C"))
    if workshop.settings.optiplan_xsd is not None:
        yield _check_schema(workshop.settings.optiplan_xsd)


def _check_template(paths: Paths) -> DoctorCheck:
    try:
        read_template(paths.template)
    except OrderProblem as problem:
        return DoctorCheck.result("template", ok=False, found=problem.message)
    return DoctorCheck.result("template", ok=True, found=str(paths.template))


def _check_writable(name: str, folder: Path) -> DoctorCheck:
    """Create and delete an empty file; it is hidden, so the machine ignores it."""
    trial = folder / f".kesin-doctor-{secrets.token_hex(4)}.tmp"
    try:
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as problem:
        why = problem.strerror or type(problem).__name__
        return DoctorCheck.result(name, ok=False, found=f"{folder} cannot be written: {why}")
    return DoctorCheck.result(name, ok=True, found=str(folder))


def _check_optimiser(workshop: Workshop, paths: Paths, mode: OptiMode) -> Iterator[DoctorCheck]:
    yield DoctorCheck.result("mode", ok=True, found=f"{mode}: {_MODE_MEANING[mode]}")
    if mode == "C":
        return
    try:
        setting = workshop.settings.optiplan_macro_command
        macro = parse_macro_command(setting) if mode == "B" else ()
        command = build_launch(mode, paths, [], macro).command
    except OrderProblem as problem:
        yield DoctorCheck.result("optimiser", ok=False, found=problem.message)
        return
    if not hasattr(os, "pidfd_open"):
        problem_text = "programs are started on Linux only: set optiModeDefault to C"
        yield DoctorCheck.result("optimiser", ok=False, found=problem_text)
        return
    yield DoctorCheck.result(
        "optimiser", ok=True, found="built in" if paths.built_in_optimiser else command[0]
    )


def _check_schema(xsd: Path) -> DoctorCheck:
    from lxml import etree  # type: ignore[import-untyped]

    try:
        etree.XMLSchema(etree.parse(str(xsd), etree.XMLParser(no_network=True)))
    except (OSError, etree.LxmlError) as problem:
        return DoctorCheck.result("XSD", ok=False, found=f"{xsd} cannot be used: {problem}")
    return DoctorCheck.result("XSD", ok=True, found=str(xsd))
