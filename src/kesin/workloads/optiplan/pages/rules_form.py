"""The schema of the form that edits the workshop's rules, and the list of what was changed.

The schema has the bounds of the rules and says which rule each field edits; the forms of the
dashboard do the rest. The form has no field for what no workshop chooses: `cm_to_mm_multiplier` is
a constant, `ackMode` has one value, and nothing reads `mergePolicy`. A file keeps them as they are.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kesin.workloads.optiplan.api.schemas import RULES, Schema
from kesin.workloads.optiplan.workshop.rules import NO_BAND

Say = Callable[[str], str]
Rules = Mapping[str, Any]  # as in rules.json
# The label of a rule and its unit; ``%(key)s`` is the rule's own key.
LABELS: Final = {
    "kerf_mm": ("Saw blade", "mm"),
    "defaultPlateSize.width_mm": ("Width of the usual board", "mm"),
    "defaultPlateSize.height_mm": ("Height of the usual board", "mm"),
    "trimByThickness": ("Trim of boards of %(key)s mm", "mm"),
    "backingThicknesses": ("Backs may be", "mm"),
    "edgeMapping": ("Band %(key)s", "mm"),
    "grainMapping": ("Grain %(key)s", ""),
    "optiModeDefault": ("Usual optimisation", ""),
    "retry_count_max": ("Maximum retries", ""),
    "retry_backoff_minutes": ("Pauses before retries", "min"),
    "timeouts.optiXmlMinutes": ("Wait for the XML", "min"),
    "timeouts.osiAckMinutes": ("Wait for the machine", "min"),
    "materials": ("Materials", ""),
    "language": ("Language of the drawings", ""),
}


class RuleChange(NamedTuple):
    """A rule before and after a change; None where the rule is absent."""

    label: str
    before: str | None
    after: str | None
    unit: str


def form_schema(say: Say) -> Schema:
    """The schema of the form, with titles in the user's language."""
    bounds = RULES["properties"]
    minutes = bounds["retry_backoff_minutes"]["items"]
    thickness = bounds["backingThicknesses"]["items"]
    plate = bounds["defaultPlateSize"]["properties"]

    def rule(name: str, schema: Schema, **more: Any) -> Schema:
        title, unit = LABELS[name]
        return {**number(say(title), schema, unit), "source": name, **more}

    def number(title: str, schema: Schema, unit: str) -> Schema:
        return {**schema, "title": title, "unit": say(unit) if unit else ""}

    def group(title: str, properties: Schema, hint: str = "", **more: Any) -> Schema:
        required = [name for name, schema in properties.items() if "default" not in schema]
        shown = {"type": "object", "title": title, "description": hint, "required": required}
        return {**shown, "properties": properties, **more}

    def table(source: str, title: str, columns: Schema, hint: str = "", **more: Any) -> Schema:
        items = group("", columns)
        kept = {"source": source, "rows": "values" if len(columns) == 1 else "mapping"}
        shown = {"type": "array", "title": title, "description": hint, "items": items}
        if kept["rows"] == "values":
            kept["maxItems"] = bounds[source]["maxItems"]
        return {**shown, **kept, **more}

    name = {"type": "string", "title": say("Name"), "maxLength": 100}
    board = number(say("Board thickness"), thickness, "mm")
    trim = number(say("Trim on every side"), thickness, "mm")
    back = number(say("Thickness of a back"), thickness, "mm")
    band = {**number(say("Thickness of the band"), thickness, "mm"), "default": None}
    pause = number(say("Length of the pause"), minutes, "min")
    sides = {side: rule(f"defaultPlateSize.{side}", bound) for side, bound in plate.items()}
    grains = {
        key: {"enum": [0, 1, 2, 3], "title": say("Grain %(key)s") % {"key": key}}
        for key in bounds["grainMapping"]["propertyNames"]["enum"]
    }
    left_open = say("Left open: A with the built-in optimiser, else C.")
    modes = rule("optiModeDefault", {"enum": ["A", "B", "C"]}, description=left_open, default=None)
    language = rule("language", bounds["language"])
    retries = {
        "retry_count_max": rule("retry_count_max", bounds["retry_count_max"]),
        "optiXmlMinutes": rule("timeouts.optiXmlMinutes", minutes),
        "osiAckMinutes": rule("timeouts.osiAckMinutes", minutes),
    }
    parts = {
        "saw": group(say("Saw"), {"kerf_mm": rule("kerf_mm", bounds["kerf_mm"])}),
        "board": group(
            say("Usual board"),
            sides,
            say("For orders that name no board. Without one, such an order waits."),
            source="defaultPlateSize",
        ),
        "trims": table(
            "trimByThickness",
            say("Trims"),
            {"thickness": board, "trim": trim},
            say("An order with a board of another thickness waits."),
        ),
        "backs": table("backingThicknesses", say("Backs"), {"thickness": back}),
        "bands": table(
            "edgeMapping",
            say("Bands"),
            {"name": name, "thickness": band},
            say("Without a thickness, the name means that there is no band."),
            fixed={NO_BAND: None},
        ),
        "materials": table(
            "materials",
            say("Materials"),
            {"name": name},
            say("If there are any, an order of another material is refused."),
        ),
        "grain": group(
            say("Grain"),
            grains,
            say("What OptiPlanning calls each grain of an order."),
            source="grainMapping",
        ),
        "ways": group(say("Optimisation"), {"optiModeDefault": modes, "language": language}),
        "retries": group(
            say("Retries and deadlines"),
            retries,
            say("These take effect at the next start of the service."),
        ),
        "pauses": table(
            "retry_backoff_minutes", say("Pauses before retries"), {"minutes": pause}, minItems=1
        ),
    }
    form = group("", parts)
    form["required"].remove("board")
    return form


def list_changes(say: Say, before: Rules, after: Rules) -> list[RuleChange]:
    """Every rule that differs, in the order of the form."""
    old, new = _flatten(before), _flatten(after)
    ranks = {name: rank for rank, name in enumerate(LABELS)}
    paths = old.keys() | new.keys()
    changes = []
    for path in sorted(paths, key=lambda path: (ranks.get(path[0], len(LABELS)), path[1])):
        before_text, after_text = old.get(path), new.get(path)
        if before_text != after_text:
            label, unit = LABELS.get(path[0], (path[0], ""))
            title = say(label) % {"key": path[1]} if path[1] else say(label)
            changes.append(RuleChange(title, before_text, after_text, say(unit) if unit else ""))
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
