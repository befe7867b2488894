"""The workshop's rules as a form, with tables for the file's mappings, and the list of changes.

`schema_form.py` draws and reads the form, from a schema with the same bounds as the rules. A rule
that the form does not show keeps its value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kesin.workloads.optiplan.api.schemas import RULES
from kesin.workloads.optiplan.workshop.rules import NO_BAND

Say = Callable[[str], str]
Rules = Mapping[str, Any]  # as in rules.json
HIDDEN_RULES: Final = ("ackMode",)  # only a single value is allowed, so the form does not show it
DUPLICATE: Final = "is there twice"
EMPTY: Final = "must not be empty"

# Where each rule is in the form: its group, and its name in the group.
_FORM_PATHS: Final = {
    "kerf_mm": ("saw", "kerf_mm"),
    "cm_to_mm_multiplier": ("saw", "cm_to_mm_multiplier"),
    "defaultPlateSize": ("board", ""),
    "optiModeDefault": ("ways", "optiModeDefault"),
    "retry_count_max": ("retries", "retry_count_max"),
    "timeouts.optiXmlMinutes": ("retries", "optiXmlMinutes"),
    "timeouts.osiAckMinutes": ("retries", "osiAckMinutes"),
    "mergePolicy.defaultDisabled": ("ways", "defaultDisabled"),
    "mergePolicy.requiresOperatorApproval": ("ways", "requiresOperatorApproval"),
}
# The label of a rule and its unit; ``%(key)s`` is the rule's own key.
LABELS: Final = {
    "kerf_mm": ("Saw blade", "mm"),
    "cm_to_mm_multiplier": ("Millimetres in a centimetre", "mm"),
    "defaultPlateSize.width_mm": ("Width of the usual board", "mm"),
    "defaultPlateSize.height_mm": ("Height of the usual board", "mm"),
    "trimByThickness": ("Trim of boards of %(key)s mm", "mm"),
    "backingThicknesses": ("Backs may be", "mm"),
    "edgeMapping": ("Band %(key)s", "mm"),
    "grainMapping": ("Grain %(key)s", ""),
    "mergePolicy.defaultDisabled": ("Equal parts are not merged", ""),
    "mergePolicy.requiresOperatorApproval": ("Merging needs an operator", ""),
    "optiModeDefault": ("Optimised as a rule", ""),
    "retry_count_max": ("Retries at most", ""),
    "retry_backoff_minutes": ("Pauses before retries", "min"),
    "timeouts.optiXmlMinutes": ("Wait for the XML", "min"),
    "timeouts.osiAckMinutes": ("Wait for the machine", "min"),
    "ackMode": ("How the machine acknowledges", ""),
}


class RuleChange(NamedTuple):
    """A rule before and after a change; None where the rule is absent."""

    label: str
    before: str | None
    after: str | None
    unit: str


@dataclass(slots=True)
class TypedRules:
    """Rules typed into the form, and the pointer of each rule's field."""

    rules: dict[str, Any]
    errors: dict[str, list[str]] = field(default_factory=dict)  # by pointer
    pointers: dict[str, str] = field(default_factory=dict)  # by a rule's own path

    def pointer_of(self, path: str) -> str:
        """The pointer of a rule's field, or of the nearest enclosing field; empty if none."""
        while path:
            if path in self.pointers:
                return self.pointers[path]
            path = path.rpartition("." if path.rfind(".") > path.rfind("[") else "[")[0]
        return ""


