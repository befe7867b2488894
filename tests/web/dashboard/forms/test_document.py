"""A form whose fields are kept elsewhere in a document."""

from typing import Any

import pytest

from kesin.web.dashboard.forms.document import (
    DUPLICATE,
    EMPTY,
    TypedDocument,
    form_value,
    read_document,
)
from kesin.web.dashboard.forms.schema_form import SchemaForm

NUMBER = {"type": "number"}


def table(source: str, rows: str, columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    items = {"type": "object", "properties": columns, "required": [*columns][:1]}
    return {"type": "array", "source": source, "rows": rows, "items": items, **more}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["times", "sizes", "prices", "pauses"],
    "properties": {
        "times": {
            "type": "object",
            "required": ["first"],
            "properties": {
                "first": {**NUMBER, "source": "limits.first"},
                "mode": {"enum": ["A", "B"], "source": "mode", "default": None},
            },
        },
        "box": {"type": "object", "source": "box", "properties": {"width": NUMBER}},
        "sizes": {
            "type": "object",
            "source": "sizes",
            "required": [],
            "properties": {"s": NUMBER, "l": NUMBER},
        },
        "prices": table(
            "prices", "mapping", {"size": NUMBER, "price": NUMBER}, fixed={"free": None}
        ),
        "pauses": table("pauses", "values", {"seconds": NUMBER}),
    },
}
DOCUMENT = {
    "limits": {"first": 3},
    "mode": None,
    "box": {"width": 4},
    "sizes": {"s": 1},
    "prices": {"free": None, "18": 5, "18.5": None},
    "pauses": [1, 2],
    "hidden": "as it was",
}


def typed(value: Any) -> TypedDocument:
    return read_document(SCHEMA, value, DOCUMENT)


def test_a_document_becomes_a_form_and_comes_back_unchanged():
    value = form_value(SCHEMA, DOCUMENT)
    assert value["prices"] == [{"size": 18, "price": 5}, {"size": 18.5}]
    assert (typed(value).values, typed(value).errors) == (DOCUMENT, {})


def test_an_optional_group_may_be_absent_and_a_required_one_is_empty():
    values = typed({}).values
    assert "box" not in values
    assert (values["sizes"], values["limits"], values["prices"]) == ({}, {}, {"free": None})


@pytest.mark.parametrize(
    ("part", "rows", "pointer", "error"),
    [
        ("prices", [{"price": 1}], "/prices/0/size", EMPTY),
        ("prices", [{"size": "x"}], "/prices/0/size", "must be a number, got 'x'"),
        ("prices", [{"size": 2}, {"size": 2.0}], "/prices/1/size", DUPLICATE),
        ("pauses", [{"seconds": 1}, {}], "/pauses/1/seconds", EMPTY),
    ],
)
def test_a_row_that_cannot_be_kept_is_an_error_at_its_cell(
    part: str, rows: list[Any], pointer: str, error: str
):
    assert typed({part: rows}).errors == {pointer: [error]}


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ("limits.first", "/times/first"),
        ("box.width", "/box/width"),
        ("prices.18.5", "/prices/1/price"),
        ("prices.18.5.[key]", "/prices/1/size"),
        ("prices.99", "/prices"),
        ("pauses[1]", "/pauses/1/seconds"),
        ("pauses[9]", "/pauses"),
        ("hidden", ""),
    ],
)
def test_a_path_of_the_document_has_a_field(path: str, pointer: str):
    assert typed(form_value(SCHEMA, DOCUMENT)).pointer_of(path) == pointer


@pytest.mark.parametrize("odd", [{}, {"limits": 1, "box": [], "prices": 2, "pauses": {}}])
def test_an_odd_document_is_no_trouble_to_the_form(odd: dict[str, Any]):
    assert SchemaForm(SCHEMA).draw(form_value(SCHEMA, odd)).children
