"""CSV files as spreadsheets write them: encoding, delimiter, and columns that nothing reads."""

import codecs
import csv
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import BinaryIO, Final

from kesin.foundation.messages import Message
from kesin.foundation.problems import Problem

UNKNOWN_COLUMNS: Final = "unknown_columns"  # the code of the refusal
_MAX_NAMED: Final = 20  # in the message
_MAX_NAME_CHARS: Final = 80
_MIXED: Final = "\0|[ÃÄÅ][^\0-\x7fÀ-ÿĞİŞğış]"  # ç, ğ, ş … of UTF-8, read as Windows-1254
csv.field_size_limit(1_000_000_000)  # the size of a body is limited elsewhere


def detect_encoding(raw: BinaryIO) -> tuple[str, str]:
    """The encoding of a whole file, and its codec; no character is ever replaced."""
    raw.seek(0)
    head = raw.read(2)
    tried = {"utf-8-sig": "UTF-8", "cp1254": "Windows-1254"}
    if head in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}:
        tried = {"utf-16": "UTF-16"}
    elif 0 in head:
        tried = {"utf-16-le" if head[0] else "utf-16-be": "UTF-16"}
    for codec, name in tried.items():
        raw.seek(0)
        texts = codecs.iterdecode(iter(partial(raw.read, 1 << 20), b""), codec)
        refused = re.compile(_MIXED if codec == "cp1254" else "\0")
        with suppress(UnicodeDecodeError):
            if not any(map(refused.search, texts)):
                return name, codec
    raise not_text()


def not_text() -> Problem:
    """The refusal of a file that is no text, or mixes encodings."""
    why = "the data is neither UTF-8 nor a CSV in UTF-16 or Windows-1254: in Excel, use CSV UTF-8"
    return Problem(why, code="not_utf8")


def separator(line: str, among: str = ",;\t") -> str:
    """The most frequent delimiter of a line, outside of quotes."""
    return max(among, key=re.sub(r'"[^"]*"', "", line).count)


def column_names(texts: Iterable[str] | None) -> frozenset[str]:
    """The names in these texts, which commas separate, in one case."""
    names = (name.strip().casefold() for text in texts or () for name in text.split(","))
    return frozenset(name for name in names if name)


def unknown_columns(names: Sequence[str]) -> Message:
    shown = ", ".join(repr(name.strip()[:_MAX_NAME_CHARS]) for name in names[:_MAX_NAMED])
    return Message(
        "the columns %(columns)s are unknown: correct their names, or list them in ignoreColumns", columns=shown
    )
