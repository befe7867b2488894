"""`kesin oci import`: files of any size and quality, taken row by row."""

import json

import pytest

from kesin.workloads.oci.cli import files as cli_files
from tests.cli.conftest import (  # noqa: F401  # fixtures
    _logs_as_before,
    _own_settings,
    database,
    kesin,
    programs,
)
from tests.workloads.oci.prompt import (
    as_csv,
    commands,  # noqa: F401  # a fixture
    days_ago,
    lines,
    row,
)


def test_a_file_of_each_kind_is_imported_and_known_the_second_time(database, oci, tmp_path):  # noqa: F811
    pairs = [(row(2 * n), row(2 * n + 1)) for n in range(6)]
    for name, text in (
        ("a.csv", as_csv(*pairs[0])),
        ("b.csv", as_csv(*pairs[1], delimiter=";")),
        ("a.tsv", "\ufeff" + as_csv(*pairs[2], delimiter="\t")),
        ("a.jsonl", lines(pairs[3][0]) + "\n" + lines(pairs[3][1]).rstrip()),
        ("a.json", json.dumps(pairs[4])),
        ("B.JSON", json.dumps({"siteId": "north", "conversions": pairs[5]})),
    ):
        (tmp_path / name).write_text(text)
        first = oci("import", name, "--site", "north", "--json")
        assert first.code == 0
        assert (first.json["rows"], first.json["queued"], first.json["rejected"]) == (2, 2, 0)
        again = oci("import", name, "--site", "north")
        assert again.out == "2 rows for north: queued 0, duplicate 2, corrected 0, rejected 0\n"
    assert oci("doctor", "north", "--json").json["stats"]["totals"]["QUEUED"] == 12


def test_duplicates_that_were_not_taken_are_counted(database, oci, tmp_path):  # noqa: F811
    twice = [row(1), {**row(1), "conversionValue": 7}]
    (tmp_path / "a.json").write_text(json.dumps(twice))
    answer = oci("import", "a.json", "--site", "north")
    assert "1 duplicates differ from the stored rows, which stay" in answer.err
    assert answer.out == "2 rows for north: queued 1, duplicate 1, corrected 0, rejected 0\n"


