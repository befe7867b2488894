"""A file of conversions, of whatever size, as batches of rows that `reading.py` has read."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePath
from typing import BinaryIO, Final, Literal, NamedTuple, TextIO

from kesin.foundation.problems import Invalid, Problem
from kesin.workloads.oci.reading import MAX_ROWS, TYPES, Read, csv_rows, parsed, read_body

Format = Literal["csv", "ndjson", "json"]

STDIN: Final = "-"
_ENDINGS: Final[dict[str, Format]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "json",
}
_JSON, _NDJSON, _ = TYPES


class Batch(NamedTuple):
    """Some rows, and the site that the file itself names, if it does."""

    site: str | None
    rows: list[Read]


def format_of(name: str, told: Format | None) -> Format:
    """What somebody says it is, or what its name says; raises Invalid."""
    if told is not None:
        return told
    found = _ENDINGS.get(PurePath(name).suffix.lower())
    if found is None:
        what = "standard input" if name == STDIN else repr(name)
        raise Invalid(f"say with --format whether {what} is csv, ndjson or json")
    return found


class Source:
    """An open file, and how far it was read."""

    def __init__(self, name: str, kind: Format, raw: BinaryIO, size: int | None) -> None:
        self.name = name
        self.kind: Format = kind
        self.size = size  # in bytes; None where nobody knows
        self._raw = raw
        newline = "" if kind == "csv" else "\n"
        self.text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline=newline)

    @property
    def read(self) -> int:
        """Bytes so far."""
        return 0 if self.size is None else self._raw.tell()

    def batches(self, rows: int = MAX_ROWS) -> Iterator[Batch]:
        """Its rows, so many at a time; raises Problem where it cannot be read any further."""
        how = {"csv": _of_csv, "ndjson": _of_ndjson, "json": _of_json}[self.kind]
        try:
            yield from how(self.text, min(rows, MAX_ROWS))
        except UnicodeDecodeError:
            raise Problem(
                f"{self.name} is no UTF-8: save it as UTF-8 (in Excel: CSV UTF-8) and try again",
                code="not_utf8",
            ) from None


@contextmanager
def opened(name: str, kind: Format) -> Iterator[Source]:
    """The file, or standard input for ``-``."""
    if name == STDIN:
        source = Source("standard input", kind, sys.stdin.buffer, None)
        try:
            yield source
        finally:
            source.text.detach()  # standard input is not ours to close
        return
    path = Path(name)
    with path.open("rb") as raw:
        size = path.stat().st_size if path.is_file() else None
        yield Source(name, kind, raw, size)


def _of_csv(text: TextIO, size: int) -> Iterator[Batch]:
    rows = csv_rows(text)
    while part := list(islice(rows, size)):
        yield Batch(None, part)


def _of_ndjson(text: TextIO, size: int) -> Iterator[Batch]:
    lines = (line for line in text if line.strip())
    while part := list(islice(lines, size)):
        yield Batch(*read_body("".join(part).encode(), _NDJSON))


def _of_json(text: TextIO, size: int) -> Iterator[Batch]:
    """JSON ends where it ends: it is read as a whole, and only its rows are parted."""
    whole = text.read()
    try:
        given = parsed(whole)
    except (ValueError, RecursionError):
        raise Problem("this is no JSON; for one document a line say --format ndjson") from None
    site, rows = None, given
    if isinstance(given, dict) and isinstance(given.get("conversions"), list):
        site, rows = given.get("siteId"), given["conversions"]
    if not isinstance(rows, list) or len(rows) <= size:
        yield Batch(*read_body(whole.encode(), _JSON))
        return
    for start in range(0, len(rows), size):
        told = {"siteId": site, "conversions": rows[start : start + size]}
        yield Batch(*read_body(json.dumps(told).encode(), _JSON))
