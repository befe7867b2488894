"""Whoever comes in, by password or by key; and that every change of them is asked for and noted."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from argon2 import PasswordHasher

from kesin.engine.accounts import IDLE_S, SESSION_S, Accounts, at_request, cron_actor
from kesin.foundation import passwords
from kesin.foundation.access import Actor, system
from kesin.foundation.clock import ManualClock
from kesin.foundation.problems import Clash, Invalid, NotSignedIn, Problem, Refused, Unknown
from kesin.store.directory import Directory
from tests.store.conftest import opened

TABLES = ("site", "person", "session", "api_key", "audit", "secret")
ROOT = system("cli:root")
PASSWORD = "correct horse battery"
HOME = "10.0.0.7"
DAY_S = 86_400


@pytest.fixture(scope="module", params=["sqlite-file", "postgres"])
def kept(request: pytest.FixtureRequest) -> Iterator[Any]:
    with opened(request.param, request) as store:
        yield store


@pytest.fixture(scope="module", autouse=True)
def _quick_hashes() -> Iterator[None]:
    """Passwords are hashed as weakly as argon2 can: these tests are not about its strength."""
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_hasher", lambda: quick)
        passwords.nobody.cache_clear()
        yield
    passwords.nobody.cache_clear()


@pytest.fixture
def accounts(kept: Any, clock: ManualClock) -> Iterator[Accounts]:
    made = Accounts(Directory(kept), clock)
    made.add_site(ROOT, "north")
    made.add_site(ROOT, "south")
    made.add_person(ROOT, "ayse", PASSWORD, role="operator", sites=["north"], queues=["oci"])
    kept._rows(f"DELETE FROM {kept.dialect.table('audit')}", {})
    yield made
    for table in TABLES:
        kept._rows(f"DELETE FROM {kept.dialect.table(table)}", {})


def trail(accounts: Accounts) -> list[tuple[str, str, bool]]:
    """Who asked for what and was let, oldest first."""
    return [(one.actor, one.action, one.allowed) for one in accounts.directory.audit()][::-1]


def signed_in(accounts: Accounts, name: str = "ayse") -> str:
    return accounts.sign_in(name, PASSWORD, HOME)[0]


# Signing in


def test_the_right_password_gives_a_session_that_stands_for_the_person(accounts):
    token, actor = accounts.sign_in("ayse", PASSWORD, HOME)
    assert actor == Actor(
        "user:ayse",
        frozenset({"operator"}),
        sites=frozenset({"north"}),
        queues=frozenset({"oci"}),
        address=HOME,
    )
    assert accounts.session_actor(token, HOME) == actor
    assert trail(accounts) == [("user:ayse", "session.start", True)]


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


@pytest.mark.parametrize(("name", "password"), WRONG.values(), ids=WRONG)
def test_whatever_is_wrong_the_answer_is_the_same_and_noted(accounts, name, password):
    accounts.add_person(ROOT, "gone", PASSWORD)
    accounts.set_person(ROOT, "gone", disabled=True)
    with pytest.raises(NotSignedIn) as problem:
        accounts.sign_in(name, password, HOME)
    assert problem.value.body() == {
        "error": {"code": "wrong_password", "message": "the name or the password is wrong"}
    }
    last = accounts.directory.audit(limit=1)[0]
    assert (last.action, last.allowed, last.address) == ("session.start", False, HOME)


def test_an_unknown_name_costs_a_hash_like_a_known_one(accounts, monkeypatch):
    checked: list[str] = []
    matches = passwords.matches
    monkeypatch.setattr(
        passwords, "matches", lambda kept, given: checked.append(kept) or matches(kept, given)
    )
    for name in ("ayse", "can"):
        with pytest.raises(NotSignedIn):
            accounts.sign_in(name, "not the password", HOME)
    assert len(checked) == 2
    assert all(kept.startswith("$argon2id$") for kept in checked)


def test_a_password_of_the_greatest_length_is_not_matched_by_a_longer_one(accounts):
    longest = "x" * passwords.LONGEST
    accounts.set_password(ROOT, "ayse", longest)
    accounts.sign_in("ayse", longest, HOME)
    with pytest.raises(NotSignedIn):
        accounts.sign_in("ayse", longest + "x", HOME)


def test_a_hash_made_with_weaker_settings_is_made_anew_at_sign_in(accounts, monkeypatch):
    weak = accounts.directory.person("ayse").password_hash
    stronger = PasswordHasher(time_cost=2, memory_cost=16, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", lambda: stronger)
    signed_in(accounts)
    fresh = accounts.directory.person("ayse").password_hash
    assert (fresh != weak, passwords.is_outdated(fresh)) == (True, False)
    signed_in(accounts)
    assert accounts.directory.person("ayse").password_hash == fresh


@pytest.mark.parametrize("meanwhile", ["disabled", "new password"])
def test_what_changes_while_a_password_is_checked_counts(accounts, monkeypatch, meanwhile):
    matches = passwords.matches

    def slowly(kept: str, given: str) -> bool:
        monkeypatch.setattr(passwords, "matches", matches)
        if meanwhile == "disabled":
            accounts.set_person(ROOT, "ayse", disabled=True)
        else:
            accounts.set_password(ROOT, "ayse", "another password")
        return matches(kept, given)

    monkeypatch.setattr(passwords, "matches", slowly)
    with pytest.raises(NotSignedIn):
        signed_in(accounts)
    assert accounts.directory.sessions_of("ayse") == []


def test_a_role_given_while_a_password_is_checked_is_the_session_s(accounts, monkeypatch):
    matches = passwords.matches

    def slowly(kept: str, given: str) -> bool:
        accounts.set_person(ROOT, "ayse", role="viewer")
        return matches(kept, given)

    monkeypatch.setattr(passwords, "matches", slowly)
    _, actor = accounts.sign_in("ayse", PASSWORD, HOME)
    assert actor.grants == {"viewer"}


# How sessions end


def test_a_session_ends_eight_hours_after_sign_in_however_busy(accounts, clock):
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
    "disabling": lambda accounts, _: accounts.set_person(ROOT, "ayse", disabled=True),
    "a new role": lambda accounts, _: accounts.set_person(ROOT, "ayse", role="viewer"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_session_is_ended_by(accounts, end):
    token = signed_in(accounts)
    end(accounts, token)
    assert accounts.session_actor(token, HOME) is None
    assert accounts.directory.sessions_of("ayse") == []


def test_sign_out_ends_one_session_or_all_of_the_person_and_nobody_else_s(accounts):
    accounts.add_person(ROOT, "can", PASSWORD)
    other = signed_in(accounts, "can")
    one, two, three = (signed_in(accounts) for _ in range(3))
    assert accounts.sign_out(ROOT, one) == 1
    assert accounts.session_actor(two, HOME)
    assert accounts.sign_out(ROOT, two, everywhere=True) == 2
    assert accounts.session_actor(three, HOME) is None
    assert accounts.session_actor(other, HOME)
    assert accounts.sign_out(ROOT, one) == 0


def test_an_enabled_person_has_to_sign_in_again(accounts):
    token = signed_in(accounts)
    accounts.set_person(ROOT, "ayse", disabled=True)
    accounts.set_person(ROOT, "ayse", disabled=False)
    assert accounts.session_actor(token, HOME) is None
    assert signed_in(accounts)


def test_a_token_nobody_was_given_stands_for_nobody(accounts):
    signed_in(accounts)
    mark = accounts.directory.sessions_of("ayse")[0].token_hash
    for token in ("", "x", mark, "\0", "\ud800"):
        assert accounts.session_actor(token, HOME) is None


def test_sessions_that_are_over_are_cleared_at_the_next_sign_in(accounts, clock):
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


# Keys


def test_a_key_stands_for_its_scopes_and_its_site(accounts):
    key, kept = accounts.create_key(ROOT, "script", ["oci:script", "read"], site="north")
    assert key.startswith(f"kesin_{kept.id}_")
    assert accounts.key_actor(key, HOME) == Actor(
        f"key:{kept.id}",
        frozenset({"oci:script", "read"}),
        sites=frozenset({"north"}),
        address=HOME,
    )


def test_a_key_without_a_site_stands_for_every_site(accounts):
    key, _ = accounts.create_key(ROOT, "reader", ["read"])
    actor = accounts.key_actor(key, HOME)
    assert (actor.all_sites, actor.sites) == (True, frozenset())


def test_a_key_ends_on_its_day(accounts, clock):
    key, kept = accounts.create_key(ROOT, "short", ["metrics"], days=1)
    assert kept.expires_at == clock.time_us + DAY_S * 1_000_000
    clock.advance(DAY_S - 1)
    assert accounts.key_actor(key, HOME)
    clock.advance(1)
    assert accounts.key_actor(key, HOME) is None


def test_a_revoked_key_opens_nothing_and_is_revoked_once(accounts, clock):
    key, kept = accounts.create_key(ROOT, "old", ["metrics"])
    assert accounts.revoke_key(ROOT, kept.id)
    assert accounts.key_actor(key, HOME) is None
    revoked_at = clock.time_us
    clock.advance(60)
    assert not accounts.revoke_key(ROOT, kept.id)
    assert accounts.directory.api_key(kept.id).revoked_at == revoked_at
    assert [action for _, action, _ in trail(accounts)] == ["key.create", "key.revoke"]


def test_a_right_id_with_a_wrong_secret_opens_nothing(accounts):
    key, kept = accounts.create_key(ROOT, "one", ["metrics"])
    other, _ = accounts.create_key(ROOT, "two", ["metrics"])
    secret = other.removeprefix("kesin_")[9:]
    for wrong in (f"kesin_{kept.id}_{secret}", key[:-1], key + "x", kept.id, "", "\ud800", "\0"):
        assert accounts.key_actor(wrong, HOME) is None
    assert accounts.directory.api_key(kept.id).used_at is None


def test_the_last_use_of_a_key_is_written_once_a_minute(accounts, clock):
    key, kept = accounts.create_key(ROOT, "busy", ["metrics"])
    start = clock.time_us
    written = []
    for _ in range(5):
        accounts.key_actor(key, HOME)
        used_at = accounts.directory.api_key(kept.id).used_at
        written.append((used_at - start) // 1_000_000)
        clock.advance(25)
    assert written == [0, 0, 0, 75, 75]


BAD_KEYS = {
    "no scope": ({"scopes": []}, Invalid, "one or more of the scopes oci:ingest"),
    "a strange scope": ({"scopes": ["root"]}, Invalid, "metrics, admin, not 'root'"),
    "no site": ({"scopes": ["oci:ingest"]}, Invalid, "belongs to one site"),
    "an unknown site": (
        {"scopes": ["read"], "site": "west"},
        Unknown,
        r"no site 'west' \(there are: north, south\)",
    ),
    "no name": ({"name": " ", "scopes": ["read"]}, Invalid, "1…100 characters"),
    "too long a name": ({"name": "x" * 101, "scopes": ["read"]}, Invalid, "1…100 characters"),
    "no days": ({"scopes": ["read"], "days": 0}, Invalid, "1…3650 days"),
    "too many days": ({"scopes": ["read"], "days": 3_651}, Invalid, "1…3650 days"),
}


@pytest.mark.parametrize(("asked", "kind", "sentence"), BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_key_is_not_made_with(accounts, asked, kind, sentence):
    with pytest.raises(kind, match=sentence):
        accounts.create_key(ROOT, **{"name": "n", **asked})
    assert accounts.keys(ROOT) == []


def test_an_id_that_is_taken_gives_no_key_that_opens_nothing(accounts, monkeypatch):
    made = passwords.new_key()
    monkeypatch.setattr(passwords, "new_key", lambda: made)
    accounts.create_key(ROOT, "one", ["read"])
    with pytest.raises(Clash):
        accounts.create_key(ROOT, "two", ["read"])


def test_a_whole_key_can_be_revoked_and_no_part_of_its_secret_is_repeated(accounts):
    key, kept = accounts.create_key(ROOT, "leaked", ["metrics"])
    assert accounts.revoke_key(ROOT, key)
    assert accounts.directory.api_key(kept.id).revoked_at
    stranger, _ = passwords.new_key()
    for wrong in (stranger, stranger[:-1], stranger + "x"):
        with pytest.raises(Unknown) as problem:
            accounts.revoke_key(ROOT, wrong)
        assert stranger[15:-1] not in str(problem.value)
    with pytest.raises(Refused):
        accounts.revoke_key(Actor("user:x", frozenset()), stranger[:-1])
    assert stranger[15:-1] not in str(accounts.directory.audit())


# Only hashes are stored


def test_no_password_token_or_key_is_in_any_row(accounts, kept):
    token = signed_in(accounts)
    key, _ = accounts.create_key(ROOT, "n", ["metrics"])
    accounts.set_password(ROOT, "ayse", "another password")
    signed = accounts.sign_in("ayse", "another password", HOME)[0]
    with pytest.raises(NotSignedIn):
        accounts.sign_in("ayse", "a wrong password", HOME)
    said = "".join(
        str(kept._read(f"SELECT * FROM {kept.dialect.table(table)}", {})) for table in TABLES
    )
    secrets = (PASSWORD, "another password", "a wrong password", token, signed, key, key[15:])
    assert [one for one in secrets if one in said] == []
    assert passwords.fingerprint(signed) in said
    assert passwords.fingerprint(key) in said


# Rights

COMMANDS: dict[str, Callable[[Accounts, Actor], object]] = {
    "audit.read": lambda accounts, actor: accounts.audit(actor),
    "site.add": lambda accounts, actor: accounts.add_site(actor, "west"),
    "site.set": lambda accounts, actor: accounts.set_site(actor, "north", name="N"),
    "user.list": lambda accounts, actor: accounts.people(actor),
    "user.show": lambda accounts, actor: accounts.person(actor, "ayse"),
    "user.add": lambda accounts, actor: accounts.add_person(actor, "can", PASSWORD),
    "user.passwd": lambda accounts, actor: accounts.set_password(actor, "ayse", PASSWORD),
    "user.set": lambda accounts, actor: accounts.set_person(actor, "ayse", role="admin"),
    "user.sign_out": lambda accounts, actor: accounts.end_sessions(actor, "ayse"),
    "key.list": lambda accounts, actor: accounts.keys(actor),
    "key.create": lambda accounts, actor: accounts.create_key(actor, "n", ["admin"]),
    "key.revoke": lambda accounts, actor: accounts.revoke_key(actor, "abcd2345"),
}
READING = {"audit.read", "user.list", "user.show", "key.list"}
NO_ADMINS = [
    Actor("user:op", frozenset({"operator"}), all_sites=True),
    Actor("key:k", frozenset({"read", "operate", "pdf", "metrics"}), all_sites=True),
    cron_actor(HOME),
    Actor("nobody", frozenset()),
]


def state(accounts: Accounts) -> tuple[Any, ...]:
    directory = accounts.directory
    return directory.sites(), directory.people(), directory.api_keys()


@pytest.mark.parametrize("actor", NO_ADMINS, ids=lambda actor: actor.name)
@pytest.mark.parametrize(("action", "command"), COMMANDS.items(), ids=COMMANDS)
def test_only_an_admin_may_and_a_refusal_changes_nothing_and_is_noted(
    accounts, actor, action, command
):
    before = state(accounts)
    with pytest.raises(Refused, match="the right 'admin'"):
        command(accounts, actor)
    assert state(accounts) == before
    assert trail(accounts) == [(actor.name, action, False)]


@pytest.mark.parametrize(("action", "command"), COMMANDS.items(), ids=COMMANDS)
def test_an_admin_may_and_every_change_is_noted(accounts, action, command):
    if action == "key.revoke":
        accounts.directory.add_key(
            accounts.create_key(ROOT, "n", ["read"])[1]._replace(id="abcd2345")
        )
    before = trail(accounts)
    command(accounts, Actor("user:boss", frozenset({"admin"})))
    noted = [] if action in READING else [("user:boss", action, True)]
    assert trail(accounts) == [*before, *noted]


def test_a_change_that_cannot_be_noted_is_not_made(accounts, monkeypatch):
    key = accounts.create_key(ROOT, "n", ["read"])[1]
    token = signed_in(accounts)
    before = state(accounts)

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(accounts.directory, "add_audit", full)
    changes = {**COMMANDS, "key.revoke": lambda a, actor: a.revoke_key(actor, key.id)}
    for action in COMMANDS.keys() - READING:
        with pytest.raises(OSError, match="full"):
            changes[action](accounts, ROOT)
    assert state(accounts) == before
    assert accounts.session_actor(token, HOME)


def test_a_line_says_from_where_and_in_which_request(accounts):
    boss = Actor("user:boss", frozenset({"admin"}), address=HOME)
    accounts.set_person(at_request(boss, "r-1"), "ayse", role="viewer", disabled=True)
    [line] = accounts.audit(ROOT, actor="user:boss")
    assert (line.target, line.request_id, line.address) == ("ayse", "r-1", HOME)
    assert line.details == '{"changed":{"disabled":true,"role":"viewer"}}'


def test_whatever_text_comes_in_can_be_noted(accounts):
    strange = "a\0b\ud800" + "x" * 300
    accounts.note(
        Actor("cli:\udcff", frozenset()),
        strange,
        queue=strange,
        site=strange,
        target=strange,
        details={"why": strange},
    )
    [line] = accounts.directory.audit()
    assert (line.actor, line.queue[:4]) == ("cli:", "abxx")


# People


BAD_PEOPLE: dict[str, tuple[dict[str, Any], type[Problem], str]] = {
    "site": ({"sites": ["north", "west"]}, Unknown, r"'west' \(there are: north, south\)"),
    "role": ({"role": "boss"}, Invalid, "one of viewer, operator, admin, got 'boss'"),
}


@pytest.mark.parametrize(("given", "kind", "sentence"), BAD_PEOPLE.values(), ids=BAD_PEOPLE)
def test_a_person_is_neither_added_nor_changed_with_an_unknown(accounts, given, kind, sentence):
    before = state(accounts)
    for change in (
        lambda: accounts.add_person(ROOT, "can", PASSWORD, **given),
        lambda: accounts.set_person(ROOT, "ayse", **given),
    ):
        with pytest.raises(kind, match=sentence):
            change()
    assert state(accounts) == before


def test_a_change_made_meanwhile_is_not_lost(accounts, monkeypatch):
    directory = accounts.directory
    read = directory.person

    def slowly(name: str) -> Any:
        found = read(name)
        monkeypatch.setattr(directory, "person", read)
        accounts.set_person(ROOT, "ayse", disabled=True)
        return found

    monkeypatch.setattr(directory, "person", slowly)
    accounts.set_person(ROOT, "ayse", role="viewer")
    after = accounts.person(ROOT, "ayse")
    assert (after.role, after.disabled_at is not None) == ("viewer", True)


def test_only_what_is_named_is_changed(accounts, clock):
    before = accounts.person(ROOT, "ayse")
    clock.advance(5)
    after = accounts.set_person(ROOT, "ayse", sites=["south", "north", "south"])
    assert after == before._replace(sites=("south", "north"), changed_at=clock.time_us)
    assert accounts.person(ROOT, "ayse") == after
    emptied = accounts.set_person(ROOT, "ayse", all_sites=True, sites=(), queues=())
    assert (emptied.all_sites, emptied.sites, emptied.queues) == (True, (), ())


@pytest.mark.parametrize("name", ["", "a b", "-a", "a\0", "é", "x" * 64, "a/b", "a\n"])
def test_a_name_that_is_none_is_refused(accounts, name):
    with pytest.raises(Invalid, match="is no user name"):
        accounts.add_person(ROOT, name, PASSWORD)


@pytest.mark.parametrize("password", ["", "x" * 9, "x" * 1_025, "x" * 20 + "\ud800", "\0" * 10])
def test_a_password_nobody_should_have_is_refused_and_not_repeated(accounts, password):
    for change in (
        lambda: accounts.add_person(ROOT, "can", password),
        lambda: accounts.set_password(ROOT, "ayse", password),
    ):
        with pytest.raises(Invalid) as problem:
            change()
        assert not password or password not in str(problem.value)
    assert signed_in(accounts)


def test_a_name_is_given_once(accounts):
    with pytest.raises(Clash, match="a user 'ayse' already"):
        accounts.add_person(ROOT, "ayse", "another password")
    assert signed_in(accounts)


@pytest.mark.parametrize("name", ["can", "a\0", "\ud800"])
def test_nobody_is_changed_who_is_not_there(accounts, name):
    for change in (
        lambda: accounts.person(ROOT, name),
        lambda: accounts.set_password(ROOT, name, PASSWORD),
        lambda: accounts.set_person(ROOT, name, role="admin"),
        lambda: accounts.end_sessions(ROOT, name),
    ):
        with pytest.raises(Unknown, match="there is no user"):
            change()


# Sites


def test_an_actor_knows_its_own_sites(accounts):
    def known(*grants: str, **has: Any) -> list[str]:
        return [one.id for one in accounts.sites(Actor("a", frozenset(grants), **has))]

    north = frozenset({"north", "no such site"})
    assert known("admin") == ["north", "south"]
    assert known("viewer", all_sites=True) == ["north", "south"]
    assert known("operator", sites=north) == known("oci:script", sites=north) == ["north"]
    assert known("viewer") == []
    assert known("metrics", all_sites=True) == known("pdf", all_sites=True) == []
    assert [one.id for one in accounts.sites(cron_actor(HOME))] == ["north", "south"]


BAD_SITES: dict[str, tuple[str, dict[str, str]]] = {
    "channel": ("one of script, api, data_manager, got 'fax'", {"channel": "fax"}),
    "time zone": ("'Mars' is no time zone", {"timezone": "Mars"}),
    "currency": ("three capital letters, got 'try'", {"currency": "try"}),
    "name": ("a name of 1…200", {"name": " "}),
    "too long a name": ("a name of 1…200", {"name": "x" * 201}),
}


@pytest.mark.parametrize(("sentence", "given"), BAD_SITES.values(), ids=BAD_SITES)
def test_a_site_is_neither_made_nor_changed_with_a_bad(accounts, sentence, given):
    before = state(accounts)
    for change in (
        lambda: accounts.add_site(ROOT, "west", **given),
        lambda: accounts.set_site(ROOT, "north", **given),
    ):
        with pytest.raises(Invalid, match=sentence):
            change()
    assert state(accounts) == before


@pytest.mark.parametrize("site_id", ["", "a b", "a/b", "../a", "x" * 129, "a\0", "ş", "a\n"])
def test_a_site_id_that_is_none_is_refused(accounts, site_id):
    with pytest.raises(Invalid, match="is no site name"):
        accounts.add_site(ROOT, site_id)
    with pytest.raises(Problem):
        accounts.set_site(ROOT, site_id, name="x")


def test_a_site_is_made_once_and_changed_where_it_is_named(accounts, clock):
    with pytest.raises(Clash, match="a site 'north' already"):
        accounts.add_site(ROOT, "north", name="other")
    before = accounts.directory.site("north")
    clock.advance(1)
    after = accounts.set_site(ROOT, "north", channel="api", currency="EUR")
    assert after == before._replace(channel="api", currency="EUR", changed_at=clock.time_us)
    assert accounts.audit(ROOT)[0].details == '{"changed":["channel","currency"]}'
    with pytest.raises(Unknown, match="no site 'west'"):
        accounts.set_site(ROOT, "west", name="x")


# Whether anybody may come in at all


def test_somebody_may_come_in_while_a_user_or_a_key_is_good(accounts, clock):
    assert accounts.anybody()
    accounts.set_person(ROOT, "ayse", disabled=True)
    assert not accounts.anybody()
    accounts.create_key(ROOT, "n", ["read"], days=1)
    assert accounts.anybody()
    clock.advance(DAY_S)
    assert not accounts.anybody()
    kept = accounts.create_key(ROOT, "n", ["read"])[1]
    assert accounts.anybody()
    accounts.revoke_key(ROOT, kept.id)
    assert not accounts.anybody()
