"""What is left of a removed site, for one that gets its id, and for work that finds it gone."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from kesin.cli.commands.sites import store_rows
from kesin.foundation.problems import NotFound
from kesin.store.directory import Directory
from kesin.workloads import workloads
from kesin.workloads.oci.adjustments import adjust
from kesin.workloads.oci.conversions.corrections import fix_rows
from tests.web.conftest import ROOT
from tests.workloads.oci.own_site import Oci, OwnSite


def remove(shared: Oci, site: OwnSite) -> None:
    answer = shared.client.delete(f"/api/sites/{site.id}", params={"confirm": site.id}, headers=shared.key("admin"))
    assert answer.status_code == 200, answer.text


def entries(shared: Oci, site: OwnSite) -> list[str]:
    found = shared.accounts.directory.metadata_entries("oci", site=site.id)
    return [entry.name for entry in found if entry.value != "null"]


def test_a_site_that_gets_the_id_of_a_removed_one_inherits_no_pause_and_no_metadata(shared, site):
    commands, place = shared.context.commands, site.place
    for queue in ("oci", "oci_adjustments"):
        commands.pause(ROOT, queue, site=site.id)
    place.put_metadata("heartbeat", {"at": 1})
    place.put_metadata("reconciliation:2023-11", {"2023-11-02": {"Sale": {"attributed": 1}}})
    remove(shared, site)
    assert entries(shared, site) == []
    shared.accounts.add_site(ROOT, site.id)
    for queue in ("oci", "oci_adjustments"):
        assert site.id not in [pause.tenant for pause in commands.pauses(ROOT, queue)]
    assert not site.place.is_paused
    assert site.place.read_metadata("heartbeat") is None


def test_a_refused_removal_keeps_pauses_and_metadata(shared, site):
    site.post([site.row(1)])
    shared.context.commands.pause(ROOT, "oci", site=site.id)
    site.place.put_metadata("heartbeat", {"at": 1})
    refused = shared.client.delete(f"/api/sites/{site.id}", params={"confirm": site.id}, headers=shared.key("admin"))
    assert refused.status_code == 409
    assert site.place.is_paused
    assert "heartbeat" in entries(shared, site)


def test_what_is_noted_after_the_removal_is_dropped(shared, site):
    place = site.place  # found before the removal
    remove(shared, site)
    place.put_metadata("heartbeat", {"at": 1})
    with place.locked_metadata("breaker") as breaker:
        breaker["failures"] = 3
    assert entries(shared, site) == []


def test_no_adjustment_and_no_revision_arrives_after_the_removal(shared, site):
    site.post([site.row(1)])
    [item] = site.export()
    site.ack([item["id"].removeprefix("seal_")])
    [job] = site.jobs()
    place = site.place
    remove(shared, site)
    external_id = job.payload["externalId"]
    adjustment = {"externalId": external_id, "adjustmentId": "1", "type": "RETRACT"}
    with pytest.raises(NotFound):
        adjust(place, [adjustment], actor=ROOT)
    with pytest.raises(NotFound):
        fix_rows(place, ROOT, [{"externalId": external_id, "conversionValue": 7}], reason=None)
    assert len(site.jobs()) == 1


def test_a_user_does_not_keep_a_site_that_goes_meanwhile(shared):
    for _ in range(5):
        site = OwnSite(shared)
        name, start = f"u-{site.id}", threading.Barrier(2)
        shared.accounts.add_user(ROOT, name, "a long password")
        thread = threading.Thread(target=give, args=(shared, name, site.id, start))
        thread.start()
        start.wait()
        remove(shared, site)
        thread.join()
        assert shared.accounts.directory.user(name).sites == ()


def give(shared: Oci, user: str, site: str, start: threading.Barrier) -> None:
    start.wait()
    with suppress(NotFound):
        shared.accounts.set_user(ROOT, user, sites=[site])


def test_the_same_site_posted_twice_at_once_is_added_once_and_found_once(shared, site):
    admin = shared.key("admin")
    for n in range(3):
        start, codes = threading.Barrier(2), list[int]()
        body = {"id": f"{site.id}-{n}", "name": "New", "like": site.id}
        threads = [threading.Thread(target=add, args=(shared, body, admin, start, codes)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [200, 201]


def add(shared: Oci, body: Any, headers: Any, start: threading.Barrier, codes: list[int]) -> None:
    start.wait()
    codes.append(shared.client.post("/api/sites", json=body, headers=headers).status_code)


def test_no_line_of_an_import_reads_all_sites(shared, site, monkeypatch):
    rows = [(n, {"id": f"{site.id}-{n}", "name": f"Site {n}"}) for n in range(10)]
    store_rows(shared.accounts, rows, site.id)
    listed, every = list[object](), Directory.sites

    def spy(directory: Directory) -> object:
        listed.append(1)
        return every(directory)

    loaded = list[object]()

    def spy_loading() -> object:
        loaded.append(1)
        return workloads()

    monkeypatch.setattr("kesin.cli.commands.sites.workloads", spy_loading)
    monkeypatch.setattr(Directory, "sites", spy)
    changed = [(n, cells | {"name": "Other", "recover_minutes": "45"}) for n, cells in rows]
    lines = store_rows(shared.accounts, changed, site.id)
    assert {line["result"] for line in lines} == {"changed"}
    shared.accounts.create_key(ROOT, "one", ["oci:script"], site=f"{site.id}-1")
    assert (listed, loaded) == ([], [1])  # and the workloads are found once
