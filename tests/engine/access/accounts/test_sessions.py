"""Signing in, and how sessions end."""

from collections.abc import Callable

import pytest
from argon2 import PasswordHasher

from kesin.engine.access.accounts import IDLE_S, SESSION_S, Accounts
from kesin.foundation import passwords
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import NotSignedIn
from tests.engine.access.accounts.conftest import HOME, PASSWORD, ROOT, audit_lines, signed_in

# Signing in


def test_the_right_password_starts_a_session_of_the_user(accounts):
    token, actor = accounts.sign_in("ayse", PASSWORD, HOME)
    assert actor == Actor(
        "user:ayse", frozenset({"operator"}), sites=frozenset({"north"}), queues=frozenset({"oci"}), address=HOME
    )
    assert accounts.session_actor(token, HOME) == actor
    assert audit_lines(accounts) == [("user:ayse", "session.start", True)]


WRONG = {
    "wrong password": ("ayse", "not the password"),
    "too long a password": ("ayse", PASSWORD + "x" * 2_000),
    "no password": ("ayse", ""),
    "half a character": ("ayse", "\ud800"),
    "unknown name": ("can", PASSWORD),
    "disabled": ("gone", PASSWORD),
    "name in other letters": ("AYSE", PASSWORD),
    "name with NUL": ("ay\0se", PASSWORD),
    "name with half a character": ("\ud800ayse", PASSWORD),
    "no name": ("", PASSWORD),
}


def test_every_failed_sign_in_has_the_same_error_and_an_audit_line(accounts):
    accounts.add_user(ROOT, "gone", PASSWORD)
    accounts.set_user(ROOT, "gone", disabled=True)
    error = {"code": "wrong_password", "message": "the name or the password is wrong"}
    for why, (name, password) in WRONG.items():
        before = accounts.directory.audit(limit=1)[0].id
        with pytest.raises(NotSignedIn) as problem:
            accounts.sign_in(name, password, HOME)
        assert problem.value.body() == {"error": error}, why
        last = accounts.directory.audit(limit=1)[0]
        assert (last.id > before, last.action, last.allowed, last.address) == (True, "session.start", False, HOME), why


def test_an_unknown_name_is_checked_against_a_hash_too(accounts, monkeypatch):
    checked: list[str] = []
    matches = passwords.password_matches

    def record(password_hash: str, password: str) -> bool:
        checked.append(password_hash)
        return matches(password_hash, password)

    monkeypatch.setattr(passwords, "password_matches", record)
    for name in ("ayse", "can"):
        with pytest.raises(NotSignedIn):
            accounts.sign_in(name, "not the password", HOME)
    assert len(checked) == 2
    assert all(password_hash.startswith("$argon2id$") for password_hash in checked)


def test_a_password_of_the_maximum_length_is_not_matched_by_a_longer_one(accounts):
    longest = "".join(map(str, range(1_000)))[: passwords.MAX_PASSWORD_LENGTH]
    accounts.set_password(ROOT, "ayse", longest)
    accounts.sign_in("ayse", longest, HOME)
    with pytest.raises(NotSignedIn):
        accounts.sign_in("ayse", longest + "x", HOME)


