"""What an order list says above its parts, and in its first column: thickness, plate, colour."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from kesin.workloads.optiplan.numbers import exact, key_of
from kesin.workloads.optiplan.order_cells import is_blank, number_in, text_in

SCANNED_ROWS: Final = 10
_THINNEST, _THICKEST = 1, 60  # mm of a bare number that can be a board
_CM_BELOW: Final = 1_000
_DIGITS: Final = r"([0-9]{1,5}(?:[.,][0-9]{1,2})?)"
_THICKNESS: Final = re.compile(rf"(?<![0-9.,]){_DIGITS}\s*MM\b", re.IGNORECASE)
_PLATE: Final = re.compile(rf"(?<![0-9.,]){_DIGITS}\s*[*x×]\s*{_DIGITS}(?![0-9])", re.IGNORECASE)
_COLOR: Final = re.compile(r"\s*RENK\s*:(.*)", re.IGNORECASE)

PlateMm = tuple[Decimal, Decimal]  # width, height


@dataclass(frozen=True, slots=True)
class Heading:
    """What the list says of all its parts; None where it says nothing."""

    thicknesses_mm: tuple[Decimal, ...] = ()  # several: it cannot be told which is meant
    plate_mm: PlateMm | None = None
    color: str | None = None

    @property
    def thickness_mm(self) -> Decimal | None:
        return self.thicknesses_mm[0] if len(self.thicknesses_mm) == 1 else None


def read_heading(above: Sequence[Sequence[Any]]) -> Heading:
    """The rows above the first part; only the first ten are looked at."""
    rows = above[:SCANNED_ROWS]
    texts = [text_in(cell) for cells in rows for cell in cells]
    named = [_number(found[1]) for text in texts for found in _THICKNESS.finditer(text)]
    bare = [thickness for cells in rows if (thickness := bare_thickness_mm(cells)) is not None]
    plates = [found for text in texts for found in _PLATE.finditer(text)]
    return Heading(
        thicknesses_mm=tuple(dict.fromkeys(named or bare)),
        plate_mm=(_mm(plates[0][1]), _mm(plates[0][2])) if plates else None,
        color=next(_colors(rows), None),
    )


def row_thicknesses_mm(rows: Sequence[Sequence[Any]]) -> list[Decimal | None]:
    """What column A says of each part. Where it only counts the rows, it says nothing."""
    bare = [bare_thickness_mm(cells) for cells in rows]
    numbers = [number for cells in rows if (number := _number_in_a(cells)) is not None]
    counting = numbers == list(range(1, len(numbers) + 1))
    said: list[Decimal | None] = []
    for cells, number in zip(rows, bare, strict=True):
        named = _THICKNESS.search(text_in(cells[0])) if cells else None
        said.append(_number(named[1]) if named else None if counting else number)
    return said


def bare_thickness_mm(cells: Sequence[Any]) -> Decimal | None:
    """A number in column A that can be a board's thickness."""
    number = _number_in_a(cells)
    return number if number is not None and _THINNEST <= number <= _THICKEST else None


def label(thickness_mm: Decimal, plate_mm: PlateMm | None) -> str:
    """A board as OptiPlanning lists it: ``18MM 210*280``, the plate in centimetres."""
    name = f"{key_of(thickness_mm)}MM"
    if plate_mm is None:
        return name
    width, height = (key_of(exact(side / 10)) for side in plate_mm)
    return f"{name} {width}*{height}"


def _number_in_a(cells: Sequence[Any]) -> Decimal | None:
    try:
        return number_in(cells[0]) if cells else None
    except ValueError:
        return None


def _colors(rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    for cells in rows:
        for index, cell in enumerate(cells):
            found = _COLOR.fullmatch(text_in(cell))
            if not found:
                continue
            if found[1].strip():
                yield found[1].strip()
            elif index + 1 < len(cells) and not is_blank(cells[index + 1]):
                yield text_in(cells[index + 1])


def _number(digits: str) -> Decimal:
    return exact(Decimal(digits.replace(",", ".")))


def _mm(digits: str) -> Decimal:
    side = _number(digits)
    return exact(side * 10) if side < _CM_BELOW else side
