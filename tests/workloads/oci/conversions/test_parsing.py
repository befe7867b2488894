"""Parsing bodies as rows: JSON, NDJSON and CSV as real tools write them.

Any body at all is read in tests/faults/test_parsers_oci.py.
"""

import json
from typing import Any

import pytest

from kesin.foundation.problems import Problem
from kesin.workloads.oci.conversions.conversion import Unsendable
from kesin.workloads.oci.conversions.parsing import MAX_ROWS, parse_body

JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"


def rows(body: str | bytes, kind: str) -> list[Any]:
    return parse_body(body if isinstance(body, bytes) else body.encode(), kind)[1]


def problem(body: str | bytes, kind: str) -> Problem:
    with pytest.raises(Problem) as caught:
        rows(body, kind)
    return caught.value


def codes(parsed: list[Any]) -> list[str | None]:
    return [one.code if isinstance(one, Unsendable) else None for one in parsed]


# JSON


@pytest.mark.parametrize(
    ("body", "site", "count"),
    [
        ({"externalId": "a"}, None, 1),
        ({"externalId": "a", "siteId": "north"}, "north", 1),
        ([], None, 0),
        ([{"externalId": "a"}, {"externalId": "b"}], None, 2),
        ({"siteId": "north", "conversions": [{}, {}]}, "north", 2),
        ({"conversions": []}, None, 0),
        ({"siteId": None, "conversions": []}, None, 0),
    ],
)
def test_json_is_one_row_a_list_or_an_envelope(body: Any, site: str | None, count: int):
    named, parsed = parse_body(json.dumps(body).encode(), JSON)
    assert (named, len(parsed)) == (site, count)


@pytest.mark.parametrize("kind", [JSON, "application/json; charset=utf-8", "", "application/x+json"])
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
        ('{"externalId": "a", "siteId": 5}', "bad_site"),
        ('{"conversions": [], "site": "north"}', "unknown_field"),
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
    assert codes(rows('{"a": 1}\nnonsense\n[1]\n{}', NDJSON)) == [*(None, "NOT_JSON", "NOT_AN_OBJECT"), None]


def test_a_line_may_hold_signs_that_other_programs_take_for_its_end():
    assert rows('{"externalId": "a\u2028b\x85c"}\n', NDJSON) == [{"externalId": "a\u2028b\x85c"}]


# CSV


A_B = [{"externalId": "a", "gclid": "b"}]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        *((f"externalId{sign}gclid\na{sign}b\n", A_B) for sign in ",;\t"),
        *(
            (f"{top}externalId;gclid\na;b\n", A_B)  # lines without text may precede a header
            for top in ("\n", "\r\n\r\n", " \n", ";;\n", '""\n', "\xa0\n\f\n")
        ),
        *((end.join(["externalId,gclid", "a,b", ""]), A_B) for end in ("\n", "\r\n", "\r")),
        ("\nexternalId,gclid\n\n,\na,b\n \n", A_B),
        ("whatToDo,externalId,gclid,orderId\nx,a,b,y\n", A_B),
        ("externalId;gclid\na;1.500,75\n", [{"externalId": "a", "gclid": "1.500,75"}]),
        ("\ufeffexternalId\na\n", [{"externalId": "a"}]),
        ("externalId,gclid\na\n", [{"externalId": "a"}]),
        *(
            (f"{name}\na\n", [{"externalId": "a"}])
            for name in ("external_id", "EXTERNALID", "External-Id", " externalId ")
        ),
        *((body, []) for body in ("", "\n", "externalId\n", "\ufeff")),
    ],
)
def test_a_csv_is_read_as_tools_write_it(body: str, expected: list[dict]):
    assert rows(body, CSV) == expected


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
    names = ["externalId", "gclid", "conversionName", "conversionTime", "conversionValue"]
    names += ["conversionCurrency", "wbraid", "gbraid"]
    assert rows(body, CSV) == [dict(zip(names, "12345678", strict=True))]


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


def test_a_broken_quote_spoils_its_own_cell_only():
    assert rows('externalId,gclid\n"a"b,c\nd,e\n', CSV)[1] == {"externalId": "d", "gclid": "e"}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5_000])
@pytest.mark.parametrize("kind", [JSON, NDJSON])
def test_a_strange_number_spoils_its_own_row_only(kind: str, number: str):
    strange, well = f'{{"conversionValue": {number}}}', '{"externalId": "a"}'
    body = f"[{strange}, {well}]" if kind == JSON else f"{strange}\n{well}"
    assert rows(body, kind)[1] == {"externalId": "a"}


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
