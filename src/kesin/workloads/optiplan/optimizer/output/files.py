"""What the plans of a batch leave in a folder: a drawing, a paper, and the XML others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kesin.workloads.optiplan.optimizer.model import Plan
from kesin.workloads.optiplan.optimizer.output.pdf import print_plans
from kesin.workloads.optiplan.optimizer.output.svg import draw
from kesin.workloads.optiplan.optimizer.output.texts import Language
from kesin.workloads.optiplan.optimizer.output.xml import solution_xml
from kesin.workloads.optiplan.workshop.json_file import write_whole


def write_plans(folder: Path, stem: str, plans: Sequence[Plan], language: Language = "en") -> None:
    """Write all three, the XML last: whoever waits for it finds everything."""
    write_whole(folder / f"{stem}.svg", draw(plans, language).encode())
    write_whole(folder / f"{stem}.pdf", print_plans(plans, language))
    write_whole(folder / f"{stem}.xml", solution_xml(plans))
