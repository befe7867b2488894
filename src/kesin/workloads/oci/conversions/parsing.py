"""A request's body, whatever its spelling, as rows: JSON, NDJSON or CSV.

A row that cannot be read becomes the reason why; the others are read all the same.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Final, Literal, NamedTuple, TextIO

from kesin.foundation.problems import Invalid, Problem, TooLarge
from kesin.workloads.oci.conversions.conversion import Unsendable
from kesin.workloads.oci.conversions.csv_cells import said

MAX_ROWS: Final = 10_000
MAX_DIGITS: Final = 18
Read = Mapping[str, Any] | Unsendable

_NDJSON: Final = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
_CSV: Final = frozenset({"text/csv", "application/csv"})
_JSON: Final = frozenset({"application/json", "text/json", ""})
TYPES: Final = ("application/json", "application/x-ndjson", "text/csv")
_DELIMITERS: Final = ",;\t"
_SAYS_NOTHING: Final = f'{_DELIMITERS}"'
csv.field_size_limit(1_000_000_000)  # a body is bounded already

# Columns as other tools name them, without case, spaces and signs.
_COLUMNS: Final = {
    "externalid": "externalId",
    "revision": "revision",
    "gclid": "gclid",
    "googleclickid": "gclid",
    "wbraid": "wbraid",
    "gbraid": "gbraid",
    "conversionname": "conversionName",
    "conversiontime": "conversionTime",
    "conversionvalue": "conversionValue",
    "conversioncurrency": "conversionCurrency",
}


def read_body(body: bytes, content_type: str) -> tuple[str | None, list[Read]]:
    """The site the body names itself, if it does, and its rows."""
    kind = content_type.partition(";")[0].strip().lower()
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Problem("the body is no UTF-8", code="not_utf8") from None
    if kind in _CSV:
        return None, _bounded(csv_rows(io.StringIO(text, newline="")))
    if kind in _NDJSON:
        return None, _bounded(_lines(text))
    if kind in _JSON or kind.endswith("+json"):
        return _json_rows(text)
    raise Problem(
        f"conversions come as {', '.join(TYPES)}, not as {kind[:100]!r}", code="unsupported_type"
    )


def _json_rows(text: str) -> tuple[str | None, list[Read]]:
    try:
        given = parsed(text)
    except (ValueError, RecursionError):
        raise Problem("the body is no JSON", code="not_json") from None
    site = None
    if isinstance(given, dict) and "conversions" in given:
        site = given.get("siteId")
        if site is not None and not isinstance(site, str):
            raise Problem("siteId must be text", code="bad_site")
        given = given["conversions"]
        if not isinstance(given, list):
            raise Problem("conversions must be a list", code="not_a_list")
    elif isinstance(given, dict):
        named = given.get("siteId")
        site = named if isinstance(named, str) else None
        given = [given]
    if not isinstance(given, list):
        raise Problem("send one conversion, a list, or {siteId, conversions}", code="not_a_list")
    return site, _bounded(map(_row, given))


def parsed(text: str) -> Any:
    """JSON in which one strange number spoils its own row only; raises ValueError."""
    return json.loads(text, parse_constant=float, parse_int=_whole)


def _whole(digits: str) -> int | str:
    """A number of any length; too long for one, it stays text and its field refuses it."""
    return int(digits) if len(digits) <= MAX_DIGITS else digits


def _lines(text: str) -> Iterator[Read]:
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            yield _row(parsed(line))
        except (ValueError, RecursionError):
            yield Unsendable("NOT_JSON", "", "this line is no JSON")


def _row(given: Any) -> Read:
    if isinstance(given, dict):
        return given
    return Unsendable("NOT_AN_OBJECT", "", "a conversion is an object with fields")


def csv_rows(lines: Iterable[str]) -> Iterator[Read]:
    """The rows under a header, which is the first line that says something; raises Problem."""
    lines, skipped = iter(lines), 0
    first = ""
    for first in lines:
        if "".join(first.split()).strip(_SAYS_NOTHING):
            break
        skipped += 1
    rows = csv.reader(chain([first], lines), delimiter=max(_DELIMITERS, key=first.count))
    header: list[str | None] = []
    try:
        for cells in rows:
            if not any(cell.strip() for cell in cells):
                continue
            if header:
                yield _cells(header, cells)
            else:
                header = [_COLUMNS.get(_plain(cell)) for cell in cells]
                _check_header(header)
    except csv.Error as problem:
        line = skipped + rows.line_num
        raise Problem(f"line {line} is no CSV: {problem}", code="not_csv") from None


def _check_header(header: list[str | None]) -> None:
    known = [name for name in header if name]
    if "externalId" not in known:
        raise Problem(
            "the first line must name the columns, externalId among them", code="no_header"
        )
    twice = {name for name in known if known.count(name) > 1}
    if twice:
        raise Problem(f"the column {min(twice)} is there twice", code="column_twice")


def _cells(header: list[str | None], cells: list[str]) -> Read:
    if len(cells) > len(header):
        return Unsendable("NOT_AN_OBJECT", "", "this line has more cells than the header")
    return {name: said(cell) for name, cell in zip(header, cells, strict=False) if name}


def _plain(header: str) -> str:
    return "".join(sign for sign in header.lower() if sign.isalnum())


def _bounded(rows: Iterator[Read]) -> list[Read]:
    read: list[Read] = []
    for row in rows:
        if len(read) == MAX_ROWS:
            raise TooLarge(f"at most {MAX_ROWS} conversions a call: split them")
        read.append(row)
    return read


Format = Literal["csv", "ndjson", "json"]

STDIN: Final = "-"
_ENDINGS: Final[dict[str, Format]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "json",
}
_JSON_TYPE, _NDJSON_TYPE, _ = TYPES


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
        yield Batch(*read_body("".join(part).encode(), _NDJSON_TYPE))


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
        yield Batch(*read_body(whole.encode(), _JSON_TYPE))
        return
    for start in range(0, len(rows), size):
        told = {"siteId": site, "conversions": rows[start : start + size]}
        yield Batch(*read_body(json.dumps(told).encode(), _JSON_TYPE))
