"""Plans as files: a drawing, a printable plan and the solution XML of each batch."""

from collections.abc import Sequence
from pathlib import Path

from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.optimizer.model import CuttingPlan
from kesin.workloads.optiplan.optimizer.output.pdf import print_plans
from kesin.workloads.optiplan.optimizer.output.svg import draw_svg
from kesin.workloads.optiplan.optimizer.output.xml import solution_xml
from kesin.workloads.optiplan.workshop.json_file import write_atomically


def write_plans(
    folder: Path, stem: str, plans: Sequence[CuttingPlan], language: Language = "en"
) -> None:
    """Write all three files; the XML is last, because others wait for it."""
    write_atomically(folder / f"{stem}.svg", draw_svg(plans, language).encode())
    write_atomically(folder / f"{stem}.pdf", print_plans(plans, language))
    write_atomically(folder / f"{stem}.xml", solution_xml(plans))
