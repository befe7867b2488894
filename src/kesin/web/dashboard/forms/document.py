"""A form that edits a document of another shape: its schema says where each value is kept.

Keywords beside those of JSON Schema:

``source``   the path of a field, group or table in the document: ``timeouts.minutes``. A group
             without it is a heading for fields that are kept in different places.
``rows``     how the document keeps a table: as a ``mapping``, whose keys are the first column and
             whose values are the second, or as a list of the ``values`` of its only column.
``fixed``    entries of a mapping that the form does not show.
``default``  the value of a field that is left empty.

What no ``source`` names is not shown, and `read_document` keeps it as it was.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid
from kesin.web.dashboard.forms.schema_form import Schema, parse_number

DUPLICATE: Final = "is there twice"
EMPTY: Final = "must not be empty"
MAX_SHOWN_KEY: Final = 40


def parse_typed_json(source: str) -> Any:
    """Parse a document that was typed as JSON; raises Invalid."""
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as problem:
        raise Invalid(
            Message("the JSON cannot be read: %(problem)s", problem=problem), code="not_json"
        ) from None


@dataclass(slots=True)
class TypedDocument:
    """A document as typed into a form, and the pointer of the field of each of its paths."""

    values: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)  # by pointer
    pointers: dict[str, str] = field(default_factory=dict)  # by path

    def pointer_of(self, path: str) -> str:
        """The pointer of a path's field, or of the nearest enclosing field; empty if none."""
        while path:
            if path in self.pointers:
                return self.pointers[path]
            path = path.rpartition("." if path.rfind(".") > path.rfind("[") else "[")[0]
        return ""

    def place_of(self, path: str) -> tuple[dict[str, Any], str]:
        """The object that holds the value of a path, created if need be, and its key there."""
        *outer, name = path.split(".")
        target = self.values
        for step in outer:
            target = target.setdefault(step, {})
        return target, name


def form_value(schema: Schema, document: Mapping[str, Any]) -> dict[str, Any]:
    """The form's value for a document; missing or odd values are left for the user to correct."""
    form: dict[str, Any] = {}
    for key, part in schema["properties"].items():
        if "rows" in part:
            form[key] = _table_rows(part, _value_at(document, part["source"]))
        elif "source" not in part and "properties" in part:
            form[key] = form_value(part, document)
        else:
            value = _value_at(document, part["source"])
            if isinstance(value, Mapping) if "properties" in part else value is not None:
                form[key] = value
    return form


def read_document(schema: Schema, value: Any, before: Mapping[str, Any]) -> TypedDocument:
    """The document in a form's value; ``before`` supplies what the form does not show."""
    shown = {source.partition(".")[0] for source in _sources(schema)}
    typed = TypedDocument({name: kept for name, kept in before.items() if name not in shown})
    _read_group(typed, schema, value, "")
    return typed


def _sources(schema: Schema) -> Iterator[str]:
    for part in schema["properties"].values():
        if "source" in part:
            yield part["source"]
        elif "properties" in part:
            yield from _sources(part)


def _read_group(typed: TypedDocument, schema: Schema, value: Any, pointer: str) -> None:
    values = value if isinstance(value, Mapping) else {}
    for key, part in schema["properties"].items():
        here, source = f"{pointer}/{key}", part.get("source")
        if source is None:
            _read_group(typed, part, values.get(key), here)
            continue
        typed.pointers[source] = here
        target, name = typed.place_of(source)
        if "rows" in part:
            target[name] = _read_table(typed, part, here, values.get(key))
        elif "properties" in part:
            typed.pointers |= {
                f"{source}.{inner}": f"{here}/{inner}" for inner in part["properties"]
            }
            if isinstance(values.get(key), Mapping):
                target[name] = dict(values[key])
            elif key in schema["required"]:
                target[name] = {}
        elif key in values:
            target[name] = values[key]
        elif "default" in part:
            target[name] = part["default"]


def _table_rows(part: Schema, stored: Any) -> list[dict[str, Any]]:
    columns: Mapping[str, Schema] = part["items"]["properties"]
    if part["rows"] == "values":
        [name] = columns
        return [{name: item} for item in stored] if isinstance(stored, list) else []
    key_name, value_name = columns
    is_number = _is_number(columns[key_name])
    return [
        {
            key_name: parse_number(key) if is_number else key,
            **({} if item is None else {value_name: item}),
        }
        for key, item in (stored.items() if isinstance(stored, Mapping) else ())
        if key not in part.get("fixed", {})
    ]


def _read_table(
    typed: TypedDocument, part: Schema, pointer: str, value: Any
) -> list[Any] | dict[str, Any]:
    rows = value if isinstance(value, list) else []
    cells = [row if isinstance(row, Mapping) else {} for row in rows]
    if part["rows"] == "mapping":
        return _read_mapping(typed, part, pointer, cells)
    [name] = part["items"]["properties"]
    for n, row in enumerate(cells):
        typed.pointers[f"{part['source']}[{n}]"] = f"{pointer}/{n}/{name}"
        if row.get(name) is None:
            typed.errors[f"{pointer}/{n}/{name}"] = [EMPTY]
    return [row.get(name) for row in cells]


def _read_mapping(
    typed: TypedDocument, part: Schema, pointer: str, rows: list[Mapping[str, Any]]
) -> dict[str, Any]:
    """A table's rows as a mapping; an invalid or duplicate key is an error at its cell."""
    mapping: dict[str, Any] = dict(part.get("fixed", {}))
    columns: Mapping[str, Schema] = part["items"]["properties"]
    key_name, value_name = columns
    for n, row in enumerate(rows):
        typed_key = row.get(key_name)
        key = "" if typed_key is None else str(typed_key).removesuffix(".0").strip()
        key_pointer, value_pointer = f"{pointer}/{n}/{key_name}", f"{pointer}/{n}/{value_name}"
        if not key:
            typed.errors[key_pointer] = [EMPTY]
        elif _is_number(columns[key_name]) and not isinstance(typed_key, int | float):
            shown = repr(key[:MAX_SHOWN_KEY])
            typed.errors[key_pointer] = [Message("must be a number, got %(given)s", given=shown)]
        elif key in mapping:
            typed.errors[key_pointer] = [DUPLICATE]
        else:
            mapping[key] = row.get(value_name)
            typed.pointers[f"{part['source']}.{key}"] = value_pointer
            typed.pointers[f"{part['source']}.{key}.[key]"] = key_pointer
            if mapping[key] is None and value_name in part["items"]["required"]:
                typed.errors[value_pointer] = [EMPTY]
    return mapping


def _is_number(column: Schema) -> bool:
    return column.get("type") in {"integer", "number"}


def _value_at(document: Mapping[str, Any], path: str) -> Any:
    value: Any = document
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value
