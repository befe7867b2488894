"""A batch file as OptiPlanning takes it, read into demands: one for each material in it.

The file holds no board. It is told, in this order: by ``<stem>.json`` beside the file; by the
material's own name (``18MM 210*280``: centimetres below 1000); by the rules' ``defaultPlateSize``.
The trim stands in the descriptions (``…_TRIM_10.00``) unless the ``.json`` names another.
"""

from __future__ import annotations

import io
import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kesin.workloads.optiplan.optimizer.model import (
    MM,
    Band,
    Board,
    Demand,
    Hundredths,
    Part,
    Trims,
    Unplannable,
    hundredths,
)
from kesin.workloads.optiplan.orders.safe_xlsx import Bounds, UnsafeXlsx, checked_xlsx
from kesin.workloads.optiplan.pipeline.xlsx_template import FIRST_DATA_ROW, SHEET, TAGS

MOST_ROWS: Final = 5_000
MOST_BYTES: Final = 5_000_000
BOUNDS: Final = Bounds(bytes_max=MOST_BYTES, rows_max=MOST_ROWS + FIRST_DATA_ROW)
LARGEST_MM: Final = 100_000
DESCRIBED = re.compile(r"(?P<kind>[^_]*)_(?P<id>.*)_TRIM_(?P<trim>\d+(\.\d+)?)", re.DOTALL)
PLATE = re.compile(r"(\d+(?:[.,]\d+)?)\s*[*xX×]\s*(\d+(?:[.,]\d+)?)")
THICKNESS = re.compile(r"(\d+(?:\.\d+)?)mm", re.IGNORECASE)
THICK_BAND = re.compile(r"(\d+(?:[.,]\d+)?)\s*(?:mm)?", re.IGNORECASE)
KEYS: Final = frozenset(
    {
        "plate_w_mm",
        "plate_h_mm",
        "trim_mm",
        "kerf_mm",
        "grain",
        "bands_deducted",
        "offcut_length_mm",
        "offcut_width_mm",
        "board_price",
        "band_price_per_metre",
    }
)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the files do not say.

    ``bands_deducted``: the sizes ordered are finished sizes, and a banded side is cut shorter by
    its band, as OptiPlanning does.
    """

    plate_w_mm: float | None = None
    plate_h_mm: float | None = None
    trim_mm: float | None = None
    trim_by_thickness: Mapping[str, float] | None = None
    kerf_mm: float = 4.0
    grain: int = 0  # of rows that tell none
    bands_deducted: bool = True
    offcut_length_mm: float = 400.0
    offcut_width_mm: float = 150.0
    board_price: float = 0.0
    band_price_per_metre: float = 0.0

    @classmethod
    def of_rules(cls, rules: Mapping[str, Any]) -> Conditions:
        """From the workload's ``rules.json``."""
        plate = rules.get("defaultPlateSize") or {}
        if not isinstance(plate, Mapping):
            raise Unplannable("rules: defaultPlateSize must hold width_mm and height_mm")
        width, height = plate.get("width_mm"), plate.get("height_mm")
        return cls(
            plate_w_mm=_number("rules: width_mm", width) if plate else None,
            plate_h_mm=_number("rules: height_mm", height) if plate else None,
            trim_by_thickness=rules.get("trimByThickness"),
            kerf_mm=_number("rules: kerf_mm", rules.get("kerf_mm", cls().kerf_mm)),
        )


@dataclass(frozen=True, slots=True)
class _Row:
    material: str
    trim: Hundredths | None
    part: Part


