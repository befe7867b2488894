import sys
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.foundation import passwords
from kesin.foundation.problems import NotSignedIn
from kesin.foundation.settings import load_settings
from kesin.store.directory import Directory
from kesin.store.open import open_store
from tests.cli.programs import KESIN, Answer, on_terminal

PASSWORD = "correct horse battery"
NEW = "another password"


@pytest.fixture
def accounts():
    with closing(open_store(load_settings().database, migrate=True)) as store:
        yield Accounts(Directory(store))


@pytest.fixture
def add(kesin, database):
    """Add a user with the password on standard input."""

    def run(name: str, *words: str, password: str = PASSWORD) -> Answer:
        return kesin("user", "add", name, *words, "--password-stdin", text=password + "\n")

    return run


def test_a_user_is_added_and_signs_in(kesin, either_database, add, accounts):
    kesin("site", "add", "north")
    words = ("--role", "operator", "--site", "north", "--queue", "oci", "--queue", "pdf")
    added = add("ayse", *words, "--json").json
    assert added.pop("created_at") == added.pop("changed_at")
    assert added == {
        "name": "ayse",
        "role": "operator",
        "all_sites": False,
        "sites": ["north"],
        "queues": ["oci", "pdf"],
        "disabled": False,
        "disabled_at": None,
    }
    _, actor = accounts.sign_in("ayse", PASSWORD, "::1")
    assert (actor.grants, actor.sites, actor.queues) == ({"operator"}, {"north"}, {"oci", "pdf"})
    answer = add("can", "--role", "viewer", password=PASSWORD + "\r")  # which is no part of the password
    assert (answer.code, "can sees nothing yet" in answer.err) == (0, True)
    assert accounts.sign_in("can", PASSWORD, "::1")
    assert add("deniz", "--role", "viewer", "--all-sites").err == ""


def test_the_list_shows_roles_sites_and_queues(kesin, add):
    assert "there is no user yet" in kesin("user", "list").out
    kesin("site", "add", "north")
    add("ayse", "--role", "viewer", "--site", "north", "--queue", "oci")
    add("root", "--role", "admin")
    kesin("user", "set", "root", "--disable")
    lines = [line.split()[:5] for line in kesin("user", "list").lines[1:]]
    assert lines == [["ayse", "viewer", "north", "oci", "allowed"], ["root", "admin", "all", "—", "disabled"]]
    listed = kesin("user", "list", "--json")
    assert [user["name"] for user in listed.json] == ["ayse", "root"]
    assert "argon2" not in listed.out


def test_a_new_password_or_disabling_ends_the_sessions_and_the_old_password(kesin, add, accounts):
    add("ayse", "--role", "viewer")
    token, _ = accounts.sign_in("ayse", PASSWORD, "::1")
    answer = kesin("user", "passwd", "ayse", "--password-stdin", text=NEW)
    assert (answer.code, answer.lines[0]) == (0, "changed the password of ayse (viewer)")
    assert accounts.session_actor(token, "::1") is None
    with pytest.raises(NotSignedIn):
        accounts.sign_in("ayse", PASSWORD, "::1")
    token, _ = accounts.sign_in("ayse", NEW, "::1")
    assert kesin("user", "set", "ayse", "--disable").out == "changed ayse (viewer)\n"
    assert accounts.session_actor(token, "::1") is None


CHANGES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "a role": (("--role", "viewer"), {"role": "viewer"}),
    "sites": (("--site", "south"), {"sites": ["south"]}),
    "every site": (("--all-sites",), {"all_sites": True, "sites": []}),
    "no site": (("--no-sites",), {"sites": []}),
    "queues": (("--queue", "pdf"), {"queues": ["pdf"]}),
    "no queue": (("--no-queues",), {"queues": []}),
    "disabled": (("--disable",), {"disabled": True}),
    "several": (("--role", "admin", "--enable"), {"role": "admin"}),
}


def test_only_named_fields_change(kesin, add):
    kesin("site", "add", "north")
    kesin("site", "add", "south")
    users = []
    for number, (words, changed) in enumerate(CHANGES.values()):
        who = f"user-{number}"
        before = add(who, "--role", "operator", "--site", "north", "--queue", "oci", "--json").json
        after = kesin("user", "set", who, *words, "--json").json
        times = {name: after[name] for name in ("changed_at", "disabled_at")}
        assert after == {**before, **changed, **times}
        users.append(after)
    assert kesin("user", "list", "--json").json == users


