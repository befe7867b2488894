"""Variables are checked against a schema whose definitions are put where they are referred to."""

import pytest

from kesin.workloads.pdf.errors import TemplateError
from kesin.workloads.pdf.templating.variables import VariableSchema

LINE = {
    "type": "object",
    "required": ["text"],
    "properties": {
        "text": {"$ref": "#/$defs/text"},
        "below": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
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


@pytest.mark.parametrize(
    ("variables", "problems"),
    [
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
    ],
)
def test_definitions_apply_wherever_they_are_referred_to(
    variables: dict[str, object], problems: list[tuple[str, str]]
):
    found = VariableSchema(SCHEMA).find_problems(variables)
    assert [(problem.path, problem.rule) for problem in found] == problems


def test_definitions_that_double_at_each_step_are_not_copied():
    steps = {
        f"s{n}": {
            "properties": {"a": {"$ref": f"#/$defs/s{n + 1}"}, "b": {"$ref": f"#/$defs/s{n + 1}"}}
        }
        for n in range(60)
    }
    schema = {"$defs": {**steps, "s60": {"type": "string"}}, "$ref": "#/$defs/s0"}
    assert VariableSchema(schema).find_problems({"a": {"b": {}}}) == []


def test_a_definition_that_is_not_there_is_the_templates_error():
    schema = VariableSchema({"properties": {"a": {"$ref": "#/$defs/none"}}})
    with pytest.raises(TemplateError, match="refers to another that is not in it"):
        schema.find_problems({"a": 1})
