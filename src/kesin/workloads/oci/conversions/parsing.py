"""Parses rows from a request body or a file in JSON, NDJSON or CSV.

A row that cannot be parsed is replaced by the reason; the other rows are parsed all the same.
"""

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Final, Literal, NamedTuple, TextIO, get_args

from kesin.foundation.problems import Invalid, Problem, TooLarge
from kesin.foundation.text import storable, unescape_cell
from kesin.workloads.common.columns import UNKNOWN_COLUMNS, is_ignored, separator, unknown_columns
from kesin.workloads.oci.conversions.conversion import (
    CONVERSION_FIELDS,
    EXPORTED_FIELDS,
    MAX_SHOWN_NAME,
    PLAIN_FIELDS,
    ParsedRow,
    Unsendable,
)

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
_FORMAT_BY_SUFFIX: Final[dict[str, FileFormat]] = {
    f".{name}": name for name in get_args(FileFormat)
} | {".tsv": "csv", ".jsonl": "ndjson"}
_BLANK_CHARACTERS: Final = ',;\t"'


def parse_body(
    body: bytes, content_type: str, ignored: frozenset[str] = frozenset()
) -> tuple[str | None, list[ParsedRow]]:
    """Parse a body: the site it names, if any, and its rows.

    ``ignored``: unknown columns of a CSV that are left out; any other refuses the file.
    """
    content_kind = content_type.partition(";")[0].strip().lower()
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Problem("the body is no UTF-8", code="not_utf8") from None
    file_format = _FORMAT_BY_TYPE.get(content_kind)
    if file_format is None and not content_kind.endswith("+json"):
        raise Problem(
            f"conversions come as {', '.join(CONTENT_TYPES)}, not as {content_kind[:100]!r}",
            code="unsupported_type",
        )
    not_json = Problem("the body is no JSON", code="not_json")
    lines = io.StringIO(text, newline="" if file_format == "csv" else "\n")
    site, rows = _parse(file_format or "json", lines, ignored, not_json)
    taken = list(islice(rows, MAX_ROWS + 1))
    if len(taken) > MAX_ROWS:
        raise TooLarge("at most %(most)s conversions a call: split them", most=MAX_ROWS)
    return site, taken


def _parse(
    file_format: FileFormat, text: TextIO, ignored: frozenset[str], not_json: Problem
) -> tuple[str | None, Iterator[ParsedRow]]:
    """The site that the text names, if any, and its rows; only JSON is read as a whole."""
    if file_format == "csv":
        return None, csv_rows(text, ignored)
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
        raise Problem(
            "%(field)s is unknown: send siteId and conversions",
            code="unknown_field",
            details={"field": name},
            field=repr(name),
        )
    return site, rows


def parse_json(text: str) -> Any:
    """Parse JSON so that an invalid number fails only its own row; raises ValueError."""
    return json.loads(text, parse_constant=float, parse_int=_parse_int)


def _parse_int(digits: str) -> int | str:
    """Parse an integer; one that is too long stays text, and its field refuses it."""
    return int(digits) if len(digits) <= MAX_DIGITS else digits


def _ndjson_rows(lines: Iterable[str]) -> Iterator[ParsedRow]:
    for line in lines:
        if not line.strip():
            continue
        try:
            yield _check_row(parse_json(line))
        except (ValueError, RecursionError):
            yield Unsendable("NOT_JSON", "", "this line is no JSON")


def _check_row(value: Any) -> ParsedRow:
    if isinstance(value, dict):
        return value
    return Unsendable("NOT_AN_OBJECT", "", "a conversion is an object with fields")


def csv_rows(lines: Iterable[str], ignored: frozenset[str] = frozenset()) -> Iterator[ParsedRow]:
    """Parse CSV whose header is the first line that is not blank; raises Problem.

    An unknown column refuses the file unless it is one of the ignored ones.
    """
    lines, skipped = iter(lines), 0
    first_line = ""
    for first_line in lines:
        if "".join(first_line.split()).strip(_BLANK_CHARACTERS):
            break
        skipped += 1
    rows = csv.reader(chain([first_line], lines), delimiter=separator(first_line))
    header: list[str | None] = []
    try:
        for cells in rows:
            if not any(cell.strip() for cell in cells):
                continue
            if header:
                yield _csv_row(header, cells)
            else:
                header = [_COLUMNS.get(_normalise_header(cell)) for cell in cells]
                _check_header(header, cells, ignored)
    except csv.Error as problem:
        line = skipped + rows.line_num
        raise Problem(
            "line %(n)s is no CSV: %(problem)s", code="not_csv", n=line, problem=problem
        ) from None


