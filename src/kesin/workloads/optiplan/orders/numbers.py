"""Numbers as JSON brings them, exact: no float noise, no booleans, no infinities.

A number is what its shortest decimal spelling says. ``18``, ``18.0`` and ``1.8e1`` are one number,
so they share a trim rule, a batch and a hash.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

_SHOWN: Final = 40
_HUNDREDTH: Final = Decimal("0.01")


def exact(given: Any) -> Decimal:
    """The number itself; raises ValueError for what is none."""
    if isinstance(given, bool) or not isinstance(given, int | float | Decimal):
        raise ValueError(f"must be a number, got {shown(given)}")  # noqa: TRY004 - pydantic's way
    try:
        # By way of a float, so that what is stored as JSON reads back as the same number.
        value = float(given)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"must be a finite number, got {shown(given)}")
    return _plain(Decimal(repr(value)))


def between(low: str, high: str) -> Callable[[Any], Decimal]:
    """A check that a number lies in these bounds, both included."""
    least, most = Decimal(low), Decimal(high)

    def checked(given: Any) -> Decimal:
        value = exact(given)
        if not least <= value <= most:
            raise ValueError(f"must lie in {low}…{high}, got {shown(given)}")
        return value

    return checked


def whole_between(low: int, high: int) -> Callable[[Any], int]:
    """A check that a number is whole and lies in these bounds; ``4.0`` is whole."""
    checked = between(str(low), str(high))

    def whole(given: Any) -> int:
        value = checked(given)
        if value != value.to_integral_value():
            raise ValueError(f"must be a whole number, got {shown(given)}")
        return int(value)

    return whole


def as_json(value: Decimal) -> int | float:
    """As JSON spells it; `exact` reads it back."""
    return int(value) if value == value.to_integral_value() else float(value)


def plain_json(value: Any) -> Any:
    """A value with every exact number in it as JSON spells it."""
    if isinstance(value, dict):
        return {key: plain_json(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain_json(one) for one in value]
    return as_json(value) if isinstance(value, Decimal) else value


def key_of(value: Decimal) -> str:
    """The number as a key of a table: ``18`` and ``18.5``, never ``18.0`` or ``1.8E+1``."""
    return format(_plain(value), "f")


def hundredths(value: Decimal) -> Decimal:
    """Rounded to two decimals, ties away from zero."""
    return value.quantize(_HUNDREDTH, ROUND_HALF_UP)


def shown(given: Any) -> str:
    """A value as a message shows it: short, on one line, and spelled as in JSON."""
    if given is None or isinstance(given, bool):
        return "null" if given is None else str(given).lower()
    try:
        text = str(given) if isinstance(given, Decimal) else repr(given)
    except ValueError:  # a whole number too long to spell
        text = "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _plain(value: Decimal) -> Decimal:
    """Without trailing zeros and without an exponent above zero."""
    if value == value.to_integral_value():
        return value.quantize(Decimal(1)) if abs(value) < 10**20 else value
    return value.normalize()
