"""One XLSX a batch, made from the template, into the folder OptiPlanning imports from.

The template is edited in place with openpyxl, because its first two rows, styles and other sheets
must stay as the workshop made them; XlsxWriter could only draw them anew. The same batch gives the
same bytes, so a repeated pass can be told from a changed order.
"""

from __future__ import annotations

import io
import re
import unicodedata
import zipfile
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kesin.foundation.text import canonical_json
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.numbers import as_json, key_of
from kesin.workloads.optiplan.orders.payload import PlateSize
from kesin.workloads.optiplan.pipeline.transform import Batch
from kesin.workloads.optiplan.pipeline.xlsx_template import FIRST_DATA_ROW, SHEET, Template
from kesin.workloads.optiplan.workshop.json_file import drop_unfinished, write_whole

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

_COLOR_MAX: Final = 40
_JOB_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9]+")
_LETTERS: Final = str.maketrans(
    {
        "ı": "i",
        "ø": "o",
        "Ø": "O",
        "ł": "l",
        "Ł": "L",
        "đ": "d",
        "Đ": "D",
        "ß": "ss",
        "æ": "ae",
        "Æ": "AE",
        "œ": "oe",
        "Œ": "OE",
    }
)


def file_stems(job_id: str, batches: Iterable[Batch]) -> list[str]:
    """``<job_id>_<part_type>_<color>_<thickness>mm`` for each, in order.

    Colours that look alike in plain letters are numbered, upper and lower case alike: the disk of
    the machine may not tell them apart.
    """
    if not _JOB_ID.fullmatch(job_id):
        raise ValueError(f"a job id is letters, digits and dashes, got {job_id!r}")
    stems: list[str] = []
    taken: set[str] = set()
    for batch in batches:
        thickness = key_of(batch.thickness_mm).replace(".", "-")
        color, number = plain_letters(batch.color), 1
        stem = f"{job_id}_{batch.part_type}_{color}_{thickness}mm"
        while stem.lower() in taken:
            number += 1
            stem = f"{job_id}_{batch.part_type}_{color}-{number}_{thickness}mm"
        taken.add(stem.lower())
        stems.append(stem)
    return stems


def plain_letters(text: str) -> str:
    """``Açık Meşe`` as ``Acik-Mese``; never empty."""
    folded = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    letters = "".join(sign for sign in folded if not unicodedata.combining(sign))
    return _NOT_PLAIN.sub("-", letters)[:_COLOR_MAX].strip("-") or "color"


_NO_DAY: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - the format knows no zones
_ZIP_DAY: Final = (1980, 1, 1, 0, 0, 0)
_ESCAPE: Final = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")  # Excel reads _x0041_ as A


def write_batches(
    folder: Path,
    job_id: str,
    batches: Sequence[Batch],
    template: Template,
    *,
    plate: PlateSize,
    kerf_mm: Decimal,
    replace: bool = False,
) -> list[Path]:
    """Write an XLSX a batch, each whole or not at all; their paths, in the order of the batches.

    Beside each lies ``<stem>.json`` with what the built-in optimiser must know of the board. A file
    that is there already is left alone unless ``replace`` is said: somebody may have imported it.
    """
    stems = file_stems(job_id, batches)
    paths = [folder / f"{stem}.xlsx" for stem in stems]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        drop_unfinished(folder, f"{job_id}_")
        for batch, path in zip(batches, paths, strict=True):
            if replace or not path.exists():
                write_whole(path.with_suffix(".json"), _board(batch, plate, kerf_mm))
                write_whole(path, batch_xlsx(batch, template))
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise OrderProblem(
            OptiCode.EXPORT_DIR_UNWRITABLE,
            f"the folder {folder} cannot be written: {reason}",
            {"folder": str(folder), "reason": reason},
        ) from problem
    return paths


def batch_xlsx(batch: Batch, template: Template) -> bytes:
    """The workbook of one batch: the template with these rows from row 3 on, and none below."""
    from openpyxl import load_workbook
    from openpyxl.writer.excel import ExcelWriter

    workbook = load_workbook(io.BytesIO(template.data))
    sheet = workbook[SHEET]
    _clear(sheet)
    for number, row in enumerate(batch.rows, FIRST_DATA_ROW):
        for column, value in enumerate(row.cells(), 1):
            if isinstance(value, str):
                cell = sheet.cell(number, column, _ESCAPE.sub("_x005F_", value))
                cell.data_type = "s"  # or a text that begins with = would become a formula
            elif value is not None:
                sheet.cell(number, column, as_json(Decimal(value)))
    workbook.properties.created = workbook.properties.modified = _NO_DAY
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        ExcelWriter(workbook, archive).save()  # Workbook.save would put today's date in
    return _without_dates(written)


def _clear(sheet: Worksheet) -> None:
    """Take away every sample row, and whatever is merged with one."""
    for merged in list(sheet.merged_cells.ranges):
        if merged.max_row >= FIRST_DATA_ROW:
            sheet.unmerge_cells(merged.coord)
    if sheet.max_row >= FIRST_DATA_ROW:
        sheet.delete_rows(FIRST_DATA_ROW, sheet.max_row - FIRST_DATA_ROW + 1)


def _without_dates(packed: io.BytesIO) -> bytes:
    """The same archive, whenever it was packed."""
    again = io.BytesIO()
    with zipfile.ZipFile(packed) as archive, zipfile.ZipFile(again, "w") as dated:
        for part in archive.infolist():
            name = zipfile.ZipInfo(part.filename, _ZIP_DAY)
            dated.writestr(name, archive.read(part), zipfile.ZIP_DEFLATED)
    return again.getvalue()


def _board(batch: Batch, plate: PlateSize, kerf_mm: Decimal) -> bytes:
    return canonical_json(
        {
            "plate_w_mm": as_json(plate.width_mm),
            "plate_h_mm": as_json(plate.height_mm),
            "trim_mm": as_json(batch.trim_mm),
            "kerf_mm": as_json(kerf_mm),
        }
    ).encode()
