"""CSV files as spreadsheets write them: encoding, delimiter, and columns that nothing reads."""

import csv
import re
from collections.abc import Iterable, Sequence
from typing import Final

from kesin.foundation.messages import Message

UNKNOWN_COLUMNS: Final = "unknown_columns"  # the code of the refusal
_MAX_NAMED: Final = 20  # in the message
_MAX_NAME_CHARS: Final = 80
csv.field_size_limit(1_000_000_000)  # the size of a body is limited elsewhere


def decode_csv(data: bytes) -> str:
    """Decode UTF-8, or Windows-1254 as Turkish Excel writes it; raises UnicodeDecodeError."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1254")


def separator(line: str, among: str = ",;\t") -> str:
    """The most frequent delimiter of a line, outside of quotes."""
    return max(among, key=re.sub(r'"[^"]*"', "", line).count)


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
