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
    lines = kesin("audit", "log", "--site", "north", "--json").json
    fields = {"changed": ["name", "channel", "timezone", "currency"]}
    assert [(line["action"], line["details"]) for line in lines] == [("site.set", fields), ("site.add", None)]
    assert all(line["actor"].startswith("cli:") for line in lines)
    answer = kesin("site", "add", "s", "--channel", "data_manager")
    assert answer.out == "added s (data_manager, Europe/Istanbul, TRY)\n"
    assert kesin("site", "set", "s", "--currency", "USD").out == ("changed s (data_manager, Europe/Istanbul, USD)\n")


BAD = {
    "a channel": (("add", "s", "--channel", "fax"), 2, "script, api, data_manager, got 'fax'"),
    "a second time": (("add", "north"), 1, "the site 'north' already exists"),
    "an unknown site": (("set", "s", "--name", "x"), 1, "no site 's' (existing sites: north)"),
    "no change": (("set", "north"), 2, "nothing to change: give --name"),
}


def test_a_bad_argument_is_a_one_line_error(kesin, database):
    assert kesin("site", "list").out == "there is no site yet: `kesin site add` creates one\n"
    answer = kesin("site", "set", "north", "--currency", "USD")
    assert (answer.code, "this database has none: check KESIN_DATABASE_URL" in answer.err) == (1, True)
    kesin("site", "add", "north")
    for name, (words, code, sentence) in BAD.items():
        answer = kesin("site", *words)
        assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1), name
        assert sentence in answer.err
