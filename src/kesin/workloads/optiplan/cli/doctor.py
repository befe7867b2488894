"""`kesin optiplan doctor`: whether an order could go its whole way here; if not, what to do."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.orders.payload import Mode
from kesin.workloads.optiplan.pipeline.program import macro_command, trigger_for
from kesin.workloads.optiplan.pipeline.xlsx_template import check_template
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.paths import Paths

_WHO: Final[dict[Mode, str]] = {
    "A": "Kesin starts the optimiser",
    "B": "Kesin starts the macro",
    "C": "an operator starts OptiPlanning, then approves",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor."""

    name: str
    ok: bool
    detail: str


def examined(workshop: Workshop) -> Iterator[Check]:
    """Everything, in the order in which one would mend it."""
    mode: Mode | None = None
    try:
        rules = workshop.rules()
        yield Check("rules", ok=True, detail=str(workshop.rules_file))
        mode = rules.opti_mode_default
    except OrderProblem as problem:
        yield Check("rules", ok=False, detail=problem.message)
    try:
        paths = workshop.paths()
    except OrderProblem as problem:
        yield Check("paths", ok=False, detail=problem.message)
        return
    yield Check("paths", ok=True, detail=str(workshop.paths_file))
    yield _template(paths)
    yield _writable("import folder", paths.import_folder)
    yield _writable("export folder", paths.export_folder)
    for folder in (paths.inbox, paths.processed, paths.failed):
        yield _writable(f"machine {folder.name}", folder)
    yield from _optimiser(workshop, paths, mode or ("A" if paths.built_in_optimiser else "C"))
    if workshop.settings.optiplan_xsd is not None:
        yield _schema(workshop.settings.optiplan_xsd)


def _template(paths: Paths) -> Check:
    try:
        check_template(paths.template)
    except OrderProblem as problem:
        return Check("template", ok=False, detail=problem.message)
    return Check("template", ok=True, detail=str(paths.template))


def _writable(name: str, folder: Path) -> Check:
    """A small file is put there and taken away; the machine looks at no hidden ones."""
    trial = folder / f".kesin-doctor-{secrets.token_hex(4)}.tmp"
    try:
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as problem:
        why = problem.strerror or type(problem).__name__
        return Check(name, ok=False, detail=f"{folder} cannot be written: {why}")
    return Check(name, ok=True, detail=str(folder))


def _optimiser(workshop: Workshop, paths: Paths, mode: Mode) -> Iterator[Check]:
    yield Check("mode", ok=True, detail=f"{mode}: {_WHO[mode]}")
    if mode == "C":
        return
    try:
        told = workshop.settings.optiplan_macro_command
        macro = macro_command(told) if mode == "B" else ()
        command = trigger_for(mode, paths, [], macro).command
    except OrderProblem as problem:
        yield Check("optimiser", ok=False, detail=problem.message)
        return
    if not hasattr(os, "pidfd_open"):
        told = "programs are started on Linux only: set optiModeDefault to C"
        yield Check("optimiser", ok=False, detail=told)
        return
    yield Check("optimiser", ok=True, detail="built in" if paths.built_in_optimiser else command[0])


def _schema(xsd: Path) -> Check:
    from lxml import etree  # type: ignore[import-untyped]

    try:
        etree.XMLSchema(etree.parse(str(xsd), etree.XMLParser(no_network=True)))
    except (OSError, etree.LxmlError) as problem:
        return Check("XSD", ok=False, detail=f"{xsd} cannot be used: {problem}")
    return Check("XSD", ok=True, detail=str(xsd))
