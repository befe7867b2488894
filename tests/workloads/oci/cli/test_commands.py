"""The `kesin oci` commands, for the terminal and for scripts."""

import json
import os
from typing import Any

import pytest
import typer

from kesin.store.open import open_store
from kesin.workloads.common.cli import local_operator
from kesin.workloads.oci.cli import app
from kesin.workloads.oci.cli.site import open_site
from tests.cli.conftest import _logs_as_before, _own_settings, database, kesin  # noqa: F401  # fixtures
from tests.workloads.oci.fake_google import GoogleServer
from tests.workloads.oci.prompt import (
    TIME,
    commands,  # noqa: F401  # a fixture
    lines,
    row,
)
from tests.workloads.oci.running import sales

SECRET_KEYS = "first:" + "A" * 43


@pytest.fixture
def play(oci):
    """Take what waits as a script would, and report; how many rows were taken."""

    def ended(**fields: Any) -> int:
        from kesin.workloads.oci.script import ack, ack_failed, export

        with open_site("north", "test") as site:
            ids = [one["id"] for one in export(site, limit=1_000, actor="script")]
            if fields:
                ack_failed(site, ids, message=None, actor="script", **fields)
            else:
                ack(site, ids, actor="script")
            return len(ids)

    return ended


# Help

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
EXPECTED = ["import", "export-dead-letters", "enqueue-fix", "doctor"]
EXPECTED += ["credentials", "simulate-script"]


def test_every_command_and_option_has_help(kesin):  # noqa: F811
    assert set(COMMANDS) == set(EXPECTED)
    assert "Usage: kesin oci " in kesin("oci", "--help").out
    for name, command in COMMANDS.items():
        assert command.help.strip().split("\n")[0].endswith("."), name
        assert [param.name for param in command.params if not getattr(param, "help", None)] == []
        assert "as_json" in [param.name for param in command.params], name
        assert kesin("oci", name, "--help").code == 0


def test_without_a_database_it_says_how_to_make_one(kesin):  # noqa: F811
    answer = kesin("oci", "doctor", "north")
    assert (answer.code, answer.out) == (1, "")
    assert "`kesin site add`" in answer.err


def test_an_unknown_site_is_told_in_one_sentence(oci):
    for words in (("doctor", "nrth"), ("export-dead-letters", "--site", "nrth")):
        answer = oci(*words)
        assert (answer.code, answer.out) == (1, "")
        assert "there is no site 'nrth'" in answer.err
        assert answer.err.count("\n") == 1


# Dead letters and fixes


def test_dead_letters_go_out_are_mended_and_come_back(database, oci, play, tmp_path):  # noqa: F811
    rows = [row(n) for n in range(3)]
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(*rows))
    assert play(code="INVALID_GCLID", category="VALIDATION") == 3
    result = oci("export-dead-letters", "--site", "north", "-o", "dead.csv", "--json").json
    assert result == {"site": "north", "rows": 3, "file": "dead.csv"}
    text = (tmp_path / "dead.csv").read_text("utf-8-sig")
    assert oci("export-dead-letters", "--site", "north").out.lstrip("\ufeff") == text.replace("\r\n", "\n")
    (tmp_path / "dead.csv").write_text(text.replace("Cj0KCQiA_click", "Cj0KCQiA_mended"))
    assert oci("import", "dead.csv", "--site", "north", "--json").json["corrected"] == 3
    empty = oci("export-dead-letters", "--site", "north")
    assert len(empty.lines) == 1
    assert "no dead letters" in empty.err


def test_dead_letters_speak_turkish_and_json(oci, play):
    sold = row(1, conversionName="Phone;=sale")
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(sold))
    play(code="INVALID_GCLID", category="VALIDATION")
    english = oci("export-dead-letters", "--site", "north", "--json").json
    turkish = oci("export-dead-letters", "--site", "north", "--lang", "tr", "--json").json
    assert english["errorCode"] == turkish["errorCode"] == "INVALID_GCLID"
    assert english["whatToDo"] != turkish["whatToDo"]
    assert (english["conversionTime"], english["conversionName"]) == (TIME, "Phone;=sale")


