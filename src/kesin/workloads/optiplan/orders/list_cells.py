"""Parsing of the cells and the heading of an order list; ambiguous values are rejected."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from kesin.foundation.messages import MessageError
from kesin.workloads.optiplan.orders import numbers
from kesin.workloads.optiplan.orders.payload import MAX_QUANTITY

_SPACES: Final = str.maketrans("", "", " \u00a0\u202f\t")
_NUMERIC: Final = re.compile(r"[-+]?[0-9][0-9.,]*")
_NUMBER: Final = re.compile(r"([0-9]+)(?:[.,]([0-9]+))?")
_GRAIN: Final = re.compile(r"([0-3])(?:\s*-.*)?")
_THOUSANDS: Final = 3
_TURKISH_I: Final = str.maketrans("İı", "ii")
_NO_BAND: Final = frozenset({"", "0", "yok", "hayir", "false", "bantyok", "-", "–"})
_SIZE_MM: Final = numbers.InBounds("0.1", "10000")
_QUANTITY: Final = numbers.InBounds("1", str(MAX_QUANTITY))


def is_blank(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def looks_numeric(cell: Any) -> bool:
    """Whether the cell is meant as a number, even a malformed one."""
    if isinstance(cell, str):
        return _NUMERIC.fullmatch(cell.translate(_SPACES)) is not None
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def read_text(cell: Any) -> str:
    """Return the cell as text; a number is written ``35``, not ``35.0``."""
    if looks_numeric(cell) and not isinstance(cell, str) and math.isfinite(cell):
        return numbers.format_number(numbers.parse_number(cell))
    return "" if cell is None else str(cell).strip()


def read_number(cell: Any) -> Decimal:
    """Parse a cell such as ``722,5``; ValueError for ``1.960``, which is ambiguous."""
    if not isinstance(cell, str):
        return numbers.parse_number(cell) if looks_numeric(cell) else _raise_no_number(cell)
    if (match := _NUMBER.fullmatch(cell.translate(_SPACES))) is None:
        return _raise_no_number(cell)
    whole, decimals = match[1], match[2] or ""
    if len(decimals) == _THOUSANDS:
        raise MessageError(
            "%(given)s could mean %(whole)s%(decimals)s or %(whole)s.%(decimals)s:"
            " write it with no more than two decimal places",
            given=numbers.format_value(cell),
            whole=whole,
            decimals=decimals,
        )
    return numbers.parse_number(Decimal(f"{whole}.{decimals}") if decimals else Decimal(whole))


def read_size_mm(cell: Any) -> Decimal:
    """Parse a length or a width; raises ValueError."""
    return _SIZE_MM.check(read_number(cell))


def read_quantity(cell: Any) -> int:
    """Parse a quantity; raises ValueError."""
    return _QUANTITY.check_whole(read_number(cell))


def read_grain(cell: Any) -> int:
    """Parse a grain, ``2`` or ``2-Enine``; a blank cell means 0. Raises ValueError."""
    text = read_text(cell) or "0"
    if (match := _GRAIN.fullmatch(text)) is None:
        raise MessageError("must be 0, 1, 2 or 3, got %(given)s", given=numbers.format_value(text))
    return int(match[1])


def read_edge(cell: Any, tick: str, bands: Iterable[str]) -> str | None:
    """Parse the band of an edge: a band's name, or a tick for ``tick``; raises ValueError."""
    if isinstance(cell, bool):
        return tick if cell else None
    text = read_text(cell).translate(_SPACES).translate(_TURKISH_I).lower()
    names_by_key = {name.translate(_SPACES).translate(_TURKISH_I).lower(): name for name in bands}
    if text in names_by_key:
        return names_by_key[text]
    if text in _NO_BAND:
        return None
    if text != "1" and looks_numeric(text):
        why = "%(given)s is neither a tick nor a band: write x, or one of %(known)s"
        given, names = numbers.format_value(read_text(cell)), ", ".join(names_by_key.values())
        raise MessageError(why, given=given, known=names)
    return tick


def _raise_no_number(cell: Any) -> Decimal:
    if is_blank(cell):
        raise ValueError("is empty; enter a number")
    given = numbers.format_value(read_text(cell))
    raise MessageError("must be a number, got %(given)s", given=given)


