"""Validates the variables of a template by its JSON Schema; no problem repeats a value."""

import datetime as dt
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import groupby, repeat
from operator import call
from typing import Any, Final, NamedTuple

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from kesin.foundation.messages import Message
from kesin.workloads.pdf.errors import RenderFailed, TemplateError
from kesin.workloads.pdf.security import check_plain_data
from kesin.workloads.pdf.templating.pictures import is_readable_picture

MAX_PROBLEMS: Final = 50

_Check = Callable[[Any], bool]
Path = tuple[str, ...]  # the names that lead to a variable

_formats: Final = FormatChecker(formats=())
_DEFINITION: Final = re.compile(r"#/\$defs/([\w-]+)")
_SAMPLES: Final[dict[str, Any]] = {  # of each type; a whole number is a number too
    "string": "", "number": 0.5, "integer": 0, "boolean": True, "array": [], "object": {},
    "null": None,
}  # fmt: skip
_RULES: Final[dict[str, Callable[[Any], _Check]]] = {  # common rules, each as a check
    "minLength": lambda least: lambda value: not isinstance(value, str) or len(value) >= least,
    "maxLength": lambda most: lambda value: not isinstance(value, str) or len(value) <= most,
}
_INDEX: Final = re.compile(r"[0-9]{1,9}")  # longer digit strings are names


class VariableProblem(NamedTuple):
    """A problem: its path (a JSON Pointer), the rule, and what was expected."""

    path: str
    rule: str
    message: str


class VariableSchema:
    """A valid JSON Schema (Draft 2020-12); it fetches no references."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises ValueError for an invalid schema."""
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as problem:
            raise ValueError(f"{problem.json_path}: {problem.message}") from None
        self._validator = Draft202012Validator(schema, registry=Registry(), format_checker=_formats)
        text, parts = json.dumps(schema), dict[str, _Check]()
        for name, part in schema.get("$defs", {}).items():
            parts[name] = _compile(self._validator, part, parts)
        # What has an address or a dialect of its own is left to the validator.
        is_plain = '"$id"' not in text and text.count('"$schema"') <= 1
        self._is_valid = _compile(self._validator, is_plain and schema, parts)

    def find_problems(self, variables: Mapping[str, Any]) -> list[VariableProblem]:
        """Return the problems, ordered by path; empty if the variables are valid."""
        try:
            check_plain_data(variables)
        except RenderFailed as failure:
            return [VariableProblem(failure.details["path"], "limit", failure.message)]
        problems: dict[VariableProblem, None] = {}
        try:
            if self._is_valid(variables):
                return []
            for error in self._validator.iter_errors(variables):
                problems |= dict.fromkeys(_describe(error))
                if len(problems) > MAX_PROBLEMS * 4:
                    break
        except Unresolvable as problem:
            raise TemplateError("its schema refers to another schema, which is missing") from problem
        return sorted(problems, key=_path_key)[:MAX_PROBLEMS]


def _compile(validator: Any, schema: Any, definitions: dict[str, _Check]) -> _Check:
    """A check whether a value is valid, much faster than the validator, which says why not."""
    if isinstance(schema, bool):
        return lambda _: schema

    def check_of(key: str, rule: Any) -> _Check:  # noqa: PLR0911  # a table of keywords
        if key in _RULES:
            return _RULES[key](rule)
        if key == "properties":
            parts = {name: _compile(validator, part, definitions) for name, part in rule.items()}
            return lambda value: (
                not isinstance(value, dict) or all(parts[name](each) for name, each in value.items() if name in parts)
            )
        if key == "additionalProperties" and rule is False and "patternProperties" not in schema:
            known = {*schema.get("properties", ())}
            return lambda value: not isinstance(value, dict) or value.keys() <= known
        if key == "items" and "prefixItems" not in schema:
            part = _compile(validator, rule, definitions)
            return lambda value: not isinstance(value, list) or all(map(part, value))
        if key == "$ref" and (place := _DEFINITION.fullmatch(rule)):
            name = place[1]
            return lambda value: name in definitions and definitions[name](value)
        check = validator.VALIDATORS[key]
        if key == "type":
            kinds = {type(_SAMPLES[each]) for each in _as_strings(rule)}
            return lambda it: type(it) in kinds or not any(check(validator, rule, it, schema) or ())
        return lambda value: not any(check(validator, rule, value, schema) or ())

    checks = [check_of(*each) for each in schema.items() if each[0] in validator.VALIDATORS]
    return lambda value: all(map(call, checks, repeat(value)))


def _path_key(problem: VariableProblem) -> list[tuple[int, str]]:
    steps = problem.path.split("/")
    return [(int(step), "") if _INDEX.fullmatch(step) else (-1, step) for step in steps]