def test_standard_input_needs_a_format(oci):
    answer = oci("import", "-", "--site", "north", text=lines(row(1)))
    assert answer.code == 2
    assert "--format" in answer.err
    assert "'sales.txt'" in oci("import", "sales.txt", "--site", "north").err
    good = oci("import", "-", "--site", "north", "--format", "ndjson", text=lines(row(1)))
    assert good.out.startswith("1 rows for north: queued 1")


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_file_larger_than_a_batch_is_taken_in_parts(oci, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(
        cli_files._process_file, "__kwdefaults__", _smaller(cli_files._process_file, size=4)
    )
    rows = [row(n) for n in range(10)]
    text = as_csv(*rows) if kind == "csv" else json.dumps(rows)
    (tmp_path / f"a.{kind}").write_text(text)
    answer = oci("import", f"a.{kind}", "--site", "north", "--json").json
    assert (answer["rows"], answer["queued"]) == (10, 10)


def _smaller(function, **defaults):
    return {**function.__kwdefaults__, **defaults}


def test_rejected_rows_are_told_mended_and_imported(oci, tmp_path):
    rows = [row(1), row(2, gclid=""), row(3, conversionValue="=1+1"), row(4, conversionTime="x")]
    (tmp_path / "a.csv").write_text(as_csv(*rows))
    answer = oci("import", "a.csv", "--site", "north")
    assert answer.code == 1
    assert answer.out == "4 rows for north: queued 1, duplicate 0, corrected 0, rejected 3\n"
    assert "row 2 (sale-2): MISSING_CLICK_ID" in answer.err
    assert "INVALID_TIME_FORMAT 1" in answer.err
    result = oci("import", "a.csv", "--site", "north", "--json")
    assert result.code == 1
    assert result.json["reasons"]["MISSING_CLICK_ID"] == 1
    assert result.json["first_rejected"][0]["row"] == 2
    mended = {"gclid": "Cj0KCQiA_mended", "conversionValue": "5", "conversionTime": days_ago(1)}
    (tmp_path / "m.csv").write_text(as_csv(*(each | mended for each in rows[1:])))
    assert oci("import", "m.csv", "--site", "north", "--json").json["queued"] == 3


def test_more_rejected_rows_than_anybody_reads_are_counted(oci, tmp_path):
    (tmp_path / "a.ndjson").write_text("no json\n" * 30)
    answer = oci("import", "a.ndjson", "--site", "north")
    assert answer.err.count("NOT_JSON, ") == 20
    assert "and 10 more rows" in answer.err


def test_a_control_character_of_a_file_does_not_reach_the_terminal(oci):
    bad = lines(row(1, externalId="a\x1b[2Jb"))
    answer = oci("import", "-", "--format", "ndjson", "--site", "north", text=bad)
    assert answer.code == 1
    assert "\x1b" not in answer.err
    assert "\\x1b" in answer.err


def test_what_cannot_be_read_is_told(oci, tmp_path):
    missing = oci("import", "no.csv", "--site", "north")
    assert missing.code == 1
    assert "No such file" in missing.err
    (tmp_path / "b.csv").write_bytes("externalId;gclid\nşe".encode("cp1254") + b"\x81")
    assert "CSV UTF-8" in oci("import", "b.csv", "--site", "north").err
    (tmp_path / "c.csv").write_text("name;gclid\nx;y\n")
    assert "must name the columns" in oci("import", "c.csv", "--site", "north").err
    (tmp_path / "d.json").write_text('[{"externalId": ')
    assert "no JSON" in oci("import", "d.json", "--site", "north").err
    (tmp_path / "e.csv").write_text("")
    assert oci("import", "e.csv", "--site", "north").out.startswith("0 rows for north")


def test_a_file_of_another_site_is_refused(oci, kesin, tmp_path):  # noqa: F811
    kesin("site", "add", "south")
    (tmp_path / "a.json").write_text(json.dumps({"siteId": "south", "conversions": [row(1)]}))
    answer = oci("import", "a.json", "--site", "north")
    assert answer.code == 2
    assert "for the site 'south'" in answer.err
    assert oci("import", "a.json", "--site", "south").code == 0


def test_where_a_file_breaks_off_what_is_done_is_told(oci, tmp_path, monkeypatch):
    monkeypatch.setattr(
        cli_files._process_file, "__kwdefaults__", _smaller(cli_files._process_file, size=20)
    )
    whole = lines(*(row(n) for n in range(300))).encode()  # it is read in parts
    (tmp_path / "a.ndjson").write_bytes(whole + b"sale-300,\xff\n")
    answer = oci("import", "a.ndjson", "--site", "north")
    assert answer.code == 1
    assert "CSV UTF-8" in answer.err
    done = int(answer.err.partition("the ")[2].partition(" rows before it are done")[0])
    assert 0 < done < 300
    assert oci("doctor", "north", "--json").json["stats"]["totals"]["QUEUED"] == done


def test_an_import_is_in_the_audit_log(oci, kesin):  # noqa: F811
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(row(1), row(1)))
    line = kesin("audit", "log", "--json").json[0]
    assert (line["action"], line["site"]) == ("oci.import", "north")
    assert line["details"] == {"queued": 1, "duplicate": 1}
    assert line["actor"].startswith("cli:")


@pytest.mark.long
def test_the_progress_is_drawn_on_a_terminal(oci, programs, tmp_path):  # noqa: F811
    (tmp_path / "a.csv").write_text(as_csv(*(row(n) for n in range(100))))
    answer = programs.on_terminal("oci", "import", "a.csv", "--site", "north")
    assert answer.code == 0
    assert "100 rows for north: queued 100" in answer.out
    assert "\x1b[" in answer.out