MAX_HEADING_ROWS: Final = 10
_MIN_BOARD_MM, _MAX_BOARD_MM = 1, 60  # a bare number in this range is a board's thickness
_CM_BELOW: Final = 1_000
_DIGITS: Final = r"([0-9]{1,5}(?:[.,][0-9]{1,2})?)"
_THICKNESS: Final = re.compile(rf"(?<![0-9.,]){_DIGITS}\s*MM\b", re.IGNORECASE)
_PLATE: Final = re.compile(rf"(?<![0-9.,]){_DIGITS}\s*[*x×]\s*{_DIGITS}(?![0-9])", re.IGNORECASE)
_COLOR: Final = re.compile(r"\s*RENK\s*:(.*)", re.IGNORECASE)

PlateMm = tuple[Decimal, Decimal]  # width, height


@dataclass(frozen=True, slots=True)
class ListHeading:
    """What an order list states for all its parts; None where it states nothing."""

    thicknesses_mm: tuple[Decimal, ...] = ()  # more than one is ambiguous
    plate_mm: PlateMm | None = None
    color: str | None = None

    @property
    def thickness_mm(self) -> Decimal | None:
        return self.thicknesses_mm[0] if len(self.thicknesses_mm) == 1 else None


def read_heading(above: Sequence[Sequence[Any]]) -> ListHeading:
    """Read the rows above the first part; only the first ten count."""
    rows = above[:MAX_HEADING_ROWS]
    texts = [read_text(cell) for cells in rows for cell in cells]
    named = [_parse_decimal(match[1]) for text in texts for match in _THICKNESS.finditer(text)]
    bare = [thickness for cells in rows if (thickness := bare_thickness_mm(cells)) is not None]
    plates = [match for text in texts for match in _PLATE.finditer(text)]
    return ListHeading(
        thicknesses_mm=tuple(dict.fromkeys(named or bare)),
        plate_mm=(_parse_side_mm(plates[0][1]), _parse_side_mm(plates[0][2])) if plates else None,
        color=next(_find_colors(rows), None),
    )


def row_thicknesses_mm(rows: Sequence[Sequence[Any]]) -> list[Decimal | None]:
    """Return the thickness in column A of each part; a column that only numbers rows has none."""
    found = [number for cells in rows if (number := _number_in_column_a(cells)) is not None]
    counting = found == list(range(1, len(found) + 1))
    thicknesses: list[Decimal | None] = []
    for cells, number in zip(rows, map(bare_thickness_mm, rows), strict=True):
        named = _THICKNESS.search(read_text(cells[0])) if cells else None
        thicknesses.append(_parse_decimal(named[1]) if named else None if counting else number)
    return thicknesses


def bare_thickness_mm(cells: Sequence[Any]) -> Decimal | None:
    """Return the number in column A if it can be a board's thickness."""
    number = _number_in_column_a(cells)
    return number if number is not None and _MIN_BOARD_MM <= number <= _MAX_BOARD_MM else None


def material_label(thickness_mm: Decimal, plate_mm: PlateMm | None) -> str:
    """Format a board as OptiPlanning lists it: ``18MM 210*280``, the plate in centimetres."""
    name = f"{numbers.format_number(thickness_mm)}MM"
    if plate_mm is None:
        return name
    width, height = (numbers.format_number(numbers.parse_number(side / 10)) for side in plate_mm)
    return f"{name} {width}*{height}"


def _number_in_column_a(cells: Sequence[Any]) -> Decimal | None:
    try:
        return read_number(cells[0]) if cells else None
    except ValueError:
        return None


def _find_colors(rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    for cells in rows:
        for index, cell in enumerate(cells):
            if not (match := _COLOR.fullmatch(read_text(cell))):
                continue
            if match[1].strip():
                yield match[1].strip()
            elif index + 1 < len(cells) and not is_blank(cells[index + 1]):
                yield read_text(cells[index + 1])


def _parse_decimal(digits: str) -> Decimal:
    return numbers.parse_number(Decimal(digits.replace(",", ".")))


def _parse_side_mm(digits: str) -> Decimal:
    side = _parse_decimal(digits)
    return numbers.parse_number(side * 10) if side < _CM_BELOW else side
