"""The statistics of a site: counts, ages and warnings."""

from typing import Any

import pytest

from kesin.foundation.clock import iso
from kesin.workloads.oci.google.circuit_breaker import Breaker
from kesin.workloads.oci.site import BREAKER, UPLOADS
from tests.workloads.oci.own_site import DAY, HOUR, MINUTE, Oci, OwnSite, ok

NOTHING = {"QUEUED": 0, "RETRY": 0, "PROCESSING": 0, "COMPLETED": 0, "FAILED": 0}


def multi(oci: Oci, headers: Any = None) -> dict[str, Any]:
    path = "/api/oci/queue-stats?scope=multi"
    return dict(ok(oci.client.get(path, headers=headers or oci.reader)))


def test_an_empty_site_has_no_counts_and_no_warnings(site: OwnSite):
    assert site.stats() == {
        "siteId": site.id,
        "totals": NOTHING,
        "stuckProcessing": 0,
        "failedShare": 0.0,
        "oldestQueuedAt": None,
        "expiringSoon": 0,
        "lastUpdatedAt": None,
        "lastAckAt": None,
        "breaker": None,
        "warnings": [],
    }


def test_every_state_is_counted_without_reading_rows(site: OwnSite, monkeypatch: pytest.MonkeyPatch):
    ids = site.claim(9)
    site.ack(ids[:4])
    site.ack_failed(ids[4:7])
    site.act("RESET_TO_QUEUED", ids[7:8])

    def read_rows(*_: Any, **__: Any) -> None:
        raise AssertionError("a count must not read rows")

    monkeypatch.setattr(site.oci.store, "jobs", read_rows)
    totals = {**NOTHING, "COMPLETED": 4, "FAILED": 3, "QUEUED": 1, "PROCESSING": 1}
    assert site.stats()["totals"] == totals
    site.wait(16 * MINUTE, "recover")
    by_uuid = ok(site.request("GET", f"queue-stats?siteId={site.uuid}", site.reader))
    assert by_uuid["siteId"] == site.id
    assert by_uuid["totals"] == {**totals, "PROCESSING": 0, "RETRY": 1}


# Ages


def test_a_row_is_stuck_once_its_lease_is_over_and_not_before(site: OwnSite):
    site.claim(2)
    site.wait(15 * MINUTE - 1)
    assert (site.stats()["stuckProcessing"], site.warnings()) == (0, [])
    site.wait(2)
    assert (site.stats()["stuckProcessing"], site.warnings()) == (2, ["STUCK_PROCESSING"])
    assert [one["message"] for one in site.stats()["warnings"]] == ["rows past their lease: 2"]
    site.sweep("recover")
    site.change_settings(recover_minutes=45)
    site.export()
    site.wait(30 * MINUTE)
    assert site.stats()["stuckProcessing"] == 0


def test_the_oldest_queued_row_gives_the_time_it_was_created(site: OwnSite):
    [first] = site.enqueue()
    created = site.clock.time_us
    site.wait(HOUR)
    site.enqueue(1, first=2)
    assert site.stats()["oldestQueuedAt"] == iso(created)
    site.act("MARK_FAILED", [first])
    assert site.stats()["oldestQueuedAt"] == iso(site.clock.time_us)


def test_rows_that_expire_within_a_week_are_counted(site: OwnSite):
    site.enqueue(1, conversionTime=site.oci.ago(82 * DAY))
    site.enqueue(2, first=2, conversionTime=site.oci.ago(84 * DAY))
    assert (site.stats()["expiringSoon"], site.warnings()) == (2, ["EXPIRING_SOON"])


def test_the_times_of_the_last_change_and_the_last_delivery_are_given(site: OwnSite):
    ids = site.claim(2)
    site.wait(10)
    site.ack(ids[:1])
    delivered = site.clock.time_us
    site.wait(10)
    site.act("MARK_FAILED", ids[1:])
    stats = site.stats()
    assert (stats["lastAckAt"], stats["lastUpdatedAt"]) == (iso(delivered), iso(site.clock.time_us))


# Warnings


def test_more_than_a_fifth_of_failures_is_a_warning(shared: Oci):
    for failed, done, share, warned in (
        (0, 10, 0.0, False),
        (2, 8, 0.2, False),
        (3, 9, 0.25, True),
        (10, 0, 1.0, True),
        (9, 0, 1.0, False),  # too few to speak of a share
    ):
        site = OwnSite(shared)
        ids = site.claim(failed + done)
        site.ack_failed(ids[:failed])
        site.ack(ids[failed:])
        assert site.stats()["failedShare"] == share
        assert site.warnings() == ["FAILED_SHARE_HIGH"] * warned


