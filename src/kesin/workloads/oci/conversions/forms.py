"""Dates and amounts in files: what reads two ways is read by the site's locale, or refused."""

import re
from collections.abc import Mapping
from typing import Final

from kesin.workloads.oci.conversions.amounts import LOOSE_BLANK
from kesin.workloads.oci.conversions.conversion import Unsendable

# Whether the day is first, and the decimal sign.
LOCALES: Final[dict[str, tuple[bool | None, str]]] = {
    **dict.fromkeys(("de", "es", "fr", "it", "nl", "pl", "pt", "tr"), (True, ",")),
    "en-GB": (True, "."),
    "en-US": (False, "."),
}
_DATE: Final = re.compile(
    r"(\d\d?)([./-])(\d\d?)\2(\d{4}),?[ T]+(\d\d?):(\d\d)(:\d\d)? ?([AP]M)? ?(Z|[+-]\d\d:?\d\d)?",
    re.ASCII | re.IGNORECASE,
)
_TWO_WAYS: Final = re.compile(r"([1-9][0-9]{0,17})([.,])([0-9]{3})")  # 1.500
_AMOUNTS: Final = {"": "1234", ",": "1.234,56", ".": "1,234.56"}  # by the decimal sign
_BLANKS: Final = dict.fromkeys(map(ord, " \u00a0\u202f"))
_DOZEN: Final = 12  # hours, and months


class FileForms:
    """How one file writes dates and amounts."""

    def __init__(self, locale: str) -> None:
        self._day_first, self._decimal = LOCALES.get(locale, (None, ""))
        self._twelve = locale in {"en-GB", "es"}  # in others AM and PM are of an American file
        self._dotted = True  # the day is first, in each locale
        self.found: set[str] = set()

    def observe(self, row: Mapping[str, str]) -> None:
        """Drop what the locale says of a form, if this row contradicts it."""
        date = _DATE.fullmatch(row.get("conversionTime", "").strip())
        if date and date[2] == ".":
            self._dotted = self._dotted and int(date[3]) <= _DOZEN
        elif date:
            month = date[3 if self._day_first and (self._twelve or not date[8]) else 1]
            self._day_first = None if int(month) > _DOZEN else self._day_first
        sign = _decimal_sign(row.get("conversionValue", "").translate(_BLANKS))
        self._decimal = "" if sign and sign != self._decimal else self._decimal

    def time(self, text: str) -> str:
        """The time in ISO 8601, if it is a date as people write it; raises Unsendable."""
        if not (date := _DATE.fullmatch(text.strip())):
            self.found.add("yyyy-mm-dd")
            return text
        first, sign, second, year, hours, minutes, seconds, half, offset = date.groups()
        dotted = self._dotted or int(second) > _DOZEN or None  # such a month is refused later
        day_first = dotted if sign == "." else self._day_first and (self._twelve or not half)
        if day_first is None:
            raise _ambiguous("INVALID_TIME_FORMAT", "conversionTime", text)
        day, month = (first, second) if day_first else (second, first)
        self.found.add(sign.join(("dd", "mm", "yyyy") if day_first else ("mm", "dd", "yyyy")))
        if half:
            hour = int(hours) % _DOZEN + _DOZEN * (half.upper() == "PM")
            hours = str(hour) if 1 <= int(hours) <= _DOZEN else "99"
        clock = f"{hours:0>2}:{minutes}{seconds or ':00'}{offset or ''}"
        return f"{year}-{month:0>2}-{day:0>2}T{clock}"

    def amount(self, text: str) -> str:
        """The amount, so that it reads one way; raises Unsendable."""
        text = text if LOOSE_BLANK.search(text) else text.translate(_BLANKS)
        sign = _decimal_sign(text)
        if two_ways := _TWO_WAYS.fullmatch(text):
            (whole, mark, digits), sign = two_ways.groups(), self._decimal
            if not sign or (mark != sign and len(whole) > len(digits)):
                raise _ambiguous("INVALID_CONVERSION_VALUE", "conversionValue", text)
            text = f"{whole}.{digits}0" if mark == sign else whole + digits
        self.found.add(_AMOUNTS[sign])
        return text


def _decimal_sign(text: str) -> str:
    """The decimal sign of an amount; "" if it has none, or reads two ways."""
    sign = "," if text.rfind(",") > text.rfind(".") else "."
    if sign not in text or _TWO_WAYS.fullmatch(text):
        return ""
    return sign if text.count(sign) == 1 else ",."[sign == ","]


def _ambiguous(code: str, field: str, text: str) -> Unsendable:
    why = "%(text)s is ambiguous: set the site's locale, or write 2026-11-30 14:05 or 1500.75"
    return Unsendable(code, field, why, text=repr(text))
