"""A form from a JSON Schema, and the value from the form: no template needs a page of its own.

Fields are named by JSON Pointers below ``v``: ``v/lines/0/quantity``. A list's rows and an optional
group that is open leave an empty field of their own, so that a row with nothing in it is a row. The
form is drawn from a value; adding or removing a row changes the value and draws it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, Literal

ROOT: Final = "v"
MOST_DEPTH: Final = 8
MOST_ROWS: Final = 60  # of one list; longer ones are edited as JSON
LONG_TEXT: Final = 200  # letters, and it gets room for several lines
MOST_COLUMNS: Final = 8  # of a list that is drawn as a table
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,14})")
_ROW: Final = re.compile(r"[0-9]{1,4}")
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]{0,11})[.,][0-9]{1,6}")

Kind = Literal["text", "area", "number", "date", "enum", "boolean", "group", "list", "json"]
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """One field, a group of them, or a list."""

    name: str  # of the field: a pointer
    key: str  # of the property
    title: str
    kind: Kind
    required: bool = False
    hint: str = ""
    value: str = ""
    choices: tuple[str, ...] = ()
    most: int | None = None  # letters
    low: float | None = None  # of a number
    high: float | None = None
    unit: str = ""
    children: tuple[Node, ...] = ()
    columns: tuple[str, ...] = ()  # of a list that is a table
    is_open: bool = True  # a group that may be left out is closed until somebody opens it
    errors: tuple[str, ...] = ()
    may_add: bool = False
    may_remove: bool = False


@dataclass(frozen=True, slots=True)
class SchemaForm:
    """A schema, ready to be drawn and read."""

    schema: Schema
    errors: Mapping[str, list[str]] = field(default_factory=dict)  # by pointer
    language: str = "en"

    # Drawing

    def draw(self, value: Any) -> Node:
        """The form with a value in it."""
        return self._node(self.schema, value, ROOT, "", required=True, depth=0)

    def _node(
        self, given: Schema, value: Any, name: str, key: str, *, required: bool, depth: int
    ) -> Node:
        schema = self._resolved(given)
        told: dict[str, Any] = {
            "name": name,
            "key": key,
            "title": worded(schema, "title", self.language) or _words(key),
            "required": required,
            "hint": worded(schema, "description", self.language),
            "errors": tuple(self.errors.get(name.removeprefix(ROOT), ())),
        }
        kind = _kind(schema)
        if depth >= MOST_DEPTH:
            kind = "json"
        if kind == "group":
            return self._group(schema, value, told, depth)
        if kind == "list":
            return self._list(schema, value, told, depth)
        told["value"] = _spelled(value) if kind == "json" else _text(value)
        if kind == "enum":
            told["choices"] = tuple(_spelled(one) for one in schema["enum"])
        elif kind == "boolean":
            told["choices"] = ("true", "false")
        elif kind in {"text", "area"}:
            told["most"] = schema.get("maxLength")
        elif kind == "number":
            told |= {"low": schema.get("minimum"), "high": schema.get("maximum")}
            told["unit"] = str(schema.get("unit", ""))
        return Node(kind=kind, **told)

    def _group(self, schema: Schema, value: Any, told: dict[str, Any], depth: int) -> Node:
        kept = value if isinstance(value, Mapping) else {}
        is_open = told["required"] or isinstance(value, Mapping)
        needed = schema.get("required", ())
        children = tuple(
            self._node(
                one,
                kept.get(key),
                f"{told['name']}/{_escaped(key)}",
                key,
                required=key in needed,
                depth=depth + 1,
            )
            for key, one in (schema["properties"].items() if is_open else ())
            if isinstance(one, Mapping)
        )
        removable = not told["required"]
        return Node(kind="group", children=children, is_open=is_open, may_remove=removable, **told)

    def _list(self, schema: Schema, value: Any, told: dict[str, Any], depth: int) -> Node:
        rows = value if isinstance(value, list) else []
        if len(rows) > MOST_ROWS:
            return Node(kind="json", value=_spelled(rows), **told)
        most = schema.get("maxItems", MOST_ROWS)
        children = tuple(
            self._node(
                schema["items"],
                one,
                f"{told['name']}/{n}",
                str(n + 1),
                required=True,
                depth=depth + 1,
            )
            for n, one in enumerate(rows)
        )
        return Node(
            kind="list",
            children=children,
            columns=_columns(self._resolved(schema["items"]), children, self.language),
            may_add=len(rows) < min(most, MOST_ROWS),
            may_remove=len(rows) > schema.get("minItems", 0),
            **told,
        )

    # Reading

    def read(self, fields: Mapping[str, str]) -> Any:
        """The value somebody typed; what cannot be read stays as it was typed, to be told."""
        told = _tree(fields)
        return self._read(self.schema, told, required=True, depth=0)

    def _read(self, given: Schema, told: _Typed, *, required: bool, depth: int) -> Any:
        schema = self._resolved(given)
        kinds = _types(schema)
        if depth < MOST_DEPTH and told.below:
            if "object" in kinds and isinstance(schema.get("properties"), Mapping):
                return self._read_group(schema, told, depth)
            if "array" in kinds and isinstance(schema.get("items"), Mapping):
                order = {
                    n: told.below[key] for key in told.below if (n := row_number(key)) is not None
                }
                rows = [
                    self._read(schema["items"], order[n], required=True, depth=depth + 1)
                    for n in sorted(order)
                ]
                return [{} if one is _NOTHING else one for one in rows]
        text = (told.text or "").strip()
        if "object" in kinds and (told.text is None or not text):
            return {} if told.text is not None or required else _NOTHING
        if "array" in kinds and not text:
            return [] if required else _NOTHING
        return _parsed(schema, kinds, told.text or "", required=required)

    def _read_group(self, schema: Schema, told: _Typed, depth: int) -> dict[str, Any]:
        needed = schema.get("required", ())
        found: dict[str, Any] = {}
        for key, one in schema["properties"].items():
            typed = told.below.get(key)
            if not isinstance(one, Mapping) or (typed is None and key not in needed):
                continue
            value = self._read(one, typed or _Typed(), required=key in needed, depth=depth + 1)
            if value is not _NOTHING:
                found[key] = value
        return found

    # Rows

    def added(self, value: Any, pointer: str) -> Any:
        """The value with one more row, or with a group opened."""
        made = deepcopy(value) if isinstance(value, dict) else {}
        place: Any = made
        schema = self._resolved(self.schema)
        steps = _steps(pointer)
        for at, step in enumerate(steps):
            inner = self._below(schema, step)
            if inner is None:
                return made
            schema = inner
            fresh: Any = [] if "array" in _types(schema) else {}
            if isinstance(place, list):
                place = _inside(place, step)
            else:
                place = place.setdefault(step, fresh)
            if not isinstance(place, list | dict):
                return made
            if at == len(steps) - 1 and isinstance(place, list) and len(place) < MOST_ROWS:
                place.append(self._empty(schema.get("items", {})))
        return made

    def removed(self, value: Any, pointer: str) -> Any:
        """The value without this row or group."""
        made = deepcopy(value) if isinstance(value, dict) else {}
        place: Any = made
        steps = _steps(pointer)
        for step in steps[:-1]:
            place = _inside(place, step)
        if isinstance(place, dict) and steps:
            place.pop(steps[-1], None)
        elif isinstance(place, list) and _inside(place, steps[-1]) is not None:
            del place[int(steps[-1])]
        return made

    def _empty(self, given: Schema) -> Any:
        kinds = _types(self._resolved(given))
        return {} if "object" in kinds else [] if "array" in kinds else ""

    def _below(self, schema: Schema, step: str) -> Schema | None:
        if "array" in _types(schema):
            found = schema.get("items")
        else:
            found = schema.get("properties", {}).get(step)
        return self._resolved(found) if isinstance(found, Mapping) else None

    def _resolved(self, schema: Schema) -> Schema:
        """A schema without its reference; what stands beside it counts too."""
        for _ in range(MOST_DEPTH):
            target = schema.get("$ref")
            if not isinstance(target, str) or not target.startswith("#/"):
                break
            found: Any = self.schema
            for step in _steps(target[1:]):
                found = found.get(step, {}) if isinstance(found, Mapping) else {}
            own = {key: one for key, one in schema.items() if key != "$ref"}
            schema = {**(found if isinstance(found, Mapping) else {}), **own}
        return schema


@dataclass(slots=True)
class _Typed:
    """What was typed at a place, and below it."""

    text: str | None = None
    below: dict[str, _Typed] = field(default_factory=dict)


_NOTHING: Final = object()


def _tree(fields: Mapping[str, str]) -> _Typed:
    root = _Typed()
    for name, text in fields.items():
        if name != ROOT and not name.startswith(f"{ROOT}/"):
            continue
        place = root
        for step in _steps(name.removeprefix(ROOT))[: 2 * MOST_DEPTH]:
            place = place.below.setdefault(step, _Typed())
        place.text = text
    return root


def _parsed(schema: Schema, kinds: set[str], text: str, *, required: bool) -> Any:
    """What a field says; what makes no sense stays text, and is refused by its place."""
    bare = text.strip()
    if not bare and (not required or kinds != {"string"}):
        return _NOTHING
    value: Any = text
    if "enum" in schema:
        value = next((one for one in schema["enum"] if _spelled(one) == bare), text)
    elif kinds == {"boolean"}:
        value = {"true": True, "false": False}.get(bare, text)
    elif kinds & {"integer", "number"}:
        value = number_in(bare)
    elif "string" in kinds:
        value = text.replace("\r\n", "\n")
    else:
        with suppress(ValueError, RecursionError):
            value = json.loads(bare)
    return value


def row_number(text: str) -> int | None:
    """The number of a row in the name of a field, or nothing: a name can be anything."""
    return int(text) if _ROW.fullmatch(text) else None


def number_in(text: str) -> Any:
    """A number as people type it, with a point or a comma; anything else stays text."""
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text.replace(",", "."))
    return text


def _kind(schema: Schema) -> Kind:
    """How a value of this schema is typed."""
    kinds = _types(schema)
    most = schema.get("maxLength")
    found: Kind = "json"
    if "object" in kinds and isinstance(schema.get("properties"), Mapping):
        found = "group"
    elif "array" in kinds and isinstance(schema.get("items"), Mapping):
        found = "list"
    elif "enum" in schema:
        found = "enum"
    elif kinds == {"boolean"}:
        found = "boolean"
    elif kinds and kinds <= {"integer", "number"}:
        found = "number"
    elif "string" in kinds and schema.get("format") == "date":
        found = "date"
    elif "string" in kinds:
        found = "area" if isinstance(most, int) and most > LONG_TEXT else "text"
    return found


def _types(schema: Schema) -> set[str]:
    given = schema.get("type")
    if given is None and "properties" in schema:
        return {"object"}
    told = {given} if isinstance(given, str) else set(given or ())
    return {str(one) for one in told} - {"null"}


def worded(schema: Schema, what: str, language: str) -> str:
    """A title or a description: ``title_tr`` stands for ``title`` to whoever reads Turkish."""
    return str(schema.get(f"{what}_{language}") or schema.get(what) or "")


def _columns(schema: Schema, rows: tuple[Node, ...], language: str) -> tuple[str, ...]:
    """The headings of a list whose rows are short and plain; none where it is no table."""
    names = schema.get("properties") if "object" in _types(schema) else None
    if not isinstance(names, Mapping) or len(names) > MOST_COLUMNS:
        return ()
    if any(one.kind in {"group", "list", "json"} for row in rows for one in row.children):
        return ()
    return tuple(_heading(key, one, language) for key, one in names.items())


def _heading(key: str, schema: Schema, language: str) -> str:
    title, unit = worded(schema, "title", language) or _words(key), schema.get("unit")
    return f"{title} ({unit})" if unit else title


def _inside(place: Any, step: str) -> Any:
    if isinstance(place, list):
        number = row_number(step)
        return place[number] if number is not None and number < len(place) else None
    return place.get(step) if isinstance(place, dict) else None


def _steps(pointer: str) -> list[str]:
    return [one.replace("~1", "/").replace("~0", "~") for one in pointer.split("/")[1:]]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _words(key: str) -> str:
    told = key.replace("_", " ").strip()
    return told[:1].upper() + told[1:]


def _text(value: Any) -> str:
    return "" if value is None or isinstance(value, dict | list) else _spelled(value)


def _spelled(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def by_pointer(problems: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Problems by the place they are at."""
    found: dict[str, list[str]] = {}
    for pointer, message in problems:
        found.setdefault(pointer.rstrip("/"), []).append(message)
    return found
