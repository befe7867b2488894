import pytest


def test_a_site_is_added_listed_and_changed(kesin, database):
    added = kesin("site", "add", "north", "--json").json
    assert {name: added[name] for name in ("id", "name", "channel", "timezone", "currency")} == {
        "id": "north",
        "name": "north",
        "channel": "script",
        "timezone": "Europe/Istanbul",
        "currency": "TRY",
    }
    words = ("--name", "North Ltd", "--channel", "api", "--timezone", "UTC", "--currency", "EUR")
    changed = kesin("site", "set", "north", *words, "--json").json
    assert changed["name"] == "North Ltd"
    assert kesin("site", "list", "--json").json == [changed]
    assert kesin("site", "list").lines[1].split() == ["north", "North", "Ltd", "api", "UTC", "EUR"]


def test_people_are_told_what_was_done(kesin):
    assert kesin("site", "list").out == "there is no site yet: `kesin site add` makes one\n"
    answer = kesin("site", "add", "s", "--channel", "data_manager")
    assert answer.out == "added s (data_manager, Europe/Istanbul, TRY)\n"
    assert kesin("site", "set", "s", "--currency", "USD").out == (
        "changed s (data_manager, Europe/Istanbul, USD)\n"
    )


def test_the_database_is_made_for_the_first_site(kesin, tmp_path):
    assert kesin("site", "add", "north").code == 0
    assert (tmp_path / "data" / "kesin.db").exists()


def test_postgres_is_not_migrated_by_itself(kesin, empty_postgres):
    for words in (("add", "north"), ("list",), ("set", "north", "--name", "x")):
        answer = kesin("site", *words)
        assert (answer.code, answer.out) == (1, "")
        assert "run `kesin migrate` first" in answer.err


BAD = {
    "a channel": (("add", "s", "--channel", "fax"), 2, "script, api, data_manager, got 'fax'"),
    "a zone": (("add", "s", "--timezone", "Mars"), 2, "'Mars' is no time zone"),
    "a currency": (("add", "s", "--currency", "lira"), 2, "three capital letters"),
    "an id": (("add", "a b"), 2, "'a b' is no site name"),
    "a second time": (("add", "north"), 1, "there is a site 'north' already"),
    "an unknown site": (("set", "s", "--name", "x"), 1, "no site 's' (there are: north)"),
    "a bad change": (("set", "north", "--channel", "fax"), 2, "got 'fax'"),
    "no change": (("set", "north"), 2, "nothing to change: give --name"),
}


@pytest.mark.parametrize(("words", "code", "sentence"), BAD.values(), ids=BAD)
def test_what_does_not_fit_gets_one_sentence(kesin, words, code, sentence):
    kesin("site", "add", "north")
    answer = kesin("site", *words)
    assert (answer.code, answer.out) == (code, "")
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


def test_every_change_is_in_the_audit_log(kesin, database):
    kesin("site", "add", "north")
    kesin("site", "set", "north", "--name", "N")
    lines = kesin("audit", "log", "--site", "north", "--json").json
    assert [(one["action"], one["allowed"], one["details"]) for one in lines] == [
        ("site.set", True, {"changed": ["name"]}),
        ("site.add", True, None),
    ]
    assert all(one["actor"].startswith("cli:") for one in lines)
