"""Amounts of money as people and programs write them."""

import re
from decimal import InvalidOperation
from typing import Final

_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_GROUPED: Final = re.compile(r"[0-9]{1,3}([.,])(?:[0-9]{2,3}\1)*[0-9]{3}")  # 1.500.000, 15,00,000
# A blank that parts no thousands, 12 50: cents, or a typo.
LOOSE_BLANK: Final = re.compile(r"[0-9]\s+(?![0-9]{3}(?![0-9]))[0-9]|[.,][0-9]*\s+[0-9]")
_WITHOUT_CENTS: Final = (
    *("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND"),
    *("VUV", "XAF", "XOF", "XPF"),
)
_WITH_MILLS: Final = ("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND")
DECIMALS: Final = {**dict.fromkeys(_WITHOUT_CENTS, 0), **dict.fromkeys(_WITH_MILLS, 3)}  # else 2


def normalise_amount(text: str) -> str:
    """Turn ``1.500,75`` and ``1,500.75`` into ``1500.75``; ``1.500`` and ``12 50`` are refused."""
    if LOOSE_BLANK.search(text):
        raise InvalidOperation
    text = text.strip().replace(" ", "").replace("\u00a0", "")
    whole, separator, fraction = text.rpartition(max(",.", key=text.rfind))
    if not separator:
        amount = text
    elif separator in whole:
        amount = _drop_separators(text)
    elif whole.isdecimal():
        if len(fraction) == 3 and whole != "0":  # noqa: PLR2004
            raise InvalidOperation
        amount = f"{whole}.{fraction}"
    else:
        amount = f"{_drop_separators(whole)}.{fraction}"
    if not _NUMBER.fullmatch(amount):
        raise InvalidOperation
    return amount


def _drop_separators(text: str) -> str:
    """Remove the separators of digit groups; a date or a typo has other groups."""
    if not _GROUPED.fullmatch(text):
        raise InvalidOperation
    return text.replace(".", "").replace(",", "")
