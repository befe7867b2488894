"""Sites: who sees them, how they are added and changed."""

from typing import Any

import pytest

from kesin.engine.access.accounts import cron_actor
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Invalid, NotFound, Problem, RequestConflict
from tests.engine.access.accounts.conftest import HOME, ROOT, state


def test_an_actor_sees_its_own_sites(accounts):
    def visible(*grants: str, **fields: Any) -> list[str]:
        return [site.id for site in accounts.sites(Actor("a", frozenset(grants), **fields))]

    north = frozenset({"north", "no such site"})
    assert visible("admin") == ["north", "south"]
    assert visible("viewer", all_sites=True) == ["north", "south"]
    assert visible("operator", sites=north) == visible("oci:script", sites=north) == ["north"]
    assert visible("viewer") == []
    assert visible("metrics", all_sites=True) == visible("pdf", all_sites=True) == []
    assert [site.id for site in accounts.sites(cron_actor(HOME))] == ["north", "south"]


BAD_SITES: list[tuple[str, dict[str, str]]] = [
    ("one of script, api, data_manager, got 'fax'", {"channel": "fax"}),
    ("'Mars' is not a time zone", {"timezone": "Mars"}),
    ("'ZZZ' is not an ISO 4217 currency code", {"currency": "ZZZ"}),
    ("name must have 1…200", {"name": " "}),
    ("name must have 1…200", {"name": "x" * 201}),
]


def test_a_site_is_neither_added_nor_changed_with_a_bad_id_or_field(accounts):
    before = state(accounts)
    for sentence, fields in BAD_SITES:
        with pytest.raises(Invalid, match=sentence):
            accounts.add_site(ROOT, "west", **fields)
        with pytest.raises(Invalid, match=sentence):
            accounts.set_site(ROOT, "north", **fields)
    for site_id in ("", "a b", "a/b", "../a", "x" * 129, "a\0", "ş", "a\n"):
        with pytest.raises(Invalid, match="is not a site id"):
            accounts.add_site(ROOT, site_id)
        with pytest.raises(Problem):
            accounts.set_site(ROOT, site_id, name="x")
    assert state(accounts) == before


def test_a_site_is_added_once_and_only_named_fields_change(accounts, clock):
    with pytest.raises(RequestConflict, match="the site 'north' already"):
        accounts.add_site(ROOT, "north", name="other")
    before = accounts.directory.site("north")
    clock.advance(1)
    after = accounts.set_site(ROOT, "north", channel="api", currency="EUR")
    assert after == before._replace(channel="api", currency="EUR", changed_at=clock.time_us)
    assert accounts.audit(ROOT)[0].details == '{"changed":["channel","currency"]}'
    with pytest.raises(NotFound, match="no site 'west'"):
        accounts.set_site(ROOT, "west", name="x")