def read_batch(path: Path, conditions: Conditions | None = None) -> tuple[Demand, ...]:
    """The demands of one file, by material in the order of their first rows."""
    rows = _cells(path)
    told = _beside(path)
    given = replace(conditions or Conditions(), **told)
    found: dict[str, list[_Row]] = {}
    for number, cells in enumerate(rows[FIRST_DATA_ROW - 1 :], start=FIRST_DATA_ROW):
        if any(cell not in ("", None) for cell in cells):
            row = _row(f"{path.name}, row {number}", number, cells, given)
            found.setdefault(row.material, []).append(row)
    if not found:
        raise Unplannable(f"{path.name}: no parts below row {FIRST_DATA_ROW - 1}")
    return tuple(
        _demand(path, material, rows, given, plate_told="plate_w_mm" in told)
        for material, rows in found.items()
    )


def _cells(path: Path) -> list[list[Any]]:
    """The sheet's rows, twelve cells each, once its tags have been checked."""
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        if path.stat().st_size > MOST_BYTES:
            raise Unplannable(f"{path.name}: larger than {MOST_BYTES // 1_000_000} MB")
        data = checked_xlsx(path.read_bytes(), BOUNDS)
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
        names = {unicodedata.normalize("NFC", name): name for name in book.sheet_names}
        if SHEET not in names:
            raise Unplannable(f"{path.name}: no sheet {SHEET}; there are {', '.join(names)}")
        rows: list[list[Any]] = book.get_sheet_by_name(names[SHEET]).to_python(
            skip_empty_area=False, nrows=MOST_ROWS + FIRST_DATA_ROW
        )
    except (OSError, UnsafeXlsx, CalamineError) as problem:
        raise Unplannable(f"{path.name}: cannot be read as a workbook ({problem})") from problem
    tags = [str(cell).strip() for cell in rows[0]] if rows else []
    while tags and not tags[-1]:
        tags.pop()
    if tags != list(TAGS):
        wrong = next((n for n, tag in enumerate(TAGS) if tags[n : n + 1] != [tag]), len(TAGS))
        wanted = TAGS[wrong] if wrong < len(TAGS) else "nothing"
        raise Unplannable(
            f"{path.name}: row 1 must hold the 12 tags; column {wrong + 1} should be {wanted},"
            f" is {tags[wrong] if wrong < len(tags) else 'empty'}"
        )
    if len(rows) > MOST_ROWS + FIRST_DATA_ROW - 1:
        raise Unplannable(f"{path.name}: more than {MOST_ROWS} rows")
    return [[*row, *[""] * len(TAGS)][: len(TAGS)] for row in rows]


def _beside(path: Path) -> dict[str, Any]:
    """What ``<stem>.json`` tells, each value checked."""
    file = path.with_suffix(".json")
    if not file.exists():
        return {}
    told = read_json(file)
    if unknown := sorted(told.keys() - KEYS):
        raise Unplannable(f"{file.name}: unknown keys {', '.join(unknown)}")
    if ("plate_w_mm" in told) != ("plate_h_mm" in told):
        raise Unplannable(f"{file.name}: plate_w_mm and plate_h_mm belong together")
    for key, value in told.items():
        if key == "bands_deducted":
            if not isinstance(value, bool):
                raise Unplannable(f"{file.name}: bands_deducted must be true or false")
        else:
            told[key] = _number(f"{file.name}: {key}", value)
    if "grain" in told:
        told["grain"] = int(told["grain"])
    return told


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        told = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise Unplannable(f"{file.name}: cannot be read as JSON ({problem})") from problem
    if not isinstance(told, dict):
        raise Unplannable(f"{file.name}: must hold a JSON object")
    return told


def _demand(
    path: Path, material: str, rows: list[_Row], given: Conditions, *, plate_told: bool
) -> Demand:
    if not plate_told and (named := PLATE.search(material)):
        sides = [float(side.replace(",", ".")) for side in named.groups()]
        sides = [10 * side if side < 1_000 else side for side in sides]  # noqa: PLR2004
    elif given.plate_w_mm is not None and given.plate_h_mm is not None:
        sides = [given.plate_w_mm, given.plate_h_mm]
    else:
        raise Unplannable(
            f"{path.name}: the board's size is nowhere told; put plate_w_mm and plate_h_mm into"
            f" {path.stem}.json or defaultPlateSize into the rules"
        )
    board = Board.of(*sides)
    return Demand(
        name=path.stem,
        board=replace(board, trims=Trims.of(_trim(path, material, rows, given))),
        parts=tuple(row.part for row in rows),
        kerf=hundredths(given.kerf_mm),
        material=material,
        offcut_length=hundredths(given.offcut_length_mm),
        offcut_width=hundredths(given.offcut_width_mm),
        board_price=given.board_price,
        band_price_per_metre=given.band_price_per_metre,
    )


