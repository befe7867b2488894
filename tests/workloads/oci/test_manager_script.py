"""One script of a manager account for many sites, against a running service."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from kesin.workloads.oci.site import HEARTBEAT
from tests.web.conftest import ROOT
from tests.workloads.oci.manager import ManagerScript
from tests.workloads.oci.own_site import OwnSite
from tests.workloads.oci.running import Running, sale, secrets_in
from tests.workloads.oci.script import ACTIONS, EXPORT, ScriptFailed

LIST = "/api/oci/manager/sites"
_accounts = itertools.count(1_000_000_001)


class Agency:
    """Sites of one manager account, and its script."""

    def __init__(self, server: Running) -> None:
        self.oci = server.oci
        for site in self.oci.accounts.directory.sites():  # those of other tests
            if self.oci.place(site.id).settings.customer_id:
                self.oci.accounts.set_site_settings(ROOT, site.id, "oci", {"customer_id": None})
        key, record = self.oci.accounts.create_key(ROOT, "manager", ["oci:script"], all_sites=True)
        self.key_id = record.id
        self.script = ManagerScript(server.base_url, "", key)
        self.account_of: dict[str, str] = {}

    def add(self, count: int = 1, *, rows: int = 0, below: bool = True) -> list[OwnSite]:
        """Add sites with an account each, with so many rows."""
        sites = []
        for _ in range(count):
            site, digits = OwnSite(self.oci), str(next(_accounts))
            site.change_settings(customer_id=digits)
            if rows:
                site.post([sale(number) for number in range(1, rows + 1)])
            self.account_of[site.id] = f"{digits[:3]}-{digits[3:6]}-{digits[6:]}"
            if below:
                self.script.accounts.add(self.account_of[site.id])
            sites.append(site)
        return sites

    def run(self) -> list[str]:
        """Run the script a minute later; returns the sites whose accounts it ran in."""
        self.oci.clock.advance(60)
        self.script.run()
        return self.selected

    @property
    def selected(self) -> list[str]:
        """The sites whose accounts the last run had, in order."""
        sites = {account: site for site, account in self.account_of.items()}
        return [sites[account] for account in self.script.served]

    def states(self, site: OwnSite) -> dict[str, int]:
        counts = self.oci.queue.stats().tenants.get(site.id, {})
        return {name: n for name, n in counts.items() if n}

    def heartbeat(self, site: OwnSite) -> dict[str, Any]:
        return site.place.read_metadata(HEARTBEAT) or {}


@pytest.fixture
def agency(service: Callable[[], Running]) -> Any:
    """Whatever a test does with it, it logs no secret."""
    made = Agency(service())
    yield made
    assert secrets_in(made.script, " ".join(made.script.logged)) == []


def test_60_accounts_have_their_turns_in_two_runs_also_where_google_ends_some(agency):
    sites = sorted(agency.add(60), key=lambda site: site.id)  # new ones are served in this order
    names = [site.id for site in sites]
    for site in sites[-2:]:
        site.post([sale(number) for number in range(1, 4)])
    agency.script.killed = {agency.account_of[name] for name in names[:50]}
    with pytest.raises(ScriptFailed, match="50 of 50 accounts failed"):
        agency.run()
    assert agency.selected == names[:50]
    with pytest.raises(ScriptFailed, match="40 of 50 accounts failed"):
        agency.run()
    assert agency.selected[:10] == names[50:]  # those that never had a turn
    assert {*agency.selected[10:]} <= {*names[:50]}  # then those that waited longest
    assert [site.id for site in sites if "at" in agency.heartbeat(site)] == names[50:]
    assert [agency.states(site) for site in sites[-2:]] == [{"COMPLETED": 3}] * 2


def test_an_account_that_throws_or_is_ended_stops_no_other_and_lets_others_go_first(agency):
    [broken, ended, well] = agency.add(3, rows=2)
    [idle] = agency.add()
    account = agency.account_of
    agency.script.throwing, agency.script.killed = {account[broken.id]}, {account[ended.id]}
    with pytest.raises(ScriptFailed, match="2 of 4 accounts failed"):
        agency.run()
    assert [agency.states(site) for site in (well, broken, ended)] == [{"COMPLETED": 2}, {"FAILED": 2}, {"QUEUED": 2}]
    assert agency.heartbeat(idle)["exported"] == 0  # without rows it was served too
    assert "did not accept the upload" in agency.heartbeat(broken)["error"]
    log = " ".join(agency.script.logged)
    assert f"{account[well.id]}: served {well.id}" in log
    assert f"{account[broken.id]}: ERROR" in log
    assert f"{account[ended.id]}: TIMEOUT" in log
    agency.script.throwing, agency.script.killed = set(), set()
    agency.run()
    assert "error" not in agency.heartbeat(broken)


def test_an_account_that_is_not_below_the_manager_does_not_hold_up_the_others(agency):
    missing = agency.add(50, below=False)
    [well] = agency.add(1, rows=1)
    assert well.id in {*agency.run(), *agency.run()}
    assert agency.states(well) == {"COMPLETED": 1}
    for site in missing:
        assert "There is no account" in agency.heartbeat(site)["error"]
        assert "at" not in agency.heartbeat(site)  # it was not served


def test_two_sites_of_one_account_are_both_served(agency):
    [one, other] = agency.add(2, rows=1)
    other.change_settings(customer_id=agency.account_of[one.id].replace("-", ""))
    agency.run()
    assert [agency.states(site) for site in (one, other)] == [{"COMPLETED": 1}] * 2


def test_a_revoked_key_ends_the_run_before_any_account(agency):
    [site] = agency.add(1, rows=1)
    agency.oci.accounts.revoke_key(ROOT, agency.key_id)
    with pytest.raises(ScriptFailed, match="401"):
        agency.run()
    assert [request.path for request in agency.script.requests] == [LIST]
    assert agency.states(site) == {"QUEUED": 1}


def test_nothing_to_serve_is_no_failure(agency):
    assert agency.run() == []
    assert agency.script.logged == ["No account to serve."]


def test_a_preview_changes_nothing(agency):
    [site] = agency.add(1, rows=1)
    [missing] = agency.add(1, below=False)
    agency.script.preview = True
    agency.run()
    assert agency.states(site) == {"QUEUED": 1}
    assert agency.heartbeat(missing) == {}
    claims = [one.query.get("markAsExported") for one in agency.script.requests_to(EXPORT)]
    assert claims == ["false"]


def test_each_site_lists_its_actions_once_a_day(agency):
    sites = agency.add(2)
    agency.script.actions = [{"name": "Sale", "id": "7", "status": "ENABLED"}]
    agency.run()
    agency.run()
    listed = [request.body["siteId"] for request in agency.script.requests_to(ACTIONS)]
    assert sorted(listed) == sorted(site.id for site in sites)