BAD = {
    "a role": (("add", "can", "--role", "boss"), 2, "the choices are viewer, operator, admin"),
    "no role": (("add", "can"), 2, "--role"),
    "a queue": (("add", "can", "--role", "viewer", "--queue", "ocj"), 2, "did you mean 'oci'?"),
    "a site and all": (("add", "can", "--role", "viewer", "--site", "s", "--all-sites"), 2, "cannot be combined"),
    "a name again": (("add", "ayse", "--role", "viewer", "--password-stdin"), 1, "the user 'ayse' already exists"),
    "no terminal": (("add", "can", "--role", "viewer"), 2, "use --password-stdin"),
    "a password of no user": (("passwd", "can"), 1, "there is no user 'can'"),
    "no change": (("set", "ayse"), 2, "nothing to change"),
    "sites and none": (("set", "ayse", "--site", "s", "--no-sites"), 2, "cannot be combined"),
    "queues and none": (("set", "ayse", "--queue", "oci", "--no-queues"), 2, "cannot be combined"),
}


def test_a_bad_argument_is_a_one_line_error_and_changes_nothing(kesin, add):
    add("ayse", "--role", "viewer")
    before = kesin("user", "list", "--json").out
    for words, code, sentence in BAD.values():
        answer = kesin("user", *words, text=PASSWORD)
        assert (answer.code, answer.out) == (code, "")
        assert sentence in answer.err
        assert answer.err.count("\n") == 1
        assert PASSWORD not in answer.err
    assert kesin("user", "list", "--json").out == before


BAD_PASSWORDS = {
    b"short\n": "10",
    b"": "this one has 0",
    b"two lines\nare too many\n": "must be one line",
    b"not \xff UTF-8 at all\n": "is not UTF-8 text",
    b"x" * 5_000: "10…1024 characters",
}


def test_a_bad_password_is_refused_and_not_repeated_and_the_first_user_creates_the_database(kesin):
    words = ("user", "add", "root", "--role", "admin", "--password-stdin")
    for given, sentence in BAD_PASSWORDS.items():
        answer = kesin(*words, text=given)
        assert (answer.code, answer.out, sentence in answer.err) == (2, "", True), given[:20]
        assert given[:5].decode("latin-1") not in answer.err or not given
    assert kesin("user", "list", "--json").json == []
    answer = kesin(*words, text=PASSWORD)
    assert (answer.code, answer.out, answer.err) == (0, "added root (admin)\n", "")


def test_without_argon2_it_says_what_to_install(add, monkeypatch):
    passwords._hasher.cache_clear()
    monkeypatch.setitem(sys.modules, "argon2", None)
    answer = add("ayse", "--role", "admin")
    assert (answer.code, answer.out) == (1, "")
    assert "pip install 'kesin[web]'" in answer.err


# On a terminal


def type_passwords(*words: str, typed: list[str]) -> Answer:
    """Run a command and type the passwords at its prompts, in turn the first and the second."""
    prompts = cycle(("Password: ", "Again: "))
    answers = [(next(prompts), f"{password}\n") for password in typed]
    return on_terminal([*KESIN, "user", *words], Path.cwd(), answers)


def test_on_a_terminal_the_password_is_prompted_for_twice_and_never_shown(accounts):
    answer = type_passwords("add", "ayse", "--role", "admin", typed=[PASSWORD, PASSWORD])
    assert answer.code == 0
    assert answer.lines[-1] == "added ayse (admin)"
    assert PASSWORD not in answer.out
    assert accounts.sign_in("ayse", PASSWORD, "::1")


def test_passwords_that_differ_are_prompted_for_again(kesin, add, accounts):
    add("ayse", "--role", "admin")
    answer = type_passwords("passwd", "ayse", typed=[NEW, "typo", NEW, NEW])
    assert answer.code == 0
    assert NEW not in answer.out
    assert accounts.sign_in("ayse", NEW, "::1")
