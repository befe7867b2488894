"""Many sites at once: what a new one still lacks, and two imports at the same time."""

from __future__ import annotations

import threading
from typing import Any

from kesin.cli.commands.sites import store_rows
from kesin.workloads.oci.operations import SiteStats, onboarding
from tests.workloads.oci.own_site import DAY, Oci, OwnSite

STEPS = ("key", "row", "export", "ack", "attributed")


def done(site: OwnSite) -> list[str]:
    steps = onboarding(site.place, SiteStats(site.place))
    assert tuple(steps) == STEPS
    return [name for name, is_done in steps.items() if is_done]


def reconcile(site: OwnSite, month: str, days: dict[str, Any]) -> None:
    """Store what the reconciliation of a month stores."""
    site.place.put_metadata(f"reconciliation:{month}", days)


def test_each_step_is_done_once_it_happened(shared, site):
    no_key_of_all_sites = [key for key in shared.accounts.directory.api_keys() if not key.site]
    assert not any("oci:script" in key.scopes for key in no_key_of_all_sites)
    assert done(site) == []
    assert site.producer
    assert done(site) == ["key"]
    site.enqueue()
    assert done(site) == ["key", "row"]
    [item] = site.export()
    assert done(site) == ["key", "row", "export"]
    site.ack([item["id"].removeprefix("seal_")])
    assert done(site) == list(STEPS)  # without figures of Google there is nothing to wait for
    reconcile(site, "2023-10", {"2023-10-30": {"Sale": {"sent": 1, "taken": 1, "attributed": 0}}})
    assert done(site) == ["key", "row", "export", "ack"]
    reconcile(site, "2023-11", {"2023-11-02": {"Sale": {"sent": 1, "taken": 1, "attributed": 1}}})
    assert done(site) == list(STEPS)


def test_a_day_of_any_action_is_attributed_but_nothing_that_is_no_day(site):
    site.enqueue()
    [item] = site.export()
    site.ack([item["id"].removeprefix("seal_")])
    reconcile(site, "2023-10", {"2023-10-30": {"Sale": {"sent": 5}}})
    site.place.put_metadata("resources", {"2023-01-01": {"Sale": {"attributed": 9}}})
    assert "attributed" not in done(site)
    days = {"2023-11-02": {"Sale": {"attributed": 0}, "B": {"attributed": 1}}}
    reconcile(site, "2023-11", days)
    assert "attributed" in done(site)


def test_where_figures_are_copied_the_first_attributed_conversion_is_waited_for(make_api):
    api = make_api()
    api.enqueue()
    api.turn()
    assert done(api) == ["key", "row", "export", "ack"]


def test_a_key_that_is_over_or_revoked_is_none(shared, site):
    shared.key("oci:script", site=site.id, days=1)
    assert done(site) == ["key"]
    site.wait(2 * DAY)
    assert done(site) == []
    assert site.producer
    assert done(site) == ["key"]
    shared.revoke(site.producer["x-api-key"])
    assert done(site) == []


def test_two_imports_at_once_store_every_site_once(shared: Oci, site: OwnSite):
    for time in range(3):
        cells = [{"id": f"{site.id}-{time}-{n}", "name": f"Site {n}"} for n in range(10)]
        start, lines = threading.Barrier(2), list[list[Any]]()
        threads = [
            threading.Thread(target=import_rows, args=(shared, [*enumerate(cells, 2)], start, lines)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outcomes = [{line["result"] for line in each} for each in lines]
        # The later one waited, and then found them: in a command, that is another result than shown.
        assert [outcome for outcome in outcomes if "new" in outcome] == [{"new"}]
        names = {one.id: one.name for one in shared.accounts.directory.sites()}
        assert all(names[cell["id"]] == cell["name"] for cell in cells)


def import_rows(shared: Oci, rows: list[Any], start: threading.Barrier, lines: list[list[Any]]) -> None:
    start.wait()
    with shared.accounts.directory.transaction():
        lines.append(store_rows(shared.accounts, rows, None))
