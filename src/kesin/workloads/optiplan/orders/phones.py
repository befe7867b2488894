"""Normalised phone numbers, by which customers are found.

The same number is written in many ways. Customers and orders are both normalised here, so they
match. Numbers are Turkish unless they begin with ``+`` or ``00``.
"""

from typing import Final

_COUNTRY: Final = "90"
_NATIONAL_DIGITS: Final = 10
_PLUS: Final = frozenset("+＋")  # noqa: RUF001 - phones set to East Asian keyboards type it


def normalise_phone(text: str) -> str:
    """Return ``+`` and digits, or an empty text if there is no digit but zeros.

    Normalising twice changes nothing. Letters, spaces, brackets and dashes are ignored, and so is
    the zero of ``+90 (0) 555 …``.
    """
    first = next((sign for sign in text if sign in _PLUS or sign.isdecimal()), "")
    digits = "".join(str(int(sign)) for sign in text if sign.isdecimal())
    if not digits.strip("0"):
        return ""
    if digits.startswith("00"):
        digits = digits.lstrip("0")
    elif digits.startswith("0") and len(digits) > _NATIONAL_DIGITS:
        digits = f"9{digits}"
    elif len(digits) == _NATIONAL_DIGITS and (digits[0] == "0" or first not in _PLUS):
        digits = f"{_COUNTRY}{digits}"
    national = digits.removeprefix(_COUNTRY).lstrip("0")
    if digits.startswith(_COUNTRY) and len(national) == _NATIONAL_DIGITS:
        return f"+{_COUNTRY}{national}"
    return f"+{digits}"
