"""Who may do what, against the table of the specification, row by row."""

import pytest

from kesin.foundation.permissions import PERMISSIONS, ROLES, SCOPES, Actor, require, system_actor
from kesin.foundation.problems import Forbidden

EVERY_RIGHT = (*SCOPES, "cron")

# scope or role → what it may, as the specification's table says
MAY = {
    "oci:ingest": {"oci:ingest"},
    "oci:script": {"oci:script"},
    "pdf": {"pdf"},
    "optiplan": {"optiplan"},
    "read": {"read"},
    "viewer": {"read"},
    "operate": {"read", "operate"},
    "operator": {"read", "operate"},
    "metrics": {"metrics"},
    "admin": set(SCOPES),
    "cron": {"cron"},
}


@pytest.mark.parametrize("grant", MAY)
@pytest.mark.parametrize("right", EVERY_RIGHT)
def test_a_grant_allows_what_the_table_says_and_nothing_else(grant, right):
    actor = Actor("a", frozenset({grant}))
    assert actor.has(right) == (right in MAY[grant])
    if right in MAY[grant]:
        require(actor, right)
    else:
        with pytest.raises(Forbidden, match=f"the right '{right}'"):
            require(actor, right)


def test_the_table_knows_every_scope_and_role():
    assert set(MAY) == set(PERMISSIONS) == {*SCOPES, *ROLES, "cron"}


def test_several_grants_add_up_and_none_allows_nothing():
    both = Actor("a", frozenset({"pdf", "metrics"}))
    assert {right for right in EVERY_RIGHT if both.has(right)} == {"pdf", "metrics"}
    assert not any(Actor("a", frozenset()).has(right) for right in EVERY_RIGHT)


def test_a_grant_of_another_version_allows_nothing():
    assert not any(Actor("a", frozenset({"superuser"})).has(right) for right in EVERY_RIGHT)


NOBODYS: frozenset[str] = frozenset()
NORTH = frozenset({"north"})
ALL = {"all_sites": True}

# (what the actor has, its sites' rows of oci, its rows of pdf, which has no sites); None is all
SEES = {
    "viewer of nothing": ("viewer", {}, NOBODYS, NOBODYS),
    "viewer of a site": ("viewer", {"sites": NORTH}, NORTH, NOBODYS),
    "viewer of every site": ("viewer", ALL, None, None),
    "viewer of the queue alone": ("viewer", {"queues": {"oci"}}, NOBODYS, NOBODYS),
    "viewer of the queue without sites": ("viewer", {"queues": {"pdf"}}, NOBODYS, None),
    "operator of a site in the queue": (
        "operator",
        {"sites": NORTH, "queues": {"oci"}},
        NORTH,
        NOBODYS,
    ),
    "operator of a site in another": (
        "operator",
        {"sites": NORTH, "queues": {"pdf"}},
        NOBODYS,
        None,
    ),
    "operator of every site in it": ("operator", {**ALL, "queues": {"oci"}}, None, NOBODYS),
    "operator of every site in another": ("operator", {**ALL, "queues": {"x"}}, NOBODYS, NOBODYS),
    "read key of a site": ("read", {"sites": NORTH}, NORTH, NOBODYS),
    "read key of every site": ("read", ALL, None, None),
    "admin of nothing": ("admin", {}, None, None),
    "admin of a site and a queue": ("admin", {"sites": NORTH, "queues": {"x"}}, None, None),
}


@pytest.mark.parametrize(("grant", "has", "sited", "unsited"), SEES.values(), ids=SEES)
def test_rows_are_seen_by_whoever_has_their_site_and_queue(grant, has, sited, unsited):
    given = {name: one if one is True else frozenset(one) for name, one in has.items()}
    actor = Actor("a", frozenset({grant}), **given)
    assert actor.sites_in("oci") == sited
    assert actor.sites_in("pdf", sited=False) == unsited
    for site in ("north", "south", "no such site"):
        assert actor.sees("oci", site) == (sited is None or site in sited)
        assert actor.sees("pdf", site, sited=False) == (unsited is None)


def test_whoever_sits_at_the_machine_may_everything_but_be_the_cron_caller():
    actor = system_actor("cli:me")
    assert actor.is_admin
    assert {right for right in EVERY_RIGHT if not actor.has(right)} == {"cron"}
    assert actor.sites_in("anything") is None
