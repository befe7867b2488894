"""The tables of the documentation against the code: every number, every word, every rule."""

import importlib
import inspect
import re
import typing
from dataclasses import fields
from datetime import UTC, datetime

import pytest

from kesin.lifecycle.declare import Move
from kesin.lifecycle.proof.rules import RULES
from kesin.lifecycle.vocabulary import GuardKind
from tests.docs.pages import DOCS, ROOT

UNITS = {"": 1, "KiB": 1024, "s": 1, "min": 60, "h": 3_600, "d": 86_400}
ROW = re.compile(r"^\| (.+) \| (.+) \| `([\w.]+):(\w+)(?:\((\w+)\))?(?:\[(\w+)\])?(\.max)?` \|$")
LINES = [
    line
    for page in ("limits.md", "limits-workloads.md")
    for line in (DOCS / page).read_text("utf-8").splitlines()
]
LIMITS = [ROW.match(line) for line in LINES]
PLACES = [found for found in LIMITS if found]

# Numbers in the code that bound nothing a reader could run into.
NO_LIMITS = {
    "lifecycle.budget": {"SECOND_US", "MINUTE_S", "HOUR_S", "DAY_S"}
    | {"JITTER_MULTIPLIER", "JITTER_STEP", "JITTER_MODULUS"},
    "lifecycle.vocabulary": {"READY", "OWNED", "RESTING", "FINISHED", "WAITING"},
    "engine.queue": {"MAX_PAYLOAD_BYTES"},  # shown as the parameter it is the default of
    "engine.worker": {"GRACE_S"},  # likewise
    "store.directory": {"LAST_AUDIT_ID"},  # an id no line has
    "store.declarations": {"TAKES_KEY", "FREES_KEY", "MASK_INDEX"},  # of a mask
}
# A drawing and a simulation limit no real work.
NO_WORK = {"layout", "svg", "text_metrics"}  # of a drawing
NO_WORK |= {"checker", "dice", "lifecycle_plan", "random_lifecycle"}  # of a simulation
NO_WORK |= {"schedule", "simulate", "world"}
MODULES = [
    ".".join(path.relative_to(ROOT / "src" / "kesin").with_suffix("").parts)
    for floor in ("lifecycle", "store", "engine")
    for path in sorted((ROOT / "src" / "kesin" / floor).rglob("[!_]*.py"))
    if path.stem not in NO_WORK
]


def number(text: str) -> float:
    """What a number on the page means, in the unit of the code."""
    if text.startswith("year "):
        years = int(text.removeprefix("year ").replace(" ", ""))
        last = datetime(years - 1, 12, 31, 23, 59, 59, tzinfo=UTC)
        return (int(last.timestamp()) + 1) * 1_000_000
    amount, unit = re.fullmatch(r"([\d .]*\d) ?([A-Za-z]*)", text).groups()
    return float(amount.replace(" ", "")) * UNITS[unit]


def in_code(place: re.Match[str]) -> object:
    _, _, module, name, parameter, key, largest = place.groups()
    found = getattr(importlib.import_module(f"kesin.{module}"), name)
    if largest:
        hint = typing.get_type_hints(found, include_extras=True)[parameter]
        return hint.__metadata__[0].max
    if parameter:
        return inspect.signature(found).parameters[parameter].default
    return found[key] if key else found


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
def test_the_limit_is_what_the_code_says(place):
    said, found = place[2], in_code(place)
    if isinstance(found, re.Pattern):
        longest = int(number(said))
        assert found.fullmatch("a" * longest)
        assert not found.fullmatch("a" * (longest + 1))
    elif isinstance(found, tuple):
        assert said == ".".join(map(str, found))
    else:
        assert number(said) == found


def test_every_row_of_the_limits_is_read():
    assert len(PLACES) == sum(line.startswith("|") and "`" in line for line in LINES)


@pytest.mark.parametrize("module", MODULES)
def test_every_limit_of_the_code_is_told(module):
    told = {place[4] for place in PLACES if place[3] == module}
    found = vars(importlib.import_module(f"kesin.{module}"))
    own = inspect.getsource(importlib.import_module(f"kesin.{module}"))
    limits = {
        name
        for name, value in found.items()
        if re.fullmatch(r"[A-Z][A-Z_]+", name) and isinstance(value, int | float)
        if re.search(rf"^{name}\b.*=", own, re.MULTILINE)
    }
    assert limits - NO_LIMITS.get(module, set()) <= told


@pytest.mark.parametrize("guard", typing.get_args(GuardKind))
def test_every_guard_is_explained(guard):
    page = (DOCS / "states.md").read_text("utf-8")
    assert re.search(rf"^\|.*`{guard}(\(.*?\))?`.*\|", page, re.MULTILINE)


@pytest.mark.parametrize("part", [field.name for field in fields(Move)])
def test_every_part_of_a_move_is_explained(part):
    in_prose = {"name": "named edge", "sources": "sources", "to": "target", "by": "who may make it"}
    page = (DOCS / "states.md").read_text("utf-8")
    if part not in {"chained", "doc"}:
        assert in_prose.get(part, f"`{part}`") in page


@pytest.mark.parametrize(("rule", "sentence"), RULES.items())
def test_every_rule_is_told_in_its_own_words(rule, sentence):
    page = " ".join((DOCS / "proofs.md").read_text("utf-8").split())
    assert f"## {rule} {sentence[0].upper()}{sentence[1:]}." in page
