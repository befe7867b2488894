"""Reads JSON that may have any shape: what is not where it should be is None or left out."""

from collections.abc import Mapping
from typing import Any


def dig(value: Any, *path: str) -> Any:
    """The value at this path of names."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text_at(value: Any, *path: str) -> str:
    """The text at this path, or none."""
    text = dig(value, *path)
    return text if isinstance(text, str) else ""
