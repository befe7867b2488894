"""The form that edits the workshop's rules, and the list of what was changed.

The form has the shape of ``rules.json``, but lists and mappings are tables. It has no field for
what no workshop chooses: `cm_to_mm_multiplier` is a constant, `ackMode` has one value, and nothing
reads `mergePolicy`. A file keeps them as they are.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.web.dashboard.forms.schema_form import parse_number
from kesin.workloads.optiplan.api.schemas import RULES, Schema
from kesin.workloads.optiplan.workshop.rules import NO_BAND

Say = Callable[[str], str]
Rules = Mapping[str, Any]  # as in rules.json
# By path: the title, the unit, a hint and what choices are called; of a mapping, with ``%(key)s``.
TEXTS: Final[dict[str, list[str]]] = tomllib.loads(files(__package__).joinpath("rule_texts.toml").read_text("utf-8"))
SHOWN: Final = tuple(path for path in TEXTS if "." not in path)
# The columns of a table, by its path: one for a list; the key and the value for a mapping.
TABLES: Final = {
    "trimByThickness": ("thickness", "trim"),
    "backingThicknesses": ("thickness",),
    "edgeMapping": ("name", "thickness"),
    "materials": ("name",),
    "retry_backoff_minutes": ("minutes",),
    "rates.bands": ("name", "price"),
    "rack.except_materials": ("name",),
}
NUMBERED: Final = "trimByThickness"  # its keys are numbers
FILLED: Final = frozenset({NUMBERED, "rates.bands"})  # each key has a value
PROFILES, BOARDS = "saw_profiles", "boards"  # lists of groups
CHOICES: Final[dict[str, Sequence[Any]]] = {
    "optiModeDefault": ("A", "B", "C"),
    "saw_profiles.machine_files": (*("xml", "ptx", "csv", "xml, ptx", "xml, csv", "ptx, csv", "xml, ptx, csv"),),
}
DUPLICATE: Final = "is repeated"
EMPTY: Final = "must not be empty"
MAX_SHOWN_KEY: Final = 40
_NAME: Final = {"type": "string", "maxLength": 100}


@dataclass(frozen=True, slots=True)
class _FormSchema:
    """Builds the form's schema from the schema of the rules and their texts."""

    say: Say
    choices: Mapping[str, Sequence[Any]]

    def build(self, path: str, schema: Schema) -> Schema:
        """The schema of the rules at a path, as it is shown."""
        if path in TABLES:
            return self._table(path, schema)
        if path == PROFILES:
            profile = schema["additionalProperties"]["properties"]
            limits = {"minItems": schema["minProperties"], "maxItems": schema["maxProperties"]}
            named = {"required": ["name"], "properties": {"name": _NAME, **profile}}
            items = self._group(path, named) | self._text("saw_profile")
            return {"type": "array", "items": items, **self._text(path), **limits}
        if path == BOARDS:
            items = self._group(path, schema["items"])
            return {**schema, "items": items, **self._text(path)}
        if path == "grainMapping":
            grains = {key: {"enum": [0, 1, 2, 3]} for key in schema["propertyNames"]["enum"]}
            return self._group(path, {"required": [*grains], "properties": grains})
        if "properties" in schema:
            return self._group(path, schema)
        chosen = {"enum": list(self.choices[path])} if path in self.choices else schema
        labels = dict(zip(chosen.get("enum", ()), map(self.say, TEXTS.get(path, ())[3:]), strict=False))
        return {**chosen, **self._text(path), "labels": labels}

    def _text(self, path: str) -> Schema:
        group, _, key = path.rpartition(".")
        title, unit, hint = (*TEXTS[path if path in TEXTS else f"{group}.*"], "", "")[:3]
        texts = {"title": self.say(title) % {"key": key}, "unit": unit and self.say(unit)}
        return {**texts, "description": hint and self.say(hint)}

    def _group(self, path: str, schema: Schema) -> Schema:
        shown = {key: self.build(f"{path}.{key}", each) for key, each in schema["properties"].items()}
        needed = [*schema.get("required", ()), *(key for key in shown if f"{path}.{key}" in TABLES)]
        group = {"type": "object", "required": needed, "properties": shown}
        return {**group, **self._text(path)}

    def _table(self, path: str, schema: Schema) -> Schema:
        key, *value = TABLES[path]
        bounds: Schema = schema.get("items") or schema["additionalProperties"]
        number = RULES["properties"]["backingThicknesses"]["items"] if value else bounds
        columns = {key: _NAME if key == "name" else number, **dict.fromkeys(value, bounds)}
        items = {
            "type": "object",
            "title": "",
            "required": [*columns] if path in FILLED or not value else [key],
            "properties": {name: {**each, **self._text(f"{path}.{name}")} for name, each in columns.items()},
        }
        limits: Schema = {name: schema[name] for name in ("minItems", "maxItems") if name in schema}
        return {"type": "array", "items": items, **self._text(path), **limits}


