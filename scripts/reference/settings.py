"""Every setting: what it accepts, its default, what it is for."""

from __future__ import annotations

import json
import re
from typing import Final

from kesin.foundation.settings import Settings, variable
from kesin.workloads.optiplan.workshop.rules import default_rules, rules_json

from .text import ROOT, page, table

_GROUPS: Final = (
    ("The service", ""),
    ("Offline conversions", "oci_"),
    ("PDFs", "pdf_"),
    ("Cutting orders", "optiplan_"),
)
_SENTENCE: Final = re.compile(r"((?:^# .*\n)+)#(KESIN_\w+)=", re.MULTILINE)


_OPENING: Final = """# Settings

Settings are environment variables. A process reads them once, when it starts. An empty variable
counts as unset. `kesin doctor` shows each setting with its value and source, and reports misspelt
names. Copy [kesin.env.example](../../deploy/kesin.env.example), which contains every setting.
[The service page](../service.md) explains when to change them.
"""


def settings_page() -> str:
    """The page."""
    lines = [_OPENING]
    meanings = _meanings()
    fields = list(Settings.model_fields)
    for title, prefix in _GROUPS:
        others = tuple(one for _, one in _GROUPS if one)
        mine = [name for name in fields if (name.startswith(prefix) if prefix else not name.startswith(others))]
        rows = [(f"`{variable(name)}`", _default(name), _takes(name), meanings[variable(name)]) for name in mine]
        lines += [f"## {title}", "", *table(("variable", "default", "values", "meaning"), rows)]
    return page([*lines, *_rules()])


def _meanings() -> dict[str, str]:
    text = (ROOT / "deploy" / "kesin.env.example").read_text("utf-8")
    return {
        found[2]: " ".join(line.removeprefix("# ") for line in found[1].splitlines())
        for found in _SENTENCE.finditer(text)
    }


def _default(name: str) -> str:
    default = Settings.model_fields[name].default
    return "" if default in (None, "") else f"`{default}`"


def _takes(name: str) -> str:
    return Settings.model_fields[name].description or ""


def _rules() -> list[str]:
    """What an operator of cutting orders sets in a file, not in the environment."""
    shown = rules_json(default_rules())
    rows = [(f"`{name}`", f"`{json.dumps(value)}`") for name, value in shown.items()]
    return [
        "## Rules for cutting orders",
        "",
        "Change them in the dashboard, with `PUT /config/rules` or in the file `rules.json`.",
        "The section [Rules](../optiplan-operations.md#rules) explains each key.",
        "",
        *table(("key", "default"), rows),
    ]
