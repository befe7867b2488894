"""Payloads and results as an answer can carry them."""

from __future__ import annotations

import json
from typing import Any, Final

DEEPEST: Final = 100  # lists in lists; a writer of JSON gives up at some depth


def shown(value: Any) -> Any:
    """The value; its JSON as one text when it lies deeper than an answer can be written."""
    layer = [value]
    for _ in range(DEEPEST):
        layer = [one for each in layer for one in _inside(each)]
        if not layer:
            return value
    return json.dumps(value, ensure_ascii=False)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
