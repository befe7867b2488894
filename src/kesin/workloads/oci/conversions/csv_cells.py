"""Cells of a file that people open: a spreadsheet runs whatever begins like a formula.

Such a cell gets an apostrophe in front, and one inside wherever a spreadsheet may part the line.
Reading takes them off again, so a file that went out and came back says what it said.
"""

from __future__ import annotations

import re
from typing import Any, Final

_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "'")
_GUARDED: Final = re.compile(r"'[=+\-@\t\r']")
_PARTED: Final = re.compile(r"([;,\t\n\r])(?=[=+\-@'])")
_PARTED_GUARDED: Final = re.compile(r"([;,\t\n\r])'(?=[=+\-@'])")


def safe(value: Any) -> str:
    """A cell that no spreadsheet takes for a formula, at whichever sign it parts the line."""
    text = "" if value is None else str(value)
    text = _PARTED.sub(r"\1'", text)
    return f"'{text}" if text.startswith(_STARTS) else text


def said(cell: str) -> str:
    """What a cell said before it was made safe; any other stays as it is."""
    return _PARTED_GUARDED.sub(r"\1", cell[1:] if _GUARDED.match(cell) else cell)
