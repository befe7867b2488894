"""The rows of a batch: sets of variables for one template, from JSON or from a spreadsheet's CSV.

A CSV file names the variables in its first line, with dots for what lies deeper
(``buyer.name``). Cells are text: what they mean is looked up in the template's own schema, and
what does not fit is left as it is, so that one check tells of both spellings alike.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from kesin.foundation.problems import Invalid
from kesin.workloads.pdf.schemas import MOST_ROWS

if TYPE_CHECKING:
    from kesin.workloads.pdf.templating.library import TemplateBook

MOST_PROBLEMS: Final = 100  # told at once
LONGEST_NAME: Final = 100  # characters of a file's name
_MOST_DIGITS: Final = 40
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_COMMA: Final = re.compile(r"-?(?:0|[1-9][0-9]*),[0-9]+", re.ASCII)
_YES_NO: Final = {
    **dict.fromkeys(("true", "1", "yes", "evet"), True),
    **dict.fromkeys(("false", "0", "no", "hayır"), False),
}
_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_UNFIT: Final = re.compile(r'[\s"\\/:*?<>|]+')
_MOST_STEPS: Final = 32  # that a column may lie deep
csv.field_size_limit(1_000_000_000)  # a body is bounded already

Variables = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowProblem:
    """One thing that is wrong in one row; ``row`` counts from 1, the header not included."""

    row: int
    path: str
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Table:
    """What a CSV file says, and the lines that say nothing."""

    rows: list[Variables]
    problems: list[RowProblem]


def check_rows(
    book: TemplateBook,
    template: str,
    rows: Sequence[Variables],
    known: Sequence[RowProblem] = (),
    *,
    unfit: Mapping[int, str] | None = None,
) -> None:
    """Raise Invalid with the first hundred problems, each with its row; no row is skipped over.

    ``unfit`` names rows that could not be kept, and why.
    """
    if not rows and not known:
        raise Invalid("there are no rows", code="no_rows")
    found = [*known]
    for number, variables in enumerate(rows, 1):
        if len(found) > MOST_PROBLEMS:
            break
        if unfit and number in unfit:
            found.append(RowProblem(number, "/", "limit", unfit[number]))
            continue
        found += [
            RowProblem(number, one.path, one.rule, one.message)
            for one in book.check(template, variables)
        ]
    if not found:
        return
    found.sort(key=lambda one: one.row)
    first = found[0]
    raise Invalid(
        f"row {first.row}: {first.path} {first.message}",
        code="bad_rows",
        details={
            "problems": [
                {"row": one.row, "path": one.path, "rule": one.rule, "message": one.message}
                for one in found[:MOST_PROBLEMS]
            ],
            "more": len(found) > MOST_PROBLEMS,
        },
    )


# CSV


def read_csv(body: bytes, schema: Mapping[str, Any]) -> Table:
    """The rows of a CSV file: UTF-8, with commas or semicolons, with or without a mark in front.

    Where semicolons part the cells, a decimal comma is a comma: that is how Turkish spreadsheets
    write both. An empty cell is a variable that is not there. Raises Invalid for what is no table.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = body.count(b"\n", 0, problem.start) + 1
        raise Invalid(f"line {line} is no UTF-8", code="not_utf8") from None
    delimiter = _delimiter(text)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        return _table(lines, schema, decimal_comma=delimiter == ";")
    except csv.Error as problem:
        raise Invalid(f"line {lines.line_num} is no CSV: {problem}", code="not_csv") from None


def _table(lines: Iterable[list[str]], schema: Mapping[str, Any], *, decimal_comma: bool) -> Table:
    filled = (cells for cells in lines if any(cell.strip() for cell in cells))
    header = _header(next(filled, []))
    kinds = [kinds_at(schema, path) for path in header]
    table = Table([], [])
    for number, cells in enumerate(filled, 1):
        if number > MOST_ROWS:
            raise too_many_rows()
        variables: Variables = {}
        for at, cell in enumerate(cells):
            if not cell.strip():
                continue
            if at >= len(header) or not header[at]:
                told = f"has a cell in column {at + 1}, and the header names none there"
                table.problems.append(RowProblem(number, "/", "cells", told))
                break
            _put(variables, header[at], typed(cell, kinds[at], decimal_comma=decimal_comma))
        table.rows.append(variables)
    return table


def too_many_rows() -> Invalid:
    """More than a batch holds."""
    return Invalid(
        f"a batch has at most {MOST_ROWS} rows: send the rest as another", code="too_many_rows"
    )


def _delimiter(text: str) -> str:
    """Whichever is more frequent in the first line that says anything, outside of quotes."""
    first = next((line for line in text.split("\n") if line.strip(" ,;\r")), text)
    plain = re.sub(r'"[^"]*"', "", first)
    return ";" if plain.count(";") > plain.count(",") else ","


def _header(cells: Sequence[str]) -> list[tuple[str, ...]]:
    """The columns as paths; () for one without a name."""
    names = [cell.strip() for cell in cells]
    if not any(names):
        raise Invalid("the first line must name the variables", code="no_header")
    paths: list[tuple[str, ...]] = []
    for name in names:
        path = tuple(name.split(".")) if name else ()
        if not all(path):
            raise Invalid(f"{name[:80]!r} names no variable", code="bad_column")
        if len(path) > _MOST_STEPS:
            raise Invalid("a column lies too deep", code="bad_column")
        paths.append(path)
    known = {path for path in paths if path}
    if len(known) < len([path for path in paths if path]):
        twice = next(path for path in paths if path and paths.count(path) > 1)
        raise Invalid(f"the column {'.'.join(twice)[:80]!r} is there twice", code="column_twice")
    for path in sorted(known):
        for short in range(1, len(path)):
            if path[:short] in known:
                raise Invalid(
                    f"{'.'.join(path)[:80]!r} lies in a column that is there itself",
                    code="bad_column",
                )
    return paths


