"""`kesin oci …` as people and scripts use it."""

import csv
import io
import json
import os
from datetime import UTC, datetime, timedelta

import pytest
import typer

from kesin.foundation.clock import wall_clock_us
from kesin.store.open import open_store
from kesin.workloads.oci import cli_files
from kesin.workloads.oci.cli import app
from tests.cli.conftest import (  # noqa: F401  # fixtures
    _logs_as_before,
    _own_settings,
    database,
    kesin,
    programs,
)
from tests.web.serving import serve
from tests.workloads.oci.google import GoogleServer

NAMES = ["externalId", "gclid", "conversionName", "conversionTime", "conversionValue"]
SECRET_KEYS = "first:" + "A" * 43


def days_ago(days: float) -> str:
    now = datetime.fromtimestamp(wall_clock_us() / 1_000_000, UTC)
    return (now - timedelta(days=days)).isoformat(timespec="seconds")


TIME = days_ago(2)


def row(number: int, **changes: object) -> dict[str, object]:
    plain = {
        "externalId": f"sale-{number}",
        "gclid": f"Cj0KCQiA_click-{number:06d}",
        "conversionName": "Phone sale",
        "conversionTime": TIME,
        "conversionValue": 100 + number,
    }
    return {**plain, **changes}


def as_csv(*rows: dict[str, object], delimiter: str = ",") -> str:
    page = io.StringIO(newline="")
    writer = csv.DictWriter(page, NAMES, delimiter=delimiter, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return page.getvalue()


def lines(*rows: object) -> str:
    return "".join(json.dumps(one) + "\n" for one in rows)


@pytest.fixture
def oci(kesin):  # noqa: F811
    """Run a command of the group; the site north is there."""
    assert kesin("site", "add", "north").code == 0

    def run(*words: object, text: str | None = None):
        return kesin("oci", *words, text=text)

    return run


@pytest.fixture
def play(oci):
    """Take what waits as a script would, and report; how many rows were taken."""

    def ended(**told: object) -> int:
        from kesin.workloads.oci.acks import ack, ack_failed
        from kesin.workloads.oci.cli_desk import open_house, site_of
        from kesin.workloads.oci.export import export

        with open_house() as house:
            site = site_of(house, "north", "test")
            ids = [one["id"] for one in export(house, site, limit=1_000, actor="script")]
            if told:
                ack_failed(house, site, ids, message=None, actor="script", **told)
            else:
                ack(house, site, ids, actor="script")
            return len(ids)

    return ended


# Help and manners

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
EXPECTED = {
    "import",
    "export-dead-letters",
    "enqueue-fix",
    "stats",
    "doctor",
    "settings",
    "credentials",
    "explain",
    "simulate-script",
}


def test_the_group_has_its_commands(kesin):  # noqa: F811
    assert set(COMMANDS) == EXPECTED
    assert "Usage: kesin oci " in kesin("oci", "--help").out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_explained(kesin, name):  # noqa: F811
    command = COMMANDS[name]
    assert command.help.strip().split("\n")[0].endswith(".")
    assert [one.name for one in command.params if not getattr(one, "help", None)] == []
    assert "as_json" in [one.name for one in command.params]
    assert kesin("oci", name, "--help").code == 0


def test_without_a_database_it_says_how_to_make_one(kesin):  # noqa: F811
    answer = kesin("oci", "stats")
    assert (answer.code, answer.out) == (1, "")
    assert "`kesin site add`" in answer.err


def test_an_unknown_site_is_told_in_one_sentence(oci):
    for words in (("doctor", "nrth"), ("stats", "nrth"), ("settings", "nrth")):
        answer = oci(*words)
        assert (answer.code, answer.out) == (1, "")
        assert "there is no site 'nrth'" in answer.err
        assert answer.err.count("\n") == 1


# Import


@pytest.mark.parametrize(
    ("name", "text"),
    {
        "csv": ("a.csv", as_csv(row(1), row(2))),
        "semicolons": ("a.csv", as_csv(row(1), row(2), delimiter=";")),
        "a mark and tabs": ("a.tsv", "\ufeff" + as_csv(row(1), row(2), delimiter="\t")),
        "ndjson": ("a.jsonl", lines(row(1)) + "\n" + lines(row(2)).rstrip()),
        "a list": ("a.json", json.dumps([row(1), row(2)])),
        "a document": ("A.JSON", json.dumps({"siteId": "north", "conversions": [row(1), row(2)]})),
    }.values(),
)
def test_a_file_is_imported_and_known_the_second_time(database, oci, tmp_path, name, text):  # noqa: F811
    (tmp_path / name).write_text(text)
    first = oci("import", name, "--site", "north", "--json")
    assert first.code == 0
    assert (first.json["rows"], first.json["queued"], first.json["rejected"]) == (2, 2, 0)
    again = oci("import", name, "--site", "north")
    assert again.out == "2 rows for north: queued 0, duplicate 2, corrected 0, rejected 0\n"
    assert oci("stats", "north", "--json").json[0]["totals"]["QUEUED"] == 2


def test_standard_input_needs_a_format(oci):
    answer = oci("import", "-", "--site", "north", text=lines(row(1)))
    assert answer.code == 2
    assert "--format" in answer.err
    assert "'sales.txt'" in oci("import", "sales.txt", "--site", "north").err
    good = oci("import", "-", "--site", "north", "--format", "ndjson", text=lines(row(1)))
    assert good.out.startswith("1 rows for north: queued 1")


@pytest.mark.parametrize("kind", ["csv", "ndjson", "json"])
def test_a_file_larger_than_a_batch_is_taken_in_parts(oci, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(cli_files._take, "__kwdefaults__", _smaller(cli_files._take, size=4))
    rows = [row(n) for n in range(10)]
    text = {"csv": as_csv(*rows), "ndjson": lines(*rows), "json": json.dumps(rows)}[kind]
    (tmp_path / f"a.{kind}").write_text(text)
    answer = oci("import", f"a.{kind}", "--site", "north", "--json").json
    assert (answer["rows"], answer["queued"]) == (10, 10)


def _smaller(function, **defaults):
    return {**function.__kwdefaults__, **defaults}


def test_rejected_rows_are_told_kept_mended_and_imported(oci, tmp_path):
    rows = [row(1), row(2, gclid=""), row(3, conversionValue="=1+1"), row(4, conversionTime="x")]
    (tmp_path / "a.csv").write_text(as_csv(*rows))
    answer = oci("import", "a.csv", "--site", "north")
    assert answer.code == 1
    assert answer.out == "4 rows for north: queued 1, duplicate 0, corrected 0, rejected 3\n"
    assert "row 2 (sale-2): MISSING_CLICK_ID" in answer.err
    assert "INVALID_TIME_FORMAT 1" in answer.err
    told = oci("import", "a.csv", "--site", "north", "--rejects", "r.csv", "--json")
    assert told.code == 1
    assert told.json["rejects"] == "r.csv"
    assert told.json["reasons"]["MISSING_CLICK_ID"] == 1
    assert told.json["first_rejected"][0]["row"] == 2
    with (tmp_path / "r.csv").open(encoding="utf-8-sig", newline="") as file:
        kept = list(csv.DictReader(file))
    assert [one["row"] for one in kept] == ["2", "3", "4"]
    assert kept[1]["conversionValue"] == "'=1+1"  # no formula
    assert kept[0]["errorField"] == "gclid"
    for one in kept:
        one |= {"gclid": "Cj0KCQiA_mended", "conversionValue": "5", "conversionTime": days_ago(1)}
    with (tmp_path / "m.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(kept[0]))
        writer.writeheader()
        writer.writerows(kept)
    assert oci("import", "m.csv", "--site", "north", "--json").json["queued"] == 3


def test_more_rejected_rows_than_anybody_reads_are_counted(oci, tmp_path):
    (tmp_path / "a.ndjson").write_text("no json\n" * 30)
    answer = oci("import", "a.ndjson", "--site", "north")
    assert answer.err.count("NOT_JSON, ") == 20
    assert "and 10 more rows; --rejects" in answer.err
    assert oci("import", "a.ndjson", "--site", "north", "--rejects", "r.csv").code == 1
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 31


def test_a_control_character_of_a_file_does_not_reach_the_terminal(oci):
    bad = lines(row(1, externalId="a\x1b[2Jb"))
    answer = oci("import", "-", "--format", "ndjson", "--site", "north", text=bad)
    assert answer.code == 1
    assert "\x1b" not in answer.err
    assert "\\x1b" in answer.err


def test_what_cannot_be_read_is_told_and_nothing_is_overwritten(oci, tmp_path):
    (tmp_path / "a.csv").write_text(as_csv(row(1)))
    same = oci("import", "a.csv", "--site", "north", "--rejects", "./a.csv")
    assert same.code == 2
    assert "sale-1" in (tmp_path / "a.csv").read_text()
    missing = oci("import", "no.csv", "--site", "north", "--rejects", "r.csv")
    assert (missing.code, (tmp_path / "r.csv").exists()) == (1, False)
    assert "No such file" in missing.err
    (tmp_path / "b.csv").write_bytes("externalId;gclid\nşe".encode("cp1254"))
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
    monkeypatch.setattr(cli_files._take, "__kwdefaults__", _smaller(cli_files._take, size=2))
    whole = as_csv(*(row(n) for n in range(300))).encode()  # it is read in parts
    (tmp_path / "a.csv").write_bytes(whole + b"sale-300,\xff\n")
    answer = oci("import", "a.csv", "--site", "north")
    assert answer.code == 1
    assert "CSV UTF-8" in answer.err
    done = int(answer.err.partition("the ")[2].partition(" rows before it are done")[0])
    assert 0 < done < 300
    assert oci("stats", "north", "--json").json[0]["totals"]["QUEUED"] == done


def test_an_import_is_in_the_audit_log(oci, kesin):  # noqa: F811
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(row(1), row(1)))
    line = kesin("audit", "log", "--json").json[0]
    assert (line["action"], line["site"]) == ("oci.import", "north")
    assert line["details"] == {"queued": 1, "duplicate": 1}
    assert line["actor"].startswith("cli:")


def test_the_progress_is_drawn_on_a_terminal(oci, programs, tmp_path):  # noqa: F811
    (tmp_path / "a.csv").write_text(as_csv(*(row(n) for n in range(100))))
    answer = programs.on_terminal("oci", "import", "a.csv", "--site", "north")
    assert answer.code == 0
    assert "100 rows for north: queued 100" in answer.out
    assert "\x1b[" in answer.out


# Dead letters and fixes


def test_dead_letters_go_out_are_mended_and_come_back(database, oci, play, tmp_path):  # noqa: F811
    rows = [row(n) for n in range(3)]
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(*rows))
    assert play(code="INVALID_GCLID", category="VALIDATION") == 3
    told = oci("export-dead-letters", "--site", "north", "-o", "dead.csv", "--json").json
    assert told == {"site": "north", "rows": 3, "file": "dead.csv"}
    text = (tmp_path / "dead.csv").read_text("utf-8-sig")
    assert oci("export-dead-letters", "--site", "north").out.lstrip("\ufeff") == text.replace(
        "\r\n", "\n"
    )
    (tmp_path / "dead.csv").write_text(text.replace("Cj0KCQiA_click", "Cj0KCQiA_mended"))
    assert oci("import", "dead.csv", "--site", "north", "--json").json["corrected"] == 3
    empty = oci("export-dead-letters", "--site", "north")
    assert len(empty.lines) == 1
    assert "no dead letters" in empty.err


def test_dead_letters_speak_turkish_and_json(oci, play):
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(row(1)))
    play(code="INVALID_GCLID", category="VALIDATION")
    english = oci("export-dead-letters", "--site", "north", "--json").json
    turkish = oci("export-dead-letters", "--site", "north", "--lang", "tr", "--json").json
    assert english["errorCode"] == turkish["errorCode"] == "INVALID_GCLID"
    assert english["whatToDo"] != turkish["whatToDo"]
    assert english["conversionTime"] == TIME


