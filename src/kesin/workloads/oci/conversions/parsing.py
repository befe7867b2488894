"""Parses rows in JSON, NDJSON or CSV; a row that cannot be parsed is replaced by the reason."""

import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Final, Literal, TextIO, get_args
from zoneinfo import ZoneInfo

from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid, Problem, TooLarge
from kesin.foundation.text import storable, unescape_cell
from kesin.workloads.common import columns
from kesin.workloads.oci.conversions import conversion
from kesin.workloads.oci.conversions.amounts import LOOSE_BLANK
from kesin.workloads.oci.conversions.identifiers import EXPORTED_FIELDS, MAX_SHOWN_NAME

MAX_ROWS: Final = 10_000
MAX_DIGITS: Final = 18
FileFormat = Literal["csv", "ndjson", "json"]

_FORMAT_BY_TYPE: Final[dict[str, FileFormat]] = {
    **dict.fromkeys(("text/csv", "application/csv"), "csv"),
    **dict.fromkeys(("application/x-ndjson", "application/ndjson", "application/jsonl"), "ndjson"),
    **dict.fromkeys(("application/json", "text/json", ""), "json"),
}
CONTENT_TYPES: Final = ("application/json", "application/x-ndjson", "text/csv")
STDIN: Final = "-"
_FORMAT_BY_SUFFIX: Final[dict[str, FileFormat]] = {f".{name}": name for name in get_args(FileFormat)} | {
    ".tsv": "csv",
    ".jsonl": "ndjson",
}
_BLANK_CHARACTERS: Final = ',;\t"'
# Above the header of Google's template; the zone is that of times without one.
_PREAMBLE: Final = re.compile(r'(?i)"?(?:###|# |Parameters:(?:.*?\bTimeZone *= *([^;,"\s]+))?)')
_HASH: Final = re.compile(r"\s*[0-9a-fA-F]{64}\s*")
_KNOWN_BY: Final = (*conversion.CLICK_KINDS, *conversion.PLAIN_FIELDS, *conversion.HASH_FIELDS)  # a row without an id
_END: Final = "\udfff"  # after the last line: no encoding has this character


def parse_body(
    body: bytes, content_type: str, ignored: frozenset[str] = frozenset()
) -> tuple[str | None, list[conversion.ParsedRow]]:
    """Parse a body: the site it names, if any, and its rows; ``ignored``: unknown columns."""
    content_kind = content_type.partition(";")[0].strip().lower()
    file_format = _FORMAT_BY_TYPE.get(content_kind)
    if file_format is None and not content_kind.endswith("+json"):
        kinds, code = ", ".join(CONTENT_TYPES), "unsupported_type"
        raise Problem(f"conversions must be {kinds}, not {content_kind[:100]!r}", code=code)
    if file_format == "csv":
        return None, CsvFile(io.BytesIO(body), ignored).read()
    try:
        text = io.StringIO(body.decode("utf-8-sig"), newline="\n")
    except UnicodeDecodeError:
        raise columns.not_text() from None
    not_json = Problem("the body is not JSON", code="not_json")
    site, rows = _parse(file_format or "json", text, not_json)
    return site, _limited(rows)


def _limited(rows: Iterable[Any]) -> list[Any]:
    taken = list(islice(rows, MAX_ROWS + 1))
    if len(taken) > MAX_ROWS:
        raise TooLarge("a request can have at most %(most)s conversions: split it", most=MAX_ROWS)
    return taken


def _parse(
    file_format: FileFormat, text: TextIO, not_json: Problem
) -> tuple[str | None, Iterator[conversion.ParsedRow]]:
    """The site that the text names, if any, and its rows; only JSON is read as a whole."""
    if file_format == "ndjson":
        return None, _ndjson_rows(text)
    content = text.read()
    try:
        document = parse_json(content)
    except (ValueError, RecursionError):
        raise not_json from None
    site, rows = _unwrap(document)
    return site, map(_check_row, rows)


