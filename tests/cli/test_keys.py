from contextlib import closing

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.foundation.clock import ManualClock
from kesin.foundation.passwords import key_id_of
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import load_settings
from kesin.store.directory import Directory
from kesin.store.open import open_store


@pytest.fixture
def actor_of():
    """The actor of a key."""

    def read(key):
        with closing(open_store(load_settings().database, migrate=False)) as store:
            return Accounts(Directory(store)).key_actor(key, "::1")

    return read


def test_a_key_is_printed_once_and_has_its_scopes(kesin, database, actor_of):
    kesin("site", "add", "north")
    scopes = ("--scope", "oci:ingest", "--scope", "oci:script")
    made = kesin("key", "create", "--name", "script", *scopes, "--site", "north", "--json")
    assert made.json.keys() == {"key", "id"}
    assert key_id_of(made.json["key"]) == made.json["id"]
    actor = actor_of(made.json["key"])
    assert (actor.grants, actor.sites) == ({"oci:ingest", "oci:script"}, {"north"})
    secret = made.json["key"][15:]
    for words in (("key", "list"), ("key", "list", "--json"), ("audit", "log", "--json")):
        answer = kesin(*words)
        assert made.json["id"] in answer.out
        assert secret not in answer.out + answer.err
    answer = kesin("key", "create", "--name", "n", "--scope", "metrics")
    key_id = key_id_of(answer.out.removesuffix("\n"))  # without --json, the key alone
    assert f"not shown again; `kesin key revoke {key_id}` revokes it" in answer.err
    assert answer.out.strip() not in answer.err


def test_the_list_shows_everything_but_the_key(kesin):
    kesin("migrate")
    assert kesin("key", "list").out == "there is no key yet: `kesin key create` creates one\n"
    with closing(open_store(load_settings().database, migrate=False)) as store:
        accounts = Accounts(Directory(store), ManualClock())
        accounts.create_key(system_actor("cli:me"), "old", ["read"], days=1)
    assert [key["state"] for key in kesin("key", "list", "--json").json] == ["expired"]
    made = kesin("key", "create", "--name", "n", "--scope", "read", "--days", 30, "--json").json
    [listed] = [key for key in kesin("key", "list", "--json").json if key["name"] == "n"]
    times = {listed.pop("created_at"), listed.pop("expires_at")}
    assert len(times - {None}) == 2
    assert listed.pop("created_by").startswith("cli:")
    assert listed == {
        "id": made["id"],
        "name": "n",
        "scopes": ["read"],
        "site": None,
        "state": "valid",
        "used_at": None,
        "revoked_at": None,
    }
    assert [made["id"], "n", "read", "—", "valid"] in [line.split()[:5] for line in kesin("key", "list").lines]


def test_a_revoked_key_has_no_actor_and_stays_in_the_list(kesin, actor_of):
    made = kesin("key", "create", "--name", "n", "--scope", "read", "--json").json
    assert kesin("key", "revoke", made["id"]).out == f"revoked {made['id']}\n"
    assert actor_of(made["key"]) is None
    assert kesin("key", "list", "--json").json[0]["state"] == "revoked"
    again = kesin("key", "revoke", made["key"], "--json")
    assert (again.code, again.json) == (0, {"id": made["id"], "revoked": False})
    unknown = kesin("key", "revoke", made["key"] + "x")
    assert (unknown.code, made["key"][15:] in unknown.err) == (1, False)


CREATE = ("create", "--name", "n", "--scope")
BAD = {
    "a scope": ((*CREATE, "oci"), 2, "the choices are oci:ingest, oci:script, pdf, pdf:html, optiplan, read, operate,"),
    "no scope": (("create", "--name", "n"), 2, "--scope"),
    "a site without effect": ((*CREATE, "admin", "--site", "north"), 2, "admin cannot be limited to a site"),
    "an unknown id": (("revoke", "abcd2345"), 1, "there is no key 'abcd2345'"),
}


def test_a_bad_argument_is_a_one_line_error(kesin):
    kesin("site", "add", "north")
    for name, (words, code, sentence) in BAD.items():
        answer = kesin("key", *words)
        assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1), name
        assert sentence in answer.err
