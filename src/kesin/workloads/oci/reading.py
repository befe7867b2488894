"""A request's body, whatever its spelling, as rows: JSON, NDJSON or CSV.

A row that cannot be read becomes the reason why; the others are read all the same.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from kesin.foundation.problems import Problem, TooLarge
from kesin.workloads.oci.cells import said
from kesin.workloads.oci.conversions import Unsendable

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