def test_a_delivered_row_is_sent_again_as_a_revision(database, oci, play, kesin):  # noqa: F811
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(row(1), row(2)))
    assert play() == 2
    fixes = lines({"externalId": "sale-1", "conversionValue": 7}, {"externalId": "sale-2"})
    words = ("enqueue-fix", "-", "--format", "ndjson", "--site", "north")
    answer = oci(*words, "--reason", "refused later", text=fixes)
    assert answer.out == "2 rows for north: queued 1, left 1, corrected 0, rejected 0\n"
    again = oci(*words, "--again", "--json", text=lines({"externalId": "sale-2"}))
    assert (again.json["queued"], again.json["left"]) == (1, 0)
    totals = oci("doctor", "north", "--json").json["stats"]["totals"]
    assert (totals["QUEUED"], totals["COMPLETED"]) == (2, 2)
    details = [one["details"] for one in kesin("audit", "log", "--json").json]
    assert {"changed": 1, "reason": "refused later"} in details
    unknown = oci(*words, text=lines({"externalId": "nobody"}))
    assert unknown.code == 1
    assert "UNKNOWN_ROW" in unknown.err


def test_a_row_that_google_took_is_restated_and_not_sent_again(database, oci, play):  # noqa: F811
    oci("import", "-", "--format", "ndjson", "--site", "north", text=lines(row(1)))
    assert play() == 1
    words = ("enqueue-fix", "-", "--format", "ndjson", "--site", "north", "--taken", "--json")
    counts = []
    for value in (7, 7, 8, 7):
        answer = oci(*words, text=lines({"externalId": "sale-1", "conversionValue": value}))
        counts.append((answer.json["queued"], answer.json["left"]))
    assert counts == [(1, 0), (0, 1), (1, 0), (1, 0)]
    other = oci(*words, text=lines({"externalId": "sale-1", "gclid": "another_click"}))
    assert other.code == 1
    assert "NOT_ADJUSTABLE" in other.err + other.out
    assert play() == 0


# A site


def test_a_doctor_of_a_script_site_says_what_is_missing(oci, play):
    answer = oci("doctor", "north")
    assert answer.code == 1
    assert "no script has ever reported" in answer.out
    ten = lines(*map(row, range(10)))
    oci("import", "-", "--format", "ndjson", "--site", "north", text=ten)
    play(code="INVALID_GCLID", category="VALIDATION")
    result = oci("doctor", "north", "--lang", "tr", "--json")
    assert result.code == 1
    assert result.json["ok"] is False
    assert result.json["stats"]["warnings"][0]["code"] == "FAILED_SHARE_HIGH"
    (reason,) = result.json["reasons"]
    assert (reason["code"], reason["rows"]) == ("INVALID_GCLID", 10)
    assert reason["act"] in oci("doctor", "north", "--lang", "tr").out


def test_credentials_are_kept_tried_and_dropped(oci, kesin, tmp_path, monkeypatch):  # noqa: F811
    kesin("site", "set", "north", "--channel", "api")
    with GoogleServer() as google:
        document = google.credentials().to_text()
        words = ("credentials", "north")
        assert "KESIN_SECRET_KEYS" in oci(*words, text=document).err
        monkeypatch.setenv("KESIN_SECRET_KEYS", SECRET_KEYS)
        monkeypatch.setenv("KESIN_OCI_GOOGLE_URL", google.url)
        monkeypatch.setenv("KESIN_OCI_TOKEN_URL", google.token_url)
        assert oci("doctor", "north").code == 1
        (tmp_path / "c.json").write_text(document)
        stored = oci(*words, "--file", "c.json", "--json")
        assert stored.json == {"site": "north", "kept": True}
        assert oci(*words, text=document).out == "stored the credentials of north\n"
        assert "MISSING_CONVERSION_NAME" in oci("doctor", "north").out
        with open_site("north", "site.set") as site:
            save = site.context.commands.accounts.set_site_settings
            save(local_operator(), "north", "oci", {"conversion_name": "Phone sale"})
        good = oci("doctor", "north")
        assert good.code == 0, good.out
        assert "✗" not in good.out
        google.refresh_token = "another"
        google.expire_tokens()
        bad = oci("doctor", "north", "--json")
        assert (bad.code, bad.json["ok"]) == (1, False)
        assert google.recorded == {}
    for answer in (stored, good, bad):
        assert "the-client-secret" not in answer.out + answer.err
    assert oci(*words, "--drop").out == "deleted the credentials of north\n"
    gone = oci(*words, "--drop")
    assert (gone.code, gone.err) == (1, "kesin: no credentials are stored for north\n")


