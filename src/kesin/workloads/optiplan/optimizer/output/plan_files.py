"""The files of a batch: a drawing, a printable plan, the solution XML and the machine's files."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.machine_files.cut_list import cut_list_csv, parts_csv
from kesin.workloads.optiplan.machine_files.ptx import write_ptx
from kesin.workloads.optiplan.optimizer.model import CuttingPlan
from kesin.workloads.optiplan.optimizer.output.pdf import print_plans
from kesin.workloads.optiplan.optimizer.output.svg import draw_svg
from kesin.workloads.optiplan.optimizer.output.xml import solution_xml
from kesin.workloads.optiplan.pipeline.solution import SUFFIXES
from kesin.workloads.optiplan.workshop.json_file import write_atomically
from kesin.workloads.optiplan.workshop.saw_rules import MachineFile

_WRITERS: Final[dict[str, Callable[[Sequence[CuttingPlan]], bytes]]] = {
    ".ptx": write_ptx,
    ".csv": cut_list_csv,
    ".parts.csv": parts_csv,
}


def write_plans(
    folder: Path,
    stem: str,
    plans: Sequence[CuttingPlan],
    language: Language = "en",
    machine_files: Collection[MachineFile] = (),
) -> None:
    """Write all files; the XML is last, because others wait for it. Raises Unplannable.

    A file of an earlier plan that is not written again is deleted: it would not match the XML.
    """
    chosen = {suffix for kind in machine_files for suffix in SUFFIXES[kind]}
    for suffix, write in _WRITERS.items():
        if suffix in chosen:
            write_atomically(folder / f"{stem}{suffix}", write(plans))
        else:
            (folder / f"{stem}{suffix}").unlink(missing_ok=True)
    write_atomically(folder / f"{stem}.svg", draw_svg(plans, language).encode())
    write_atomically(folder / f"{stem}.pdf", print_plans(plans, language))
    write_atomically(folder / f"{stem}.xml", solution_xml(plans))
