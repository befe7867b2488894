"""The rows of a batch: sets of variables for one template, from JSON or CSV (``buyer.name``)."""

import csv
import io
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final, NamedTuple

from kesin.foundation.problems import Invalid
from kesin.store.search import field_of
from kesin.workloads.common.columns import UNKNOWN_COLUMNS, separator, unknown_columns
from kesin.workloads.pdf.schemas import MAX_ROWS

MAX_ROW_PROBLEMS: Final = 100  # in one response
MAX_NAME_LENGTH: Final = 100  # characters of a file's name
_MAX_DIGITS: Final = 40
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_DECIMAL_COMMA: Final = re.compile(r"-?(?:0|[1-9][0-9]*),[0-9]+", re.ASCII)
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "1", "yes", "evet"), True),
    **dict.fromkeys(("false", "0", "no", "hayır"), False),
}
_FORBIDDEN: Final = re.compile(r'[\s"\\/:*?<>|]+')
_MAX_DEPTH: Final = 32  # nesting of a column

Variables = dict[str, Any]
Schema = Mapping[str, Any]
Column = tuple[str, ...]  # the path of its variable


class BatchRowProblem(NamedTuple):
    """A problem in a row; ``row`` counts from 1, without the header."""

    row: int
    path: str
    rule: str
    message: str


CsvTable = tuple[list[Variables], list[BatchRowProblem]]  # the rows, and what is wrong with some


def check_rows(
    find_problems: Callable[[int, Variables], Iterable[tuple[str, str, str]]],
    rows: Sequence[Variables],
    csv_problems: Sequence[BatchRowProblem] = (),
) -> None:
    """Raise Invalid with the first hundred problems; rows are counted from 1."""
    problems = [*csv_problems]
    for number, variables in enumerate(rows, 1):
        if len(problems) > MAX_ROW_PROBLEMS:
            break
        found = find_problems(number, variables)
        problems += [BatchRowProblem(number, *problem) for problem in found]
    if not problems:
        return
    problems.sort(key=lambda problem: problem.row)
    first, listed = problems[0], [problem._asdict() for problem in problems[:MAX_ROW_PROBLEMS]]
    details = {"problems": listed, "more": len(problems) > MAX_ROW_PROBLEMS}
    raise Invalid(f"row {first.row}: {first.path} {first.message}", code="bad_rows", details=details)