def _unwrap(document: Any) -> tuple[str | None, list[Any]]:
    """The site that a JSON document names, if any, and its rows; raises Problem."""
    if isinstance(document, list):
        return None, document
    if not isinstance(document, dict):
        raise Problem("send one conversion, a list, or {siteId, conversions}", code="not_a_list")
    site = document.get("siteId")
    if site is not None and not isinstance(site, str):
        raise Problem("siteId must be text", code="bad_site")
    fields = {name: value for name, value in document.items() if name != "siteId"}
    if "conversions" not in fields:
        return site, [fields]
    rows = fields.pop("conversions")
    if not isinstance(rows, list):
        raise Problem("conversions must be a list", code="not_a_list")
    if fields:
        name = storable(min(fields))[:MAX_SHOWN_NAME]
        why, details = "%(field)s is unknown: send siteId and conversions", {"field": name}
        raise Problem(why, code="unknown_field", details=details, field=repr(name))
    return site, rows


def parse_json(text: str) -> Any:
    """Parse JSON so that an invalid number fails only its own row; raises ValueError."""

    def parse_int(digits: str) -> int | str:  # one that is too long stays text
        return int(digits) if len(digits) <= MAX_DIGITS else digits

    return json.loads(text, parse_constant=float, parse_int=parse_int)


def _ndjson_rows(lines: Iterable[str]) -> Iterator[conversion.ParsedRow]:
    for line in lines:
        if not line.strip():
            continue
        try:
            yield _check_row(parse_json(line))
        except (ValueError, RecursionError):
            yield conversion.Unsendable("NOT_JSON", "", "this line is not JSON")


def _check_row(value: Any) -> conversion.ParsedRow:
    if isinstance(value, dict):
        return value
    return conversion.Unsendable("NOT_AN_OBJECT", "", "a conversion must be an object with fields")


# Whether the day is first, and the decimal sign.
LOCALES: Final[dict[str, tuple[bool | None, str]]] = {
    **dict.fromkeys(("de", "es", "fr", "it", "nl", "pl", "pt", "tr"), (True, ",")),
    "en-GB": (True, "."),
    "en-US": (False, "."),
}
_DATE: Final = re.compile(
    r"(\d\d?)([./-])(\d\d?)\2(\d{4}),?[ T]+(\d\d?):(\d\d)(:\d\d)? ?([AP]M)? ?(Z|[+-]\d\d:?\d\d)?",
    re.ASCII | re.IGNORECASE,
)
_TWO_WAYS: Final = re.compile(r"([1-9][0-9]{0,17})([.,])([0-9]{3})")  # 1.500
_AMOUNTS: Final = {"": "1234", ",": "1.234,56", ".": "1,234.56"}  # by the decimal sign
_BLANKS: Final = dict.fromkeys(map(ord, " \u00a0\u202f"))
_DOZEN: Final = 12  # hours, and months


