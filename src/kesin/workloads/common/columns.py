"""Columns of a file that nothing reads: refused by name, unless the sender lets them be ignored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kesin.foundation.messages import Message

UNKNOWN_COLUMNS: Final = "unknown_columns"  # the code of the refusal
_MAX_NAMED: Final = 20  # in the message
_MAX_NAME_CHARS: Final = 80


def column_names(texts: Iterable[str] | None) -> frozenset[str]:
    """The names in these texts, which commas separate, as `is_ignored` compares them."""
    names = (name.strip().casefold() for text in texts or () for name in text.split(","))
    return frozenset(name for name in names if name)


def is_ignored(column: str, ignored: frozenset[str]) -> bool:
    """Whether the sender lets this column be ignored."""
    return column.strip().casefold() in ignored


def unknown_columns(names: Sequence[str]) -> Message:
    """The refusal of a file with these columns."""
    shown = ", ".join(repr(name.strip()[:_MAX_NAME_CHARS]) for name in names[:_MAX_NAMED])
    return Message(
        "nothing reads the columns %(columns)s: correct their names, or name them in ignoreColumns",
        columns=shown,
    )
