"""API keys: their actors, how they end, and that only hashes are stored."""

from typing import Any

import pytest

from kesin.foundation import passwords
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Forbidden, Invalid, NotFound, NotSignedIn, Problem, RequestConflict
from tests.engine.access.accounts.conftest import DAY_S, HOME, PASSWORD, ROOT, TABLES, audit_lines, signed_in


def test_the_actor_of_a_key_has_its_scopes_and_its_site(accounts):
    key, record = accounts.create_key(ROOT, "script", ["oci:script", "read"], site="north")
    assert key.startswith(f"kesin_{record.id}_")
    assert accounts.key_actor(key, HOME) == Actor(
        f"key:{record.id}", frozenset({"oci:script", "read"}), sites=frozenset({"north"}), address=HOME
    )
    key, _ = accounts.create_key(ROOT, "reader", ["read"])
    actor = accounts.key_actor(key, HOME)
    assert (actor.all_sites, actor.sites) == (True, frozenset()), "without a site, it has every site"


def test_a_key_expires_after_its_days(accounts, clock):
    key, record = accounts.create_key(ROOT, "short", ["metrics"], days=1)
    assert record.expires_at == clock.time_us + DAY_S * 1_000_000
    clock.advance(DAY_S - 1)
    assert accounts.key_actor(key, HOME)
    clock.advance(1)
    assert accounts.key_actor(key, HOME) is None


def test_a_revoked_key_has_no_actor_and_is_revoked_once(accounts, clock):
    key, record = accounts.create_key(ROOT, "old", ["metrics"])
    assert accounts.revoke_key(ROOT, record.id)
    assert accounts.key_actor(key, HOME) is None
    revoked_at = clock.time_us
    clock.advance(60)
    assert not accounts.revoke_key(ROOT, record.id)
    assert accounts.directory.api_key(record.id).revoked_at == revoked_at
    assert [action for _, action, _ in audit_lines(accounts)] == ["key.create", "key.revoke"]


def test_a_key_with_a_wrong_secret_has_no_actor(accounts):
    key, record = accounts.create_key(ROOT, "one", ["metrics"])
    other, _ = accounts.create_key(ROOT, "two", ["metrics"])
    secret = other.removeprefix("kesin_")[9:]
    for wrong in (f"kesin_{record.id}_{secret}", key[:-1], key + "x", record.id, "", "\ud800", "\0"):
        assert accounts.key_actor(wrong, HOME) is None
    assert accounts.directory.api_key(record.id).used_at is None


def test_the_last_use_of_a_key_is_written_once_a_minute(accounts, clock):
    key, record = accounts.create_key(ROOT, "busy", ["metrics"])
    start = clock.time_us
    written = []
    for _ in range(5):
        accounts.key_actor(key, HOME)
        used_at = accounts.directory.api_key(record.id).used_at
        written.append((used_at - start) // 1_000_000)
        clock.advance(25)
    assert written == [0, 0, 0, 75, 75]


BAD_KEYS: dict[str, tuple[dict[str, Any], type[Problem], str]] = {
    "no scope": ({"scopes": []}, Invalid, "one or more of the scopes oci:ingest"),
    "a strange scope": ({"scopes": ["root"]}, Invalid, "metrics, admin, not 'root'"),
    "no site": ({"scopes": ["oci:ingest"]}, Invalid, "belongs to one site"),
    "an unknown site": (
        {"scopes": ["read"], "site": "west"},
        NotFound,
        r"no site 'west' \(existing sites: north, south\)",
    ),
    "no name": ({"name": " ", "scopes": ["read"]}, Invalid, "1…100 characters"),
    "too long a name": ({"name": "x" * 101, "scopes": ["read"]}, Invalid, "1…100 characters"),
    "no days": ({"scopes": ["read"], "days": 0}, Invalid, "1…3650 days"),
    "too many days": ({"scopes": ["read"], "days": 3_651}, Invalid, "1…3650 days"),
}


def test_a_key_is_not_created_with_what_cannot_be_meant_or_under_an_id_that_is_taken(accounts, monkeypatch):
    for arguments, kind, sentence in BAD_KEYS.values():
        with pytest.raises(kind, match=sentence):
            accounts.create_key(ROOT, **{"name": "n", **arguments})
    assert accounts.keys(ROOT) == []
    key = passwords.new_api_key()
    monkeypatch.setattr(passwords, "new_api_key", lambda: key)
    accounts.create_key(ROOT, "one", ["read"])
    with pytest.raises(RequestConflict):
        accounts.create_key(ROOT, "two", ["read"])


def test_a_key_can_be_revoked_by_its_full_text_which_is_not_repeated(accounts):
    key, record = accounts.create_key(ROOT, "leaked", ["metrics"])
    assert accounts.revoke_key(ROOT, key)
    assert accounts.directory.api_key(record.id).revoked_at
    unknown, _ = passwords.new_api_key()
    for wrong in (unknown, unknown[:-1], unknown + "x"):
        with pytest.raises(NotFound) as problem:
            accounts.revoke_key(ROOT, wrong)
        assert unknown[15:-1] not in str(problem.value)
    with pytest.raises(Forbidden):
        accounts.revoke_key(Actor("user:x", frozenset()), unknown[:-1])
    assert unknown[15:-1] not in str(accounts.directory.audit())


# Only hashes are stored


def test_no_password_token_or_key_is_in_any_row(accounts, store):
    token = signed_in(accounts)
    key, _ = accounts.create_key(ROOT, "n", ["metrics"])
    accounts.set_password(ROOT, "ayse", "another password")
    signed = accounts.sign_in("ayse", "another password", HOME)[0]
    with pytest.raises(NotSignedIn):
        accounts.sign_in("ayse", "a wrong password", HOME)
    rows = "".join(str(store._read(f"SELECT * FROM {store.dialect.table(table)}", {})) for table in TABLES)
    secrets = (PASSWORD, "another password", "a wrong password", token, signed, key, key[15:])
    assert [secret for secret in secrets if secret in rows] == []
    assert passwords.hash_token(signed) in rows
    assert passwords.hash_token(key) in rows