class FileForms:
    """How one file writes dates and amounts."""

    def __init__(self, locale: str) -> None:
        self._day_first, self._decimal = LOCALES.get(locale, (None, ""))
        self._twelve = locale in {"en-GB", "es"}  # in others AM and PM are of an American file
        self._dotted = True  # the day is first, in each locale
        self.found: set[str] = set()

    def observe(self, row: Mapping[str, str]) -> None:
        """Drop what the locale says of a form, if this row contradicts it."""
        date = _DATE.fullmatch(row.get("conversionTime", "").strip())
        if date and date[2] == ".":
            self._dotted = self._dotted and int(date[3]) <= _DOZEN
        elif date:
            month = date[3 if self._day_first and (self._twelve or not date[8]) else 1]
            self._day_first = None if int(month) > _DOZEN else self._day_first
        sign = _decimal_sign(row.get("conversionValue", "").translate(_BLANKS))
        self._decimal = "" if sign and sign != self._decimal else self._decimal

    def time(self, text: str) -> str:
        """The time in ISO 8601, if it is a date as people write it; raises Unsendable."""
        if not (date := _DATE.fullmatch(text.strip())):
            self.found.add("yyyy-mm-dd")
            return text
        first, sign, second, year, hours, minutes, seconds, half, offset = date.groups()
        dotted = self._dotted or int(second) > _DOZEN or None  # such a month is refused later
        day_first = dotted if sign == "." else self._day_first and (self._twelve or not half)
        if day_first is None:
            raise _ambiguous("INVALID_TIME_FORMAT", "conversionTime", text)
        day, month = (first, second) if day_first else (second, first)
        self.found.add(sign.join(("dd", "mm", "yyyy") if day_first else ("mm", "dd", "yyyy")))
        if half:
            hour = int(hours) % _DOZEN + _DOZEN * (half.upper() == "PM")
            hours = str(hour) if 1 <= int(hours) <= _DOZEN else "99"
        clock = f"{hours:0>2}:{minutes}{seconds or ':00'}{offset or ''}"
        return f"{year}-{month:0>2}-{day:0>2}T{clock}"

    def amount(self, text: str) -> str:
        """The amount, so that it reads one way; raises Unsendable."""
        text = text if LOOSE_BLANK.search(text) else text.translate(_BLANKS)
        sign = _decimal_sign(text)
        if two_ways := _TWO_WAYS.fullmatch(text):
            (whole, mark, digits), sign = two_ways.groups(), self._decimal
            if not sign or (mark != sign and len(whole) > len(digits)):
                raise _ambiguous("INVALID_CONVERSION_VALUE", "conversionValue", text)
            text = f"{whole}.{digits}0" if mark == sign else whole + digits
        self.found.add(_AMOUNTS[sign])
        return text


def _decimal_sign(text: str) -> str:
    """The decimal sign of an amount; "" if it has none, or reads two ways."""
    sign = "," if text.rfind(",") > text.rfind(".") else "."
    if sign not in text or _TWO_WAYS.fullmatch(text):
        return ""
    return sign if text.count(sign) == 1 else ",."[sign == ","]


def _ambiguous(code: str, field: str, text: str) -> conversion.Unsendable:
    why = "%(text)s is ambiguous: set the site's locale, or write 2026-11-30 14:05 or 1500.75"
    return conversion.Unsendable(code, field, why, text=repr(text))


