"""Reads a batch file in OptiPlanning's format into demands, one for each material.

The board is the first of these: the boards of the material or the plate in ``<stem>.json`` beside
the file; the boards of the material in the rules; the size in the material's name
(``18MM 210*280``: centimetres below 1000); the rules' default. The trim is that of the saw, or
comes from the ``.json``, or from the descriptions (``…_TRIM_10.00``).
"""

import io
import json
import re
import unicodedata
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.model import Band, Hundredths, Unplannable, hundredths
from kesin.workloads.optiplan.orders.list_cells import read_heading, read_text
from kesin.workloads.optiplan.orders.numbers import format_number
from kesin.workloads.optiplan.orders.payload import validate_model
from kesin.workloads.optiplan.orders.safe_xlsx import UnreadableSpreadsheet, XlsxBounds, repack_xlsx
from kesin.workloads.optiplan.pipeline.xlsx_template import FIRST_DATA_ROW, SHEET, TAGS
from kesin.workloads.optiplan.workshop.plan_settings import PlanSettings, RackOffcut
from kesin.workloads.optiplan.workshop.saw_rules import BoardRules, RateRules, SawSettings

SettingsT = TypeVar("SettingsT", bound=BaseModel)

MAX_ROWS: Final = 5_000
MAX_BYTES: Final = 5_000_000
BOUNDS: Final = XlsxBounds(max_bytes=MAX_BYTES, max_rows=MAX_ROWS + FIRST_DATA_ROW)
MAX_MM: Final = 100_000
DESCRIPTION = re.compile(r"(?P<kind>[^_]*)_(?P<id>.*)_TRIM_(?P<trim>\d+(\.\d+)?)", re.DOTALL)
THICKNESS = re.compile(r"(\d+(?:\.\d+)?)mm", re.IGNORECASE)
THICK_BAND = re.compile(r"(\d+(?:[.,]\d+)?)\s*(?:mm)?", re.IGNORECASE)


BatchRow = tuple[Hundredths | None, model.CutPart]  # with its trim


