"""`kesin oci import`: files of any size and quality, taken row by row."""

import json
import os
import sys
import types
from datetime import datetime

import pytest
import typer

from kesin.workloads.oci.cli import files as cli_files
from tests.cli.conftest import _logs_as_before, _own_settings, database, kesin, programs  # noqa: F401  # fixtures
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
    again = oci("import", "a.csv", "--site", "north")
    assert again.out == "2 rows for north: queued 0, duplicate 2, corrected 0, rejected 0\n"
    assert oci("doctor", "north", "--json").json["stats"]["totals"]["QUEUED"] == 12


def test_duplicates_that_were_not_taken_are_counted(database, oci, tmp_path):  # noqa: F811
    twice = [row(1), {**row(1), "conversionValue": 7}]
    (tmp_path / "a.json").write_text(json.dumps(twice))
    answer = oci("import", "a.json", "--site", "north")
    assert "1 duplicates differ from the stored rows, which do not change" in answer.err
    assert answer.out == "2 rows for north: queued 1, duplicate 1, corrected 0, rejected 0\n"


def test_standard_input_needs_a_format(oci):
    answer = oci("import", "-", "--site", "north", text=lines(row(1)))
    assert answer.code == 2
    assert "--format" in answer.err
    assert "'sales.txt'" in oci("import", "sales.txt", "--site", "north").err
    good = oci("import", "-", "--site", "north", "--format", "ndjson", text=lines(row(1)))
    assert good.out.startswith("1 row for north: queued 1")


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_file_larger_than_a_batch_is_taken_in_parts(oci, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(cli_files._process_file, "__kwdefaults__", _smaller(cli_files._process_file, size=4))
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
    assert "not JSON" in oci("import", "d.json", "--site", "north").err
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
    monkeypatch.setattr(cli_files._process_file, "__kwdefaults__", _smaller(cli_files._process_file, size=20))
    whole = lines(*(row(n) for n in range(300))).encode()  # it is read in parts
    (tmp_path / "a.ndjson").write_bytes(whole + b"sale-300,\xff\n")
    answer = oci("import", "a.ndjson", "--site", "north")
    assert answer.code == 1
    assert "CSV UTF-8" in answer.err
    done = int(answer.err.partition("; the ")[2].partition(" rows before it are done")[0])
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
    words = ("oci", "import", "a.csv", "--site", "north")
    answer = programs.on_terminal(*words, after="rows into north?", type_in="y\n")
    assert answer.code == 0
    assert "100 rows for north: queued 100" in answer.out
    assert "\x1b[" in answer.out


# Files as people have them


TURKISH = "Order ID;Google Click ID;Conversion Name;Conversion Time;Conversion Value\r\n"


def turkish(*amounts: str) -> bytes:
    when = datetime.fromisoformat(days_ago(1)).strftime("%d.%m.%Y %H:%M")
    rows = (f"A-{n};Cj0KCQiA_{n:08};Satış;{when};{amount}\r\n" for n, amount in enumerate(amounts))
    return (TURKISH + "".join(rows)).encode("cp1254")


def test_a_dry_run_shows_how_a_file_is_read_and_changes_nothing(oci, tmp_path):
    (tmp_path / "a.csv").write_bytes(turkish("1.250,50", "7", "1.500"))
    answer = oci("import", "a.csv", "--site", "north", "--dry-run")
    assert answer.code == 1
    for text in ("Windows-1254", "Google Click ID → gclid", "dd.mm.yyyy", "Satış", "1257.50 TRY"):
        assert text in answer.out
    assert "Cj0KCQiA_0" not in answer.out
    assert "line 4, row 3 (A-2): INVALID_CONVERSION_VALUE, '1.500' is ambiguous" in answer.err
    assert "3 rows for north, once imported: queued 2, duplicate 0, corrected 0" in answer.out
    shown = oci("import", "a.csv", "--site", "north", "--dry-run", "--json").json
    assert shown["file"]["encoding"] == "Windows-1254"
    assert shown["sums"] == {"TRY": "1257.50"}
    assert shown["first_rejected"][0]["line"] == 4
    assert oci("doctor", "north", "--json").json["stats"]["totals"]["QUEUED"] == 0
    done = oci("import", "a.csv", "--site", "north", "--yes")
    assert done.out == "3 rows for north: queued 2, duplicate 0, corrected 0, rejected 1\n"
    again = oci("import", "a.csv", "--site", "north", "--dry-run", "--json").json
    assert (again["queued"], again["duplicate"]) == (0, 2)


def test_a_dry_run_of_other_formats_and_of_standard_input(oci):
    for kind, text in (("ndjson", lines(row(1))), ("csv", as_csv(row(1)))):
        words = ("import", "-", "--format", kind, "--site", "north", "--dry-run", "--json")
        shown = oci(*words, text=text).json
        assert (shown["rows"], shown["queued"]) == (1, 1)
        assert shown["first"][0]["externalId"] == "sale-1"
    assert oci("doctor", "north", "--json").json["stats"]["totals"]["QUEUED"] == 0


@pytest.mark.long
def test_a_terminal_is_asked_and_no_means_no(oci, programs, tmp_path):  # noqa: F811
    (tmp_path / "a.csv").write_bytes(turkish("5"))
    words = ("oci", "import", "a.csv", "--site", "north")
    question = "Import 1 rows into north?"
    no = programs.on_terminal(*words, after=question, type_in="n\n")
    assert (no.code, "Windows-1254" in no.out, "queued 1, duplicate" in no.out) == (1, True, True)
    assert oci("doctor", "north", "--json").json["stats"]["totals"]["QUEUED"] == 0
    yes = programs.on_terminal(*words, after=question, type_in="y\n")
    assert (yes.code, "queued 1" in yes.out) == (0, True)
    assert question not in programs.on_terminal(*words, "--yes").out


def test_a_file_that_changes_after_it_was_shown_is_not_imported(oci, tmp_path, monkeypatch):
    file = tmp_path / "a.csv"
    file.write_text(as_csv(row(1)))

    def changes(_: str, **__: object) -> None:
        file.write_text(as_csv(row(1), row(2)))
        os.utime(file, ns=(1, 1))

    stdin = types.SimpleNamespace(isatty=lambda: True)
    with monkeypatch.context() as patch:
        patch.setattr(cli_files, "sys", types.SimpleNamespace(**{**vars(sys), "stdin": stdin}))
        patch.setattr(typer, "confirm", changes)
        answer = oci("import", "a.csv", "--site", "north")
    assert (answer.code, "the file changed after it was shown" in answer.err) == (1, True)
    assert oci("doctor", "north", "--json").json["stats"]["totals"]["QUEUED"] == 0
