"""Reads a batch file in OptiPlanning's format into demands, one for each material.

The file does not state the board size. It comes from the first of these: ``<stem>.json`` beside the
file; the material's name (``18MM 210*280``: centimetres below 1000); ``defaultPlateSize`` of the
rules. The trim comes from the descriptions (``…_TRIM_10.00``) unless the ``.json`` states one.
"""

import io
import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.model import Band, Hundredths, Unplannable, hundredths
from kesin.workloads.optiplan.orders.list_cells import read_heading
from kesin.workloads.optiplan.orders.safe_xlsx import UnreadableSpreadsheet, XlsxBounds, repack_xlsx
from kesin.workloads.optiplan.pipeline.xlsx_template import FIRST_DATA_ROW, SHEET, TAGS

MAX_ROWS: Final = 5_000
MAX_BYTES: Final = 5_000_000
BOUNDS: Final = XlsxBounds(max_bytes=MAX_BYTES, max_rows=MAX_ROWS + FIRST_DATA_ROW)
MAX_MM: Final = 100_000
DESCRIPTION = re.compile(r"(?P<kind>[^_]*)_(?P<id>.*)_TRIM_(?P<trim>\d+(\.\d+)?)", re.DOTALL)
THICKNESS = re.compile(r"(\d+(?:\.\d+)?)mm", re.IGNORECASE)
THICK_BAND = re.compile(r"(\d+(?:[.,]\d+)?)\s*(?:mm)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PlanDefaults:
    """Values that the batch files do not contain."""

    plate_w_mm: float | None = None
    plate_h_mm: float | None = None
    trim_mm: float | None = None
    trim_by_thickness: Mapping[str, float] | None = None
    kerf_mm: float = 4.0
    offcut_length_mm: float = 400.0
    offcut_width_mm: float = 150.0

    @classmethod
    def from_rules(cls, rules: Mapping[str, Any]) -> Self:
        plate_size = rules.get("defaultPlateSize") or {}
        if not isinstance(plate_size, Mapping):
            raise Unplannable("rules: defaultPlateSize must have width_mm and height_mm")
        width, height = plate_size.get("width_mm"), plate_size.get("height_mm")
        return cls(
            plate_w_mm=_parse_number("rules: width_mm", width) if plate_size else None,
            plate_h_mm=_parse_number("rules: height_mm", height) if plate_size else None,
            trim_by_thickness=rules.get("trimByThickness"),
            kerf_mm=_parse_number("rules: kerf_mm", rules.get("kerf_mm", cls().kerf_mm)),
        )


KEYS: Final = PlanDefaults.__dataclass_fields__.keys() - {"trim_by_thickness"}  # of a .json


BatchRow = tuple[Hundredths | None, model.CutPart]  # with its trim


def read_batch(path: Path, defaults: PlanDefaults | None = None) -> tuple[model.Demand, ...]:
    """Read the demands of one file, by material in the order of their first rows."""
    rows = _read_cells(path)
    overrides = _read_overrides(path)
    merged = replace(defaults or PlanDefaults(), **overrides)
    rows_by_material: dict[str, list[BatchRow]] = {}
    for number, cells in enumerate(rows[FIRST_DATA_ROW - 1 :], start=FIRST_DATA_ROW):
        if any(cell not in ("", None) for cell in cells):
            row = _parse_row(f"{path.name}, row {number}", number, cells)
            rows_by_material.setdefault(_cell_text(cells[0]), []).append(row)
    if not rows_by_material:
        raise Unplannable(f"{path.name}: no parts below row {FIRST_DATA_ROW - 1}")
    return tuple(
        _build_demand(path, material, rows, merged, own_plate="plate_w_mm" in overrides)
        for material, rows in rows_by_material.items()
    )


def _read_cells(path: Path) -> list[list[Any]]:
    """Read the sheet's rows, twelve cells each, and check its tags."""
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        if path.stat().st_size > MAX_BYTES:
            raise Unplannable(f"{path.name}: larger than {MAX_BYTES // 1_000_000} MB")
        book = CalamineWorkbook.from_filelike(io.BytesIO(repack_xlsx(path.read_bytes(), BOUNDS)))
        names = {unicodedata.normalize("NFC", name): name for name in book.sheet_names}
        if SHEET not in names:
            raise Unplannable(f"{path.name}: no sheet {SHEET}; there are {', '.join(names)}")
        rows: list[list[Any]] = book.get_sheet_by_name(names[SHEET]).to_python(
            skip_empty_area=False, nrows=MAX_ROWS + FIRST_DATA_ROW
        )
    except (OSError, UnreadableSpreadsheet, CalamineError) as problem:
        raise Unplannable(f"{path.name}: cannot be read as a workbook ({problem})") from problem
    tags = [str(cell).strip() for cell in rows[0]] if rows else []
    while tags and not tags[-1]:
        tags.pop()
    if tags != list(TAGS):
        column = next((n for n, tag in enumerate(TAGS) if tags[n : n + 1] != [tag]), len(TAGS))
        expected = TAGS[column] if column < len(TAGS) else "nothing"
        raise Unplannable(
            f"{path.name}: row 1 must contain the 12 tags; column {column + 1} should be "
            f"{expected}, is {tags[column] if column < len(tags) else 'empty'}"
        )
    if len(rows) > MAX_ROWS + FIRST_DATA_ROW - 1:
        raise Unplannable(f"{path.name}: more than {MAX_ROWS} rows")
    return [[*row, *[""] * len(TAGS)][: len(TAGS)] for row in rows]


def _read_overrides(path: Path) -> dict[str, Any]:
    """Read and check the values of ``<stem>.json``; empty if there is no such file."""
    file = path.with_suffix(".json")
    if not file.exists():
        return {}
    values = read_json(file)
    if unknown := sorted(values.keys() - KEYS):
        raise Unplannable(f"{file.name}: unknown keys {', '.join(unknown)}")
    if ("plate_w_mm" in values) != ("plate_h_mm" in values):
        raise Unplannable(f"{file.name}: plate_w_mm and plate_h_mm belong together")
    return {key: _parse_number(f"{file.name}: {key}", value) for key, value in values.items()}


def read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise Unplannable(f"{file.name}: cannot be read as JSON ({problem})") from problem
    if not isinstance(content, dict):
        raise Unplannable(f"{file.name}: must contain a JSON object")
    return content


def _build_demand(
    path: Path, material: str, rows: list[BatchRow], defaults: PlanDefaults, *, own_plate: bool
) -> model.Demand:
    named = None if own_plate else read_heading([[material]]).plate_mm
    if named is not None:
        board = model.Board.of(*map(float, named))
    elif defaults.plate_w_mm is not None and defaults.plate_h_mm is not None:
        board = model.Board.of(defaults.plate_w_mm, defaults.plate_h_mm)
    else:
        raise Unplannable(
            f"{path.name}: the board's size is missing; put plate_w_mm and plate_h_mm into"
            f" {path.stem}.json or defaultPlateSize into the rules"
        )
    return model.Demand(
        name=path.stem,
        board=replace(board, trims=model.Trims.of(_find_trim(path, material, rows, defaults))),
        parts=tuple(part for _, part in rows),
        kerf=hundredths(defaults.kerf_mm),
        material=material,
        offcut_length=hundredths(defaults.offcut_length_mm),
        offcut_width=hundredths(defaults.offcut_width_mm),
    )


def _find_trim(
    path: Path, material: str, rows: list[BatchRow], defaults: PlanDefaults
) -> Hundredths:
    """Return the trim of a batch: the largest if its rows differ."""
    if defaults.trim_mm is not None:
        return hundredths(defaults.trim_mm)
    if trims := [trim for trim, _ in rows if trim is not None]:
        return max(trims)
    for text in reversed([*THICKNESS.findall(path.stem), *THICKNESS.findall(material)]):
        value = (defaults.trim_by_thickness or {}).get(text.removesuffix(".0"))
        if value is not None:
            return hundredths(_parse_number("rules: trimByThickness", value))
    return 10 * model.MM


def _parse_row(where: str, number: int, cells: list[Any]) -> BatchRow:
    length = hundredths(_parse_number(f"{where}, {TAGS[1]}", cells[1]))
    width = hundredths(_parse_number(f"{where}, {TAGS[2]}", cells[2]))
    quantity = _parse_number(f"{where}, {TAGS[3]}", cells[3])
    if quantity != int(quantity) or not 0 < quantity <= MAX_MM:
        raise Unplannable(f"{where}: {TAGS[3]} must be a whole number, got {cells[3]!r}")
    description = _cell_text(cells[5])
    match = DESCRIPTION.fullmatch(description)
    bands = tuple(map(_parse_band, cells[6:10]))
    deducted = [band.thickness if band else 0 for band in bands]  # as OptiPlanning does
    part = model.CutPart(
        name=(match["id"] if match else description) or f"row {number}",
        length=length - sum(deducted[2:]),
        width=width - sum(deducted[:2]),
        quantity=int(quantity),
        grain=_parse_grain(where, cells[4]),
        finished_length=length,
        finished_width=width,
        bands=bands,
        notes=tuple(filter(None, map(_cell_text, cells[10:]))),
    )
    return hundredths(match["trim"]) if match else None, part


def _parse_grain(where: str, cell: Any) -> int:
    """Parse a grain: a number, or OptiPlanning's notation ``3-Material``."""
    text = _cell_text(cell).partition("-")[0].strip() or "0"
    if text not in ("0", "1", "2", "3"):
        raise Unplannable(f"{where}: {TAGS[4]} must be 0, 1, 2 or 3, got {cell!r}")
    return int(text)


def _parse_band(cell: Any) -> Band | None:
    """Parse a band: a thickness in millimetres, or a name that may contain one (``1MM``)."""
    text = _cell_text(cell)
    if not text or text == "0":
        return None
    if (match := THICK_BAND.fullmatch(text)) is None:
        return Band(text)
    thickness = hundredths(match[1].replace(",", "."))
    return Band(f"{thickness / model.MM:g} mm", thickness)


def _cell_text(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if cell is None else str(cell).strip()


def _parse_number(where: str, value: Any) -> float:
    """Parse a number that is not negative; text is accepted, a boolean is not."""
    if isinstance(value, str):
        try:
            value = float(value.strip().replace(",", "."))
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_MM:
        raise Unplannable(f"{where} must be a number from 0 to {MAX_MM}, got {value!r}")
    return float(value)
