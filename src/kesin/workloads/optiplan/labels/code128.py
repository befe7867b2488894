"""Code 128, set B: the bars of a text of printable ASCII."""

from pathlib import Path
from typing import Final

QUIET_MODULES: Final = 10  # left free on both sides
_START_B, _STOP = 104, 106
# Of bars and spaces in turn, by the value of a symbol.
_WIDTHS: Final = Path(__file__).with_name("code128.txt").read_text("ascii").split()


def bars(text: str) -> list[int]:
    """Return the widths of bars and spaces in turn, a bar first, in modules."""
    values = [ord(character) - 32 for character in text]
    if not text or min(values) < 0 or max(values) > ord("~") - 32:
        raise ValueError(f"expected printable ASCII, got {text!r}")
    check = (_START_B + sum(at * value for at, value in enumerate(values, start=1))) % 103
    symbols = (_START_B, *values, check, _STOP)
    return [int(width) for symbol in symbols for width in _WIDTHS[symbol]]