def form_schema(say: Say, profiles: Sequence[str] = ()) -> Schema:
    """The form; ``profiles`` are the names of the saws to choose from."""
    choices = CHOICES | ({"saw_profile": profiles} if profiles else {})
    form = _FormSchema(say, choices)
    shown = {name: form.build(name, RULES["properties"][name]) for name in SHOWN}
    optional = {"defaultPlateSize", "optiModeDefault"}
    needed = [name for name in shown if name not in optional]
    return {"type": "object", "title": "", "required": needed, "properties": shown}


def profile_names(value: Any) -> list[str]:
    """The names of the saw profiles in a form's value."""
    rows = _cells(value.get(PROFILES) if isinstance(value, Mapping) else None)
    return [name for row in rows if isinstance(name := row.get("name"), str) and name]


def form_value(rules: Rules) -> dict[str, Any]:
    """The form's value for these rules; missing or odd ones are left for the user to correct."""
    shown = {name: rules[name] for name in SHOWN if rules.get(name) is not None}
    for path in TABLES:
        _put(shown, path, _rows(path, _get(rules, path)))
    profiles, boards = rules.get(PROFILES), rules.get(BOARDS)
    shown[PROFILES] = [
        {"name": name, **_without_none(profile)} | {"machine_files": ", ".join(profile.get("machine_files", ()))}
        for name, profile in (profiles.items() if isinstance(profiles, Mapping) else ())
    ]
    shown[BOARDS] = list(map(_without_none, boards if isinstance(boards, list) else ()))
    return shown


def _without_none(values: Rules) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _get(rules: Rules, path: str) -> Any:
    """The value at a path of one or two steps; None if there is none."""
    group, _, key = path.partition(".")
    value = rules.get(group)
    return value if not key else value.get(key) if isinstance(value, Mapping) else None


def _put(rules: dict[str, Any], path: str, value: Any) -> None:
    group, _, key = path.partition(".")
    before = rules.get(group)
    rules[group] = {**(before if isinstance(before, Mapping) else {}), key: value} if key else value


def _rows(name: str, stored: Any) -> list[dict[str, Any]]:
    key_name, *value_name = TABLES[name]
    if not value_name:
        return [{key_name: item} for item in stored] if isinstance(stored, list) else []
    return [
        {key_name: parse_number(key) if name == NUMBERED else key, **({} if item is None else {value_name[0]: item})}
        for key, item in (stored.items() if isinstance(stored, Mapping) else ())
        if key != NO_BAND or name != "edgeMapping"
    ]


@dataclass(slots=True)
class TypedRules:
    """The rules as typed into the form, and the pointer of the field of each cell of a table."""

    values: dict[str, Any]
    errors: dict[str, str] = field(default_factory=dict)  # by pointer
    cells: dict[str, str] = field(default_factory=dict)  # by path
    groups: dict[str, str] = field(default_factory=dict)  # the pointer of a row, by its path

    def pointer_of(self, path: str) -> str:
        """The pointer of a path's field, or of its table; empty if the form has none."""
        name = re.split(r"[.\[]", path)[0]
        if path in self.cells or name not in SHOWN:
            return self.cells.get(path, "")
        for start, pointer in self.groups.items():
            if path.startswith(f"{start}."):
                return pointer + path.removeprefix(start).partition("[")[0].replace(".", "/")
        inside = (table for table in (*TABLES, PROFILES, BOARDS) if path.startswith(table))
        return "/" + next(inside, path).replace(".", "/")


def read_typed_rules(value: Any, before: Rules) -> TypedRules:
    """The rules in a form's value; ``before`` supplies what the form does not show."""
    values = value if isinstance(value, Mapping) else {}
    typed = TypedRules({name: kept for name, kept in before.items() if name not in SHOWN})
    typed.values |= {"optiModeDefault": None, **values}
    for path in TABLES:
        _put(typed.values, path, _read_table(typed, path, _cells(_get(values, path))))
    typed.values[PROFILES] = _read_profiles(typed, _cells(values.get(PROFILES)))
    typed.values[BOARDS] = [dict.fromkeys(("quantity", "supplier")) | board for board in _cells(values.get(BOARDS))]
    typed.groups |= {f"{BOARDS}[{n}]": f"/{BOARDS}/{n}" for n in range(len(typed.values[BOARDS]))}
    return typed