def test_no_secret_is_repeated_whatever_is_wrong_with_it(oci, monkeypatch):
    monkeypatch.setenv("KESIN_SECRET_KEYS", SECRET_KEYS)
    hidden = "the-hidden-one"
    for words, text in (
        (("north", hidden), None),
        ((f'{{"client_secret": "{hidden}"}}',), None),
        (("north", f"--client-secret={hidden}"), None),
        (("north",), f"{hidden} is not JSON"),
        (("north",), json.dumps([hidden])),
        (("north",), json.dumps({"customer_id": hidden})),
        (("north", "--drop", "--file", hidden), None),
    ):
        answer = oci("credentials", *words, text=text)
        assert answer.code in {1, 2}
        assert hidden not in answer.out + answer.err
        assert answer.err.count("\n") == 1


# The script


def test_the_script_is_played_against_a_running_server(kesin, server, tmp_path, monkeypatch):  # noqa: F811
    server.enqueue(*sales(30))
    (tmp_path / "key").write_text(server.key)
    words = ("oci", "simulate-script", "--site", server.site_id, "--url", server.base_url)
    how = ("--runs", 2, "--crash", "after-export", "--limit", 10, "--seed", 5)
    played = kesin(*words, "--key-file", "key", *how, "--fail-share", 0.5, "--yes")
    assert played.code == 0
    assert "crashed after-export" in played.lines[1]
    monkeypatch.setenv("SCRIPT_KEY", server.key)
    nothing = kesin(*words, "--key-env", "SCRIPT_KEY", "--json", "--yes")
    assert nothing.json["runs"][0]["exported"] == 0
    states = server.states()
    assert states["PROCESSING"] == 10
    assert states["COMPLETED"] + states["FAILED"] == 20
    assert states["FAILED"] > 0
    assert server.key not in played.out + played.err


def test_the_simulated_script_takes_nothing_before_it_is_confirmed(kesin, server, monkeypatch):  # noqa: F811
    server.enqueue(*sales(3))
    monkeypatch.setenv("SCRIPT_KEY", server.key)
    site = ("--site", server.site_id, "--url", server.base_url)
    refused = kesin("oci", "simulate-script", *site, "--key-env", "SCRIPT_KEY")
    assert refused.code == 2
    assert f"the site {server.site_id} at {server.base_url}" in refused.err
    assert "although Google never received them" in refused.err
    assert "add --yes" in refused.err
    assert server.states() == {"QUEUED": 3}


def test_what_would_harm_or_makes_no_sense_is_refused(oci, tmp_path):
    (tmp_path / "key").write_text("k\n")
    base = ("simulate-script", "--site", "north")
    here = (*base, "--url", "http://127.0.0.1:9")
    other = oci(*base, "--url", "https://kesin.example.com", "--key-file", "key")
    assert other.code == 2
    assert "although Google never received them" in other.err
    for words, message in (
        (here, "--key-file or --key-env"),
        ((*here, "--key-file", "key", "--key-env", "X"), "--key-file or --key-env"),
        ((*here, "--key-file", "key", "--crash", "at-noon"), "after-export"),
        ((*here, "--key-file", "key", *["--crash", "before-ack"] * 2), "--runs 2"),
        ((*base, "--url", "here", "--key-file", "key"), "not a server address"),
    ):
        answer = oci(*words)
        assert answer.code == 2
        assert message in answer.err
    for words, message in (
        ((*here, "--key-env", "NOT_THERE"), "no key in the variable NOT_THERE"),
        ((*here, "--key-file", "no"), "No such file"),
        ((*here, "--key-file", "key", "--yes"), "is `kesin serve` running?"),
    ):
        answer = oci(*words)
        assert answer.code == 1
        assert message in answer.err


def test_postgres_is_not_migrated_by_itself(kesin, postgres_server, monkeypatch):  # noqa: F811
    address = postgres_server.create_database(f"oci_cli_{os.getpid()}")
    monkeypatch.setenv("KESIN_DATABASE_URL", address)
    answer = kesin("oci", "doctor", "north")
    assert answer.code == 1
    assert "run `kesin migrate` first" in answer.err
    open_store(address, migrate=True).close()
    assert "there is no site 'north'" in kesin("oci", "doctor", "north").err