def _put(variables: Variables, path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        variables = variables.setdefault(step, {})
    variables[path[-1]] = value


def typed(text: str, kinds: frozenset[str], *, decimal_comma: bool = False) -> Any:
    """A cell as the schema wants it, or the text itself where it cannot be that."""
    bare = text.strip()
    if "boolean" in kinds and bare.lower() in _YES_NO:
        return _YES_NO[bare.lower()]
    if kinds & {"integer", "number"}:
        number = _number(bare, decimal_comma=decimal_comma)
        whole_only = "number" not in kinds
        if number is not None and not (whole_only and isinstance(number, float)):
            return number
    if kinds & {"array", "object"} and bare[:1] in {"[", "{"}:
        try:
            return json.loads(bare)
        except (ValueError, RecursionError):
            return text
    return text


def _number(text: str, *, decimal_comma: bool) -> int | float | None:
    """The number, if nothing of it gets lost: ``007`` and twenty decimals are text."""
    if decimal_comma and _COMMA.fullmatch(text):
        text = text.replace(",", ".")
    if len(text) > _MOST_DIGITS or not _NUMBER.fullmatch(text):
        return None
    if text.lstrip("-").isdigit():
        return int(text)
    number = float(text)
    if not math.isfinite(number) or Decimal(repr(number)) != Decimal(text):
        return None
    return number


# What a schema says of a place


def kinds_at(schema: Mapping[str, Any], path: Sequence[str]) -> frozenset[str]:
    """The JSON types a schema allows at this path; text where it says nothing."""
    nodes = _branches(schema, [schema])
    for step in path:
        nodes = _branches(schema, [found for node in nodes for found in _below(node, step)])
    return frozenset(kind for node in nodes for kind in _kinds(node)) or frozenset({"string"})


def _below(node: Mapping[str, Any], step: str) -> Iterator[Mapping[str, Any]]:
    named = node.get("properties", {}).get(step, node.get("additionalProperties"))
    if isinstance(named, Mapping):
        yield named


def _branches(
    schema: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The nodes and everything they refer to or are put together from, each once."""
    found: dict[int, Mapping[str, Any]] = {}
    left: list[Any] = list(nodes)
    while left:
        node = left.pop()
        if not isinstance(node, Mapping) or id(node) in found:
            continue
        found[id(node)] = node
        left += [one for word in ("allOf", "anyOf", "oneOf") for one in node.get(word, [])]
        if isinstance(reference := node.get("$ref"), str) and reference.startswith("#"):
            left.append(_referred(schema, reference))
    return list(found.values())


def _referred(schema: Mapping[str, Any], reference: str) -> Any:
    place: Any = schema
    for step in reference[1:].strip("/").split("/") if reference != "#" else ():
        name = step.replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, Mapping) else None
    return place


def _kinds(node: Mapping[str, Any]) -> Iterator[str]:
    told = node.get("type")
    if isinstance(told, str):
        yield told
    elif isinstance(told, list):
        yield from (one for one in told if isinstance(one, str))
    else:
        values = [*node.get("enum", ()), *([node["const"]] if "const" in node else [])]
        yield from (_KINDS[type(one)] for one in values if type(one) in _KINDS)


# Names of files


def names_of(
    rows: Sequence[Variables], row_names: Sequence[str] | None, name_field: str | None
) -> list[str]:
    """What each row's file is called, '' where it has no name of its own; raises Invalid."""
    if row_names is not None and name_field is not None:
        raise Invalid("give row_names or name_field, not both", code="two_names")
    if row_names is not None:
        if len(row_names) != len(rows):
            raise Invalid(
                f"there are {len(rows)} rows and {len(row_names)} row_names", code="bad_row_names"
            )
        return [safe_name(one) for one in row_names]
    if name_field is None:
        return [""] * len(rows)
    steps = name_field.split(".")
    names = [safe_name(_value_at(one, steps)) for one in rows]
    if not any(names):
        raise Invalid(f"no row has a {name_field[:80]!r} to be named by", code="bad_name_field")
    return names


def _value_at(variables: Any, steps: Sequence[str]) -> str:
    for step in steps:
        variables = variables.get(step) if isinstance(variables, Mapping) else None
    is_plain = isinstance(variables, str | int | float) and not isinstance(variables, bool)
    return str(variables) if is_plain else ""


def safe_name(text: str) -> str:
    """A name every file system takes, without its ending; it never leads anywhere else."""
    visible = "".join(
        " " if one.isspace() else one
        for one in unicodedata.normalize("NFC", text)
        if one.isspace() or not unicodedata.category(one).startswith("C")
    )
    name = re.sub(r"(?i)\.pdf$", "", visible.strip())
    return _UNFIT.sub(lambda found: " " if found[0].isspace() else "_", name)[:LONGEST_NAME].strip(
        " ."
    )


def entry_name(row: int, name: str, fallback: str) -> str:
    """The file of a row, counted from 1: the number keeps the order and tells equal names apart."""
    return f"{row:04d}-{name or fallback}.pdf"
