"""The permissions of every role and scope, and the jobs an actor sees."""

from typing import Any

import pytest

from kesin.foundation.permissions import PERMISSIONS, ROLES, SCOPES, Actor, Permission, require, system_actor
from kesin.foundation.problems import Forbidden
from tests.tables import table

EVERY_PERMISSION: tuple[Permission, ...] = (*SCOPES, "cron")

# Scope or role → its permissions, as the specification's table says.
MAY: dict[str, set[Permission]] = {
    "oci:ingest": {"oci:ingest"},
    "oci:script": {"oci:script"},
    "pdf": {"pdf"},
    "pdf:html": {"pdf:html"},
    "optiplan": {"optiplan"},
    "read": {"read"},
    "viewer": {"read"},
    "operate": {"read", "operate", "reveal"},
    "operator": {"read", "operate", "reveal"},
    "reveal": {"reveal"},
    "metrics": {"metrics"},
    "admin": set(SCOPES),
    "cron": {"cron"},
}


@table("grant", MAY)
def test_a_grant_allows_what_the_table_says_and_nothing_else(grant):
    actor = Actor("a", frozenset({grant}))
    for permission in EVERY_PERMISSION:
        assert actor.has(permission) == (permission in MAY[grant])
        if permission in MAY[grant]:
            require(actor, permission)
        else:
            with pytest.raises(Forbidden, match=f"permission '{permission}'"):
                require(actor, permission)


def test_several_grants_add_up_and_none_or_that_of_another_version_allows_nothing():
    assert set(MAY) == set(PERMISSIONS) == {*SCOPES, *ROLES, "cron"}
    both = Actor("a", frozenset({"pdf", "metrics"}))
    assert {permission for permission in EVERY_PERMISSION if both.has(permission)} == {"pdf", "metrics"}
    assert not any(Actor("a", frozenset()).has(permission) for permission in EVERY_PERMISSION)
    assert not any(Actor("a", frozenset({"superuser"})).has(permission) for permission in EVERY_PERMISSION)


EMPTY: frozenset[str] = frozenset()
NORTH = frozenset({"north"})
ALL: dict[str, Any] = {"all_sites": True}

# (role or scope, other fields of the actor, its sites in oci, its sites in pdf, whose tenants are
# no sites); None means all
SEES: dict[str, tuple[str, dict[str, Any], frozenset[str] | None, frozenset[str] | None]] = {
    "viewer of nothing": ("viewer", {}, EMPTY, EMPTY),
    "viewer of a site": ("viewer", {"sites": NORTH}, NORTH, EMPTY),
    "viewer of every site": ("viewer", ALL, None, None),
    "viewer of the queue alone": ("viewer", {"queues": frozenset({"oci"})}, EMPTY, EMPTY),
    "viewer of the queue without sites": ("viewer", {"queues": frozenset({"pdf"})}, EMPTY, None),
    "operator of a site in the queue": ("operator", {"sites": NORTH, "queues": frozenset({"oci"})}, NORTH, EMPTY),
    "operator of a site in another": ("operator", {"sites": NORTH, "queues": frozenset({"pdf"})}, EMPTY, None),
    "operator of every site in it": ("operator", {**ALL, "queues": frozenset({"oci"})}, None, EMPTY),
    "operator of every site in another": ("operator", {**ALL, "queues": frozenset({"x"})}, EMPTY, EMPTY),
    "read key of a site": ("read", {"sites": NORTH}, NORTH, EMPTY),
    "read key of every site": ("read", ALL, None, None),
    "admin of nothing": ("admin", {}, None, None),
    "admin of a site and a queue": ("admin", {"sites": NORTH, "queues": frozenset({"x"})}, None, None),
}


@table(("grant", "fields", "sited", "unsited"), [pytest.param(*row, id=name) for name, row in SEES.items()])
def test_an_actor_sees_the_jobs_of_its_sites_and_queues(grant, fields, sited, unsited):
    actor = Actor("a", frozenset({grant}), **fields)
    assert actor.sites_in("oci") == sited
    assert actor.sites_in("pdf", sited=False) == unsited
    for site in ("north", "south", "no such site"):
        assert actor.sees("oci", site) == (sited is None or site in sited)
        assert actor.sees("pdf", site, sited=False) == (unsited is None)


def test_a_system_actor_has_every_permission_but_cron():
    actor = system_actor("cli:me")
    assert actor.is_admin
    assert {permission for permission in EVERY_PERMISSION if not actor.has(permission)} == {"cron"}
    assert actor.sites_in("anything") is None
