"""Exact numbers from JSON: ``18``, ``18.0`` and ``1.8e1`` are one, in a rule, batch and hash."""

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from kesin.foundation.messages import MessageError
from kesin.foundation.text import json_number

_MAX_SHOWN: Final = 40
_HUNDREDTH: Final = Decimal("0.01")


def parse_number(value: Any) -> Decimal:
    """Convert a number to an exact Decimal; raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise MessageError("must be a number, got %(given)s", given=format_value(value))
    try:
        # Through a float, so that the number stored as JSON reads back unchanged.
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise MessageError("must be a finite number, got %(given)s", given=format_value(value))
    return _normalise(Decimal(repr(number)))


@dataclass(frozen=True, slots=True)
class InBounds:
    """The bounds of a number, both included; as the annotation of a field, they validate it."""

    low: str
    high: str

    def check(self, value: Any) -> Decimal:
        """Return the exact number; raises ValueError if it is none or out of bounds."""
        number = parse_number(value)
        if not Decimal(self.low) <= number <= Decimal(self.high):
            why = "must be in %(low)s…%(high)s, got %(given)s"
            raise MessageError(why, low=self.low, high=self.high, given=format_value(value))
        return number

    def check_whole(self, value: Any) -> int:
        """Return the whole number, which ``4.0`` is too; raises ValueError."""
        number = self.check(value)
        if number != number.to_integral_value():
            raise MessageError("must be a whole number, got %(given)s", given=format_value(value))
        return int(number)

    def __get_pydantic_core_schema__(self, source: type, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        low, high = (json_number(Decimal(bound)) for bound in (self.low, self.high))
        validator = core_schema.no_info_before_validator_function
        if source is int:
            whole = core_schema.int_schema(ge=int(low), le=int(high))
            return validator(self.check_whole, handler(source), json_schema_input_schema=whole)
        number = core_schema.float_schema(ge=low, le=high)
        as_json = core_schema.plain_serializer_function_ser_schema(json_number, when_used="json")
        return validator(self.check, handler(source), json_schema_input_schema=number, serialization=as_json)


def format_number(value: Decimal) -> str:
    """Format a number, also as a key: ``18`` and ``18.5``, never ``18.0`` or ``1.8E+1``."""
    return format(_normalise(value), "f")


def round_to_hundredths(value: Decimal) -> Decimal:
    """Round to two decimals, ties away from zero."""
    return value.quantize(_HUNDREDTH, ROUND_HALF_UP)


def format_value(value: Any) -> str:
    """Format a value for a message: short, on one line, spelled as in JSON."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    try:
        text = str(value) if isinstance(value, Decimal) else repr(value)
    except ValueError:  # a whole number too long to spell
        text = "a number with thousands of digits"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _normalise(value: Decimal) -> Decimal:
    """Remove trailing zeros and exponents above zero."""
    if value == value.to_integral_value():
        return value.quantize(Decimal(1)) if abs(value) < 10**20 else value
    return value.normalize()