def read_csv(body: bytes, schema: Schema, ignored: frozenset[str] = frozenset()) -> CsvTable:
    """Parse a CSV in UTF-8; raises Invalid for no table, or columns neither known nor ignored."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = body.count(b"\n", 0, problem.start) + 1
        raise Invalid(f"line {line} is not UTF-8", code="not_utf8") from None
    first = next((line for line in text.split("\n") if line.strip(" ,;\r")), text)
    delimiter = separator(first, ",;")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        # Turkish spreadsheets write both, semicolons and decimal commas.
        return _parse_table(lines, schema, ignored, decimal_comma=delimiter == ";")
    except csv.Error as error:
        raise Invalid(f"line {lines.line_num} is not valid CSV: {error}", code="not_csv") from None


def _parse_table(
    lines: Iterable[list[str]], schema: Schema, ignored: frozenset[str], *, decimal_comma: bool
) -> CsvTable:
    from kesin.workloads.pdf.templating.variables import column_types, set_variable

    non_empty = (cells for cells in lines if any(cell.strip() for cell in cells))
    header = _parse_header(next(non_empty, []))
    types = column_types(schema, filter(None, header))
    left_out = [at for at, path in enumerate(header) if path and not types[path]]
    names = [".".join(header[at]) for at in left_out]
    if refused := [name for name in names if name.strip().casefold() not in ignored]:
        details = {"columns": refused[:100]}
        raise Invalid(unknown_columns(refused), code=UNKNOWN_COLUMNS, details=details)
    rows, problems = list[Variables](), list[BatchRowProblem]()
    for number, cells in enumerate(non_empty, 1):
        if number > MAX_ROWS:
            raise Invalid(
                f"a batch can have at most {MAX_ROWS} rows: send the rest in another batch", code="too_many_rows"
            )
        variables: Variables = {}
        for at, cell in enumerate(cells):
            if not cell.strip() or at in left_out:
                continue
            if at >= len(header) or not header[at]:
                message = f"has a cell in column {at + 1}, which the header does not name"
                problems.append(BatchRowProblem(number, "/", "cells", message))
                break
            value = parse_cell(cell, types[header[at]], decimal_comma=decimal_comma)
            set_variable(variables, header[at], value)
        rows.append(variables)
    return rows, problems


def _parse_header(cells: Sequence[str]) -> list[Column]:
    """Parse the columns to paths; () for a column without a name."""
    names = [cell.strip() for cell in cells]
    if not any(names):
        raise Invalid("the first line must name the variables", code="no_header")
    paths: list[Column] = []
    for name in names:
        path = tuple(name.split(".")) if name else ()
        if not all(path):
            raise Invalid(f"{name[:80]!r} does not name a variable", code="bad_column")
        if len(path) > _MAX_DEPTH:
            raise Invalid("a column is nested too deeply", code="bad_column")
        paths.append(path)
    named = Counter(path for path in paths if path)
    for path in (path for path, times in named.items() if times > 1):
        raise Invalid(f"the column {'.'.join(path)[:80]!r} is repeated", code="column_twice")
    for path in sorted(named):
        if any(path[:depth] in named for depth in range(1, len(path))):
            name = ".".join(path)[:80]
            raise Invalid(f"{name!r} is nested in another column: keep only one", code="bad_column")
    return paths


def parse_cell(text: str, types: frozenset[str], *, decimal_comma: bool = False) -> Any:
    """Convert a cell to a type the schema allows; else it stays text, which validation reports."""
    stripped = text.strip()
    if "boolean" in types and stripped.lower() in _BOOLEANS:
        return _BOOLEANS[stripped.lower()]
    if types & {"integer", "number"}:
        number = _parse_number(stripped, decimal_comma=decimal_comma)
        integers_only = "number" not in types
        if number is not None and not (integers_only and isinstance(number, float)):
            return number
    if types & {"array", "object"} and stripped[:1] in {"[", "{"}:
        with suppress(ValueError, RecursionError):
            return json.loads(stripped)
    return text


def _parse_number(text: str, *, decimal_comma: bool) -> int | float | None:
    """Parse a number without loss; None for others, such as ``007`` or twenty decimals."""
    if decimal_comma and _DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    if text.lstrip("-").isdigit():
        return int(text)
    number = float(text)
    is_exact = math.isfinite(number) and Decimal(repr(number)) == Decimal(text)
    return number if is_exact else None


def row_file_names(rows: Sequence[Variables], row_names: Sequence[str] | None, name_field: str | None) -> list[str]:
    """Return the file name of each row, '' for a row without one; raises Invalid."""
    if row_names is not None and name_field is not None:
        raise Invalid("give row_names or name_field, not both", code="two_names")
    if row_names is not None:
        if len(row_names) != len(rows):
            raise Invalid(f"there are {len(rows)} rows but {len(row_names)} row_names", code="bad_row_names")
        return [safe_name(name) for name in row_names]
    if name_field is None:
        return [""] * len(rows)
    values = (field_of(row, name_field) for row in rows)
    names = [safe_name(str(each) if type(each) in {str, int, float} else "") for each in values]
    if not any(names):
        raise Invalid(f"no row has the variable {name_field[:80]!r}", code="bad_name_field")
    return names


def safe_name(text: str) -> str:
    """Return a file name that is valid everywhere, without extension and path."""
    visible = "".join(
        " " if character.isspace() else character
        for character in unicodedata.normalize("NFC", text)
        if character.isspace() or not unicodedata.category(character).startswith("C")
    )
    name = re.sub(r"(?i)\.pdf$", "", visible.strip())
    allowed = _FORBIDDEN.sub(lambda match: " " if match[0].isspace() else "_", name)
    return allowed[:MAX_NAME_LENGTH].strip(" .")


def entry_name(row: int, name: str, fallback: str) -> str:
    """Return the file name of a row, counted from 1; the number keeps names ordered and unique."""
    return f"{row:04d}-{name or fallback}.pdf"