def form_schema(say: Say) -> dict[str, Any]:
    """The schema of the form, with titles in the user's language."""
    bounds = RULES["properties"]
    minutes = bounds["retry_backoff_minutes"]["items"]
    thickness = bounds["backingThicknesses"]["items"]
    plate = bounds["defaultPlateSize"]["properties"]

    def rule(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        title, unit = LABELS[name]
        return {**schema, "title": say(title), "unit": say(unit) if unit else ""}

    def number(title: str, schema: Mapping[str, Any], unit: str) -> dict[str, Any]:
        return {**schema, "title": title, "unit": say(unit)}

    def group(title: str, properties: dict[str, Any], hint: str = "") -> dict[str, Any]:
        shown = {"type": "object", "title": title, "description": hint, "properties": properties}
        return {**shown, "required": [name for name in properties if name != "optiModeDefault"]}

    def table(title: str, columns: dict[str, Any], hint: str = "", **more: Any) -> dict[str, Any]:
        row = {"type": "object", "properties": columns, "required": list(columns)}
        return {"type": "array", "title": title, "description": hint, "items": row, **more}

    grains = {"enum": [0, 1, 2, 3]}
    schema_root = group(
        "",
        {
            "saw": group(
                say("Saw"),
                {name: rule(name, bounds[name]) for name in ("kerf_mm", "cm_to_mm_multiplier")},
            ),
            "board": group(
                say("Usual board"),
                {
                    name: rule(f"defaultPlateSize.{name}", plate[name])
                    for name in ("width_mm", "height_mm")
                },
                say("For orders that name no board. Without one, such an order waits."),
            ),
            "trims": table(
                say("Trims"),
                {
                    "thickness": number(say("Board thickness"), thickness, "mm"),
                    "trim": number(say("Trim on every side"), thickness, "mm"),
                },
                say("An order with a board of another thickness waits."),
            ),
            "backs": table(
                say("Backs"),
                {"thickness": number(say("Thickness of a back"), thickness, "mm")},
                maxItems=bounds["backingThicknesses"]["maxItems"],
            ),
            "bands": table(
                say("Bands"),
                {
                    "name": {"type": "string", "title": say("Name"), "maxLength": 100},
                    "thickness": number(say("Thickness of the band"), thickness, "mm"),
                },
                say("Without a thickness, the name means that there is no band."),
            ),
            "grain": group(
                say("Grain"),
                {
                    key: {**grains, "title": say("Grain %(key)s") % {"key": key}}
                    for key in ("0", "1", "2", "3")
                },
                say("What OptiPlanning calls each grain of an order."),
            ),
            "ways": group(
                say("How orders are made"),
                {
                    "optiModeDefault": {
                        **rule("optiModeDefault", {"enum": ["A", "B", "C"]}),
                        "description": say("Left open: A with the built-in optimiser, else C."),
                    },
                    **{
                        name.partition(".")[2]: rule(name, {"type": "boolean"})
                        for name in LABELS
                        if name.startswith("mergePolicy.")
                    },
                },
            ),
            "retries": group(
                say("Retries and deadlines"),
                {
                    "retry_count_max": rule("retry_count_max", bounds["retry_count_max"]),
                    "optiXmlMinutes": rule("timeouts.optiXmlMinutes", minutes),
                    "osiAckMinutes": rule("timeouts.osiAckMinutes", minutes),
                },
                say("These count from the next start of the service."),
            ),
            "pauses": table(
                say("Pauses before retries"),
                {"minutes": number(say("Length of the pause"), minutes, "min")},
                minItems=1,
                maxItems=bounds["retry_backoff_minutes"]["maxItems"],
            ),
        },
    )
    schema_root["required"].remove("board")
    return schema_root


def form_value(rules: Rules) -> dict[str, Any]:
    """The form's value for some rules; missing or odd rules are left for the user to correct."""
    form: dict[str, Any] = {"saw": {}, "ways": {}, "retries": {}}
    for path, (group, name) in _FORM_PATHS.items():
        value = _get_by_path(rules, path)
        if value is None:
            continue
        if name:
            form[group][name] = value
        elif isinstance(value, Mapping):
            form[group] = dict(value)
    form["trims"] = [
        {"thickness": _number(key), "trim": trim}
        for key, trim in _mapping_items(rules, "trimByThickness")
    ]
    form["bands"] = [
        {"name": key, **({} if thickness is None else {"thickness": thickness})}
        for key, thickness in _mapping_items(rules, "edgeMapping")
        if key != NO_BAND
    ]
    form["grain"] = dict(_mapping_items(rules, "grainMapping"))
    form["backs"] = [{"thickness": item} for item in _list_items(rules, "backingThicknesses")]
    form["pauses"] = [{"minutes": item} for item in _list_items(rules, "retry_backoff_minutes")]
    return form


def read_typed_rules(value: Any, before: Rules) -> TypedRules:
    """The rules in a form's value; ``before`` supplies the rules that the form does not show."""
    form = value if isinstance(value, Mapping) else {}
    typed = TypedRules({name: before[name] for name in HIDDEN_RULES if name in before})
    rules = typed.rules | {"timeouts": {}, "mergePolicy": {}, "optiModeDefault": None}
    typed.rules = rules
    for path, (group, name) in _FORM_PATHS.items():
        typed.pointers[path] = f"/{group}/{name}".rstrip("/")
        group_value = form.get(group)
        outer, _, inner = path.rpartition(".")
        target = rules[outer] if outer else rules
        if name and isinstance(group_value, Mapping) and name in group_value:
            target[inner] = group_value[name]
        elif not name and isinstance(group_value, Mapping):
            rules[path] = dict(group_value)
            typed.pointers |= {
                f"{path}.{side}": f"/{group}/{side}" for side in ("width_mm", "height_mm")
            }
    rules["trimByThickness"] = _read_table(
        typed, form, "trims", "trimByThickness", "thickness", "trim"
    )
    bands = _read_table(typed, form, "bands", "edgeMapping", "name", "thickness", {NO_BAND: None})
    rules["edgeMapping"] = bands
    rules["grainMapping"] = dict(_mapping_items(form, "grain"))
    typed.pointers |= {f"grainMapping.{key}": f"/grain/{key}" for key in ("0", "1", "2", "3")}
    for group, name, path in (
        ("backs", "thickness", "backingThicknesses"),
        ("pauses", "minutes", "retry_backoff_minutes"),
    ):
        rows = _list_items(form, group)
        rules[path] = [row.get(name) if isinstance(row, Mapping) else row for row in rows]
        typed.pointers[path] = f"/{group}"
        for n, item in enumerate(rules[path]):
            typed.pointers[f"{path}[{n}]"] = f"/{group}/{n}/{name}"
            if item is None:
                typed.errors[f"/{group}/{n}/{name}"] = [EMPTY]
    return typed


def _read_table(  # noqa: PLR0917  # a table of the form and its mapping in the rules
    typed: TypedRules,
    form: Rules,
    group: str,
    path: str,
    key_name: str,
    value_name: str,
    first: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A table's rows as a mapping; an invalid or duplicate key is an error at its cell."""
    mapping: dict[str, Any] = dict(first or {})
    typed.pointers[path] = f"/{group}"
    for n, row in enumerate(_list_items(form, group)):
        cells = row if isinstance(row, Mapping) else {}
        typed_key = cells.get(key_name)
        key = "" if typed_key is None else _format_value(typed_key).strip()
        pointer = f"/{group}/{n}/{key_name}"
        if not key:
            typed.errors[pointer] = [EMPTY]
        elif key_name == "thickness" and not isinstance(typed_key, int | float):
            typed.errors[pointer] = [f"must be a number, got {key[:40]!r}"]
        elif key in mapping:
            typed.errors[pointer] = [DUPLICATE]
        else:
            mapping[key] = cells.get(value_name)
            typed.pointers[f"{path}.{key}"] = f"/{group}/{n}/{value_name}"
            if mapping[key] is None and group == "trims":
                typed.errors[typed.pointers[f"{path}.{key}"]] = [EMPTY]
            typed.pointers[f"{path}.{key}.[key]"] = pointer
    return mapping


def list_changes(say: Say, before: Rules, after: Rules) -> list[RuleChange]:
    """Every rule that differs, in the order of the form."""
    old, new = _flatten(before), _flatten(after)
    changes = []
    for path in sorted(old.keys() | new.keys(), key=lambda path: (_rank(path[0]), path[1])):
        if old.get(path) != new.get(path):
            label, unit = LABELS.get(path[0], (path[0], ""))
            title = say(label) % {"key": path[1]} if path[1] else say(label)
            changes.append(
                RuleChange(title, old.get(path), new.get(path), say(unit) if unit else "")
            )
    return changes


def _rank(path: str) -> int:
    return list(LABELS).index(path) if path in LABELS else len(LABELS)


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


def _number(text: str) -> Any:
    from kesin.web.dashboard.forms.schema_form import parse_number

    return parse_number(text)


def _get_by_path(rules: Rules, path: str) -> Any:
    value: Any = rules
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _mapping_items(value: Rules, name: str) -> list[tuple[str, Any]]:
    mapping = value.get(name)
    return list(mapping.items()) if isinstance(mapping, Mapping) else []


def _list_items(value: Rules, name: str) -> list[Any]:
    items = value.get(name)
    return items if isinstance(items, list) else []