def _check_header(header: list[str | None], columns: list[str], ignored: frozenset[str]) -> None:
    names = [name for name in header if name]
    if "externalId" not in names:
        raise Problem(
            "the first line must name the columns, externalId among them", code="no_header"
        )
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise Problem(
            "the column %(column)s is there twice", code="column_twice", column=min(repeated)
        )
    unread = (column for name, column in zip(header, columns, strict=True) if name is None)
    stripped = [column.strip() for column in unread if not is_ignored(column, ignored)]
    if unknown := list(filter(None, stripped)):
        details = {"columns": unknown[:100]}
        raise Problem(unknown_columns(unknown), code=UNKNOWN_COLUMNS, details=details)


def _csv_row(header: list[str | None], cells: list[str]) -> ParsedRow:
    if len(cells) > len(header):
        return Unsendable("NOT_AN_OBJECT", "", "this line has more cells than the header")
    return {name: unescape_cell(cell) for name, cell in zip(header, cells, strict=False) if name}


def _normalise_header(header: str) -> str:
    return "".join(char for char in header.lower() if char.isalnum())


# The field of a column, "" if it is ignored; other tools call it "Google Click ID".
_COLUMNS: Final = {
    **dict.fromkeys(map(_normalise_header, EXPORTED_FIELDS), ""),
    **{_normalise_header(name): name for name in (*CONVERSION_FIELDS, *PLAIN_FIELDS)},
    "googleclickid": "gclid",
    "phonenumber": "phone",
}


class RowBatch(NamedTuple):
    """Some rows of a file, and the site that the file names, if any."""

    site: str | None
    rows: list[ParsedRow]


def detect_format(name: str, chosen: FileFormat | None) -> FileFormat:
    """The chosen format, or else the one of the file's suffix; raises Invalid."""
    if chosen is not None:
        return chosen
    detected = _FORMAT_BY_SUFFIX.get(PurePath(name).suffix.lower())
    if detected is None:
        source = "standard input" if name == STDIN else repr(name)
        raise Invalid(f"say with --format whether {source} is csv, ndjson or json")
    return detected


class RowSource:
    """An open file of rows, and how far it was read."""

    def __init__(self, name: str, file_format: FileFormat, raw: BinaryIO, size: int | None) -> None:
        self.name = name
        self.file_format: FileFormat = file_format
        self.size = size  # in bytes; None if unknown
        self._raw = raw
        newline = "" if file_format == "csv" else "\n"
        self.text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline=newline)

    @property
    def bytes_read(self) -> int:
        return 0 if self.size is None else self._raw.tell()

    def batches(
        self, rows: int = MAX_ROWS, ignored: frozenset[str] = frozenset()
    ) -> Iterator[RowBatch]:
        """Yield the rows in batches; raises Problem where the file cannot be read further."""
        try:
            not_json = Problem("this is no JSON; for one document a line say --format ndjson")
            site, parsed = _parse(self.file_format, self.text, ignored, not_json)
            while batch := list(islice(parsed, min(rows, MAX_ROWS))):
                yield RowBatch(site, batch)
        except UnicodeDecodeError:
            raise Problem(
                "%(file)s is no UTF-8: save it as UTF-8 (in Excel: CSV UTF-8) and try again",
                code="not_utf8",
                file=self.name,
            ) from None


@contextmanager
def open_source(name: str, file_format: FileFormat) -> Iterator[RowSource]:
    """Open a file, or standard input for ``-``."""
    if name == STDIN:
        source = RowSource("standard input", file_format, sys.stdin.buffer, None)
        try:
            yield source
        finally:
            source.text.detach()  # standard input stays open
        return
    path = Path(name)
    with path.open("rb") as raw:
        size = path.stat().st_size if path.is_file() else None
        yield RowSource(name, file_format, raw, size)