def test_a_delivered_row_is_sent_again_as_a_revision(database, oci, play, kesin):  # noqa: F811
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(row(1), row(2)))
    assert play() == 2
    fixes = lines({"externalId": "sale-1", "conversionValue": 7}, {"externalId": "sale-2"})
    words = ("enqueue-fix", "-", "--format", "ndjson", "--site", "north")
    answer = oci(*words, "--reason", "refused later", text=fixes)
    assert answer.out == "2 rows for north: queued 1, left 1, corrected 0, rejected 0\n"
    again = oci(*words, "--again", "--json", text=lines({"externalId": "sale-2"}))
    assert (again.json["queued"], again.json["left"]) == (1, 0)
    totals = oci("stats", "north", "--json").json[0]["totals"]
    assert (totals["QUEUED"], totals["COMPLETED"]) == (2, 2)
    details = [one["details"] for one in kesin("audit", "log", "--json").json]
    assert {"changed": 1, "reason": "refused later"} in details
    unknown = oci(*words, text=lines({"externalId": "nobody"}))
    assert unknown.code == 1
    assert "UNKNOWN_ROW" in unknown.err


# A site


def test_stats_show_every_site_with_its_warnings(database, oci, play, kesin):  # noqa: F811
    kesin("site", "add", "west", "--channel", "api")
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(row(1), row(2)))
    play(code="INVALID_GCLID", category="VALIDATION")
    header, north, west = oci("stats").lines
    assert header.split()[:4] == ["SITE", "CHANNEL", "QUEUED", "RETRY"]
    assert north.split() == [
        *["north", "script", "0", "0", "0", "0", "2", "0", "100.0", "—", "FAILED_SHARE_HIGH"]
    ]
    assert "closed" in west
    one = oci("stats", "west", "--json").json[0]
    assert (one["site"], one["breaker"], one["warnings"]) == ("west", "closed", [])