def test_an_outdated_hash_is_replaced_at_sign_in(accounts, monkeypatch):
    weak = accounts.directory.user("ayse").password_hash
    stronger = PasswordHasher(time_cost=2, memory_cost=16, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", lambda: stronger)
    signed_in(accounts)
    fresh = accounts.directory.user("ayse").password_hash
    assert (fresh != weak, passwords.is_outdated(fresh)) == (True, False)
    signed_in(accounts)
    assert accounts.directory.user("ayse").password_hash == fresh


@pytest.mark.parametrize("meanwhile", ["disabled", "new password"])
def test_a_change_during_the_password_check_ends_the_sign_in(accounts, monkeypatch, meanwhile):
    matches = passwords.password_matches

    def check_slowly(password_hash: str, password: str) -> bool:
        monkeypatch.setattr(passwords, "password_matches", matches)
        if meanwhile == "disabled":
            accounts.set_user(ROOT, "ayse", disabled=True)
        else:
            accounts.set_password(ROOT, "ayse", "another password")
        return matches(password_hash, password)

    monkeypatch.setattr(passwords, "password_matches", check_slowly)
    with pytest.raises(NotSignedIn):
        signed_in(accounts)
    assert accounts.directory.sessions_of("ayse") == []


def test_a_session_has_the_role_set_during_the_password_check(accounts, monkeypatch):
    matches = passwords.password_matches

    def check_slowly(password_hash: str, password: str) -> bool:
        accounts.set_user(ROOT, "ayse", role="viewer")
        return matches(password_hash, password)

    monkeypatch.setattr(passwords, "password_matches", check_slowly)
    _, actor = accounts.sign_in("ayse", PASSWORD, HOME)
    assert actor.grants == {"viewer"}


# How sessions end


def test_a_session_ends_eight_hours_after_sign_in(accounts, clock):
    token = signed_in(accounts)
    for _ in range(SESSION_S // 1_800 - 1):
        clock.advance(1_800)
        assert accounts.session_actor(token, HOME)
    clock.advance(1_799.999999)
    assert accounts.session_actor(token, HOME)
    clock.advance(0.000001)
    assert accounts.session_actor(token, HOME) is None


def test_a_session_ends_after_an_hour_without_a_request(accounts, clock):
    token = signed_in(accounts)
    clock.advance(IDLE_S - 1)
    assert accounts.session_actor(token, HOME)
    clock.advance(IDLE_S)
    assert accounts.session_actor(token, HOME) is None


ENDS: dict[str, Callable[[Accounts, str], object]] = {
    "sign-out": lambda accounts, token: accounts.sign_out(ROOT, token),
    "sign-out everywhere": lambda accounts, token: accounts.sign_out(ROOT, token, everywhere=True),
    "an admin's sign-out": lambda accounts, _: accounts.end_sessions(ROOT, "ayse"),
    "a new password": lambda accounts, _: accounts.set_password(ROOT, "ayse", "another password"),
    "disabling": lambda accounts, _: accounts.set_user(ROOT, "ayse", disabled=True),
    "a new role": lambda accounts, _: accounts.set_user(ROOT, "ayse", role="viewer"),
    "other sites": lambda accounts, _: accounts.set_user(ROOT, "ayse", sites=["south"]),
}


def test_a_session_is_ended_by_what_changes_its_user(accounts):
    for why, end in ENDS.items():
        token = signed_in(accounts)
        end(accounts, token)
        assert accounts.session_actor(token, HOME) is None, why
        assert accounts.directory.sessions_of("ayse") == []
        accounts.set_user(ROOT, "ayse", disabled=False)
        accounts.set_password(ROOT, "ayse", PASSWORD)
        assert accounts.session_actor(token, HOME) is None, "an enabled user has to sign in again"


def test_sign_out_ends_one_session_or_all_of_the_same_user(accounts):
    accounts.add_user(ROOT, "can", PASSWORD)
    other = signed_in(accounts, "can")
    first, second, third = (signed_in(accounts) for _ in range(3))
    assert accounts.sign_out(ROOT, first) == 1
    assert accounts.session_actor(second, HOME)
    assert accounts.sign_out(ROOT, second, everywhere=True) == 2
    assert accounts.session_actor(third, HOME) is None
    assert accounts.session_actor(other, HOME)
    assert accounts.sign_out(ROOT, first) == 0


def test_an_unknown_token_has_no_actor(accounts):
    signed_in(accounts)
    token_hash = accounts.directory.sessions_of("ayse")[0].token_hash
    for token in ("", "x", token_hash, "\0", "\ud800"):
        assert accounts.session_actor(token, HOME) is None


def test_expired_sessions_are_deleted_at_the_next_sign_in(accounts, clock):
    signed_in(accounts)
    clock.advance(IDLE_S)
    signed_in(accounts)
    assert len(accounts.directory.sessions_of("ayse")) == 1


def test_the_last_use_of_a_session_is_written_once_a_minute(accounts, clock):
    token = signed_in(accounts)
    start = clock.time_us
    written = []
    for _ in range(5):
        clock.advance(25)
        accounts.session_actor(token, HOME)
        written.append((accounts.directory.sessions_of("ayse")[0].used_at - start) // 1_000_000)
    assert written == [0, 0, 75, 75, 75]
