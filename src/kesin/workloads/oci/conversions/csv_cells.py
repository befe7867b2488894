"""Escapes CSV cells, since a spreadsheet evaluates a cell that begins like a formula.

Such a cell gets a leading apostrophe, and one at each point where a spreadsheet may split the
line. Reading removes them, so a file that is exported and imported again is unchanged.
"""

from __future__ import annotations

import re
from typing import Any, Final

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "'")
_ESCAPED: Final = re.compile(r"'[=+\-@\t\r']")
_SPLIT_POINT: Final = re.compile(r"([;,\t\n\r])(?=[=+\-@'])")
_ESCAPED_SPLIT_POINT: Final = re.compile(r"([;,\t\n\r])'(?=[=+\-@'])")


def escape_cell(value: Any) -> str:
    """Format a cell so that no spreadsheet evaluates it, whatever its delimiter."""
    text = "" if value is None else str(value)
    text = _SPLIT_POINT.sub(r"\1'", text)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def unescape_cell(cell: str) -> str:
    """Undo `escape_cell`; a cell that was not escaped is unchanged."""
    return _ESCAPED_SPLIT_POINT.sub(r"\1", cell[1:] if _ESCAPED.match(cell) else cell)