def test_settings_are_shown_changed_and_taken_back(database, oci):  # noqa: F811
    shown = oci("settings", "north", "--json").json
    assert (shown["recover_minutes"], shown["silent_hours"], shown["conversion_name"]) == (
        15,
        24,
        None,
    )
    words = ("--recover-minutes", 45, "--silent-hours", 3, "--conversion-name", "Phone sale")
    changed = oci("settings", "north", *words, "--json").json
    assert changed == {
        **shown,
        "recover_minutes": 45,
        "silent_hours": 3,
        "conversion_name": "Phone sale",
    }
    unnamed = row(1, conversionName="")
    answer = oci("import", "-", "--format", "json", "--site", "north", text=json.dumps(unnamed))
    assert answer.code == 0
    back = oci("settings", shown["uuid"], "--silent-hours", 0, "--conversion-name", "", "--json")
    assert back.json == {**shown, "recover_minutes": 45}
    wrong = oci("settings", "north", "--recover-minutes", 0)
    assert (wrong.code, wrong.out) == (2, "")
    assert "recover_minutes must be a whole number in 1…1440" in wrong.err


def test_a_doctor_of_a_script_site_says_what_is_missing(oci, play):
    answer = oci("doctor", "north")
    assert answer.code == 1
    assert "none has ever reported" in answer.out
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(row(1)))
    play(code="INVALID_GCLID", category="VALIDATION")
    told = oci("doctor", "north", "--lang", "tr", "--json")
    assert told.code == 1
    assert told.json["ok"] is False
    assert told.json["stats"]["warnings"][0]["code"] == "FAILED_SHARE_HIGH"
    (reason,) = told.json["reasons"]
    assert (reason["code"], reason["rows"]) == ("INVALID_GCLID", 1)
    assert reason["act"] in oci("doctor", "north", "--lang", "tr").out


