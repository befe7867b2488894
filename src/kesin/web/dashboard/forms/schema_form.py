"""HTML forms generated from a JSON Schema, so that no PDF template needs a page of its own.

Fields are named by JSON Pointers below ``v``: ``v/lines/0/quantity``. Each row of a list and each
open optional group also submits an empty field, so that an empty row still counts as a row. The
form is drawn from a value; adding or removing a row changes the value and draws the form again.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

ROOT: Final = "v"
MAX_DEPTH: Final = 8
MAX_ROWS: Final = 60  # of a list; a longer list is edited as JSON
MAX_SINGLE_LINE_CHARS: Final = 200  # longer text gets a multi-line field
MAX_TABLE_COLUMNS: Final = 8  # a list with more columns is not drawn as a table
_ABSENT: Final = object()
_NOT_EMPTY: Final = frozenset({"enum", "format", "minLength", "pattern"})  # empty: missing
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,14})")
_ROW_NUMBER: Final = re.compile(r"[0-9]{1,4}")
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]{0,11})[.,][0-9]{1,6}")

Kind = Literal["text", "area", "number", "date", "enum", "boolean", "group", "list", "json"]
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FormNode:
    """A field, a group of fields, or a list."""

    name: str  # of the HTML field: a pointer
    key: str  # of the schema's property
    title: str
    kind: Kind
    required: bool = False
    hint: str = ""
    value: str = ""
    choices: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)  # of choices
    max_length: int | None = None  # in characters
    minimum: float | None = None  # of a number
    maximum: float | None = None
    unit: str = ""
    children: tuple["FormNode", ...] = ()
    columns: tuple[str, ...] = ()  # headings of a list drawn as a table
    is_open: bool = True  # an optional group is closed until the user opens it
    errors: tuple[str, ...] = ()
    may_add: bool = False
    may_remove: bool = False


@dataclass(frozen=True, slots=True)
class SchemaForm:
    """The form of a schema: draws a value and reads the submitted fields."""

    schema: Schema
    errors: Mapping[str, list[str]] = field(default_factory=dict)  # by pointer
    language: str = "en"

    def draw(self, value: Any) -> FormNode:
        return self._draw_node(self.schema, value, ROOT, "", required=True, depth=0)

    def _draw_node(
        self, unresolved: Schema, value: Any, name: str, key: str, *, required: bool, depth: int
    ) -> FormNode:
        schema = self._resolve(unresolved)
        attributes: dict[str, Any] = {
            "name": name,
            "key": key,
            "title": _title(schema, key, self.language),
            "required": required,
            "hint": localized_text(schema, "description", self.language),
            "errors": tuple(self.errors.get(name.removeprefix(ROOT), ())),
        }
        kind = "json" if depth >= MAX_DEPTH else _field_kind(schema)
        if kind == "group":
            return self._draw_group(schema, value, attributes, depth)
        if kind == "list":
            return self._draw_list(schema, value, attributes, depth)
        misfit = kind != "json" and isinstance(value, dict | list)
        attributes["value"] = "" if misfit else _format_value(value)
        if kind == "enum":
            attributes["choices"] = tuple(_format_value(choice) for choice in schema["enum"])
            attributes["labels"] = schema.get("labels", {})
        elif kind == "boolean":
            attributes["choices"] = ("true", "false")
        elif kind in {"text", "area"}:
            attributes["max_length"] = schema.get("maxLength")
        elif kind == "number":
            attributes |= {"minimum": schema.get("minimum"), "maximum": schema.get("maximum")}
            attributes["unit"] = str(schema.get("unit", ""))
        return FormNode(kind=kind, **attributes)

    def _draw_group(self, schema: Schema, value: Any, attributes: dict[str, Any], depth: int) -> FormNode:
        values = value if isinstance(value, Mapping) else {}
        is_open = attributes["required"] or isinstance(value, Mapping)
        attributes |= {"is_open": is_open, "may_remove": not attributes["required"]}
        name, required = attributes["name"], schema.get("required", ())
        draw = partial(self._draw_node, depth=depth + 1)
        children = tuple(
            draw(part, values.get(key), f"{name}/{step}", key, required=key in required)
            for key, part in (schema["properties"].items() if is_open else ())
            for step in [key.replace("~", "~0").replace("/", "~1")]
            if isinstance(part, Mapping)
        )
        return FormNode(kind="group", children=children, **attributes)

    def _draw_list(self, schema: Schema, value: Any, attributes: dict[str, Any], depth: int) -> FormNode:
        rows = value if isinstance(value, list) else []
        if len(rows) > MAX_ROWS:
            return FormNode(kind="json", value=_format_value(rows), **attributes)
        name, items = attributes["name"], schema["items"]
        draw = partial(self._draw_node, items, required=True, depth=depth + 1)
        children = tuple(draw(row, f"{name}/{n}", str(n + 1)) for n, row in enumerate(rows))
        return FormNode(
            kind="list",
            children=children,
            columns=_column_headings(self._resolve(items), children, self.language),
            may_add=len(rows) < min(schema.get("maxItems", MAX_ROWS), MAX_ROWS),
            may_remove=len(rows) > schema.get("minItems", 0),
            **attributes,
        )

    def label_of(self, pointer: str) -> str:
        """The titles on the way to a field, such as ``Lines 3 · Quantity``."""
        schema, titles = self._resolve(self.schema), [""]
        for step in _split_pointer(pointer):
            row = parse_row_number(step) if "array" in _types(schema) else None
            schema = self._child_schema(schema, step) or {}
            title = _title(schema, step, self.language)
            titles += [title] if row is None else [f"{titles.pop()} {row + 1}"]
        return " · ".join(filter(None, titles))

    def read(self, fields: Mapping[str, str]) -> Any:
        """The submitted value; text that cannot be parsed stays as typed, for the validation."""
        return self._read(self.schema, _build_field_tree(fields), required=True, depth=0)

    def _read(self, unresolved: Schema, tree: "_FieldTree", *, required: bool, depth: int) -> Any:
        schema = self._resolve(unresolved)
        types = _types(schema)
        if depth < MAX_DEPTH and tree.children:
            if "object" in types and isinstance(schema.get("properties"), Mapping):
                return self._read_group(schema, tree, depth)
            if "array" in types and isinstance(schema.get("items"), Mapping):
                numbered = ((parse_row_number(key), row) for key, row in tree.children.items())
                trees = {n: row for n, row in numbered if n is not None}
                read = partial(self._read, schema["items"], required=True, depth=depth + 1)
                rows = [read(trees[n]) for n in sorted(trees)]
                return [{} if row is _ABSENT else row for row in rows]
        text = (tree.text or "").strip()
        if "object" in types and (tree.text is None or not text):
            return {} if tree.text is not None or required else _ABSENT
        if "array" in types and not text:
            return [] if required else _ABSENT
        return _parse_value(schema, types, tree.text or "", required=required)

    def _read_group(self, schema: Schema, tree: "_FieldTree", depth: int) -> dict[str, Any]:
        required_keys = schema.get("required", ())
        values: dict[str, Any] = {}
        for key, subschema in schema["properties"].items():
            child = tree.children.get(key)
            if not isinstance(subschema, Mapping) or (child is None and key not in required_keys):
                continue
            value = self._read(subschema, child or _FieldTree(), required=key in required_keys, depth=depth + 1)
            if value is not _ABSENT:
                values[key] = value
        return values

    def with_added(self, value: Any, pointer: str) -> Any:
        """The value with another row, or with a group opened."""
        changed = deepcopy(value) if isinstance(value, dict) else {}
        node: Any = changed
        schema = self._resolve(self.schema)
        steps = _split_pointer(pointer)
        for depth, step in enumerate(steps):
            child_schema = self._child_schema(schema, step)
            if child_schema is None:
                return changed
            schema = child_schema
            empty: Any = [] if "array" in _types(schema) else {}
            node = _get_item(node, step) if isinstance(node, list) else node.setdefault(step, empty)
            if not isinstance(node, list | dict):
                return changed
            if depth == len(steps) - 1 and isinstance(node, list) and len(node) < MAX_ROWS:
                types = _types(self._resolve(schema.get("items", {})))
                node.append({} if "object" in types else [] if "array" in types else "")
        return changed

    def with_removed(self, value: Any, pointer: str) -> Any:
        changed = deepcopy(value) if isinstance(value, dict) else {}
        node: Any = changed
        steps = _split_pointer(pointer)
        for step in steps[:-1]:
            node = _get_item(node, step)
        if isinstance(node, dict) and steps:
            node.pop(steps[-1], None)
        elif isinstance(node, list) and _get_item(node, steps[-1]) is not None:
            del node[int(steps[-1])]
        return changed

    def _child_schema(self, schema: Schema, step: str) -> Schema | None:
        child = schema.get("items") if "array" in _types(schema) else schema.get("properties", {}).get(step)
        return self._resolve(child) if isinstance(child, Mapping) else None

    def _resolve(self, schema: Schema) -> Schema:
        """A schema with its ``$ref`` resolved; keywords beside the reference override it."""
        for _ in range(MAX_DEPTH):
            target = schema.get("$ref")
            if not isinstance(target, str) or not target.startswith("#/"):
                break
            definition: Any = self.schema
            for step in _split_pointer(target[1:]):
                definition = definition.get(step, {}) if isinstance(definition, Mapping) else {}
            own = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**(definition if isinstance(definition, Mapping) else {}), **own}
        return schema


@dataclass(slots=True)
class _FieldTree:
    """The submitted text at a pointer, and the fields below it."""

    text: str | None = None
    children: dict[str, "_FieldTree"] = field(default_factory=dict)


def _build_field_tree(fields: Mapping[str, str]) -> _FieldTree:
    root = _FieldTree()
    for name, text in fields.items():
        if name != ROOT and not name.startswith(f"{ROOT}/"):
            continue
        node = root
        for step in _split_pointer(name.removeprefix(ROOT))[: 2 * MAX_DEPTH]:
            node = node.children.setdefault(step, _FieldTree())
        node.text = text
    return root


def _parse_value(schema: Schema, types: set[str], text: str, *, required: bool) -> Any:
    """The value of a field; text that cannot be parsed stays text, and validation rejects it."""
    stripped = text.strip()
    may_be_empty = required and types == {"string"} and not schema.keys() & _NOT_EMPTY
    if not stripped and not may_be_empty:
        return _ABSENT
    value: Any = text
    if "enum" in schema:
        chosen = (choice for choice in schema["enum"] if _format_value(choice) == stripped)
        value = next(chosen, text)
    elif types == {"boolean"}:
        value = {"true": True, "false": False}.get(stripped, text)
    elif types & {"integer", "number"}:
        value = parse_number(stripped)
    elif "string" in types:
        value = text.replace("\r\n", "\n")
    else:
        with suppress(ValueError, RecursionError):
            value = json.loads(stripped)
    return value


def parse_row_number(text: str) -> int | None:
    """The row number in a field's name; None if it is no number: clients may send any name."""
    return int(text) if _ROW_NUMBER.fullmatch(text) else None


