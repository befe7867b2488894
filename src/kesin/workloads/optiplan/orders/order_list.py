"""An order list as the workshop keeps it: twelve fixed columns, sizes in millimetres.

Columns A…L: thickness or a note, length, width, quantity, grain, bands U1 U2 K1 K2, two drill
codes, information. The rows above the first part may tell thickness, plate and colour. All rows are
good or none is taken: a list with a part missing would be cut with a part missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import PureWindowsPath
from typing import Any, Final, TypeVar

from kesin.foundation.text import storable
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.list_cells import (
    Heading,
    PlateMm,
    edge_in,
    grain_in,
    is_blank,
    label,
    looks_numeric,
    quantity_in,
    read_heading,
    row_thicknesses_mm,
    size_mm_in,
    text_in,
)
from kesin.workloads.optiplan.orders.numbers import as_json, key_of
from kesin.workloads.optiplan.orders.payload import (
    MAX_TEXT,
    UNFIT,
    FieldProblem,
    Mode,
    PartType,
    Payload,
    checked,
)
from kesin.workloads.optiplan.orders.spreadsheet import Sheet, Unreadable, read_sheets

COLUMNS: Final = "ABCDEFGHIJKL"
_PROBLEMS_MAX: Final = 200
_IN_MESSAGE: Final = 5
_BACK: Final = re.compile(r"\barkal[ıi]k\b", re.IGNORECASE)
_SIZES: Final = slice(1, 4)  # length, width, quantity
_COLUMN_OF: Final = {
    "thickness_mm": "A",
    "length_cm": "B",
    "width_cm": "C",
    "quantity": "D",
    "grain": "E",
    "edge_up": "F",
    "edge_lo": "G",
    "edge_sx": "H",
    "edge_dx": "I",
    "delik_kodu": "J",
    "desc1": "K, L",
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ListDefaults:
    """What holds where a list says nothing itself."""

    material_code: str | None = None  # otherwise thickness and plate, "18MM 210*280"
    color: str | None = None
    thickness_mm: Decimal | None = None
    plate_mm: PlateMm | None = None  # width, height
    part_type: PartType = "GOVDE"  # where column A does not say ARKALIK
    band: str = "1mm"  # what a tick means
    bands: tuple[str, ...] = ("040", "1mm", "2mm")  # names an edge may say itself
    grain: int = 0
    opti_mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class RowProblem:
    """What is wrong where; row 0 is the whole file, an empty column the whole row."""

    row: int
    column: str
    message: str

    def __str__(self) -> str:
        where = f"row {self.row}" if self.row else "the file"
        return f"{where}{f', column {self.column}' if self.column else ''}: {self.message}"


class BadOrderList(OrderProblem):
    """A list nothing was made of, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[RowProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda one: one.row)[:_PROBLEMS_MAX])
        told = "; ".join(map(str, self.problems[:_IN_MESSAGE]))
        more = len(problems) - _IN_MESSAGE
        rows = [
            {"row": one.row, "column": one.column, "message": one.message} for one in self.problems
        ]
        super().__init__(
            OptiCode.VALIDATION, f"{told}; and {more} more" if more > 0 else told, {"rows": rows}
        )


def read_order_file(
    name: str,
    data: bytes,
    *,
    order_id: str,
    customer_phone: str,
    defaults: ListDefaults | None = None,
) -> Payload:
    """The order in an XLSX or CSV; raises BadOrderList with every row that is wrong.

    The file is named after the customer.
    """
    defaults = defaults or ListDefaults()
    sheet, start = _list_in(data)
    reading = _Reading(read_heading(sheet.rows[:start]), defaults)
    reading.problems += _almost_parts(sheet.rows[:start])
    reading.read(sheet.rows[start:], start + 1)
    if reading.problems:
        raise BadOrderList(reading.problems)
    body: dict[str, Any] = {
        "order_id": order_id,
        "customer_phone": customer_phone,
        "customer_snapshot_name": _customer_of(name),
        "opti_mode": defaults.opti_mode,
        "plate_size": reading.plate_size(),
        "parts": reading.parts,
    }
    payload = checked(body)
    if isinstance(payload, Payload):
        return payload
    raise BadOrderList([_located(one, reading.numbers) for one in payload])


