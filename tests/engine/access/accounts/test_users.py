"""Users: how they are added and changed, and whether any account is usable."""

from typing import Any

import pytest

from kesin.foundation.problems import Invalid, NotFound, Problem, RequestConflict
from tests.engine.access.accounts.conftest import DAY_S, PASSWORD, ROOT, signed_in, state

BAD_USERS: dict[str, tuple[dict[str, Any], type[Problem], str]] = {
    "site": ({"sites": ["north", "west"]}, NotFound, r"'west' \(existing sites: north, south\)"),
    "role": ({"role": "boss"}, Invalid, "one of viewer, operator, admin, got 'boss'"),
}


@pytest.mark.parametrize(("fields", "kind", "sentence"), BAD_USERS.values(), ids=BAD_USERS)
def test_a_user_is_neither_added_nor_changed_with_an_unknown(accounts, fields, kind, sentence):
    before = state(accounts)
    for change in (
        lambda: accounts.add_user(ROOT, "can", PASSWORD, **fields),
        lambda: accounts.set_user(ROOT, "ayse", **fields),
    ):
        with pytest.raises(kind, match=sentence):
            change()
    assert state(accounts) == before


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


@pytest.mark.parametrize("name", ["", "a b", "-a", "a\0", "é", "x" * 64, "a/b", "a\n"])
def test_a_bad_user_name_is_refused(accounts, name):
    with pytest.raises(Invalid, match="is not a user name"):
        accounts.add_user(ROOT, name, PASSWORD)


@pytest.mark.parametrize("password", ["", "x" * 9, "x" * 1_025, "x" * 20 + "\ud800", "\0" * 10])
def test_a_bad_password_is_refused_and_not_repeated(accounts, password):
    for change in (
        lambda: accounts.add_user(ROOT, "can", password),
        lambda: accounts.set_password(ROOT, "ayse", password),
    ):
        with pytest.raises(Invalid) as problem:
            change()
        assert not password or password not in str(problem.value)
    assert signed_in(accounts)


def test_a_user_name_is_taken_once(accounts):
    with pytest.raises(RequestConflict, match="the user 'ayse' already"):
        accounts.add_user(ROOT, "ayse", "another password")
    assert signed_in(accounts)


@pytest.mark.parametrize("name", ["can", "a\0", "\ud800"])
def test_an_unknown_user_is_not_found(accounts, name):
    for change in (
        lambda: accounts.user(ROOT, name),
        lambda: accounts.set_password(ROOT, name, PASSWORD),
        lambda: accounts.set_user(ROOT, name, role="admin"),
        lambda: accounts.end_sessions(ROOT, name),
    ):
        with pytest.raises(NotFound, match="there is no user"):
            change()


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
