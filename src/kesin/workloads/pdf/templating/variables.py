"""What a template asks of its variables, and where they differ from it.

Every problem has a path, so that a form can point at the field; none repeats the value.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.security import measured

MAX_PROBLEMS: Final = 50

_formats: Final = FormatChecker(formats=())
_ROW: Final = re.compile(r"[0-9]{1,9}")  # a name may be longer, and of digits alone


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where (a JSON Pointer), which rule, and what was expected."""

    path: str
    rule: str
    message: str


class Expectations:
    """A JSON Schema (Draft 2020-12) that was found sound; it fetches nothing."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises ValueError for what is no schema."""
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as problem:
            raise ValueError(f"{problem.json_path}: {problem.message}") from None
        self._validator = Draft202012Validator(schema, registry=Registry(), format_checker=_formats)

    def problems(self, variables: Mapping[str, Any]) -> list[Problem]:
        """What is wrong, in the order of the paths; empty if the template can work with them."""
        try:
            measured(variables)
        except RenderFailed as refused:
            return [Problem(refused.details["path"], "limit", refused.message)]
        found: dict[Problem, None] = {}
        try:
            for error in self._validator.iter_errors(variables):
                found |= dict.fromkeys(_problems(error))
                if len(found) > MAX_PROBLEMS * 4:
                    break
        except Unresolvable as problem:
            raise RenderFailed(
                PdfErrorCode.TEMPLATE_ERROR, "its schema refers to another that is not in it"
            ) from problem
        return sorted(found, key=_place)[:MAX_PROBLEMS]


def _place(problem: Problem) -> list[tuple[int, str]]:
    steps = problem.path.split("/")
    return [(int(step), "") if _ROW.fullmatch(step) else (-1, step) for step in steps]


def _problems(error: ValidationError) -> list[Problem]:
    path = "".join(f"/{_escaped(str(step))}" for step in error.absolute_path)
    rule = str(error.validator)
    wanted, value = error.validator_value, error.instance
    if rule == "required" and isinstance(value, Mapping):
        missing = [name for name in _listed(wanted) if name not in value]
        return [Problem(f"{path}/{_escaped(name)}", rule, "is missing") for name in missing]
    if rule == "additionalProperties" and isinstance(value, Mapping):
        known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
        unknown = [str(name) for name in value if name not in known]
        return [Problem(f"{path}/{_escaped(name)}", rule, "is not known") for name in unknown]
    return [Problem(path or "/", rule, _message(rule, wanted))]


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _listed(wanted: object) -> list[str]:
    return [str(one) for one in wanted] if isinstance(wanted, list) else [str(wanted)]


_EXPECTED: Final = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "minProperties": "must have at least {} fields",
    "maxProperties": "must have at most {} fields",
    "pattern": "must match {}",
    "format": "must be a valid {}",
    "const": "must be {!r}",
}


def _message(rule: str, wanted: object) -> str:
    if rule == "type":
        return "must be " + " or ".join(_listed(wanted))
    if rule == "enum":
        return "must be one of " + ", ".join(_listed(wanted))
    if rule in _EXPECTED:
        return _EXPECTED[rule].format(wanted)
    return f"does not keep to {rule}"


@_formats.checks("date")
def _is_date(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        return bool(re.fullmatch(r"[0-9-]{10}", value) and dt.date.fromisoformat(value))
    except ValueError:
        return False


@_formats.checks("date-time")
def _is_moment(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        return value[10:11] in {"T", " "} and bool(dt.datetime.fromisoformat(value))
    except ValueError:
        return False


@_formats.checks("iban")
def _is_iban(value: object) -> bool:
    if not isinstance(value, str):
        return True
    letters = re.sub(r"[ \u00a0]", "", value).upper()
    if not re.fullmatch(r"[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}", letters):
        return False
    return int("".join(str(int(one, 36)) for one in letters[4:] + letters[:4])) % 97 == 1


@_formats.checks("uri")
def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or bool(re.fullmatch(r"https?://[^\s\\]+", value))
