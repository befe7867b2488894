"""Make the import template that comes with the workload ``optiplan``: two rows on one sheet.

Needs nothing but what Kesin installs. The same version of openpyxl gives the same bytes.
"""

from __future__ import annotations

import io
import zipfile
from datetime import datetime
from pathlib import Path

import openpyxl
from openpyxl.styles import Font
from openpyxl.utils import get_column_letter
from openpyxl.writer.excel import ExcelWriter

from kesin.workloads.optiplan.pipeline.xlsx_template import SHEET, TAGS, read_template

HEADINGS = (
    "Material",
    "Length",
    "Width",
    "Min Q.",
    "GrainI",
    "Description",
    "Upper strip mat.",
    "Lower strip mat.",
    "Left strip mat.",
    "Right strip mat.",
    "II Description",
    "Description 1",
)

TEMPLATE = Path(__file__).parents[1] / "src/kesin/workloads/optiplan/templates" / "Excel_sablon.xlsx"


def main() -> None:
    """Write it, and read it as the gate does."""
    workbook = openpyxl.Workbook()
    sheet = workbook.worksheets[0]
    sheet.title = SHEET
    for column, (tag, heading) in enumerate(zip(TAGS, HEADINGS, strict=True), 1):
        sheet.cell(1, column, tag)
        sheet.cell(2, column, heading).font = Font(bold=True)
        sheet.column_dimensions[get_column_letter(column)].width = 18
    sheet.freeze_panes = "A3"
    day = datetime(2000, 1, 1)  # noqa: DTZ001 - the format knows no zones
    workbook.properties.created = workbook.properties.modified = day
    workbook.properties.creator = "Kesin"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        ExcelWriter(workbook, archive).save()
    TEMPLATE.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(packed) as archive, zipfile.ZipFile(TEMPLATE, "w") as dated:
        for part in archive.infolist():
            name = zipfile.ZipInfo(part.filename, (1980, 1, 1, 0, 0, 0))
            dated.writestr(name, archive.read(part), zipfile.ZIP_DEFLATED)
    read_template(TEMPLATE)


if __name__ == "__main__":
    main()
