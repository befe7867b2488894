"""`kesin site import` and `kesin site remove`."""

from __future__ import annotations

import stat

import pytest

HEADER = "id,name,channel,timezone,currency,customer_id,recover_minutes,enhanced\n"


@pytest.fixture
def imports(kesin, tmp_path):
    """Imports a text as a file."""

    def run(text, *words, codec="utf-8"):
        file = tmp_path / "sites.csv"
        file.write_bytes(text.encode(codec))
        return kesin("site", "import", str(file), *words)

    return run


def results(answer):
    return [(line["line"], line["site"], line["result"]) for line in answer.json]


def test_sites_are_added_changed_and_left_as_they_are(kesin, imports):
    kesin("site", "add", "north", "--name", "Old")
    kesin("site", "add", "south")
    text = HEADER + ("west,West,script,UTC,EUR,123-456-7890,45,yes\nnorth,North,,,,,,\nsouth,south,,,,,,\n")
    previewed = imports(text, "--dry-run", "--json")
    assert results(previewed) == [(2, "west", "new"), (3, "north", "changed"), (4, "south", "same")]
    assert [site["id"] for site in kesin("site", "list", "--json").json] == ["north", "south"]
    assert results(imports(text, "--yes", "--json")) == results(previewed)
    names = {site["id"]: site["name"] for site in kesin("site", "list", "--json").json}
    assert names == {"north": "North", "south": "south", "west": "West"}
    settings = kesin("oci", "doctor", "west", "--json").json["settings"]
    assert settings["customer_id"] == "1234567890"
    assert (settings["recover_minutes"], settings["enhanced"]) == (45, True)
    again = imports(text, "--yes", "--json")
    assert [result for _, _, result in results(again)] == ["same"] * 3


def test_the_preview_is_a_table_a_pipe_must_say_yes_and_a_file_of_a_turkish_spreadsheet_is_read(kesin, imports):
    answer = imports("id\nwest\n")
    assert answer.code == 2
    assert answer.lines[1].split() == ["2", "west", "new", "—"]
    assert "add --yes" in answer.err
    assert kesin("site", "list", "--json").json == []
    imports("id;name\r\nsube-1;Şişli İş\r\n", "--yes", codec="cp1254")
    assert kesin("site", "list", "--json").json[0]["name"] == "Şişli İş"


BAD_LINES = {
    "a,,fax,,,,,": "a channel must be one of",
    "b,,,Mars,,,,": "is not a time zone",
    "c,,,,QQQ,,,": "is not an ISO 4217 currency code",
    "d d,,,,,,,": "is not a site id",
    ",West,,,,,,": "is not a site id",
    "e,,,,,123,,": "customer_id must be the ten digits",
    "f,,,,,,soon,": "recover_minutes must be a whole number",
    "g,,,,,,,maybe": "enhanced must be yes or no",
}


def test_a_refused_line_is_named_with_its_reason_and_nothing_is_stored(kesin, imports):
    lines = "".join(f"{line}\n" for line in BAD_LINES)
    answer = imports(f"{HEADER}east,,,,,,,\n{lines}twice,A,,,,,,\ntwice,B,,,,,,\n", "--yes", "--json")
    assert answer.code == 1
    fine, *refused = answer.json
    assert fine["result"] == "new"
    assert [(line["line"], line["result"]) for line in refused] == [(n, "refused") for n in range(3, 13)]
    for line, reason in zip(refused, BAD_LINES.values(), strict=False):
        assert reason in line["detail"]
    assert kesin("site", "list", "--json").json == []


BAD_FILES = {
    "id,colour\nwest,red\n": "column 'colour' is unknown, missing or repeated; known: id, name",
    "name\nWest\n": "column 'id' is unknown, missing",
    "id,name,Name\nwest,a,b\n": "column 'name' is unknown, missing or repeated",
    "id\nwest,red\n": "lines of equal length",
    "": "not a CSV",
}


def test_a_file_that_cannot_be_read_is_a_one_line_error(imports):
    for text, reason in BAD_FILES.items():
        answer = imports(text, "--yes")
        assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
        assert reason in answer.err


def test_new_sites_are_like_another_and_have_a_key_each_in_a_private_file(kesin, imports, tmp_path):
    imports(f"{HEADER}model,,script,UTC,EUR,123-456-7890,45,yes\n", "--yes")
    keys = tmp_path / "keys.csv"
    answer = imports("id,currency\nwest,USD\nmodel,EUR\n", "--like", "model", "--keys", str(keys), "--yes")
    assert answer.code == 0
    [_, west] = kesin("site", "list", "--json").json
    assert (west["timezone"], west["currency"]) == ("UTC", "USD")
    settings = kesin("oci", "doctor", "west", "--json").json["settings"]
    assert (settings["recover_minutes"], settings["customer_id"]) == (45, None)
    [header, line] = keys.read_text("utf-8").splitlines()
    assert header == "site,key"
    site, key = line.split(",")
    assert (site, key.startswith("kesin_")) == ("west", True)
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    [made] = kesin("key", "list", "--json").json
    assert (made["site"], made["scopes"], made["id"] in key) == ("west", ["oci:script"], True)
    refused = imports("id\neast\n", "--keys", str(keys), "--yes")
    assert (refused.code, "name a new file" in refused.err) == (1, True)


def test_a_site_is_removed_after_a_preview(kesin, imports):
    imports("id\nwest\n", "--yes")
    made = kesin("key", "create", "--name", "k", "--scope", "read", "--site", "west", "--json")
    asked = kesin("site", "remove", "west")
    assert (asked.code, "add --yes" in asked.err) == (2, True)
    assert made.json["id"] in asked.out
    gone = kesin("site", "remove", "west", "--yes", "--json").json
    assert gone["keys"] == [made.json["id"]]
    assert kesin("site", "list", "--json").json == []
    assert kesin("key", "list", "--json").json[0]["state"] == "revoked"
    again = kesin("site", "remove", "west", "--yes")
    assert (again.code, "there is no site 'west'" in again.err) == (1, True)


def test_a_script_key_of_all_sites_must_be_asked_for(kesin):
    words = ("key", "create", "--name", "manager", "--scope", "oci:script")
    assert "belongs to one site" in kesin(*words).err
    made = kesin(*words, "--all-sites", "--json").json
    [listed] = kesin("key", "list", "--json").json
    assert (listed["id"], listed["site"]) == (made["id"], None)
    both = kesin(*words, "--all-sites", "--site", "north")
    assert "one site or for all sites" in both.err
