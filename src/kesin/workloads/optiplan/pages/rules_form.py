"""The form that edits the workshop's rules, and the list of what was changed.

The form has the shape of ``rules.json``, but lists and mappings are tables. It has no field for
what no workshop chooses: `cm_to_mm_multiplier` is a constant, `ackMode` has one value, and nothing
reads `mergePolicy`. A file keeps them as they are.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.web.dashboard.forms.schema_form import parse_number
from kesin.workloads.optiplan.api.schemas import RULES, Schema
from kesin.workloads.optiplan.workshop.rules import NO_BAND

Say = Callable[[str], str]
Rules = Mapping[str, Any]  # as in rules.json
# The label of a rule and its unit; ``%(key)s`` is the rule's own key.
LABELS: Final = {
    "kerf_mm": ("Kerf", "mm"),
    "defaultPlateSize.width_mm": ("Default board width", "mm"),
    "defaultPlateSize.height_mm": ("Default board height", "mm"),
    "trimByThickness": ("Trim for %(key)s mm boards", "mm"),
    "backingThicknesses": ("Back thicknesses", "mm"),
    "edgeMapping": ("Band %(key)s", "mm"),
    "grainMapping": ("Grain %(key)s", ""),
    "optiModeDefault": ("Default optimiser mode", ""),
    "retry_count_max": ("Maximum retries", ""),
    "retry_backoff_minutes": ("Pauses before retries", "min"),
    "timeouts.optiXmlMinutes": ("Wait for the XML", "min"),
    "timeouts.osiAckMinutes": ("Wait for the saw", "min"),
    "materials": ("Materials", ""),
    "language": ("Language of the drawings", ""),
}

SHOWN: Final = tuple(dict.fromkeys(label.partition(".")[0] for label in LABELS))
# The columns of a table: one for a list; the key and the value for a mapping.
TABLES: Final = {
    "trimByThickness": ("thickness", "trim"),
    "backingThicknesses": ("thickness",),
    "edgeMapping": ("name", "thickness"),
    "materials": ("name",),
    "retry_backoff_minutes": ("minutes",),
}
NUMBERED: Final = "trimByThickness"  # its keys are numbers, and each has a value
DUPLICATE: Final = "is repeated"
EMPTY: Final = "must not be empty"
MAX_SHOWN_KEY: Final = 40


def form_schema(say: Say) -> Schema:
    bounds = RULES["properties"]
    minutes = bounds["retry_backoff_minutes"]["items"]
    thickness = bounds["backingThicknesses"]["items"]
    plate = bounds["defaultPlateSize"]["properties"]

    def rule(name: str, schema: Schema, hint: str = "") -> Schema:
        title, unit = LABELS[name]
        return {**number(say(title), schema, unit), "description": hint}

    def number(title: str, schema: Schema, unit: str) -> Schema:
        return {**schema, "title": title, "unit": say(unit) if unit else ""}

    def group(
        title: str, properties: Schema, hint: str = "", optional: Sequence[str] = ()
    ) -> Schema:
        required = [name for name in properties if name not in optional]
        shown = {"type": "object", "title": title, "description": hint, "required": required}
        return {**shown, "properties": properties}

    def table(name: str, title: str, *columns: Schema, hint: str = "") -> Schema:
        optional = () if name == NUMBERED else TABLES[name][1:]
        items = group("", dict(zip(TABLES[name], columns, strict=True)), optional=optional)
        limits = {key: bounds[name][key] for key in ("minItems", "maxItems") if key in bounds[name]}
        return {"type": "array", "title": title, "description": hint, "items": items, **limits}

    name = {"type": "string", "title": say("Name"), "maxLength": 100}
    board = number(say("Board thickness"), thickness, "mm")
    trim = number(say("Trim on every side"), thickness, "mm")
    back = number(say("Back panel thickness"), thickness, "mm")
    band = number(say("Band thickness"), thickness, "mm")
    pause = number(say("Pause length"), minutes, "min")
    sides = {side: rule(f"defaultPlateSize.{side}", bound) for side, bound in plate.items()}
    grains = {
        key: {"enum": [0, 1, 2, 3], "title": say("Grain %(key)s") % {"key": key}}
        for key in bounds["grainMapping"]["propertyNames"]["enum"]
    }
    left_open = say("If not set: A with the built-in optimiser, otherwise C.")
    at_start = say("These take effect the next time the service starts.")
    waits = {key: rule(f"timeouts.{key}", minutes) for key in ("optiXmlMinutes", "osiAckMinutes")}
    no_board = say("For orders that do not name a board. Without a default, such an order is held.")
    other_board = say("An order with a board of any other thickness is held.")
    no_band = say("Without a thickness, the name means that there is no band.")
    other_material = say("If the list has entries, an order with any other material is refused.")
    what_grain = say("OptiPlanning's number for each grain in an order.")
    form = {
        "kerf_mm": rule("kerf_mm", bounds["kerf_mm"]),
        "optiModeDefault": rule("optiModeDefault", {"enum": ["A", "B", "C"]}, left_open),
        "language": rule("language", bounds["language"]),
        "retry_count_max": rule(
            "retry_count_max",
            bounds["retry_count_max"],
            say("It takes effect the next time the service starts."),
        ),
        "defaultPlateSize": group(say("Default board"), sides, no_board),
        "trimByThickness": table(NUMBERED, say("Trims"), board, trim, hint=other_board),
        "backingThicknesses": table("backingThicknesses", say("Backs"), back),
        "edgeMapping": table("edgeMapping", say("Bands"), name, band, hint=no_band),
        "materials": table("materials", say("Materials"), name, hint=other_material),
        "grainMapping": group(say("Grain"), grains, what_grain),
        "timeouts": group(say("Deadlines"), waits, at_start),
        "retry_backoff_minutes": table(
            "retry_backoff_minutes", say("Pauses before retries"), pause, hint=at_start
        ),
    }
    return group("", form, optional=("defaultPlateSize", "optiModeDefault"))


def form_value(rules: Rules) -> dict[str, Any]:
    """The form's value for these rules; missing or odd ones are left for the user to correct."""
    shown = {name: rules[name] for name in SHOWN if rules.get(name) is not None}
    return shown | {name: _rows(name, rules.get(name)) for name in TABLES}


