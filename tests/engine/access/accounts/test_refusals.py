"""A key that is refused again and again cannot flood the audit log; a site is never ignored."""

import json

import pytest

from kesin.engine.access.sites import MAX_LISTED_ACTIONS, OTHER_ACTIONS, WINDOW_S
from kesin.foundation.permissions import SCOPES, SITE_SCOPES, SITELESS_SCOPES, Actor
from kesin.foundation.problems import Forbidden, Invalid
from tests.engine.access.accounts.conftest import HOME, ROOT

KEY = Actor("key:aaaaaaaa", frozenset({"metrics"}), address=HOME)
OTHER_KEY = Actor("key:bbbbbbbb", frozenset({"metrics"}), address=HOME)


def refuse(accounts, actor=KEY, times=1, action="user.list"):
    for _ in range(times):
        with pytest.raises(Forbidden):
            accounts.require(actor, "admin", action)


def lines(accounts):
    return [
        (line.actor, line.action, json.loads(line.details)["refused"] if line.details else 1)
        for line in reversed(accounts.directory.audit())
    ]


def test_the_first_refusal_is_a_line_at_once_and_the_others_of_its_minute_are_one(accounts, clock):
    refuse(accounts, times=500)
    assert lines(accounts) == [(KEY.name, "user.list", 1)]
    accounts.write_counted_refusals()
    assert len(lines(accounts)) == 1  # the minute is not over
    clock.advance(WINDOW_S)
    accounts.write_counted_refusals()
    accounts.write_counted_refusals()
    assert lines(accounts) == [(KEY.name, "user.list", 1), (KEY.name, "access.refused", 499)]


def test_the_next_refusal_writes_what_was_counted_before(accounts, clock):
    refuse(accounts, times=3)
    clock.advance(WINDOW_S)
    refuse(accounts)
    assert lines(accounts) == [(KEY.name, "user.list", 1), (KEY.name, "access.refused", 2), (KEY.name, "user.list", 1)]


def test_each_key_has_a_minute_of_its_own(accounts):
    refuse(accounts, KEY, 3)
    refuse(accounts, OTHER_KEY, 2)
    refuse(accounts, Actor("key:once", frozenset()))  # and has no second line
    accounts.write_counted_refusals(unfinished=True)
    assert lines(accounts) == [
        (KEY.name, "user.list", 1),
        (OTHER_KEY.name, "user.list", 1),
        ("key:once", "user.list", 1),
        (KEY.name, "access.refused", 2),
        (OTHER_KEY.name, "access.refused", 1),
    ]


def test_the_line_names_the_address_and_a_limited_number_of_actions(accounts):
    for n in range(MAX_LISTED_ACTIONS + 30):
        refuse(accounts, action=f"queue.{n}")
    accounts.write_counted_refusals(unfinished=True)
    line = accounts.directory.audit()[0]
    details = json.loads(line.details)
    assert (line.address, line.allowed) == (HOME, False)
    assert len(details["actions"]) == MAX_LISTED_ACTIONS + 1
    assert details["refused"] == sum(details["actions"].values()) == MAX_LISTED_ACTIONS + 29
    assert details["actions"][OTHER_ACTIONS] == 29
    assert details["since"]


def test_what_is_allowed_and_failed_sign_ins_are_never_counted(accounts):
    for _ in range(3):
        accounts.note(KEY, "pdf.create")
        accounts.note(Actor("user:?", frozenset(), address=HOME), "session.start", allowed=False)
    accounts.write_counted_refusals(unfinished=True)
    assert len(lines(accounts)) == 6


def test_a_clock_that_jumps_back_ends_the_minute(accounts, clock):
    refuse(accounts, times=2)
    clock.advance(-WINDOW_S)
    refuse(accounts)
    assert len(lines(accounts)) == 3


def test_a_site_narrows_a_key_or_is_refused_and_a_scope_of_one_site_needs_its_name(accounts):
    for scope in SITE_SCOPES:
        with pytest.raises(Invalid, match="belongs to one site"):
            accounts.create_key(ROOT, "k", [scope])
    for scopes in [[scope] for scope in SCOPES] + [["read", "pdf"]]:
        if siteless := SITELESS_SCOPES & set(scopes):
            with pytest.raises(Invalid, match=min(siteless)) as refused:
                accounts.create_key(ROOT, "k", scopes, site="north")
            assert refused.value.details == {"field": "site"}
            continue
        key, _ = accounts.create_key(ROOT, "k", scopes, site="north")
        actor = accounts.key_actor(key, HOME)
        assert (actor.sees("oci", "north"), actor.sees("oci", "south")) == (True, False), scopes
        assert not actor.sees("pdf", "", sited=False)
        assert not any(actor.has(right) for right in SITELESS_SCOPES)