def _trim(path: Path, material: str, rows: list[_Row], given: Conditions) -> Hundredths:
    """The trim of a batch; the largest, should its rows differ."""
    if given.trim_mm is not None:
        return hundredths(given.trim_mm)
    if told := [row.trim for row in rows if row.trim is not None]:
        return max(told)
    thickness = [*THICKNESS.findall(path.stem), *THICKNESS.findall(material)]
    for text in reversed(thickness):
        value = (given.trim_by_thickness or {}).get(text.removesuffix(".0"))
        if value is not None:
            return hundredths(_number("rules: trimByThickness", value))
    return 10 * MM


def _row(where: str, number: int, cells: list[Any], given: Conditions) -> _Row:
    length = hundredths(_number(f"{where}, {TAGS[1]}", cells[1]))
    width = hundredths(_number(f"{where}, {TAGS[2]}", cells[2]))
    quantity = _number(f"{where}, {TAGS[3]}", cells[3])
    if quantity != int(quantity) or not 0 < quantity <= LARGEST_MM:
        raise Unplannable(f"{where}: {TAGS[3]} must be a whole number, got {cells[3]!r}")
    described = _text(cells[5])
    known = DESCRIBED.fullmatch(described)
    up, lo, sx, dx = (_band(cell) for cell in cells[6:10])
    off_width = _thick(up) + _thick(lo) if given.bands_deducted else 0
    off_length = _thick(sx) + _thick(dx) if given.bands_deducted else 0
    part = Part(
        name=(known["id"] if known else described) or f"row {number}",
        length=length - off_length,
        width=width - off_width,
        quantity=int(quantity),
        grain=_grain(where, cells[4], given.grain),
        finished_length=length,
        finished_width=width,
        up=up,
        lo=lo,
        sx=sx,
        dx=dx,
        notes=tuple(text for text in (_text(cells[10]), _text(cells[11])) if text),
    )
    return _Row(_text(cells[0]), hundredths(known["trim"]) if known else None, part)


def _grain(where: str, cell: Any, otherwise: int) -> int:
    """A number, or OptiPlanning's own words: ``3-Material``."""
    text = _text(cell).partition("-")[0].strip() or str(otherwise)
    if text not in ("0", "1", "2", "3"):
        raise Unplannable(f"{where}: {TAGS[4]} must be 0, 1, 2 or 3, got {cell!r}")
    return int(text)


def _band(cell: Any) -> Band | None:
    """A thickness in millimetres or a band's name, which may hold one: ``1MM``."""
    text = _text(cell)
    if not text or text == "0":
        return None
    thick = THICK_BAND.fullmatch(text)
    if thick is None:
        return Band(text)
    thickness = hundredths(thick[1].replace(",", "."))
    return Band(f"{thickness / MM:g} mm", thickness)


def _thick(band: Band | None) -> Hundredths:
    return band.thickness if band else 0


def _text(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if cell is None else str(cell).strip()


def _number(where: str, value: Any) -> float:
    """A number that is not negative, also one typed as text; never a truth value."""
    if isinstance(value, str):
        try:
            value = float(value.strip().replace(",", "."))
        except ValueError:
            value = None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= LARGEST_MM
    ):
        raise Unplannable(f"{where} must be a number from 0 to {LARGEST_MM}, got {value!r}")
    return float(value)