def read_batch(path: Path, defaults: PlanSettings | None = None) -> tuple[model.Demand, ...]:
    """Read the demands of one file, by material in the order of their first rows."""
    rows = _read_cells(path)
    file = path.with_suffix(".json")
    own = parse_settings(file.name, PlanSettings, read_json(file) if file.exists() else {})
    settings = own.merged_into(defaults or PlanSettings())
    rows_by_material: dict[str, list[BatchRow]] = {}
    for number, cells in enumerate(rows[FIRST_DATA_ROW - 1 :], start=FIRST_DATA_ROW):
        if any(cell not in ("", None) for cell in cells):
            row = _parse_row(f"{path.name}, row {number}", number, cells)
            rows_by_material.setdefault(read_text(cells[0]), []).append(row)
    if not rows_by_material:
        raise Unplannable(f"{path.name}: no parts below row {FIRST_DATA_ROW - 1}")
    return tuple(
        _build_demand(path, material, rows, settings, own_plate=own.plate_w_mm is not None)
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


def parse_settings(name: str, model_class: type[SettingsT], values: dict[str, Any]) -> SettingsT:
    try:
        return validate_model(model_class, values)
    except OrderProblem as problem:
        raise Unplannable(f"{name}: {problem.message}") from None


def read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise Unplannable(f"{file.name}: cannot be read as JSON ({problem})") from problem
    if not isinstance(content, dict):
        raise Unplannable(f"{file.name}: must contain a JSON object")
    return content


def _build_demand(
    path: Path, material: str, rows: list[BatchRow], settings: PlanSettings, *, own_plate: bool
) -> model.Demand:
    plate = None if own_plate else read_heading([[material]]).plate_mm
    if plate is None and settings.plate_w_mm is not None and settings.plate_h_mm is not None:
        plate = settings.plate_w_mm, settings.plate_h_mm
    thicknesses = [*THICKNESS.findall(path.stem), *THICKNESS.findall(material)]
    thickness = settings.thickness_mm or Decimal(thicknesses[-1] if thicknesses else 0)
    trims = _find_trims(rows, settings, thickness)
    if listed := settings.boards_of(material, thickness):
        boards = [_build_board(board, trims) for board in listed]
    elif plate is not None:
        boards = [replace(model.Board.of(*map(float, plate)), trims=trims)]
    else:
        raise Unplannable(
            f"{path.name}: the board's size is missing; put plate_w_mm and plate_h_mm into"
            f" {path.stem}.json or defaultPlateSize into the rules"
        )
    offcuts = [_build_board(each, trims) for each in settings.rack if each.material == material]
    return model.Demand(
        name=path.stem,
        board=boards[0],
        parts=tuple(part for _, part in rows),
        saw=_build_saw(settings.saw, settings.kerf_mm),
        material=material,
        thickness=hundredths(thickness),
        more_boards=(*boards[1:], *offcuts),
        rates=_build_rates(settings.rates),
        offcut_length=hundredths(settings.offcut_length_mm),
        offcut_width=hundredths(settings.offcut_width_mm),
        effort=settings.effort,
    )


def _build_saw(saw: SawSettings | None, kerf: Decimal) -> model.SawProfile:
    if saw is None:
        return model.SawProfile.of(hundredths(kerf), max_stages=0)
    sizes = {
        name.removesuffix("_mm"): hundredths(kerf if size is None else size)
        for name, size in saw
        if name.endswith("_mm")
    }
    return model.SawProfile(saw.name, saw.max_stages, saw.first_cut, head_cut=saw.head_cut, **sizes)


def _build_rates(rates: RateRules) -> model.Rates:
    bands = tuple((name, hundredths(price)) for name, price in rates.bands.items())
    cut, band = hundredths(rates.cut_metre), hundredths(rates.band_metre)
    return model.Rates(rates.currency, cut, band, bands)


def _build_board(given: BoardRules | RackOffcut, trims: model.Trims) -> model.Board:
    length, width, price = map(hundredths, (given.length_mm, given.width_mm, given.price))
    if isinstance(given, BoardRules):
        supplier = given.supplier or ""
        return model.Board(length, width, trims, given.code, price, given.quantity, supplier)
    trims = trims if given.trim_needed else model.Trims.of(0)
    return model.Board(length, width, trims, price=price, quantity=1, offcut=given.id)


def _find_trims(rows: list[BatchRow], settings: PlanSettings, thickness: Decimal) -> model.Trims:
    """Return the trims of a batch's boards: the largest if its rows differ."""
    if settings.saw and (trims := settings.saw.trims):
        sides = (trims.left_mm, trims.right_mm, trims.bottom_mm, trims.top_mm)
        return model.Trims(*map(hundredths, sides))
    if settings.trim_mm is not None:
        return model.Trims.of(hundredths(settings.trim_mm))
    if described := [trim for trim, _ in rows if trim is not None]:
        return model.Trims.of(max(described))
    trim = settings.trim_by_thickness.get(format_number(thickness))
    return model.Trims.of(10 * model.MM if trim is None else hundredths(trim))


def _parse_row(where: str, number: int, cells: list[Any]) -> BatchRow:
    length = hundredths(_parse_number(f"{where}, {TAGS[1]}", cells[1]))
    width = hundredths(_parse_number(f"{where}, {TAGS[2]}", cells[2]))
    quantity = _parse_number(f"{where}, {TAGS[3]}", cells[3])
    if quantity != int(quantity) or not 0 < quantity <= MAX_MM:
        raise Unplannable(f"{where}: {TAGS[3]} must be a whole number, got {cells[3]!r}")
    description = read_text(cells[5])
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
        notes=tuple(filter(None, map(read_text, cells[10:]))),
    )
    return hundredths(match["trim"]) if match else None, part


def _parse_grain(where: str, cell: Any) -> int:
    """Parse a grain: a number, or OptiPlanning's notation ``3-Material``."""
    text = read_text(cell).partition("-")[0].strip() or "0"
    if text not in ("0", "1", "2", "3"):
        raise Unplannable(f"{where}: {TAGS[4]} must be 0, 1, 2 or 3, got {cell!r}")
    return int(text)


def _parse_band(cell: Any) -> Band | None:
    """Parse a band: a thickness in millimetres, or a name that may contain one (``1MM``)."""
    text = read_text(cell)
    if not text or text == "0":
        return None
    if (match := THICK_BAND.fullmatch(text)) is None:
        return Band(text)
    thickness = hundredths(match[1].replace(",", "."))
    return Band(f"{thickness / model.MM:g} mm", thickness)


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
