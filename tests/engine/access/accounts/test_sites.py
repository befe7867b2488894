"""Sites: who knows them, how they are made and changed."""

from typing import Any

import pytest

from kesin.engine.access.accounts import cron_actor
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Invalid, NotFound, Problem, RequestConflict
from tests.engine.access.accounts.conftest import HOME, ROOT, state


def test_an_actor_knows_its_own_sites(accounts):
    def known(*grants: str, **has: Any) -> list[str]:
        return [site.id for site in accounts.sites(Actor("a", frozenset(grants), **has))]

    north = frozenset({"north", "no such site"})
    assert known("admin") == ["north", "south"]
    assert known("viewer", all_sites=True) == ["north", "south"]
    assert known("operator", sites=north) == known("oci:script", sites=north) == ["north"]
    assert known("viewer") == []
    assert known("metrics", all_sites=True) == known("pdf", all_sites=True) == []
    assert [site.id for site in accounts.sites(cron_actor(HOME))] == ["north", "south"]


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
    with pytest.raises(RequestConflict, match="a site 'north' already"):
        accounts.add_site(ROOT, "north", name="other")
    before = accounts.directory.site("north")
    clock.advance(1)
    after = accounts.set_site(ROOT, "north", channel="api", currency="EUR")
    assert after == before._replace(channel="api", currency="EUR", changed_at=clock.time_us)
    assert accounts.audit(ROOT)[0].details == '{"changed":["channel","currency"]}'
    with pytest.raises(NotFound, match="no site 'west'"):
        accounts.set_site(ROOT, "west", name="x")