class CsvFile:
    """A CSV of conversions: how it is written, and its rows; with ``defaults``, a person's file."""

    def __init__(self, raw: BinaryIO, ignored: frozenset[str], defaults: conversion.RowDefaults | None = None) -> None:
        self._ignored, self._defaults = ignored, defaults
        self.encoding, codec = columns.detect_encoding(raw)
        self._text = io.TextIOWrapper(raw, encoding=codec, newline="")
        self.delimiter, self.zone, self.lines = "", "", list[int]()
        self.columns: dict[str, str] = {}  # the field of each, "" if it is ignored
        self._fields: list[str | None] = []
        self.forms = FileForms(defaults.locale if defaults else "")
        if defaults:
            for _, cells in self._records():
                self.forms.observe(self._cells(cells))

    def describe(self) -> dict[str, str]:
        named = [(name[:MAX_SHOWN_NAME], field) for name, field in self.columns.items() if name]
        pairs = (f"{name} → {field or '–'}" for name, field in named)
        how = {"encoding": self.encoding, "separator": self.delimiter.replace("\t", "tab")}
        forms = " · ".join(sorted(self.forms.found))
        return {**how, "columns": ", ".join(pairs), "forms": forms, "timezone": self.zone}

    def read(self) -> list[conversion.ParsedRow]:
        """The rows of one call, whose lines are remembered; raises TooLarge."""
        numbered = _limited(self.rows())
        self.lines = [line for line, _ in numbered]
        return [row for _, row in numbered]

    def rows(self) -> Iterator[tuple[int, conversion.ParsedRow]]:
        """Yield each row with the line it begins on; raises Problem where the file is no CSV."""
        for line, cells in self._records():
            if len(cells) > len(self._fields):
                why = "this line has more cells than the header"
                yield line, conversion.Unsendable("NOT_AN_OBJECT", "", why)
                continue
            row = self._cells(cells)
            try:
                self._normalise(row)
                yield line, row
            except conversion.Unsendable as problem:
                problem.row = row
                yield line, problem

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """The lines below the header, which is the first line that is not blank; raises Problem."""
        self._text.seek(0)
        skipped, first_line, self._fields = 0, "", []
        for first_line in self._text:
            if preamble := _PREAMBLE.match(first_line):
                self.zone = preamble[1] or self.zone
            elif "".join(first_line.split()).strip(_BLANK_CHARACTERS):
                break
            skipped += 1
        self.delimiter, end = columns.separator(first_line), skipped
        rows = csv.reader(chain([first_line], self._text, [_END]), delimiter=self.delimiter)
        try:
            for cells in rows:
                if cells == [_END]:
                    return
                if cells and cells[-1].endswith(_END):
                    raise csv.Error(Message("a quote is opened but never closed"))  # noqa: TRY301
                line, end = end + 1, skipped + rows.line_num
                if not any(map(str.strip, cells)):
                    continue
                if self._fields:
                    yield line, cells
                else:
                    self._read_header(cells)
        except csv.Error as problem:
            why = "line %(n)s is not valid CSV: %(problem)s"
            raise Problem(why, code="not_csv", n=end + 1, problem=problem) from None

    def _read_header(self, cells: list[str]) -> None:
        names = [_normalise_header(cell) for cell in cells]
        fields = [_COLUMNS.get(name) for name in names]
        if "externalId" not in fields and "orderid" in names:
            fields[names.index("orderid")] = "externalId"
        known_by = self._defaults and "conversionTime" in fields
        if "externalId" not in fields and (not known_by or set(fields).isdisjoint(_KNOWN_BY)):
            why = "the first line must name the columns, including externalId or Order ID"
            raise Problem(why, code="no_header")
        name, n = Counter(filter(None, fields)).most_common(1)[0]
        if n > 1:
            raise Problem("the column %(column)s occurs twice", code="column_twice", column=name)
        unread = (column for name, column in zip(fields, cells, strict=True) if name is None)
        stripped = filter(None, map(str.strip, unread))
        if unknown := [name for name in stripped if name.casefold() not in self._ignored]:
            details, why = {"columns": unknown[:100]}, columns.unknown_columns(unknown)
            raise Problem(why, code=columns.UNKNOWN_COLUMNS, details=details)
        self._fields = fields
        named = zip((cell.strip() for cell in cells), fields, strict=True)
        # A site without enhanced conversions does not take who bought.
        takes_all = self._defaults is None or self._defaults.enhanced
        dropped = () if takes_all else (*conversion.PLAIN_FIELDS, *conversion.HASH_FIELDS)
        self.columns = {cell: "" if name in dropped else name or "" for cell, name in named}

    def _cells(self, cells: list[str]) -> dict[str, str]:
        named = zip(self._fields, cells, strict=False)
        return {name: unescape_cell(cell) for name, cell in named if name}

    def _normalise(self, row: dict[str, str]) -> None:
        for plain, hashed in zip(conversion.PLAIN_FIELDS, conversion.HASH_FIELDS, strict=True):
            if plain in row and hashed not in row and _HASH.fullmatch(row[plain]):
                row[hashed] = row.pop(plain)  # as Google's template wants it
        if row.get("conversionValue", "").strip():
            row["conversionValue"] = self.forms.amount(row["conversionValue"])
        if row.get("conversionTime", "").strip():
            row["conversionTime"] = self.forms.time(row["conversionTime"])
            if self.zone:
                at = conversion.parse_time(row["conversionTime"], _parse_zone(self.zone))
                row["conversionTime"] = at.isoformat()
        if self._defaults and "externalId" not in self._fields:
            row["externalId"] = _derive_id(row, self._defaults)