@dataclass(slots=True)
class _Reading:
    """The parts found so far, with their rows, and what was wrong with the others."""

    heading: Heading
    defaults: ListDefaults
    parts: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    problems: list[RowProblem] = field(default_factory=list)

    def read(self, rows: Sequence[Sequence[Any]], first: int) -> None:
        """Every row from the first part on."""
        filled = [
            (number, [*cells, *[""] * len(COLUMNS)][: len(COLUMNS)])
            for number, cells in enumerate(rows, first)
            if not all(map(is_blank, cells[: len(COLUMNS)]))
        ]
        color = self.heading.color or self.defaults.color
        if color is None:
            self._whole("no colour is given: write RENK: and its name above the parts")
        said = row_thicknesses_mm([cells for _, cells in filled])
        usual = self._usual_thickness(said)
        if usual is None and None in said:
            self._whole(self._no_thickness())
        for (number, cells), own in zip(filled, said, strict=True):
            self._part(number, cells, own or usual, color)

    def plate_mm(self) -> PlateMm | None:
        return self.heading.plate_mm or self.defaults.plate_mm

    def plate_size(self) -> dict[str, Any] | None:
        plate = self.plate_mm()
        return plate and {"width_mm": as_json(plate[0]), "height_mm": as_json(plate[1])}

    def _usual_thickness(self, said: Sequence[Decimal | None]) -> Decimal | None:
        """Of a row that names none: the heading's, the default, or the one all others name."""
        others = {one for one in said if one is not None}
        alone = next(iter(others)) if len(others) == 1 else None
        return self.heading.thickness_mm or self.defaults.thickness_mm or alone

    def _no_thickness(self) -> str:
        several = ", ".join(map(key_of, self.heading.thicknesses_mm))
        if several:
            return f"several thicknesses are named above the parts ({several} mm): leave one"
        return "no thickness is given: write 18MM above the parts or in column A"

    def _part(
        self, number: int, cells: Sequence[Any], thickness_mm: Decimal | None, color: str | None
    ) -> None:
        before = len(self.problems)
        length_mm = self._cell(number, "B", size_mm_in, cells)
        width_mm = self._cell(number, "C", size_mm_in, cells)
        quantity = self._cell(number, "D", quantity_in, cells)
        grain = self._cell(number, "E", lambda cell: grain_in(cell, self.defaults.grain), cells)
        up, lo, sx, dx = (self._cell(number, column, self._edge, cells) for column in "FGHI")
        if len(self.problems) > before or thickness_mm is None or color is None:
            return
        self.numbers.append(number)
        self.parts.append(
            {
                "id": f"r{number}",
                "part_type": self._part_type(cells[0]),
                "material_code": self.defaults.material_code
                or label(thickness_mm, self.plate_mm()),
                "length_cm": length_mm and length_mm / 10,
                "width_cm": width_mm and width_mm / 10,
                "quantity": quantity,
                "grain": grain,
                "color": color,
                "thickness_mm": thickness_mm,
                "edge_up": up,
                "edge_lo": lo,
                "edge_sx": sx,
                "edge_dx": dx,
                "delik_kodu": text_in(cells[9]) or None,
                "desc1": " ".join(filter(None, map(text_in, cells[10:12]))) or None,
            }
        )

    def _cell(
        self, number: int, column: str, read: Callable[[Any], _T], cells: Sequence[Any]
    ) -> _T | None:
        try:
            return read(cells[COLUMNS.index(column)])
        except ValueError as problem:
            self.problems.append(RowProblem(number, column, str(problem)))
            return None

    def _edge(self, cell: Any) -> str | None:
        return edge_in(cell, self.defaults.band, self.defaults.bands)

    def _part_type(self, cell: Any) -> PartType:
        return "ARKALIK" if _BACK.search(text_in(cell)) else self.defaults.part_type

    def _whole(self, message: str) -> None:
        self.problems.append(RowProblem(0, "", message))


def _list_in(data: bytes) -> tuple[Sheet, int]:
    """The sheet with the parts, and how many rows come before the first of them."""
    try:
        sheets = read_sheets(data)
    except Unreadable as problem:
        raise BadOrderList([RowProblem(0, "", str(problem))]) from None
    found = [(sheet, start) for sheet in sheets if (start := _start(sheet.rows)) is not None]
    if len(found) == 1:
        return found[0]
    message = "no row has numbers in the columns B, C and D (length, width, quantity)"
    if found:
        names = " and ".join(sheet.name for sheet, _ in found[:2])
        message = f"the sheets {names} both hold parts: one list a file is taken"
    raise BadOrderList([RowProblem(0, "", message)])


def _start(rows: Sequence[Sequence[Any]]) -> int | None:
    return next((index for index, cells in enumerate(rows) if _missing(cells) == 0), None)


def _missing(cells: Sequence[Any]) -> int:
    """How many of length, width and quantity are no numbers."""
    return 3 - sum(map(looks_numeric, cells[_SIZES]))


def _almost_parts(above: Sequence[Sequence[Any]]) -> Iterator[RowProblem]:
    """Rows that would be parts but for a slip; they must not pass for a heading."""
    for number, cells in enumerate(above, 1):
        if _missing(cells) == 1:
            yield RowProblem(
                number, "", "this looks like a part, but not all of B, C, D are numbers"
            )


def _located(problem: FieldProblem, numbers: Sequence[int]) -> RowProblem:
    """A field of the order as a cell of the list."""
    match problem.path:
        case ("parts", int(index), str(name)) if index < len(numbers):
            return RowProblem(numbers[index], _COLUMN_OF.get(name, ""), problem.message)
        case _:
            return RowProblem(0, "", f"{problem.field}: {problem.message}")


def _customer_of(name: str) -> str | None:
    stem = PureWindowsPath(name).stem  # which parts names at / too
    return UNFIT.sub(" ", storable(stem)).strip()[:MAX_TEXT] or None
