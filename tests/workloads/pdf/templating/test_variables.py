"""Variables are checked against a schema quickly, and as its validator would check them."""

import json
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.errors import TemplateError
from kesin.workloads.pdf.templating.variables import VariableSchema

LINE = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"$ref": "#/$defs/text"}, "below": {"type": "array", "items": {"$ref": "#/$defs/line"}}},
}
SCHEMA = {
    "type": "object",
    "properties": {
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "note": {"$ref": "#/$defs/text", "maxLength": 3},
        "kind": {"enum": [{"$ref": "#/$defs/text"}]},
    },
    "$defs": {"text": {"type": "string", "minLength": 1}, "line": LINE},
}


def test_definitions_apply_wherever_they_are_referred_to():
    for variables, problems in (
        ({"lines": [{"text": "a", "below": [{"text": "b"}]}], "note": "abc"}, []),
        ({"lines": [{"text": ""}]}, [("/lines/0/text", "minLength")]),
        (
            {"lines": [{"text": "a", "below": [{"text": "b", "below": [{}]}]}]},
            [("/lines/0/below/0/below/0/text", "required")],
        ),
        ({"note": "abcd"}, [("/note", "maxLength")]),
        ({"note": ""}, [("/note", "minLength")]),
        ({"kind": {"$ref": "#/$defs/text"}}, []),
        ({"kind": "a"}, [("/kind", "enum")]),
    ):
        found = VariableSchema(SCHEMA).find_problems(variables)
        assert [(problem.path, problem.rule) for problem in found] == problems, variables


def test_definitions_that_double_at_each_step_are_not_copied():
    steps = {
        f"s{n}": {"properties": {"a": {"$ref": f"#/$defs/s{n + 1}"}, "b": {"$ref": f"#/$defs/s{n + 1}"}}}
        for n in range(60)
    }
    schema = {"$defs": {**steps, "s60": {"type": "string"}}, "$ref": "#/$defs/s0"}
    assert VariableSchema(schema).find_problems({"a": {"b": {}}}) == []


def test_a_definition_that_is_not_there_is_the_templates_error():
    schema = VariableSchema({"properties": {"a": {"$ref": "#/$defs/none"}}})
    with pytest.raises(TemplateError, match="refers to another schema, which is missing"):
        schema.find_problems({"a": 1})


VALUES: list[Any] = ["", "x" * 5_000, "2026-13-41", -1, 1e13, 0.5, True, None, [], [{}], {}, {"x": 1}]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with every key in it, at all depths."""
    steps = value if isinstance(value, dict) else range(len(value))
    for step in list(steps):
        yield value, step
        if isinstance(value[step], dict | list):
            yield from places(value[step])


@pytest.mark.parametrize("name", ["invoice", "conversion_report"])
def test_a_value_is_valid_where_the_validator_of_the_schema_says_so(name: str):
    schema = VariableSchema(json.loads((SHIPPED / name / "schema.json").read_text("utf-8")))
    sample = json.loads((SHIPPED / name / "sample.json").read_text("utf-8"))
    assert schema._is_valid(sample)
    verdicts = []
    for (container, step), value in zip(list(places(sample)), cycle(VALUES), strict=False):
        before, container[step] = container[step], value
        verdicts.append(schema._is_valid(sample))
        assert verdicts[-1] == schema._validator.is_valid(sample), (step, value)
        container[step] = before
    assert {True, False} == set(verdicts)


def test_rare_rules_and_names_mean_what_they_mean_to_the_validator():
    for schema, valid, invalid in (
        ({"$defs": {"a": {"const": 1}, "a/b": True}, "$ref": "#/$defs/a"}, 1, 2),
        ({"$defs": {"a": {"b": {"const": 1}}, "a~1b": True}, "$ref": "#/$defs/a/b"}, 1, 2),
        ({"$defs": {"a b": {"const": 1}, "a%20b": True}, "$ref": "#/$defs/a%20b"}, 1, 2),
        ({"prefixItems": [{"const": 1}], "items": False}, [1], [1, 2]),
        ({"items": {"$id": "x", "$ref": "#/$defs/a", "$defs": {"a": {"const": 1}}}}, [1], [2]),
        ({"items": False, "allOf": [True]}, [], [1]),
        ({"properties": {"a": {"type": ["integer", "null"]}}}, {"a": 1.0}, {"a": "1"}),
        ({"dependentRequired": {"a": ["b"]}, "minProperties": 1}, {"a": 1, "b": 1}, {"a": 1}),
    ):
        definitions = schema.pop("$defs", {})
        checked = VariableSchema({"properties": {"v": schema}, "$defs": definitions})
        assert checked.find_problems({"v": valid}) == [], schema
        assert checked.find_problems({"v": invalid}) != [], schema


def test_what_is_common_is_checked_without_the_library(monkeypatch):
    """A request waits for its variables to be checked."""
    asked: list[str] = []
    validator = VariableSchema({})._validator
    for name, check in validator.VALIDATORS.items():

        def noted(*given: Any, name: str = name, check: Any = check) -> Any:
            asked.append(name)
            return check(*given)

        monkeypatch.setitem(validator.VALIDATORS, name, noted)
    line = {"type": "object", "additionalProperties": False, "properties": {"n": {"type": "number"}}}
    text = {"type": "string", "minLength": 1, "maxLength": 9}
    schema = VariableSchema({"properties": {"t": text, "l": {"items": line}}})
    asked.clear()
    assert schema.find_problems({"t": "a", "l": [{"n": 0.5}]}) == []
    assert asked == []
