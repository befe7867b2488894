"""Users, keys and sites are changed by admins only, and every change is an audit line."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kesin.engine.access.accounts import Accounts, cron_actor
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Forbidden
from tests.engine.access.accounts.conftest import HOME, PASSWORD, ROOT, audit_lines, signed_in, state

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
NOT_ADMINS = [
    Actor("user:op", frozenset({"operator"}), all_sites=True),
    Actor("key:k", frozenset({"read", "operate", "pdf", "metrics"}), all_sites=True),
    cron_actor(HOME),
    Actor("nobody", frozenset()),
]


def test_an_actor_that_is_no_admin_is_refused_with_an_audit_line(accounts):
    before, refused = state(accounts), []
    for action, command in COMMANDS.items():
        for actor in NOT_ADMINS:
            with pytest.raises(Forbidden, match="permission 'admin'"):
                command(accounts, actor)
            refused.append((actor.name, action, False))
            accounts.write_counted_refusals(unfinished=True)  # the next one is a line of its own
    assert state(accounts) == before
    assert [line for line in audit_lines(accounts) if line[1] != "access.refused"] == refused


def test_every_change_by_an_admin_is_an_audit_line(accounts):
    accounts.directory.add_key(accounts.create_key(ROOT, "n", ["read"])[1]._replace(id="abcd2345"))
    before = audit_lines(accounts)
    for command in COMMANDS.values():
        command(accounts, Actor("user:boss", frozenset({"admin"})))
    changes = [("user:boss", action, True) for action in COMMANDS if action not in READING]
    assert audit_lines(accounts) == [*before, *changes]


def test_a_change_whose_audit_line_fails_is_not_made(accounts, monkeypatch):
    key = accounts.create_key(ROOT, "n", ["read"])[1]
    token = signed_in(accounts)
    before = state(accounts)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(accounts.directory, "add_audit", fail)
    changes = {**COMMANDS, "key.revoke": lambda a, actor: a.revoke_key(actor, key.id)}
    for action in COMMANDS.keys() - READING:
        with pytest.raises(OSError, match="full"):
            changes[action](accounts, ROOT)
    assert state(accounts) == before
    assert accounts.session_actor(token, HOME)


def test_an_audit_line_has_the_address_and_the_request_id(accounts):
    boss = Actor("user:boss", frozenset({"admin"}), address=HOME)
    accounts.set_user(replace(boss, request_id="r-1"), "ayse", role="viewer", disabled=True)
    [line] = accounts.audit(ROOT, actor="user:boss")
    assert (line.target, line.request_id, line.address) == ("ayse", "r-1", HOME)
    assert line.details == '{"changed":{"disabled":true,"role":"viewer"}}'


def test_an_audit_line_takes_any_text(accounts):
    text = "a\0b\ud800" + "x" * 300
    accounts.note(Actor("cli:\udcff", frozenset()), text, queue=text, site=text, target=text, details={"why": text})
    [line] = accounts.directory.audit()
    assert (line.actor, line.queue[:4]) == ("cli:", "abxx")
