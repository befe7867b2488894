"""Import files: openpyxl edits the template in place, and the same batch gives the same bytes."""

import io
import re
import unicodedata
import zipfile
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kesin.foundation.messages import Message
from kesin.foundation.text import canonical_json, json_number
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.numbers import format_number
from kesin.workloads.optiplan.orders.payload import OrderPart, Payload, validation_problem
from kesin.workloads.optiplan.orders.safe_xlsx import pack_zip
from kesin.workloads.optiplan.pipeline.prechecks import check_plates, find_unmakeable
from kesin.workloads.optiplan.pipeline.transform import ImportBatch, transform_order
from kesin.workloads.optiplan.pipeline.xlsx_template import FIRST_DATA_ROW, SHEET
from kesin.workloads.optiplan.workshop.json_file import remove_unfinished, write_atomically
from kesin.workloads.optiplan.workshop.paths import Paths
from kesin.workloads.optiplan.workshop.plan_settings import PlanSettings
from kesin.workloads.optiplan.workshop.rules import Rules

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

_MAX_COLOR_LENGTH: Final = 40
_JOB_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9]+")
_LETTERS: Final = str.maketrans(
    dict(zip("ıøØłŁđĐ", "ioOlLdD", strict=True)) | {"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE"}
)


def file_stems(job_id: str, batches: Iterable[ImportBatch | OrderPart]) -> list[str]:
    """Build ``<job_id>_<part_type>_<color>_<thickness>mm`` stems; equal colours are numbered."""
    if not _JOB_ID.fullmatch(job_id):
        raise ValueError(f"a job id is letters, digits and dashes, got {job_id!r}")
    stems: list[str] = []
    taken: set[str] = set()
    for batch in batches:
        thickness = format_number(batch.thickness_mm).replace(".", "-")
        color, number = plain_letters(batch.color), 1
        stem = f"{job_id}_{batch.part_type}_{color}_{thickness}mm"
        while stem.lower() in taken:
            number += 1
            stem = f"{job_id}_{batch.part_type}_{color}-{number}_{thickness}mm"
        taken.add(stem.lower())
        stems.append(stem)
    return stems


def plain_letters(text: str) -> str:
    """Convert ``Açık Meşe`` to ``Acik-Mese``; never empty."""
    folded = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    letters = "".join(character for character in folded if not unicodedata.combining(character))
    return _NOT_PLAIN.sub("-", letters)[:_MAX_COLOR_LENGTH].strip("-") or "color"


_FIXED_DATE: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - the format knows no zones

_ESCAPE: Final = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")  # Excel reads _x0041_ as A


def write_batches(
    folder: Path,
    job_id: str,
    batches: Sequence[ImportBatch],
    template: bytes,
    *,
    order: Payload,
    rules: Rules,
    replace: bool = False,
) -> list[Path]:
    """Write the XLSX and settings of each batch, but keep one that may have been imported."""
    paths = [folder / f"{stem}.xlsx" for stem in file_stems(job_id, batches)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder, f"{job_id}_")
        for batch, path in zip(batches, paths, strict=True):
            if replace or not path.exists():
                of_batch = (batch.thickness_mm, batch.trim_mm)
                settings = PlanSettings.for_batch(rules, order, *of_batch).as_json()
                write_atomically(path.with_suffix(".json"), canonical_json(settings).encode())
                write_atomically(path, build_batch_xlsx(batch, template))
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        why = "the folder %(folder)s cannot be written to: %(problem)s"
        message = Message(why, folder=folder, problem=reason)
        details = {"folder": str(folder), "reason": reason}
        raise OrderProblem(OptiCode.EXPORT_DIR_UNWRITABLE, message, details) from problem
    return paths


def write_order(folder: Path, stem: str, order: Payload, rules: Rules, paths: Paths) -> list[Path]:
    """Write the files of an order that our optimiser only plans; raises OrderProblem."""
    if problems := find_unmakeable(order, rules, own_boards=False):
        raise validation_problem(problems)
    template, (batches, _) = check_plates(order, rules, paths), transform_order(order, rules)
    return write_batches(folder, stem, batches, template, order=order, rules=rules)


def build_batch_xlsx(batch: ImportBatch, template: bytes) -> bytes:
    """Build the workbook of a batch: the template with exactly these rows from row 3 on."""
    from openpyxl import load_workbook
    from openpyxl.writer.excel import ExcelWriter

    workbook = load_workbook(io.BytesIO(template))
    sheet = workbook[SHEET]
    _delete_sample_rows(sheet)
    for number, row in enumerate(batch.rows, FIRST_DATA_ROW):
        for column, value in enumerate(row, 1):
            if isinstance(value, str):
                cell = sheet.cell(number, column, _ESCAPE.sub("_x005F_", value))
                cell.data_type = "s"  # a text that begins with = must not become a formula
            elif value is not None:
                sheet.cell(number, column, json_number(Decimal(value)))
    workbook.properties.created = workbook.properties.modified = _FIXED_DATE
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w") as archive:
        ExcelWriter(workbook, archive).save()  # Workbook.save would write today's date
    with zipfile.ZipFile(output) as archive:
        return pack_zip({name: archive.read(name) for name in archive.namelist()})


def _delete_sample_rows(sheet: "Worksheet") -> None:
    for merged in list(sheet.merged_cells.ranges):
        if merged.max_row >= FIRST_DATA_ROW:
            sheet.unmerge_cells(merged.coord)
    if sheet.max_row >= FIRST_DATA_ROW:
        sheet.delete_rows(FIRST_DATA_ROW, sheet.max_row - FIRST_DATA_ROW + 1)
