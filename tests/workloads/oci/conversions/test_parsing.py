"""Parsing bodies as rows: JSON, NDJSON and CSV as real tools write them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.foundation.problems import Problem
from kesin.workloads.oci.conversions.conversion import Unsendable
from kesin.workloads.oci.conversions.parsing import MAX_ROWS, parse_body

JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"


def rows(body: str | bytes, kind: str) -> list[Any]:
    return parse_body(body if isinstance(body, bytes) else body.encode(), kind)[1]


def attempt(body: str | bytes, kind: str) -> list[Any] | Problem:
    try:
        return rows(body, kind)
    except Problem as error:
        return error


def problem(body: str | bytes, kind: str) -> Problem:
    with pytest.raises(Problem) as caught:
        rows(body, kind)
    return caught.value


def codes(found: list[Any]) -> list[str | None]:
    return [one.code if isinstance(one, Unsendable) else None for one in found]


# JSON


@pytest.mark.parametrize(
    ("body", "site", "count"),
    [
        ({"externalId": "a"}, None, 1),
        ({"externalId": "a", "siteId": "north"}, "north", 1),
        ({"externalId": "a", "siteId": 5}, None, 1),
        ([], None, 0),
        ([{"externalId": "a"}, {"externalId": "b"}], None, 2),
        ({"siteId": "north", "conversions": [{}, {}]}, "north", 2),
        ({"conversions": []}, None, 0),
        ({"siteId": None, "conversions": []}, None, 0),
    ],
)
def test_json_is_one_row_a_list_or_an_envelope(body: Any, site: str | None, count: int):
    named, found = parse_body(json.dumps(body).encode(), JSON)
    assert (named, len(found)) == (site, count)


@pytest.mark.parametrize(
    "kind", [JSON, "application/json; charset=utf-8", "", "application/x+json"]
)
def test_json_comes_under_several_names(kind: str):
    assert rows('[{"externalId": "a"}]', kind) == [{"externalId": "a"}]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", "not_json"),
        ("{", "not_json"),
        ("[" * 100_000, "not_json"),
        ("5", "not_a_list"),
        ('"text"', "not_a_list"),
        ("null", "not_a_list"),
        ('{"conversions": {}}', "not_a_list"),
        ('{"conversions": [], "siteId": 5}', "bad_site"),
    ],
)
def test_what_is_no_list_of_conversions_is_refused(body: str, code: str):
    assert problem(body, JSON).code == code


def test_an_entry_that_is_no_object_is_one_bad_row():
    assert codes(rows('[{}, 5, null, "a", []]', JSON)) == [None, *["NOT_AN_OBJECT"] * 4]


# NDJSON


@pytest.mark.parametrize("kind", [NDJSON, "application/ndjson", "application/jsonl; charset=utf-8"])
def test_ndjson_is_one_row_a_line(kind: str):
    assert rows('{"externalId": "a"}\r\n\n  \n{"externalId": "b"}\n', kind) == [
        {"externalId": "a"},
        {"externalId": "b"},
    ]


def test_a_bad_line_is_one_bad_row():
    assert codes(rows('{"a": 1}\nnonsense\n[1]\n{}', NDJSON)) == [
        *(None, "NOT_JSON", "NOT_AN_OBJECT"),
        None,
    ]


def test_a_line_may_hold_signs_that_other_programs_take_for_its_end():
    assert rows('{"externalId": "a\u2028b\x85c"}\n', NDJSON) == [{"externalId": "a\u2028b\x85c"}]


# CSV


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_a_csv_may_be_separated_by_comma_semicolon_or_tab(sign: str):
    body = f"externalId{sign}conversionValue\na{sign}5\nb{sign}6\n"
    assert rows(body, CSV) == [
        {"externalId": "a", "conversionValue": "5"},
        {"externalId": "b", "conversionValue": "6"},
    ]


@pytest.mark.parametrize("top", ["\n", "\r\n\r\n", " \n", ";;\n", '""\n', "\xa0\n\f\n"])
def test_lines_that_say_nothing_stand_before_a_header_of_any_kind(top: str):
    assert rows(f"{top}externalId;gclid\na;b\n", CSV) == [{"externalId": "a", "gclid": "b"}]


def test_a_semicolon_file_keeps_its_decimal_commas():
    assert rows("externalId;conversionValue\na;1.500,75\n", CSV) == [
        {"externalId": "a", "conversionValue": "1.500,75"}
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_on_any_machine(end: str):
    assert rows(end.join(["externalId,gclid", "a,b", ""]), CSV) == [
        {"externalId": "a", "gclid": "b"}
    ]


def test_the_mark_at_the_beginning_is_no_part_of_the_first_column():
    assert rows(b"\xef\xbb\xbfexternalId\na\n", CSV) == [{"externalId": "a"}]


def test_a_quoted_cell_may_hold_lines_quotes_and_separators():
    body = 'externalId,conversionName,gclid\na,"Sale, ""big""\r\nof the year",g\nb,c,d\n'
    assert rows(body, CSV) == [
        {"externalId": "a", "conversionName": 'Sale, "big"\r\nof the year', "gclid": "g"},
        {"externalId": "b", "conversionName": "c", "gclid": "d"},
    ]


def test_columns_as_google_names_them_are_understood():
    body = (
        "External ID,Google Click ID,Conversion Name,Conversion Time,Conversion Value,"
        "Conversion Currency,WBRAID,GBRAID\n1,2,3,4,5,6,7,8\n"
    )
    assert rows(body, CSV) == [
        {
            "externalId": "1",
            "gclid": "2",
            "conversionName": "3",
            "conversionTime": "4",
            "conversionValue": "5",
            "conversionCurrency": "6",
            "wbraid": "7",
            "gbraid": "8",
        }
    ]


@pytest.mark.parametrize("name", ["external_id", "EXTERNALID", "External-Id", " externalId "])
def test_a_column_is_known_whatever_its_case_and_signs(name: str):
    assert rows(f"{name}\na\n", CSV) == [{"externalId": "a"}]


def test_columns_nobody_knows_are_passed_over():
    assert rows("note,externalId,orderId\nx,a,y\n", CSV) == [{"externalId": "a"}]


def test_empty_lines_are_no_rows():
    assert rows("\nexternalId,gclid\n\n,\na,b\n \n", CSV) == [{"externalId": "a", "gclid": "b"}]


def test_a_short_line_lacks_its_last_cells():
    assert rows("externalId,gclid\na\n", CSV) == [{"externalId": "a"}]


def test_a_line_with_too_many_cells_is_one_bad_row():
    assert codes(rows("externalId,gclid\na,b,c\nd,e\n", CSV)) == ["NOT_AN_OBJECT", None]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("'=1+1", "=1+1"),
        ("'+905320000000", "+905320000000"),
        ("'-abc", "-abc"),
        ("'@x", "@x"),
        ("''x", "'x"),
        ("'x", "'x"),
        ("=1+1", "=1+1"),
    ],
)
def test_the_apostrophe_that_kept_a_formula_asleep_is_taken_off(cell: str, value: str):
    assert rows(f"externalId\n{cell}\n", CSV) == [{"externalId": value}]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("gclid,conversionValue\na,b\n", "no_header"),
        ("a,b\n", "no_header"),
        ("externalId,external_id\na,b\n", "column_twice"),
        ("externalId,gclid,Google Click ID\na,b,c\n", "column_twice"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused_as_a_whole(body: str, code: str):
    assert problem(body, CSV).code == code


def test_a_broken_quote_spoils_its_own_cell_only():
    assert rows('externalId,gclid\n"a"b,c\nd,e\n', CSV)[1] == {"externalId": "d", "gclid": "e"}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5_000])
@pytest.mark.parametrize("kind", [JSON, NDJSON])
def test_a_strange_number_spoils_its_own_row_only(kind: str, number: str):
    strange, well = f'{{"conversionValue": {number}}}', '{"externalId": "a"}'
    body = f"[{strange}, {well}]" if kind == JSON else f"{strange}\n{well}"
    assert rows(body, kind)[1] == {"externalId": "a"}


@pytest.mark.parametrize("body", ["", "\n", "externalId\n", "\ufeff"])
def test_an_empty_file_has_no_rows(body: str):
    assert rows(body, CSV) == []


# All of them


@pytest.mark.parametrize("kind", [JSON, NDJSON, CSV])
def test_what_is_no_utf_8_is_refused(kind: str):
    assert problem(b"\xff\xfe\x00", kind).code == "not_utf8"


@pytest.mark.parametrize("kind", ["text/html", "multipart/form-data", "application/xml", "x" * 500])
def test_another_kind_of_body_is_refused_by_its_name(kind: str):
    error = problem("[]", kind)
    assert (error.code, len(error.message) < 250) == ("unsupported_type", True)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, lambda n: json.dumps([{}] * n)),
        (NDJSON, lambda n: "{}\n" * n),
        (CSV, lambda n: "externalId\n" + "a\n" * n),
    ],
)
def test_ten_thousand_rows_are_the_most(kind: str, body: Any):
    assert len(rows(body(MAX_ROWS), kind)) == 10_000
    error = problem(body(MAX_ROWS + 1), kind)
    assert (error.status, error.code) == (413, "too_large")


@given(st.binary() | st.text(st.characters(codec="utf-8")), st.sampled_from([NDJSON, CSV, JSON]))
def test_any_body_is_rows_or_a_problem(body: str | bytes, kind: str):
    found = attempt(body, kind)
    if isinstance(found, Problem):
        assert found.status == 400
    else:
        assert all(isinstance(one, dict | Unsendable) for one in found)


@given(st.text(st.sampled_from("externalId,;\t\"\r\n'=a\0")))
def test_any_text_below_a_header_is_rows_or_a_problem(text: str):
    found = attempt(f"externalId,gclid\n{text}", CSV)
    if isinstance(found, Problem):
        assert found.code == "not_csv"
    else:
        assert all(isinstance(one, dict | Unsendable) for one in found)