def test_credentials_are_kept_tried_and_dropped(oci, kesin, tmp_path, monkeypatch):  # noqa: F811
    kesin("site", "set", "north", "--channel", "api")
    with GoogleServer() as google:
        document = google.credentials().sealed_text()
        words = ("credentials", "north")
        assert "KESIN_SECRET_KEYS" in oci(*words, text=document).err
        monkeypatch.setenv("KESIN_SECRET_KEYS", SECRET_KEYS)
        monkeypatch.setenv("KESIN_OCI_GOOGLE_URL", google.url)
        monkeypatch.setenv("KESIN_OCI_TOKEN_URL", google.token_url)
        assert oci("doctor", "north").code == 1
        (tmp_path / "c.json").write_text(document)
        kept = oci(*words, "--file", "c.json", "--json")
        assert kept.json == {"site": "north", "kept": True}
        assert oci(*words, text=document).out == "kept, for north\n"
        good = oci("doctor", "north")
        assert good.code == 0, good.out
        assert "✗" not in good.out
        google.refresh_token = "another"
        google.expire_tokens()
        bad = oci("doctor", "north", "--json")
        assert (bad.code, bad.json["ok"]) == (1, False)
        assert google.recorded == {}
    for answer in (kept, good, bad):
        assert "the-client-secret" not in answer.out + answer.err
    assert oci(*words, "--drop").out == "dropped the credentials of north\n"
    gone = oci(*words, "--drop")
    assert (gone.code, gone.err) == (1, "kesin: there are no credentials of north\n")


