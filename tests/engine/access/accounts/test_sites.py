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


BAD_SITES: dict[str, tuple[str, dict[str, str]]] = {
    "channel": ("one of script, api, data_manager, got 'fax'", {"channel": "fax"}),
    "time zone": ("'Mars' is not a time zone", {"timezone": "Mars"}),
    "currency": ("'ZZZ' is not an ISO 4217 currency code", {"currency": "ZZZ"}),
    "name": ("name must have 1…200", {"name": " "}),
    "too long a name": ("name must have 1…200", {"name": "x" * 201}),
}


@pytest.mark.parametrize(("sentence", "fields"), BAD_SITES.values(), ids=BAD_SITES)
def test_a_site_is_neither_added_nor_changed_with_a_bad(accounts, sentence, fields):
    before = state(accounts)
    for change in (
        lambda: accounts.add_site(ROOT, "west", **fields),
        lambda: accounts.set_site(ROOT, "north", **fields),
    ):
        with pytest.raises(Invalid, match=sentence):
            change()
    assert state(accounts) == before


@pytest.mark.parametrize("site_id", ["", "a b", "a/b", "../a", "x" * 129, "a\0", "ş", "a\n"])
def test_a_bad_site_id_is_refused(accounts, site_id):
    with pytest.raises(Invalid, match="is not a site id"):
        accounts.add_site(ROOT, site_id)
    with pytest.raises(Problem):
        accounts.set_site(ROOT, site_id, name="x")


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