def _parse_zone(text: str) -> tzinfo | None:
    try:
        return datetime.strptime(text, "%z").tzinfo if text[0] in "+-" else ZoneInfo(text)
    except (ValueError, KeyError, OSError):
        raise Problem("%(zone)s is not a time zone", zone=repr(text[:80])) from None


def _derive_id(row: dict[str, str], defaults: conversion.RowDefaults) -> str:
    """The id of a row that has none; it is the same however the time is written."""
    who, at = [row.get(name, "").strip() for name in conversion.CLICK_KINDS], ""
    if not any(who):
        who = [row.get(name, "").strip().lower() for name in _KNOWN_BY]
    with suppress(conversion.Unsendable):  # then the row is rejected
        at = conversion.parse_time(row.get("conversionTime"), defaults.zone).astimezone(UTC).isoformat()
    name = row.get("conversionName", "").strip() or defaults.name
    return f"file-{sha256(chr(31).join((*who, name, at)).encode()).hexdigest()[:32]}"


def _normalise_header(header: str) -> str:
    return "".join(filter(str.isalnum, header.lower()))


# The field of a column, "" if it is ignored; other tools call it "Google Click ID".
_COLUMNS: Final = {
    **dict.fromkeys(map(_normalise_header, EXPORTED_FIELDS), ""),
    **{_normalise_header(name): name for name in (*conversion.CONVERSION_FIELDS, *conversion.PLAIN_FIELDS)},
    "googleclickid": "gclid",
    "phonenumber": "phone",
    "hashedphonenumber": "hashedPhone",
}


class RowSource:
    """An open file of rows, and how far it was read."""

    csv: CsvFile | None = None  # once it is read
    site: str | None = None  # that the file names

    def __init__(self, file_format: FileFormat, raw: BinaryIO, size: int | None) -> None:
        self.file_format: FileFormat = file_format
        self.size = size  # in bytes; None if unknown
        self._raw = raw
        is_text = file_format != "csv"
        self.text = io.TextIOWrapper(raw, "utf-8-sig", newline="\n") if is_text else None

    @property
    def bytes_read(self) -> int:
        return 0 if self.size is None else self._raw.tell()

    def batches(
        self,
        rows: int = MAX_ROWS,
        ignored: frozenset[str] = frozenset(),
        defaults: conversion.RowDefaults | None = None,
    ) -> Iterator[list[tuple[int, conversion.ParsedRow]]]:
        """Yield batches of rows, each with its line; raises Problem where reading ends early."""
        try:
            if self.text is None:
                self.csv = self.csv or CsvFile(self._raw, ignored, defaults)
                numbered = self.csv.rows()
            else:
                _ = self.text.seekable() and self.text.seek(0)
                not_json = Problem("this is not JSON; for JSON Lines, use --format ndjson")
                self.site, parsed = _parse(self.file_format, self.text, not_json)
                numbered = enumerate(parsed, 1)
            while batch := list(islice(numbered, min(rows, MAX_ROWS))):
                yield batch
        except UnicodeDecodeError:
            raise columns.not_text() from None


@contextmanager
def open_source(name: str, chosen: FileFormat | None) -> Iterator[RowSource]:
    """A file, or standard input for ``-``; raises Invalid if neither name nor choice says what."""
    file_format = chosen or _FORMAT_BY_SUFFIX.get(PurePath(name).suffix.lower())
    if file_format is None:
        source = "standard input" if name == STDIN else repr(name)
        raise Invalid(f"use --format csv, ndjson or json for {source}")
    if name == STDIN:
        is_csv = file_format == "csv"  # such a file is read twice
        raw: BinaryIO = io.BytesIO(sys.stdin.buffer.read()) if is_csv else sys.stdin.buffer
        rows = RowSource(file_format, raw, None)
        try:
            yield rows
        finally:
            if rows.text:
                rows.text.detach()  # standard input stays open
        return
    path = Path(name)
    with path.open("rb") as raw:
        yield RowSource(file_format, raw, path.stat().st_size if path.is_file() else None)
