"""What a cell of an order list says. What can be read in two ways is refused, not guessed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from kesin.workloads.optiplan.orders.numbers import (
    between,
    exact,
    key_of,
    shown,
    whole_between,
)
from kesin.workloads.optiplan.orders.payload import MAX_QUANTITY

_SPACES: Final = str.maketrans("", "", " \u00a0\u202f\t")
_NUMERIC: Final = re.compile(r"[-+]?[0-9][0-9.,]*")
_NUMBER: Final = re.compile(r"([0-9]+)(?:[.,]([0-9]+))?")
_GRAIN: Final = re.compile(r"([0-3])(?:\s*-.*)?")
_THOUSANDS: Final = 3
_TURKISH_I: Final = str.maketrans("İı", "ii")
_NO_BAND: Final = frozenset({"", "0", "yok", "hayir", "false", "bantyok", "-", "–"})
_SIZE_MM: Final = between("0.1", "10000")
_QUANTITY: Final = whole_between(1, MAX_QUANTITY)


def is_blank(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def looks_numeric(cell: Any) -> bool:
    """Whether somebody meant a number here, well spelled or not."""
    if isinstance(cell, str):
        return _NUMERIC.fullmatch(cell.translate(_SPACES)) is not None
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def text_in(cell: Any) -> str:
    """The cell as text; a number as people write it, ``35`` and not ``35.0``."""
    if looks_numeric(cell) and not isinstance(cell, str) and math.isfinite(cell):
        return key_of(exact(cell))
    return "" if cell is None else str(cell).strip()


def number_in(cell: Any) -> Decimal:
    """The number in a cell; raises ValueError. ``722,5`` is one, ``1.960`` might be two."""
    if not isinstance(cell, str):
        return exact(cell) if looks_numeric(cell) else _no_number(cell)
    found = _NUMBER.fullmatch(cell.translate(_SPACES))
    if found is None:
        return _no_number(cell)
    whole, part = found[1], found[2] or ""
    if len(part) == _THOUSANDS:
        raise ValueError(
            f"{shown(cell)} may be {whole}{part} or {whole}.{part}: write it with no more than two"
            " decimals"
        )
    return exact(Decimal(f"{whole}.{part}") if part else Decimal(whole))


def size_mm_in(cell: Any) -> Decimal:
    """A length or a width; raises ValueError."""
    return _SIZE_MM(number_in(cell))


def quantity_in(cell: Any) -> int:
    """How many; raises ValueError."""
    return _QUANTITY(number_in(cell))


def grain_in(cell: Any, default: int) -> int:
    """``2``, ``2-Enine``, or nothing at all; raises ValueError."""
    text = text_in(cell)
    if not text:
        return default
    found = _GRAIN.fullmatch(text)
    if found is None:
        raise ValueError(f"must be 0, 1, 2 or 3, got {shown(text)}")
    return int(found[1])


def edge_in(cell: Any, tick: str, bands: Iterable[str]) -> str | None:
    """The band of an edge: one that is named, the usual one for a tick; raises ValueError."""
    if isinstance(cell, bool):
        return tick if cell else None
    text = text_in(cell).translate(_SPACES).translate(_TURKISH_I).lower()
    known = {name.translate(_SPACES).translate(_TURKISH_I).lower(): name for name in bands}
    if text in known:
        return known[text]
    if text in _NO_BAND:
        return None
    if text != "1" and looks_numeric(text):
        names = ", ".join(known.values())
        raise ValueError(
            f"{shown(text_in(cell))} is no tick and no band: write x, or one of {names}"
        )
    return tick


def _no_number(cell: Any) -> Decimal:
    if is_blank(cell):
        raise ValueError("is empty, a number is needed")
    raise ValueError(f"must be a number, got {shown(text_in(cell))}")


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
