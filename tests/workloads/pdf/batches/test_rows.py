"""Rows of a batch: what a spreadsheet says, and what their files are called."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.foundation.problems import Invalid
from kesin.workloads.pdf.batches.rows import entry_name, parse_cell, read_csv, row_file_names, safe_name
from kesin.workloads.pdf.schemas import MAX_ROWS
from kesin.workloads.pdf.templating.variables import column_types
from tests.workloads.pdf.batching import SCHEMA
from tests.workloads.pdf.press import BOOK

INVOICE = BOOK.get("invoice")


def rows(text, schema=SCHEMA):
    body = text if isinstance(text, bytes) else text.encode()
    table, problems = read_csv(body, schema)
    assert problems == []
    return table


def refusal(text):
    with pytest.raises(Invalid) as refused:
        read_csv(text if isinstance(text, bytes) else text.encode(), SCHEMA)
    return refused.value.code


# Tables


def test_every_spelling_of_a_spreadsheet_is_the_same_table():
    lines = [b"name,count,paid", "Işıl,3,true".encode(), b"b,,0", b""]
    for mark, end, separator in product((b"", b"\xef\xbb\xbf"), (b"\n", b"\r\n"), (b",", b";")):
        text = mark + end.join(line.replace(b",", separator) for line in lines)
        table = [{"name": "Işıl", "count": 3, "paid": True}, {"name": "b", "paid": False}]
        assert rows(text) == table, text


def test_quoted_cells_hold_anything_and_do_not_decide_the_separator():
    assert rows('name,kind\n"a, ""b"";\nc",a\n') == [{"name": 'a, "b";\nc', "kind": "a"}]
    assert rows('"name";"buyer.name"\n"a,b,c";x\n') == [{"name": "a,b,c", "buyer": {"name": "x"}}]


def test_dots_lead_deeper_and_empty_cells_are_left_out():
    assert rows("name,buyer.name,buyer.age\na,x,7\nb,,\nc,,8\n") == [
        {"name": "a", "buyer": {"name": "x", "age": 7}},
        {"name": "b"},
        {"name": "c", "buyer": {"age": 8}},
    ]


def test_cells_are_what_the_schema_says_they_are():
    text = 'name,count,price,exact,paid,tags\n12,12,12,12,1,"[""a"",""b""]"\n'
    assert rows(text) == [{"name": "12", "count": 12, "price": 12, "exact": 12, "paid": True, "tags": ["a", "b"]}]


def test_a_comma_is_a_decimal_sign_only_where_semicolons_part_the_cells():
    assert rows("name;price\na;1,5\n") == [{"name": "a", "price": 1.5}]
    assert rows('name,price\na,"1,5"\n') == [{"name": "a", "price": "1,5"}]
    assert rows("name;price\na;1.234,5\n") == [{"name": "a", "price": "1.234,5"}]


def test_lines_that_say_nothing_are_no_rows_and_columns_without_a_name_are_no_variables():
    assert rows("\n;;\nname;;\n;;\na;;\n\n;\nb\n") == [{"name": "a"}, {"name": "b"}]


def test_a_cell_in_a_column_without_a_name_is_a_problem_of_its_row():
    table, problems = read_csv(b"name,\na,\nb,x\nc,,y\n", SCHEMA)
    assert [(each.row, each.rule) for each in problems] == [(2, "cells"), (3, "cells")]
    assert len(table) == 3


def test_what_is_no_table_is_refused():
    for text, code in (
        ("", "no_header"),
        ("\n;;\n", "no_header"),
        ("name,name\na,b\n", "column_twice"),
        ("buyer,buyer.name\na,b\n", "bad_column"),
        ("buyer.name,buyer\na,b\n", "bad_column"),
        ("name,buyer.\na,b\n", "bad_column"),
        (".".join("x" * 40) + "\n1\n", "bad_column"),
        ('name\n"a\n', "not_csv"),
        ('name\n"a"b\n', "not_csv"),
        ("name\ni\u015f\n".encode("iso-8859-9"), "not_utf8"),
        ("name\na\n".encode("utf-16"), "not_utf8"),
        ("name\n" + "a\n" * (MAX_ROWS + 1), "too_many_rows"),
    ):
        assert refusal(text) == code
    assert len(rows("name\n" + "a\n" * MAX_ROWS)) == MAX_ROWS
    assert rows("name\n" + "x" * 200_000 + "\n") == [{"name": "x" * 200_000}]


# Types


def types_of(schema, *path):
    return column_types(schema, [path])[path]


def test_types_are_found_behind_references_and_choices():
    assert types_of(INVOICE.schema, "number") == {"string"}
    assert types_of(INVOICE.schema, "stated_total") == {"number", "integer", "string"}
    assert types_of(INVOICE.schema, "seller", "website") == {"string"}
    assert types_of(INVOICE.schema, "lines") == {"array"}
    assert types_of(INVOICE.schema, "lang") == {"string"}
    assert types_of(SCHEMA, "buyer", "age") == {"integer", "null"}
    assert types_of({"properties": {"a": {"const": 5}}}, "a") == {"integer"}
    assert types_of({}, "nowhere", "at", "all") == {"string"}


def test_a_column_that_no_alternative_of_the_schema_has_is_not_known():
    assert types_of(SCHEMA, "nowhere", "at", "all") == set()
    assert types_of(SCHEMA, "name", "first") == set()  # a text has no parts
    row = {"additionalProperties": False, "properties": {"n": {"type": "integer"}}}
    other = {"patternProperties": {"^x-": {"type": "boolean"}}, "additionalProperties": False}
    either = {"anyOf": [{"$ref": "#/$defs/row"}, other], "$defs": {"row": row}}
    columns = [("n",), ("x-1",), ("m",)]
    found = column_types(either, columns)
    assert {column for column in columns if not found[column]} == {("m",)}


def test_a_schema_that_refers_to_itself_ends():
    circle = {"properties": {"a": {"$ref": "#/properties/a"}}}
    assert types_of(circle, "a") == {"string"}
    tree = {"properties": {"a": {"$ref": "#"}, "n": {"type": "integer"}}}
    assert types_of(tree, "a", "a", "n") == {"integer"}
    assert types_of({"$ref": "#", **tree}, "a", "a", "n") == {"string"}  # it fits nothing


NUMBER, WHOLE = frozenset({"number"}), frozenset({"integer"})
EITHER = frozenset({"number", "string"})


def test_a_cell_that_does_not_fit_its_type_stays_text():
    boolean, array = frozenset({"boolean"}), frozenset({"array"})
    for text, kinds, value in (
        ("5", NUMBER, 5), ("-0.5", NUMBER, -0.5), (" 5 ", NUMBER, 5), ("1e3", NUMBER, 1000.0),
        ("5.5", WHOLE, "5.5"), ("NaN", NUMBER, "NaN"), ("1e999", NUMBER, "1e999"),
        ("٣", NUMBER, "٣"), ("9" * 5_000, NUMBER, "9" * 5_000), ("007", EITHER, "007"),
        ("1234.50", EITHER, 1234.5), ("0.1234567890123456789", EITHER, "0.1234567890123456789"),
        ("evet", boolean, True), ("Hayır", boolean, False), ("maybe", boolean, "maybe"),
        ("[1", array, "[1"), ("[" * 100_000, array, "[" * 100_000),
        ('{"a": 1}', frozenset({"object"}), {"a": 1}),
        (" as it is ", frozenset({"string"}), " as it is "),
    ):  # fmt: skip
        cell = parse_cell(text, kinds)
        assert (cell, type(cell)) == (value, type(value))


# Names


def test_a_file_name_leads_nowhere_and_keeps_its_letters():
    for text, name in (
        ("Fatura Şubat İğdır", "Fatura Şubat İğdır"), ("S\u0327ubat", "Şubat"),
        ("../../etc/passwd", "_.._etc_passwd"), ("a/b\\c:d*e?f", "a_b_c_d_e_f"), ("x.PDF", "x"),
        ("  two\n lines\t", "two lines"), ("\u202egnp.exe", "gnp.exe"), ("a\x00b\ud800c", "abc"),
        ("...", ""), ("", ""), ("x" * 500, "x" * 100),
    ):  # fmt: skip
        assert safe_name(text) == name


@given(st.text(max_size=200))
def test_no_name_can_leave_its_folder(text):
    name = entry_name(7, safe_name(text), "card")
    assert name.startswith("0007-")
    assert name.endswith(".pdf")
    assert not set(name) & set('/\\:*?"<>|\0\n\r')
    assert safe_name(safe_name(text)) == safe_name(text)
    name.encode()


def test_equal_names_differ_by_their_number():
    names = row_file_names([{}] * 3, ["a", "a", "A"], None)
    assert len({entry_name(row, name, "x").lower() for row, name in enumerate(names, 1)}) == 3


def test_a_row_is_named_by_a_variable_wherever_it_lies():
    buyers: list[Any] = [{"name": "Ayşe"}, {"name": 7}, {}, []]
    named: list[dict[str, Any]] = [*({"buyer": buyer} for buyer in buyers), {}]
    assert row_file_names(named, None, "buyer.name") == ["Ayşe", "7", "", "", ""]
    assert row_file_names(named, None, None) == [""] * 5
