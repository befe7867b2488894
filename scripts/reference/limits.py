"""The page of limits: the text of ``limits.md`` beside this module, the values from the code.

A row of this file is ``| what it limits | module:NAME |``; the head of the table and the column
with the value are added here. A place is a constant, the default of a parameter
(``module:Thing(name)``), the largest value of a command's option (``module:command(name).max``) or
an entry of a mapping (``module:NAME[key]``). The unit follows from the name (``_S``, ``_BYTES``,
``_DAYS``) or stands behind the place.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from .text import ROOT, page, table

_TEXT: Final = Path(__file__).with_suffix(".md")
_ROW: Final = re.compile(
    r"\| (?P<what>.+) \| (?P<place>(?P<module>[\w.]+):(?P<name>\w+)"
    r"(?:\((?P<parameter>\w+)\))?(?:\[(?P<key>\w+)\])?(?P<max>\.max)?)(?: (?P<unit>\w+))? \|"
)
_UNIT_OF_NAME: Final = re.compile(r"(?:.*_)?(S|seconds|BYTES|MINUTES|DAYS)", re.IGNORECASE)
_DURATIONS: Final = (("days", 86_400), ("h", 3_600), ("min", 60))
_SECONDS: Final = {"s": 1, "seconds": 1, "minutes": 60, "days": 86_400}
_SIZES: Final = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("MB", 10**6))

# Every number of these layers is on the page, except in modules that limit no real work …
_LISTED_LAYERS: Final = ("lifecycle", "store", "engine")
_NOT_LISTED_FOLDERS: Final = ("lifecycle/drawing", "engine/simulation")
# … and numbers that are not limits.
_NOT_LIMITS: Final = {
    "lifecycle.budget": {"SECOND_US", "MINUTE_S", "HOUR_S", "DAY_S"}  # units, parts of a hash
    | {"JITTER_MULTIPLIER", "JITTER_STEP", "JITTER_MODULUS"},
    "lifecycle.vocabulary": {"READY", "OWNED", "RESTING", "FINISHED", "WAITING"},  # phases
    "store.declarations": {"TAKES_KEY", "FREES_KEY"},  # bits
    "store.audit_log": {"LAST_AUDIT_ID"},  # larger than every id
    "store.ownership": {"NO_THREAD"},  # no thread
    "engine.queue": {"MAX_PAYLOAD_BYTES"},  # listed as the parameter it is the default of
    "engine.worker": {"GRACE_S"},  # likewise
}


def limits_page() -> str:
    """The page."""
    lines: list[str] = []
    text = _TEXT.read_text("utf-8").splitlines()
    for is_row, part in groupby(text, key=lambda line: line.startswith("|")):
        if is_row:
            lines += table(("limit", "value", "set in"), map(_row, part))[:-1]
        else:
            lines += part
    return page(lines)


def unlisted() -> set[str]:
    """The limits of the code that are not on the page."""
    rows = map(_ROW.fullmatch, _TEXT.read_text("utf-8").splitlines())
    listed = {(row["module"], row["name"]) for row in rows if row}
    return {f"{module}:{name}" for module, name in _numbers() if (module, name) not in listed}


def _row(line: str) -> tuple[str, str, str]:
    """What is limited, the value, and where it is set."""
    row = _ROW.fullmatch(line)
    if row is None:
        raise ValueError(f"expected a row `| what it limits | module:NAME |`, got {line}")
    of_name = _UNIT_OF_NAME.fullmatch(row["parameter"] or row["name"])
    unit = row["unit"] or (of_name[1].lower() if of_name else "")
    return row["what"], _show(_value(row), unit), f"`{row['place']}`"


def _value(row: re.Match[str]) -> object:
    named = getattr(importlib.import_module(f"kesin.{row['module']}"), row["name"])
    if row["max"]:
        hint = typing.get_type_hints(named, include_extras=True)[row["parameter"]]
        return hint.__metadata__[0].max
    if row["parameter"] and not callable(named):
        return getattr(named, row["parameter"])
    if row["parameter"]:
        return inspect.signature(named).parameters[row["parameter"]].default
    return named[row["key"]] if row["key"] else named


def _show(value: Any, unit: str) -> str:
    """A value with its unit, in the largest one that divides it."""
    if isinstance(value, re.Pattern):
        return f"{_longest(value)} characters"
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    if unit == "year":
        last = datetime.fromtimestamp(value // 1_000_000 - 1, UTC)
        return f"the year {_grouped(last.year + 1)}"
    if unit in _SECONDS:
        return _in_units(value * _SECONDS[unit], _DURATIONS, "s")
    if unit == "bytes":
        return _in_units(value, _SIZES, "bytes")
    return f"{_grouped(value)} {unit}".strip()


def _in_units(value: float, units: tuple[tuple[str, int], ...], smallest: str) -> str:
    for name, size in units:
        if value >= size and value % size == 0:
            number = _grouped(value // size)
            return f"{number} {name.removesuffix('s') if number == '1' else name}"
    return f"{_grouped(value)} {smallest}"


def _grouped(value: float) -> str:
    """Digits in groups of three; no decimals of a whole number."""
    return f"{int(value) if value == int(value) else value:,}"


def _longest(pattern: re.Pattern[str]) -> int:
    """The length of the longest name that a pattern accepts."""
    return next(n for n in range(1, 10_000) if not pattern.fullmatch("a" * (n + 1)))


def _numbers() -> Iterator[tuple[str, str]]:
    """The public numeric constants of the listed layers, without those that are not limits."""
    package = ROOT / "src" / "kesin"
    left_out = tuple(str(package / folder) for folder in _NOT_LISTED_FOLDERS)
    for layer in _LISTED_LAYERS:
        for path in sorted((package / layer).rglob("[!_]*.py")):
            if str(path).startswith(left_out):
                continue
            module = ".".join(path.relative_to(package).with_suffix("").parts)
            constants = vars(importlib.import_module(f"kesin.{module}"))
            for name in _assigned(path) - _NOT_LIMITS.get(module, set()):
                if isinstance(constants[name], int | float):
                    yield module, name


def _assigned(path: Path) -> set[str]:
    """The names in capitals that a module assigns."""
    names = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if re.fullmatch(r"[A-Z][A-Z_0-9]+", name)}
