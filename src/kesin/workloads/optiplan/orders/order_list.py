"""The workshop's order lists: twelve fixed columns, sizes in millimetres.

Columns A…L: thickness or a note, length, width, quantity, grain, bands U1 U2 K1 K2, two drill
codes, information. The rows above the first part may state thickness, plate and colour. A list is
accepted only if all its rows are valid: otherwise a part would be missing from the cut.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import PureWindowsPath
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.foundation.text import storable
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders import list_cells, spreadsheet
from kesin.workloads.optiplan.orders import payload as payloads
from kesin.workloads.optiplan.orders.numbers import format_number
from kesin.workloads.optiplan.orders.payload import EffortName, FieldProblem, OptiMode, PartType, Payload
from kesin.workloads.optiplan.orders.safe_xlsx import UnreadableSpreadsheet

COLUMNS: Final = "ABCDEFGHIJKL"
_MAX_PROBLEMS: Final = 200
_MAX_IN_MESSAGE: Final = 5
_BACK_PANEL: Final = re.compile(r"\barkal[ıi]k\b", re.IGNORECASE)
_NO_BACK: Final = "a back cannot be %(thickness)s mm thick: write, for example, ARKALIK %(back)sMM"
_READ_FIELDS: Final = (  # of the columns B…I
    *("length_cm", "width_cm", "quantity", "grain"),
    *("edge_up", "edge_lo", "edge_sx", "edge_dx"),
)
_COLUMN_OF: Final = {
    "thickness_mm": "A",
    **dict(zip(_READ_FIELDS, "BCDEFGHI", strict=True)),
    "delik_kodu": "J",
    "desc1": "K, L",
}


@dataclass(frozen=True, slots=True)
class ListDefaults:
    """The values to use where a list states nothing."""

    material_code: str | None = None  # otherwise thickness and plate, "18MM 210*280"
    color: str | None = None
    thickness_mm: Decimal | None = None

    part_type: PartType = "GOVDE"  # unless column A says ARKALIK
    band: str = "1mm"  # the meaning of a tick
    bands: tuple[str, ...] = ("040", "1mm", "2mm")  # names that an edge may state
    opti_mode: OptiMode | None = None
    effort: EffortName | None = None
    saw_profile: str | None = None
    use_rack: bool | None = None
    backs_mm: tuple[Decimal, ...] = ()  # the thicknesses of backs; empty: any


@dataclass(frozen=True, slots=True)
class RowProblem:
    """An invalid cell; row 0 means the whole file, an empty column the whole row."""

    row: int
    column: str
    message: str

    def __str__(self) -> str:
        where = f"row {self.row}" if self.row else "the file"
        return f"{where}{f', column {self.column}' if self.column else ''}: {self.message}"


class BadOrderList(OrderProblem):
    """An order list was rejected; it carries every problem found."""

    def __init__(self, problems: Sequence[RowProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.row)[:_MAX_PROBLEMS])
        message = "; ".join(map(str, self.problems[:_MAX_IN_MESSAGE]))
        omitted = len(problems) - _MAX_IN_MESSAGE
        super().__init__(
            OptiCode.VALIDATION,
            f"{message}; and {omitted} more" if omitted > 0 else message,
            {"rows": [asdict(problem) for problem in self.problems]},
        )


def read_order_file(name: str, data: bytes, *, order_id: str, customer_phone: str, defaults: ListDefaults) -> Payload:
    """Read an XLSX or CSV, named after its customer; BadOrderList has every bad row."""
    rows, start = _find_list(data)
    reader = _ListReader(list_cells.read_heading(rows[:start]), defaults)
    reader.problems += _near_parts(rows[:start])
    reader.read(rows[start:], start + 1)
    if reader.problems:
        raise BadOrderList(reader.problems)
    plate, stem = reader.heading.plate_mm, PureWindowsPath(name).stem  # splits at / too
    customer = payloads.UNPRINTABLE.sub(" ", storable(stem)).strip()
    body: dict[str, Any] = {
        "order_id": order_id,
        "customer_phone": customer_phone,
        "customer_snapshot_name": customer[: payloads.MAX_TEXT] or None,
        "opti_mode": defaults.opti_mode,
        "effort": defaults.effort,
        "saw_profile": defaults.saw_profile,
        "use_rack": defaults.use_rack,
        "plate_size": plate and dict(zip(("width_mm", "height_mm"), plate, strict=True)),
        "parts": reader.parts,
    }
    payload = payloads.validate_payload(body)
    if isinstance(payload, Payload):
        return payload
    raise BadOrderList([_row_problem(problem, reader.numbers) for problem in payload])


@dataclass(slots=True)
class _ListReader:
    """Collects the parts of a list with their row numbers, and the problems of the other rows."""

    heading: list_cells.ListHeading
    defaults: ListDefaults
    parts: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    problems: list[RowProblem] = field(default_factory=list)

    def read(self, rows: Sequence[Sequence[Any]], first: int) -> None:
        """Read every row from the first part on."""
        filled = [
            (number, [*cells, *[""] * len(COLUMNS)][: len(COLUMNS)])
            for number, cells in enumerate(rows, first)
            if not all(map(list_cells.is_blank, cells[: len(COLUMNS)]))
        ]
        color = self.heading.color or self.defaults.color
        if color is None:
            why = "no colour is given: write RENK: and the colour's name above the parts"
            self.problems.append(RowProblem(0, "", why))
        thicknesses = list_cells.row_thicknesses_mm([cells for _, cells in filled])
        distinct = {thickness for thickness in thicknesses if thickness is not None}
        only = distinct.pop() if len(distinct) == 1 else None
        usual = self.heading.thickness_mm or self.defaults.thickness_mm or only
        if usual is None and None in thicknesses:
            several = ", ".join(map(format_number, self.heading.thicknesses_mm))
            why = "several thicknesses are given above the parts (%(known)s mm): keep one"
            missing = "no thickness is given: write 18MM above the parts or in column A"
            message = Message(why, known=several) if several else missing
            self.problems.append(RowProblem(0, "", message))
        for (number, cells), own in zip(filled, thicknesses, strict=True):
            backs = self.defaults.backs_mm
            is_back = self._part_type(cells[0]) == "ARKALIK"
            if is_back and own is None and usual and backs and usual not in backs:
                sizes = {"thickness": format_number(usual), "back": format_number(backs[-1])}
                self.problems.append(RowProblem(number, "A", Message(_NO_BACK, **sizes)))
            self._read_part(number, cells, own or usual, color)

    def _read_part(self, number: int, cells: Sequence[Any], thickness_mm: Decimal | None, color: str | None) -> None:
        before = len(self.problems)
        size = list_cells.read_size_mm
        edge = partial(list_cells.read_edge, tick=self.defaults.band, bands=self.defaults.bands)
        readers: tuple[Callable[[Any], Any], ...]
        readers = (size, size, list_cells.read_quantity, list_cells.read_grain, *[edge] * 4)
        values: dict[str, Any] = {}
        for name, read, cell in zip(_READ_FIELDS, readers, cells[1:9], strict=True):
            try:
                values[name] = read(cell)
            except ValueError as problem:
                self.problems.append(RowProblem(number, _COLUMN_OF[name], str(problem)))
        if len(self.problems) > before or thickness_mm is None or color is None:
            return
        label = list_cells.material_label(thickness_mm, self.heading.plate_mm)
        self.numbers.append(number)
        self.parts.append(
            {
                **values,
                "id": f"r{number}",
                "part_type": self._part_type(cells[0]),
                "material_code": self.defaults.material_code or label,
                "length_cm": values["length_cm"] / 10,
                "width_cm": values["width_cm"] / 10,
                "color": color,
                "thickness_mm": thickness_mm,
                "delik_kodu": list_cells.read_text(cells[9]) or None,
                "desc1": " ".join(filter(None, map(list_cells.read_text, cells[10:12]))) or None,
            }
        )

    def _part_type(self, cell: Any) -> PartType:
        is_back = _BACK_PANEL.search(list_cells.read_text(cell))
        return "ARKALIK" if is_back else self.defaults.part_type


def _find_list(data: bytes) -> tuple[spreadsheet.Rows, int]:
    """Find the rows of the sheet with the parts, and how many are above the first part."""
    try:
        sheets = spreadsheet.read_sheets(data)
    except UnreadableSpreadsheet as problem:
        raise BadOrderList([RowProblem(0, "", str(problem))]) from None
    matches = {
        name: next(index for index, cells in enumerate(rows) if not _missing_sizes(cells))
        for name, rows in sheets.items()
        if not all(map(_missing_sizes, rows))
    }
    if len(matches) == 1:
        [(name, start)] = matches.items()
        return sheets[name], start
    message = "no row has numbers in columns B, C and D (length, width, quantity)"
    if matches:
        why = "the sheets %(sheets)s both contain parts: a file can contain only one list"
        message = Message(why, sheets=" and ".join(list(matches)[:2]))
    raise BadOrderList([RowProblem(0, "", message)])


def _missing_sizes(cells: Sequence[Any]) -> int:
    """Count how many of length, width and quantity are not numbers."""
    return 3 - sum(map(list_cells.looks_numeric, cells[1:4]))


def _near_parts(above: Sequence[Sequence[Any]]) -> Iterator[RowProblem]:
    """Report heading rows that look like misspelled parts; they must not pass for a heading."""
    for number, cells in enumerate(above, 1):
        if _missing_sizes(cells) == 1:
            message = "this looks like a part, but not all of B, C and D are numbers"
            yield RowProblem(number, "", message)


def _row_problem(problem: FieldProblem, numbers: Sequence[int]) -> RowProblem:
    """Translate a field of the order to a cell of the list."""
    match problem.path:
        case ("parts", int(index), str(name)) if index < len(numbers):
            return RowProblem(numbers[index], _COLUMN_OF.get(name, ""), problem.message)
        case _:
            return RowProblem(0, "", problem.full_message)
