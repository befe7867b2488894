"""Users: how they are added and changed, and whether any account is usable."""

from functools import partial
from typing import Any

import pytest

from kesin.foundation.problems import Invalid, NotFound, RequestConflict
from tests.engine.access.accounts.conftest import DAY_S, PASSWORD, ROOT, signed_in, state


def test_a_user_is_neither_added_nor_changed_with_what_cannot_be_meant(accounts):
    before = state(accounts)
    for fields, kind, sentence in (
        ({"sites": ["north", "west"]}, NotFound, r"'west' \(existing sites: north, south\)"),
        ({"role": "boss"}, Invalid, "one of viewer, operator, admin, got 'boss'"),
    ):
        with pytest.raises(kind, match=sentence):
            accounts.add_user(ROOT, "can", PASSWORD, **fields)
        with pytest.raises(kind, match=sentence):
            accounts.set_user(ROOT, "ayse", **fields)
    for name in ("", "a b", "-a", "a\0", "é", "x" * 64, "a/b", "a\n"):
        with pytest.raises(Invalid, match="is not a user name"):
            accounts.add_user(ROOT, name, PASSWORD)
    with pytest.raises(RequestConflict, match="the user 'ayse' already"):
        accounts.add_user(ROOT, "ayse", "another password")
    assert state(accounts) == before
    assert signed_in(accounts)


def test_a_concurrent_change_is_not_lost(accounts, monkeypatch):
    directory = accounts.directory
    read = directory.user

    def read_slowly(name: str) -> Any:
        user = read(name)
        monkeypatch.setattr(directory, "user", read)
        accounts.set_user(ROOT, "ayse", disabled=True)
        return user

    monkeypatch.setattr(directory, "user", read_slowly)
    accounts.set_user(ROOT, "ayse", role="viewer")
    after = accounts.user(ROOT, "ayse")
    assert (after.role, after.disabled_at is not None) == ("viewer", True)


def test_only_named_fields_change(accounts, clock):
    before = accounts.user(ROOT, "ayse")
    clock.advance(5)
    after = accounts.set_user(ROOT, "ayse", sites=["south", "north", "south"])
    assert after == before._replace(sites=("south", "north"), changed_at=clock.time_us)
    assert accounts.user(ROOT, "ayse") == after
    emptied = accounts.set_user(ROOT, "ayse", all_sites=True, sites=(), queues=())
    assert (emptied.all_sites, emptied.sites, emptied.queues) == (True, (), ())


def test_a_bad_password_is_refused_and_not_repeated(accounts):
    for password in ("", "x" * 9, "x" * 1_025, "x" * 20 + "\ud800", "\0" * 10):
        for change, name in ((accounts.add_user, "can"), (accounts.set_password, "ayse")):
            with pytest.raises(Invalid) as problem:
                change(ROOT, name, password)
            assert not password or password not in str(problem.value)
    assert signed_in(accounts)


def test_an_unknown_user_is_not_found(accounts):
    change_role = partial(accounts.set_user, role="admin")
    for name in ("can", "a\0", "\ud800"):
        for change in (accounts.user, accounts.end_sessions, change_role):
            with pytest.raises(NotFound, match="there is no user"):
                change(ROOT, name)
        with pytest.raises(NotFound, match="there is no user"):
            accounts.set_password(ROOT, name, PASSWORD)


def test_there_is_a_usable_account_while_a_user_or_key_is_valid(accounts, clock):
    assert accounts.has_usable_account()
    accounts.set_user(ROOT, "ayse", disabled=True)
    assert not accounts.has_usable_account()
    accounts.create_key(ROOT, "n", ["read"], days=1)
    assert accounts.has_usable_account()
    clock.advance(DAY_S)
    assert not accounts.has_usable_account()
    key = accounts.create_key(ROOT, "n", ["read"])[1]
    assert accounts.has_usable_account()
    accounts.revoke_key(ROOT, key.id)
    assert not accounts.has_usable_account()
