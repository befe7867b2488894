"""Reads JSON that may have any shape: what is not where it should be is None or left out."""

from collections.abc import Mapping
from typing import Any, Final

MAX_DIGITS: Final = 9  # of a count


def dig(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """A count, which JSON has as text; 0 for what is none, since Google leaves out zeros."""
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else 0


def text_at(value: Any, *path: str) -> str:
    """The text at this path, or none."""
    text = dig(value, *path)
    return text if isinstance(text, str) else ""
