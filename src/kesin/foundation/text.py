"""Text and JSON as the stores keep them: one spelling, nothing a database would choke on."""

from __future__ import annotations

import json
import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class NotJson(ValueError):
    """A value that has no JSON spelling; the message says where and what."""


def storable(text: str) -> str:
    """The text without NUL and lone surrogates: PostgreSQL refuses them, SQLite cuts at NUL."""
    return _UNSTORABLE.sub("", text)


def canonical_json(value: Any) -> str:  # any JSON value
    """One spelling per value: sorted keys, no spaces, no NaN; unstorable characters dropped."""
    text = _dumps(value)
    return _dumps(_cleaned(value)) if _holds_unstorable(text) else text


def decoded(text: str | None) -> Any:
    """JSON text as a value; what is none, or lies too deep to be read, stays as it is."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def wire_json(rows: Any) -> str:
    """Rows on their way into a database: unstorable characters are dropped here at the latest."""
    text = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    if _holds_unstorable(text):
        return json.dumps(_cleaned(rows), separators=(",", ":"), ensure_ascii=False)
    return text


def _holds_unstorable(spelled: str) -> bool:
    """Whether a JSON text may hold some: NUL is escaped there, and a surrogate is not."""
    return "\\u0000" in spelled or bool(not spelled.isascii() and _UNSTORABLE.search(spelled))


def _dumps(value: Any) -> str:
    try:
        return json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except (TypeError, ValueError, RecursionError) as problem:
        raise NotJson(f"not a JSON value: {problem}") from None


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(str(key)): _cleaned(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(one) for one in value]
    return value