def _describe(error: ValidationError) -> list[VariableProblem]:
    path = "".join(f"/{_escape(str(step))}" for step in error.absolute_path)
    rule = str(error.validator)
    expected, value = error.validator_value, error.instance
    if rule == "required" and isinstance(value, Mapping):
        missing = [name for name in _as_strings(expected) if name not in value]
        return [VariableProblem(f"{path}/{_escape(name)}", rule, "is missing") for name in missing]
    if rule == "additionalProperties" and isinstance(value, Mapping):
        unknown = map(_escape, _unknown_names(error))
        return [VariableProblem(f"{path}/{name}", rule, "is not a known field") for name in unknown]
    return [VariableProblem(path or "/", rule, _message(rule, expected))]


def _unknown_names(error: ValidationError) -> list[str]:
    schema: Any = error.schema
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    others = (str(name) for name in error.instance if name not in known)  # type: ignore[union-attr]
    return [name for name in others if not any(re.search(each, name) for each in patterns)]


def column_types(schema: Mapping[str, Any], columns: Iterable[Path]) -> dict[Path, frozenset[str]]:
    """Ask the validator for each column's types: string for any, none if it is unknown."""
    validator = Draft202012Validator(schema, registry=Registry())
    types: dict[Path, frozenset[str]] = dict.fromkeys(columns, frozenset())
    for kind, sample in _SAMPLES.items():
        row: dict[str, Any] = {}
        for path in types:
            set_variable(row, path, sample)
        refused = set[Path]()
        with suppress(Unresolvable, RecursionError):
            refused = _refused_paths(validator.iter_errors(row))
        for path, kinds in types.items():
            if refused.isdisjoint(path[: depth + 1] for depth in range(len(path))):
                types[path] = kinds | {kind}
    says_nothing, text = frozenset(_SAMPLES), frozenset({"string"})
    return {path: text if kinds == says_nothing else kinds for path, kinds in types.items()}


def set_variable(variables: dict[str, Any], path: Path, value: Any) -> None:
    for step in path[:-1]:
        variables = variables.setdefault(step, {})
    variables[path[-1]] = value


def _refused_paths(errors: Iterable[ValidationError]) -> set[Path]:
    """Return the paths whose names are not known, or whose values have another type."""
    refused: set[Path] = set()
    for error in errors:
        path, expected = tuple(map(str, error.absolute_path)), error.validator_value
        if error.validator in {"anyOf", "oneOf"}:  # refused if each alternative refuses it
            alternatives = groupby(error.context or (), lambda each: each.schema_path[0])
            parts = [_refused_paths(each) for _, each in alternatives]
            refused |= set.intersection(*parts) if parts else set()
        elif error.validator == "additionalProperties":
            refused |= {(*path, name) for name in _unknown_names(error)}
        elif error.validator in {"type", "enum", "const"}:
            values: Any = {"type": [], "enum": expected}.get(error.validator, [expected])
            if type(error.instance) not in map(type, values):
                refused.add(path)
    return refused


def _escape(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _as_strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


_EXPECTED: Final = {
    "minimum": "must be at least %(expected)s",
    "maximum": "must be at most %(expected)s",
    "exclusiveMinimum": "must be more than %(expected)s",
    "exclusiveMaximum": "must be less than %(expected)s",
    "multipleOf": "must be a multiple of %(expected)s",
    "minLength": "must have at least %(expected)s characters",
    "maxLength": "must have at most %(expected)s characters",
    "minItems": "must have at least %(expected)s items",
    "maxItems": "must have at most %(expected)s items",
    "minProperties": "must have at least %(expected)s fields",
    "maxProperties": "must have at most %(expected)s fields",
    "pattern": "must match %(expected)s",
    "format": "must be a valid %(expected)s",
    "const": "must be %(expected)s",
    "enum": "must be one of %(expected)s",
    "type": "must be %(expected)s",
}


def _message(rule: str, expected: object) -> str:
    separators = {"type": " or ", "enum": ", "}
    if rule in separators:
        expected = separators[rule].join(_as_strings(expected))
    elif rule == "const":
        expected = repr(expected)
    if (rule, expected) == ("format", "picture"):
        return Message("must be data:image/png;base64,… (or jpeg, gif, webp)")
    if rule in _EXPECTED:
        return Message(_EXPECTED[rule], expected=expected)
    return Message("does not follow %(rule)s", rule=rule)


def _is_iban(text: str) -> bool:
    letters = re.sub(r"[ \u00a0]", "", text).upper()
    if not re.fullmatch(r"[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}", letters):
        return False
    return int("".join(str(int(letter, 36)) for letter in letters[4:] + letters[:4])) % 97 == 1


def _add_format(name: str, fits: Callable[[str], object]) -> None:
    """Add a format of texts; a value that is no text is left to its type."""
    _formats.checks(name, raises=ValueError)(lambda it: not isinstance(it, str) or bool(fits(it)))


_add_format("date", lambda it: re.fullmatch(r"[0-9-]{10}", it) and dt.date.fromisoformat(it))
_add_format("date-time", lambda it: it[10:11] in {"T", " "} and dt.datetime.fromisoformat(it))
_add_format("iban", _is_iban)
_add_format("picture", is_readable_picture)
_add_format("uri", re.compile(r"https?://[^\s\\]+").fullmatch)
