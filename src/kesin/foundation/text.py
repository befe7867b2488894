"""Text and JSON as the stores keep them, without characters a database refuses; CSV to download."""

import csv
import io
import json
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_WIRE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
_ESCAPED: Final = re.compile(r"'[=+\-@\t\r\n']")
_SPLIT_POINT: Final = re.compile(r"([;,\t\r\n|]\s*)(?=[=+\-@'])")
_ESCAPED_SPLIT_POINT: Final = re.compile(r"([;,\t\r\n|]\s*)'(?=[=+\-@'])")


class NotJson(ValueError):
    """The value cannot be written as JSON; the message says why."""


def storable(text: str) -> str:
    """The text without NUL and lone surrogates: PostgreSQL refuses them, SQLite cuts at NUL."""
    return _UNSTORABLE.sub("", text)


def storable_names(names: Iterable[str] | None) -> list[str] | None:
    """Each name as the stores write it; None stays None."""
    return None if names is None else [storable(name) for name in names]


def canonical_json(value: Any) -> str:  # any JSON value
    """Canonical JSON: sorted keys, no spaces, no NaN, no characters that stores refuse."""
    text = _dumps(value)
    return _dumps(_without_unstorable(value)) if _holds_unstorable(text) else text


def json_number(value: Decimal) -> int | float:
    """Convert to a JSON number, an integer if it is whole."""
    return int(value) if value == value.to_integral_value() else float(value)


def is_storable(value: Any) -> bool:
    """Whether a JSON value is stored as it is: no character of it is unstorable."""
    text = _dumps(value)
    return not _holds_unstorable(text) or text == _dumps(_without_unstorable(value))


def decode_json(text: str | None) -> Any:
    """Decode JSON text; text that is no JSON, or nested too deeply, is returned unchanged."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def as_object(value: Any) -> dict[str, Any]:
    """The JSON value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def is_deeper_than(value: Any, depth: int) -> bool:
    layer = [value]
    for _ in range(depth):
        parents = (each for each in layer if isinstance(each, dict | list))
        layer = [child for p in parents for child in (p.values() if isinstance(p, dict) else p)]
        if not layer:
            return False
    return True


def wire_json(rows: Any) -> str:
    """Rows as JSON for a database, without unstorable characters."""
    text = _WIRE.encode(rows)
    return _WIRE.encode(_without_unstorable(rows)) if _holds_unstorable(text) else text


def _holds_unstorable(text: str) -> bool:
    """Whether JSON text may hold unstorable characters: a NUL is escaped, a surrogate is not."""
    try:
        text.isascii() or text.encode()  # faster than to search for a surrogate
    except UnicodeEncodeError:
        return True
    return "\\u0000" in text


def _dumps(value: Any) -> str:
    try:
        return _CANONICAL.encode(value)
    except (TypeError, ValueError, RecursionError) as problem:
        raise NotJson(f"not a JSON value: {problem}") from None


def _without_unstorable(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(str(key)): _without_unstorable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_unstorable(item) for item in value]
    return value


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as lines of CSV that no spreadsheet evaluates."""
    page = io.StringIO(newline="")
    csv.writer(page).writerows(map(escape_cell, cells) for cells in rows)
    return page.getvalue()


def escape_cell(value: Any) -> str:
    """A cell that no spreadsheet reads as a formula: an apostrophe is wherever one may begin."""
    text = _SPLIT_POINT.sub(r"\1'", "" if value is None else str(value))
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def unescape_cell(cell: str) -> str:
    """Undo `escape_cell`; a cell that was not escaped is unchanged."""
    inner = cell[1:] if _ESCAPED.match(cell) else cell
    return _ESCAPED_SPLIT_POINT.sub(r"\1", inner) if "'" in inner else inner
