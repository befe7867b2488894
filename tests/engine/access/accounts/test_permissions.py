"""Every change of people, keys and sites is asked for by an admin, and noted."""

from collections.abc import Callable

import pytest

from kesin.engine.access.accounts import Accounts, cron_actor, with_request_id
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Forbidden
from tests.engine.access.accounts.conftest import HOME, PASSWORD, ROOT, signed_in, state, trail

COMMANDS: dict[str, Callable[[Accounts, Actor], object]] = {
    "audit.read": lambda accounts, actor: accounts.audit(actor),
    "site.add": lambda accounts, actor: accounts.add_site(actor, "west"),
    "site.set": lambda accounts, actor: accounts.set_site(actor, "north", name="N"),
    "user.list": lambda accounts, actor: accounts.users(actor),
    "user.show": lambda accounts, actor: accounts.user(actor, "ayse"),
    "user.add": lambda accounts, actor: accounts.add_user(actor, "can", PASSWORD),
    "user.passwd": lambda accounts, actor: accounts.set_password(actor, "ayse", PASSWORD),
    "user.set": lambda accounts, actor: accounts.set_user(actor, "ayse", role="admin"),
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


@pytest.mark.parametrize("actor", NO_ADMINS, ids=lambda actor: actor.name)
@pytest.mark.parametrize(("action", "command"), COMMANDS.items(), ids=COMMANDS)
def test_only_an_admin_may_and_a_refusal_changes_nothing_and_is_noted(
    accounts, actor, action, command
):
    before = state(accounts)
    with pytest.raises(Forbidden, match="the right 'admin'"):
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
    accounts.set_user(with_request_id(boss, "r-1"), "ayse", role="viewer", disabled=True)
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