def _cells(rows: Any) -> list[dict[str, Any]]:
    items = rows if isinstance(rows, list) else []
    return [dict(row) if isinstance(row, Mapping) else {} for row in items]


def _read_profiles(typed: TypedRules, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The profiles by name; an invalid or duplicate name is an error at its field."""
    profiles: dict[str, Any] = {}
    for n, row in enumerate(rows):
        name, pointer = str(row.pop("name", "")).strip(), f"/{PROFILES}/{n}"
        if not name or name in profiles:
            typed.errors[f"{pointer}/name"] = DUPLICATE if name else EMPTY
            continue
        if files := row.get("machine_files"):
            row["machine_files"] = str(files).split(", ")
        profiles[name] = dict.fromkeys(("kerf_rip_mm", "kerf_cross_mm", "trims")) | row
        typed.groups[f"{PROFILES}.{name}"] = pointer
        typed.cells |= {f"{PROFILES}.{name}": pointer, f"{PROFILES}.{name}.[key]": f"{pointer}/name"}
    return profiles


def _read_table(typed: TypedRules, name: str, rows: list[dict[str, Any]]) -> list[Any] | dict[str, Any]:
    """The rows as a list or a mapping; an invalid or duplicate key is an error at its cell."""
    key_name, *value_name = TABLES[name]
    table = "/" + name.replace(".", "/")
    mapping: dict[str, Any] = {NO_BAND: None} if name == "edgeMapping" else {}
    for n, row in enumerate(rows):
        key, pointer = row.get(key_name), f"{table}/{n}/{key_name}"
        text = "" if key is None else str(key).strip()
        text = text.removesuffix(".0") if name == NUMBERED else text
        if not text:
            typed.errors[pointer] = EMPTY
        if not value_name:
            typed.cells[f"{name}[{n}]"] = pointer
        elif name == NUMBERED and text and not isinstance(key, int | float):
            shown = repr(text[:MAX_SHOWN_KEY])
            typed.errors[pointer] = Message("must be a number, got %(given)s", given=shown)
        elif text in mapping:
            typed.errors[pointer] = DUPLICATE
        elif text:
            mapping[text] = row.get(value_name[0])
            value_pointer = f"{table}/{n}/{value_name[0]}"
            typed.cells |= {f"{name}.{text}": value_pointer, f"{name}.{text}.[key]": pointer}
            if mapping[text] is None and name in FILLED:
                typed.errors[value_pointer] = EMPTY
    return mapping if value_name else [row.get(key_name) for row in rows]


def list_changes(say: Say, before: Rules, after: Rules) -> list[tuple[str, str | None, str | None, str]]:
    """Every rule that differs, in the order of the form: label, before, after (or None), unit."""
    old, new = _flatten(before), _flatten(after)
    ranks = {path.removesuffix(".*"): rank for rank, path in enumerate(TEXTS)}
    paths = old.keys() | new.keys()
    changes = []
    for path, own in sorted(paths, key=lambda path: (ranks.get(path[0], len(ranks)), path[1])):
        before_text, after_text = old.get((path, own)), new.get((path, own))
        if before_text != after_text:
            entry = TEXTS.get(f"{path}.*") if own else None
            label, unit = (*(entry or TEXTS.get(path, [path])), "")[:2]
            title = say(label) % {"key": own}
            title = f"{own} · {title}" if own and entry is None else title
            changes.append((title, before_text, after_text, unit and say(unit)))
    return changes


def _flatten(rules: Rules, group: str = "", own: str = "") -> dict[tuple[str, str], str]:
    """The formatted value of each rule, by its path and its own key."""
    values: dict[tuple[str, str], str] = {}
    for key, item in rules.items():
        path = f"{group}.{key}" if group else key
        if path in {PROFILES, BOARDS}:
            rows = item.items() if path == PROFILES else ((row["code"], row) for row in item)
            for name, row in rows:
                values |= _flatten(row, path, name)
        elif not isinstance(item, Mapping):
            values[path, own] = _format_value(item)
        elif f"{path}.*" in TEXTS:
            values |= {(path, part): _format_value(each) for part, each in item.items()}
        else:
            values |= _flatten(item, path, own)
    return values


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_format_value, value))
    if value is None or isinstance(value, bool):
        return "–" if value is None else str(value).lower()
    return str(value).removesuffix(".0")