def test_no_secret_is_repeated_whatever_is_wrong_with_it(oci, monkeypatch):
    monkeypatch.setenv("KESIN_SECRET_KEYS", SECRET_KEYS)
    hidden = "the-hidden-one"
    for words, text in (
        (("north", hidden), None),
        ((f'{{"client_secret": "{hidden}"}}',), None),
        (("north", f"--client-secret={hidden}"), None),
        (("north",), f"{hidden} is no JSON"),
        (("north",), json.dumps([hidden])),
        (("north",), json.dumps({"customer_id": hidden})),
        (("north", "--drop", "--file", hidden), None),
    ):
        answer = oci("credentials", *words, text=text)
        assert answer.code in {1, 2}
        assert hidden not in answer.out + answer.err
        assert answer.err.count("\n") == 1


def test_a_code_is_explained_in_both_languages_whatever_its_case(kesin):  # noqa: F811
    english = kesin("oci", "explain", "invalid_gclid")
    assert english.lines[0] == "INVALID_GCLID"
    turkish = kesin("oci", "explain", "INVALID_GCLID", "--lang", "tr", "--json").json
    assert turkish["code"] == "INVALID_GCLID"
    assert turkish["act"] not in english.out
    assert kesin("oci", "explain", "HTTP_503").code == 0
    unknown = kesin("oci", "explain", "INVALID_GCLDI")
    assert (unknown.code, unknown.out) == (1, "")
    assert "did you mean INVALID_GCLID?" in unknown.err


# The script


def test_the_script_is_played_against_a_running_server(oci, kesin, programs, tmp_path):  # noqa: F811
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(*map(row, range(30))))
    key = kesin("key", "create", "--name", "s", "--scope", "oci:script", "--site", "north").out
    (tmp_path / "key").write_text(key)
    with serve(programs, tmp_path, "--no-workers") as served:
        words = ("simulate-script", "--site", "north", "--url", served.address)
        how = ("--runs", 2, "--crash", "after-export", "--limit", 10, "--seed", 5)
        played = oci(*words, "--key-file", "key", *how, "--fail-share", 0.5)
        assert played.code == 0
        assert "never went to Google" in played.err
        assert "crashed after-export" in played.lines[1]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SCRIPT_KEY", key)
            nothing = oci(*words, "--key-env", "SCRIPT_KEY", "--json")
        assert nothing.json["runs"][0]["exported"] == 0
    totals = oci("stats", "north", "--json").json[0]["totals"]
    assert totals["PROCESSING"] == 10
    assert totals["COMPLETED"] + totals["FAILED"] == 20
    assert totals["FAILED"] > 0
    assert key.strip() not in played.out + played.err


def test_what_would_harm_or_makes_no_sense_is_refused(oci, tmp_path):
    (tmp_path / "key").write_text("k\n")
    base = ("simulate-script", "--site", "north")
    here = (*base, "--url", "http://127.0.0.1:9")
    other = oci(*base, "--url", "https://kesin.example.com", "--key-file", "key")
    assert other.code == 2
    assert "never went to Google" in other.err
    for words, said in (
        (here, "--key-file or --key-env"),
        ((*here, "--key-file", "key", "--key-env", "X"), "--key-file or --key-env"),
        ((*here, "--key-file", "key", "--crash", "at-noon"), "after-export"),
        ((*here, "--key-file", "key", *["--crash", "before-ack"] * 2), "--runs 2"),
        ((*base, "--url", "here", "--key-file", "key"), "no address"),
    ):
        answer = oci(*words)
        assert answer.code == 2
        assert said in answer.err
    for words, said in (
        ((*here, "--key-env", "NOT_THERE"), "no key in the variable NOT_THERE"),
        ((*here, "--key-file", "no"), "No such file"),
        ((*here, "--key-file", "key"), "is `kesin serve` running?"),
    ):
        answer = oci(*words)
        assert answer.code == 1
        assert said in answer.err


def test_postgres_is_not_migrated_by_itself(kesin, postgres_server, monkeypatch):  # noqa: F811
    address = postgres_server.create_database(f"oci_cli_{os.getpid()}")
    monkeypatch.setenv("KESIN_DATABASE_URL", address)
    answer = kesin("oci", "stats")
    assert answer.code == 1
    assert "run `kesin migrate` first" in answer.err
    open_store(address, migrate=True).close()
    assert kesin("oci", "stats").out == "there is no site yet: `kesin site add` makes one\n"