def _rows(name: str, stored: Any) -> list[dict[str, Any]]:
    key_name, *value_name = TABLES[name]
    if not value_name:
        return [{key_name: item} for item in stored] if isinstance(stored, list) else []
    return [
        {
            key_name: parse_number(key) if name == NUMBERED else key,
            **({} if item is None else {value_name[0]: item}),
        }
        for key, item in (stored.items() if isinstance(stored, Mapping) else ())
        if key != NO_BAND
    ]


@dataclass(slots=True)
class TypedRules:
    """The rules as typed into the form, and the pointer of the field of each cell of a table."""

    values: dict[str, Any]
    errors: dict[str, str] = field(default_factory=dict)  # by pointer
    cells: dict[str, str] = field(default_factory=dict)  # by path

    def pointer_of(self, path: str) -> str:
        """The pointer of a path's field, or of its table; empty if the form has none."""
        name = re.split(r"[.\[]", path)[0]
        if path in self.cells or name not in SHOWN:
            return self.cells.get(path, "")
        return f"/{name}" if name in TABLES else "/" + path.replace(".", "/")


def read_typed_rules(value: Any, before: Rules) -> TypedRules:
    """The rules in a form's value; ``before`` supplies what the form does not show."""
    values = value if isinstance(value, Mapping) else {}
    typed = TypedRules({name: kept for name, kept in before.items() if name not in SHOWN})
    typed.values |= {"optiModeDefault": None, **values}
    for name in TABLES:
        rows = values[name] if isinstance(values.get(name), list) else []
        cells = [row if isinstance(row, Mapping) else {} for row in rows]
        typed.values[name] = _read_table(typed, name, cells)
    return typed


def _read_table(
    typed: TypedRules, name: str, rows: list[Mapping[str, Any]]
) -> list[Any] | dict[str, Any]:
    """The rows as a list or a mapping; an invalid or duplicate key is an error at its cell."""
    key_name, *value_name = TABLES[name]
    mapping: dict[str, Any] = {NO_BAND: None} if name == "edgeMapping" else {}
    for n, row in enumerate(rows):
        key, pointer = row.get(key_name), f"/{name}/{n}/{key_name}"
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
            value_pointer = f"/{name}/{n}/{value_name[0]}"
            typed.cells |= {f"{name}.{text}": value_pointer, f"{name}.{text}.[key]": pointer}
            if mapping[text] is None and name == NUMBERED:
                typed.errors[value_pointer] = EMPTY
    return mapping if value_name else [row.get(key_name) for row in rows]


def list_changes(
    say: Say, before: Rules, after: Rules
) -> list[tuple[str, str | None, str | None, str]]:
    """Every rule that differs, in the order of the form: label, before, after (or None), unit."""
    old, new = _flatten(before), _flatten(after)
    ranks = {name: rank for rank, name in enumerate(LABELS)}
    paths = old.keys() | new.keys()
    changes = []
    for path in sorted(paths, key=lambda path: (ranks.get(path[0], len(LABELS)), path[1])):
        before_text, after_text = old.get(path), new.get(path)
        if before_text != after_text:
            label, unit = LABELS.get(path[0], (path[0], ""))
            title = say(label) % {"key": path[1]} if path[1] else say(label)
            changes.append((title, before_text, after_text, say(unit) if unit else ""))
    return changes


def _flatten(rules: Rules) -> dict[tuple[str, str], str]:
    """The formatted value of each rule, by its path and its own key."""
    values = {}
    for name, value in rules.items():
        if not isinstance(value, Mapping):
            values[name, ""] = _format_value(value)
        elif name in LABELS:
            values |= {(name, key): _format_value(item) for key, item in value.items()}
        else:
            values |= {(f"{name}.{key}", ""): _format_value(item) for key, item in value.items()}
    return values


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_format_value, value))
    if value is None or isinstance(value, bool):
        return "–" if value is None else str(value).lower()
    return str(value).removesuffix(".0")
