"""What a cell of an order list says. What can be read in two ways is refused, not guessed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from kesin.workloads.optiplan.numbers import between, exact, key_of, shown, whole_between
from kesin.workloads.optiplan.payload import MAX_QUANTITY

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