def parse_number(text: str) -> Any:
    """A typed number, with a decimal point or comma; any other text is returned unchanged."""
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text.replace(",", ".")) if _DECIMAL.fullmatch(text) else text


def _field_kind(schema: Schema) -> Kind:
    types, max_length = _types(schema), schema.get("maxLength")
    is_long = isinstance(max_length, int) and max_length > MAX_SINGLE_LINE_CHARS
    kinds: tuple[tuple[Kind, bool], ...] = (
        ("group", "object" in types and isinstance(schema.get("properties"), Mapping)),
        ("list", "array" in types and isinstance(schema.get("items"), Mapping)),
        ("enum", "enum" in schema),
        ("boolean", types == {"boolean"}),
        ("number", bool(types) and types <= {"integer", "number"}),
        ("date", "string" in types and schema.get("format") == "date"),
        ("area", "string" in types and is_long),
        ("text", "string" in types),
    )
    return next((kind for kind, fits in kinds if fits), "json")


def _types(schema: Schema) -> set[str]:
    declared = schema.get("type")
    if declared is None and "properties" in schema:
        return {"object"}
    names = {declared} if isinstance(declared, str) else set(declared or ())
    return {str(name) for name in names} - {"null"}


def localized_text(schema: Schema, keyword: str, language: str) -> str:
    """A title or description in a language: ``title_tr`` replaces ``title`` in Turkish."""
    return str(schema.get(f"{keyword}_{language}") or schema.get(keyword) or "")


def _column_headings(schema: Schema, rows: tuple[FormNode, ...], language: str) -> tuple[str, ...]:
    """The headings of a list of flat rows; empty if the list cannot be drawn as a table."""
    properties = schema.get("properties") if "object" in _types(schema) else None
    if not isinstance(properties, Mapping) or len(properties) > MAX_TABLE_COLUMNS:
        return ()
    if any(cell.kind in {"group", "list", "json"} for row in rows for cell in row.children):
        return ()
    return tuple(
        _title(part, key, language) + (f" ({part['unit']})" if part.get("unit") else "")
        for key, part in properties.items()
    )


def _get_item(container: Any, step: str) -> Any:
    if isinstance(container, list):
        number = parse_row_number(step)
        return container[number] if number is not None and number < len(container) else None
    return container.get(step) if isinstance(container, dict) else None


def _split_pointer(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _title(schema: Schema, key: str, language: str) -> str:
    """The title of a field; without one, its key in words."""
    text = key.replace("_", " ").strip()
    return localized_text(schema, "title", language) or text[:1].upper() + text[1:]


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
