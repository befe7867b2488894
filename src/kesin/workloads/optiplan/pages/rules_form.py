"""The workshop's rules as a form: tables where the file has mappings, and what a change changes.

The form is drawn and read by `schema_form.py`, from a schema whose bounds are those of the rules'
own. A rule that the form does not show keeps its value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

Say = Callable[[str], str]
Rules = Mapping[str, Any]  # as rules.json spells them
FIXED: Final = ("ackMode",)  # there is one way only: nothing to choose
TWICE: Final = "is there twice"
EMPTY: Final = "must not be empty"

# Where each rule stands in the form: a group, and its name in there.
_PLACES: Final = {
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
# What a rule is called, and its unit; ``%(key)s`` is a key of its own.
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


class Changed(NamedTuple):
    """One rule before and after; None where it is not there."""

    label: str
    before: str | None
    after: str | None
    unit: str


@dataclass(slots=True)
class Typed:
    """Rules that somebody typed into the form, and where each of them stands in it."""

    rules: dict[str, Any]
    wrong: dict[str, list[str]] = field(default_factory=dict)  # by pointer
    places: dict[str, str] = field(default_factory=dict)  # pointers, by a rule's own path

    def place(self, path: str) -> str:
        """Where a rule stands: the field itself, else what is around it."""
        while path:
            if path in self.places:
                return self.places[path]
            path = path.rpartition("." if path.rfind(".") > path.rfind("[") else "[")[0]
        return ""


def form_schema(say: Say) -> dict[str, Any]:
    """What the form asks for, with titles in the looker's language."""
    from kesin.workloads.optiplan.api.schemas import RULES

    bounds = RULES["properties"]
    minutes = bounds["retry_backoff_minutes"]["items"]
    thin = bounds["backingThicknesses"]["items"]
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
    whole = group(
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
                    "thickness": number(say("Board thickness"), thin, "mm"),
                    "trim": number(say("Trim on every side"), thin, "mm"),
                },
                say("An order with a board of another thickness waits."),
            ),
            "backs": table(
                say("Backs"),
                {"thickness": number(say("Thickness of a back"), thin, "mm")},
                maxItems=bounds["backingThicknesses"]["maxItems"],
            ),
            "bands": table(
                say("Bands"),
                {
                    "name": {"type": "string", "title": say("Name"), "maxLength": 100},
                    "thickness": number(say("Thickness of the band"), thin, "mm"),
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
    whole["required"].remove("board")
    return whole


def to_form(rules: Rules) -> dict[str, Any]:
    """Rules as the form has them; what is missing or odd is left for somebody to mend."""
    from kesin.workloads.optiplan.workshop.rules import NO_BAND

    told: dict[str, Any] = {"saw": {}, "ways": {}, "retries": {}}
    for path, (group, name) in _PLACES.items():
        value = _inside(rules, path)
        if value is None:
            continue
        if name:
            told[group][name] = value
        elif isinstance(value, Mapping):
            told[group] = dict(value)
    told["trims"] = [
        {"thickness": _number(key), "trim": one} for key, one in _items(rules, "trimByThickness")
    ]
    told["bands"] = [
        {"name": key, **({} if one is None else {"thickness": one})}
        for key, one in _items(rules, "edgeMapping")
        if key != NO_BAND
    ]
    told["grain"] = dict(_items(rules, "grainMapping"))
    told["backs"] = [{"thickness": one} for one in _listed(rules, "backingThicknesses")]
    told["pauses"] = [{"minutes": one} for one in _listed(rules, "retry_backoff_minutes")]
    return told


def to_rules(value: Any, before: Rules) -> Typed:
    """The rules that a form's value means; ``before`` has what the form does not show."""
    from kesin.workloads.optiplan.workshop.rules import NO_BAND

    form = value if isinstance(value, Mapping) else {}
    typed = Typed({name: before[name] for name in FIXED if name in before})
    rules = typed.rules | {"timeouts": {}, "mergePolicy": {}, "optiModeDefault": None}
    typed.rules = rules
    for path, (group, name) in _PLACES.items():
        typed.places[path] = f"/{group}/{name}".rstrip("/")
        given = form.get(group)
        outer, _, inner = path.rpartition(".")
        place = rules[outer] if outer else rules
        if name and isinstance(given, Mapping) and name in given:
            place[inner] = given[name]
        elif not name and isinstance(given, Mapping):
            rules[path] = dict(given)
            typed.places |= {
                f"{path}.{one}": f"/{group}/{one}" for one in ("width_mm", "height_mm")
            }
    rules["trimByThickness"] = _mapping(
        typed, form, "trims", "trimByThickness", "thickness", "trim"
    )
    bands = _mapping(typed, form, "bands", "edgeMapping", "name", "thickness", {NO_BAND: None})
    rules["edgeMapping"] = bands
    rules["grainMapping"] = dict(_items(form, "grain"))
    typed.places |= {f"grainMapping.{key}": f"/grain/{key}" for key in ("0", "1", "2", "3")}
    for group, name, path in (
        ("backs", "thickness", "backingThicknesses"),
        ("pauses", "minutes", "retry_backoff_minutes"),
    ):
        rows = _listed(form, group)
        rules[path] = [one.get(name) if isinstance(one, Mapping) else one for one in rows]
        typed.places[path] = f"/{group}"
        for n, one in enumerate(rules[path]):
            typed.places[f"{path}[{n}]"] = f"/{group}/{n}/{name}"
            if one is None:
                typed.wrong[f"/{group}/{n}/{name}"] = [EMPTY]
    return typed


def _mapping(  # noqa: PLR0917  # a table of the form and the mapping it stands for
    typed: Typed,
    form: Rules,
    group: str,
    path: str,
    key_name: str,
    value_name: str,
    first: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A table's rows as a mapping; a key that is none, or twice there, is told at its cell."""
    found: dict[str, Any] = dict(first or {})
    typed.places[path] = f"/{group}"
    for n, row in enumerate(_listed(form, group)):
        cells = row if isinstance(row, Mapping) else {}
        given = cells.get(key_name)
        key = "" if given is None else _spelled(given).strip()
        at = f"/{group}/{n}/{key_name}"
        if not key:
            typed.wrong[at] = [EMPTY]
        elif key_name == "thickness" and not isinstance(given, int | float):
            typed.wrong[at] = [f"must be a number, got {key[:40]!r}"]
        elif key in found:
            typed.wrong[at] = [TWICE]
        else:
            found[key] = cells.get(value_name)
            typed.places[f"{path}.{key}"] = f"/{group}/{n}/{value_name}"
            if found[key] is None and group == "trims":
                typed.wrong[typed.places[f"{path}.{key}"]] = [EMPTY]
            typed.places[f"{path}.{key}.[key]"] = at
    return found


def changes(say: Say, before: Rules, after: Rules) -> list[Changed]:
    """Every single rule that differs, in the order of the form."""
    old, new = _flat(before), _flat(after)
    found = []
    for path in sorted(old.keys() | new.keys(), key=lambda one: (_rank(one[0]), one[1])):
        if old.get(path) != new.get(path):
            label, unit = LABELS.get(path[0], (path[0], ""))
            title = say(label) % {"key": path[1]} if path[1] else say(label)
            found.append(Changed(title, old.get(path), new.get(path), say(unit) if unit else ""))
    return found


def _rank(path: str) -> int:
    return list(LABELS).index(path) if path in LABELS else len(LABELS)


def _flat(rules: Rules) -> dict[tuple[str, str], str]:
    """Each rule by its path and its own key, spelled for people."""
    found = {}
    for name, value in rules.items():
        if not isinstance(value, Mapping):
            found[name, ""] = _spelled(value)
        elif name in LABELS:
            found |= {(name, key): _spelled(one) for key, one in value.items()}
        else:
            found |= {(f"{name}.{key}", ""): _spelled(one) for key, one in value.items()}
    return found


def _spelled(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_spelled, value))
    if value is None or isinstance(value, bool):
        return "–" if value is None else str(value).lower()
    return str(value).removesuffix(".0")


def _number(text: str) -> Any:
    from kesin.web.dashboard.forms.schema_form import number_in

    return number_in(text)


def _inside(rules: Rules, path: str) -> Any:
    found: Any = rules
    for step in path.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _items(value: Rules, name: str) -> list[tuple[str, Any]]:
    found = value.get(name)
    return list(found.items()) if isinstance(found, Mapping) else []


def _listed(value: Rules, name: str) -> list[Any]:
    found = value.get(name)
    return found if isinstance(found, list) else []