def test_a_paused_site_warns_and_a_paused_queue_at_every_site(site: OwnSite, neighbour: OwnSite):
    site.pause()
    assert (site.warnings(), neighbour.warnings()) == (["PAUSED"], [])
    site.resume()
    assert site.warnings() == []
    site.oci.queue.pause(actor="tests")
    warnings = [site.warnings(), neighbour.warnings()]
    site.oci.queue.resume()
    assert warnings == [["PAUSED"], ["PAUSED"]]


def test_a_script_that_is_silent_while_rows_wait_is_a_warning(site: OwnSite, neighbour: OwnSite):
    site.enqueue()
    site.wait(24 * HOUR - 1)
    assert site.warnings() == []
    site.wait(2)
    assert site.warnings() == ["SCRIPT_SILENT"]
    assert neighbour.warnings() == []  # nothing waits there
    ok(site.report("script-heartbeat"))
    assert site.warnings() == []
    site.change_settings(silent_hours=2)
    site.wait(2 * HOUR + 1)
    assert site.warnings() == ["SCRIPT_SILENT"]
    site.change(channel="api")  # our worker uploads; there is no script
    assert "SCRIPT_SILENT" not in site.warnings()


def test_a_site_that_must_refuse_every_row_says_so(site: OwnSite):
    site.change(channel="api")
    site.change_settings(conversion_name="")
    assert site.warnings() == ["MISSING_CONVERSION_NAME"]
    site.change_settings(conversion_name="Phone sale")
    assert site.warnings() == []


def test_an_ack_is_a_sign_of_the_script(site: OwnSite):
    ids = site.claim(2)
    site.wait(20 * HOUR)
    site.ack(ids[:1])
    site.act("RESET_TO_QUEUED", ids[1:])
    site.wait(20 * HOUR)
    assert site.warnings() == []


def test_an_open_breaker_is_a_warning_with_its_code(site: OwnSite):
    site.change(channel="api")
    assert site.stats()["breaker"] == "closed"
    broken = Breaker(kind="AUTH", code="invalid_grant", message="sign in again", opened_at=1)
    site.place.put_metadata(BREAKER, broken.to_dict())
    stats = site.stats()
    assert (stats["breaker"], stats["warnings"][0]["code"]) == ("open", "BREAKER_OPEN")
    assert "invalid_grant" in stats["warnings"][0]["message"]


def test_an_upload_that_google_refused_later_is_a_warning(site: OwnSite):
    refused_later = {"requestId": "r-1", "status": "PARTIAL_SUCCESS"}
    site.place.put_metadata(UPLOADS, {"refused": refused_later})
    [warning] = site.stats()["warnings"]
    assert (warning["code"], "r-1" in warning["message"]) == ("UPLOAD_NOT_TAKEN", True)


# Many sites


def test_all_visible_sites_together_are_the_sum_of_each(site: OwnSite, neighbour: OwnSite):
    site.enqueue(3)
    theirs = neighbour.claim(10)
    sites = [site.id, neighbour.id]
    name = site.oci.known(f"viewer-of-{site.id}", sites=sites)
    stats = multi(site.oci, site.oci.cookie(name))
    assert (stats["siteId"], stats["totals"]) == (None, {**NOTHING, "QUEUED": 3, "PROCESSING": 10})
    queued = {one["siteId"]: one["totals"]["QUEUED"] for one in stats["sites"]}
    assert queued == {site.id: 3, neighbour.id: 0}
    neighbour.ack_failed(theirs)
    stats = multi(site.oci, site.oci.cookie(name))
    assert (stats["failedShare"], stats["breaker"]) == (1.0, None)
    assert stats["warnings"][0]["siteId"] == neighbour.id
    assert {one["siteId"] for one in multi(site.oci)["sites"]} >= set(sites)


def test_only_ones_own_sites_are_listed_and_counted(site: OwnSite, neighbour: OwnSite):
    site.enqueue(2)
    neighbour.enqueue(5)
    stats = multi(site.oci, site.oci.key("read", site=site.id))
    assert [one["siteId"] for one in stats["sites"]] == [site.id]
    assert stats["totals"]["QUEUED"] == 2
    nobody = site.oci.known("nobody-of-all")
    stats = multi(site.oci, site.oci.cookie(nobody))
    assert (stats["sites"], stats["totals"]) == ([], NOTHING)


def test_a_site_must_be_named_and_a_scope_known(site: OwnSite):
    queries = ["", "?siteId=", "?scope=all", "?siteId=nowhere"]
    responses = [site.request("GET", f"queue-stats{one}", site.reader) for one in queries]
    assert [response.status_code for response in responses] == [422, 422, 422, 404]
