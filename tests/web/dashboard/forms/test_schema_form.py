"""A form from a schema: what is drawn, what is read back, rows that come and go."""

import json
from typing import Any

from kesin.web.dashboard.forms.schema_form import MAX_ROWS, FormNode, SchemaForm, parse_number
from kesin.workloads.pdf.config import SHIPPED
from tests.tables import table

SCHEMA = {
    "type": "object",
    "required": ["number", "lines"],
    "properties": {
        "number": {"$ref": "#/$defs/short"},
        "lang": {"enum": ["tr", "en"]},
        "paid": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "a/b": {"type": "integer"},
        "qr": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "lines": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"what": {"type": "string"}, "price": {"type": ["number", "string"]}},
            },
        },
    },
    "$defs": {"short": {"type": "string", "maxLength": 20}},
}
VALUE: dict[str, Any] = {
    "number": "1",
    "lang": "en",
    "paid": False,
    "day": "2026-11-15",
    "a/b": 7,
    "qr": {"text": "x"},
    "tags": ["one", "two"],
    "lines": [{"what": "wood", "price": 2.5}, {"what": "glue", "price": 3}],
}


def sent(node: FormNode) -> dict[str, str]:
    """The fields a browser sends for what was drawn."""
    if node.kind not in {"group", "list"}:
        return {node.name: node.value}
    if not node.is_open:
        return {}
    fields = {} if node.kind == "list" else {node.name: ""}
    for child in node.children:
        fields |= sent(child)
    return fields


def test_what_is_drawn_is_read_back_as_it_was():
    form = SchemaForm(SCHEMA)
    assert form.read(sent(form.draw(VALUE))) == VALUE


@table("name", ["invoice", "conversion_report", "cutting_plan"])
def test_the_sample_of_every_shipped_template_survives_its_form(name):
    schema = json.loads((SHIPPED / name / "schema.json").read_text("utf-8"))
    sample = json.loads((SHIPPED / name / "sample.json").read_text("utf-8"))
    form = SchemaForm(schema)
    assert form.read(sent(form.draw(sample))) == sample


@table("name", ["invoice", "conversion_report", "cutting_plan"])
def test_every_field_of_a_shipped_template_is_called_by_its_name_in_both_languages(name):
    schema = json.loads((SHIPPED / name / "schema.json").read_text("utf-8"))

    def check(given: Any, place: str) -> None:
        for key, one in given.get("properties", {}).items():
            assert {"title", "title_tr"} <= one.keys(), f"{place}/{key}"
            assert ("description" in one) == ("description_tr" in one), f"{place}/{key}"
            check(one, f"{place}/{key}")
            check(one.get("items", {}), f"{place}/{key}")

    check(schema, "")
    for key, one in schema["$defs"].items():
        check(one, key)
    assert [SchemaForm(schema, language=one).draw({}).children[0].title for one in ("en", "tr")] == [
        *("Language", "Dil")
    ]


def test_each_kind_of_value_gets_its_kind_of_field():
    kinds = {one.key: one.kind for one in SchemaForm(SCHEMA).draw(VALUE).children}
    assert kinds == {
        "number": "text",
        "lang": "enum",
        "paid": "boolean",
        "day": "date",
        "a/b": "number",
        "qr": "group",
        "tags": "list",
        "lines": "list",
    }


def test_what_was_left_empty_is_left_out():
    assert SchemaForm(SCHEMA).read({"v/number": "1", "v/lang": "", "v/day": " "}) == {"number": "1", "lines": []}


def test_an_optional_group_is_closed_until_it_is_opened():
    form = SchemaForm(SCHEMA)
    closed = next(one for one in form.draw({}).children if one.key == "qr")
    assert (closed.is_open, closed.children) == (False, ())
    opened = form.with_added({}, "/qr")
    assert opened == {"qr": {}}
    assert form.with_removed(opened, "/qr") == {}


def test_a_row_is_added_and_removed():
    form = SchemaForm(SCHEMA)
    more = form.with_added(VALUE, "/lines")
    assert len(more["lines"]) == 3
    assert len(VALUE["lines"]) == 2
    assert form.with_removed(more, "/lines/0")["lines"] == [VALUE["lines"][1], {}]


@table("pointer", ["", "/nope", "/lines/9", "/lines/9/what", "/number/x", "/lines/-1", "/qr/text/deep"])
def test_a_place_that_is_not_there_changes_nothing(pointer):
    form = SchemaForm(SCHEMA)
    assert form.with_removed(VALUE, pointer) == VALUE
    assert form.with_added({"number": "1"}, pointer).get("number") == "1"


def test_an_empty_row_is_a_row():
    form = SchemaForm(SCHEMA)
    fields = {"v/number": "1", "v/lines/0": "", "v/lines/0/what": ""}
    assert form.read(fields)["lines"] == [{}]


def test_rows_keep_their_order_whatever_their_numbers_are():
    fields = {"v/lines/10/what": "b", "v/lines/2/what": "a"}
    rows = SchemaForm(SCHEMA).read(fields)["lines"]
    assert [one["what"] for one in rows] == ["a", "b"]


def test_errors_stand_at_their_field():
    form = SchemaForm(SCHEMA, {"/lines/1/price": ["is too much"]})
    lines = form.draw(VALUE).children[-1]
    assert lines.children[1].children[1].errors == ("is too much",)


def test_a_list_that_is_too_long_is_edited_as_json():
    form = SchemaForm(SCHEMA)
    drawn = form.draw({"lines": [{"what": str(n)} for n in range(MAX_ROWS + 1)]})
    lines = drawn.children[-1]
    assert lines.kind == "json"
    assert len(json.loads(lines.value)) == MAX_ROWS + 1


def test_a_schema_that_holds_itself_comes_to_an_end():
    schema = {"type": "object", "required": ["inner"], "properties": {"inner": {"$ref": "#"}}}
    form = SchemaForm(schema)
    form.read(sent(form.draw({})))


@table(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("12,5", 12.5),
        ("12.5", 12.5),
        ("1.234,5", "1.234,5"),
        ("007", "007"),
        ("1e9", "1e9"),
        ("", ""),
        ("9" * 30, "9" * 30),
    ],
)
def test_a_number_is_read_as_people_write_it(text, value):
    assert parse_number(text) == value
    assert type(parse_number(text)) is type(value)
