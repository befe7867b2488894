"""The statistics of a site: counts, ages and warnings."""

from typing import Any

import pytest

from kesin.foundation.clock import iso
from kesin.workloads.oci.google.circuit_breaker import Breaker
from kesin.workloads.oci.site import BREAKER, UPLOADS, put_metadata
from tests.workloads.oci import own_site
from tests.workloads.oci.conftest import DAY, HOUR, Oci
from tests.workloads.oci.own_site import OwnSite, refused, well

shared, site, neighbour = own_site.shared, own_site.site, own_site.neighbour
MINUTE = 60
NOTHING = {"QUEUED": 0, "RETRY": 0, "PROCESSING": 0, "COMPLETED": 0, "FAILED": 0}


def warnings(site: OwnSite) -> list[str]:
    return [warning["code"] for warning in site.stats()["warnings"]]


def multi(oci: Oci, headers: Any = None) -> dict[str, Any]:
    answer = oci.client.get("/api/oci/queue-stats?scope=multi", headers=headers or oci.reader)
    body: dict[str, Any] = well(answer)
    return body


def test_an_empty_site_has_nothing_to_say(site: OwnSite):
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


def test_every_state_is_counted(site: OwnSite):
    ids = site.exported(9)
    site.ack(ids[:4])
    site.ack_failed(ids[4:7])
    site.act("RESET_TO_QUEUED", ids[7:8])
    assert site.stats()["totals"] == {
        **NOTHING,
        "COMPLETED": 4,
        "FAILED": 3,
        "QUEUED": 1,
        "PROCESSING": 1,
    }
    site.wait(16 * MINUTE, "recover")
    assert site.stats()["totals"]["RETRY"] == 1


def test_a_row_that_was_pruned_is_counted_no_more(oci: Oci):
    ids = oci.queued(2)
    oci.export()
    oci.ack(ids)
    oci.clock.advance(91 * DAY)
    oci.sweep("prune")
    assert oci.stats()["totals"] == NOTHING


def test_the_dashed_uuid_names_the_site_as_well(site: OwnSite):
    answer = site.client.get(f"/api/oci/queue-stats?siteId={site.uuid}", headers=site.reader)
    assert well(answer)["siteId"] == site.id


# Ages


def test_a_row_is_stuck_once_its_lease_is_over_and_not_before(site: OwnSite):
    site.exported(2)
    site.wait(15 * MINUTE - 1)
    assert (site.stats()["stuckProcessing"], warnings(site)) == (0, [])
    site.wait(2)
    assert (site.stats()["stuckProcessing"], warnings(site)) == (2, ["STUCK_PROCESSING"])
    site.sweep("recover")
    assert site.stats()["stuckProcessing"] == 0


def test_a_long_lease_is_not_stuck_after_the_usual_time(site: OwnSite):
    site.decide(recover_minutes=45)
    site.exported()
    site.wait(30 * MINUTE)
    assert site.stats()["stuckProcessing"] == 0


def test_the_oldest_queued_row_tells_its_birth(site: OwnSite):
    [first] = site.queued()
    born = site.clock.time_us
    site.wait(HOUR)
    site.queued(1, first=2)
    assert site.stats()["oldestQueuedAt"] == iso(born)
    site.act("MARK_FAILED", [first])
    assert site.stats()["oldestQueuedAt"] == iso(site.clock.time_us)


def test_rows_that_expire_within_a_week_are_counted(site: OwnSite):
    site.queued(1, conversionTime=site.oci.ago(82 * DAY))
    site.queued(2, first=2, conversionTime=site.oci.ago(84 * DAY))
    assert (site.stats()["expiringSoon"], warnings(site)) == (2, ["EXPIRING_SOON"])


def test_the_last_change_and_the_last_delivery_are_told(site: OwnSite):
    ids = site.exported(2)
    site.wait(10)
    site.ack(ids[:1])
    delivered = site.clock.time_us
    site.wait(10)
    site.act("MARK_FAILED", ids[1:])
    stats = site.stats()
    assert (stats["lastAckAt"], stats["lastUpdatedAt"]) == (iso(delivered), iso(site.clock.time_us))


# The share of failures


@pytest.mark.parametrize(
    ("failed", "done", "share", "warned"),
    [(0, 2, 0.0, False), (1, 4, 0.2, False), (2, 6, 0.25, True), (1, 0, 1.0, True)],
)
def test_more_than_a_fifth_of_failures_is_a_warning(
    site: OwnSite, failed: int, done: int, share: float, warned: bool
):
    ids = site.exported(failed + done)
    site.ack_failed(ids[:failed])
    site.ack(ids[failed:])
    stats = site.stats()
    assert stats["failedShare"] == share
    assert [warning["code"] for warning in stats["warnings"]] == ["FAILED_SHARE_HIGH"] * warned


# Warnings


def test_a_paused_site_warns(site: OwnSite):
    site.pause()
    assert warnings(site) == ["PAUSED"]
    site.oci.queue.resume(tenant=site.id)
    assert warnings(site) == []


def test_a_paused_queue_warns_at_every_site(oci: Oci):
    oci.queue.pause(actor="tests")
    codes = [
        [warning["code"] for warning in oci.stats(site)["warnings"]] for site in ("north", "south")
    ]
    assert codes == [["PAUSED"], ["PAUSED"]]


def test_a_script_that_is_silent_while_rows_wait_is_a_warning(site: OwnSite):
    site.queued()
    site.wait(24 * HOUR - 1)
    assert warnings(site) == []
    site.wait(2)
    assert warnings(site) == ["SCRIPT_SILENT"]
    site.beat()
    assert warnings(site) == []


def test_a_silent_script_is_no_matter_when_nothing_waits(site: OwnSite):
    site.wait(25 * HOUR)
    assert warnings(site) == []


def test_an_ack_is_a_sign_of_the_script(site: OwnSite):
    ids = site.exported(2)
    site.wait(20 * HOUR)
    site.ack(ids[:1])
    site.act("RESET_TO_QUEUED", ids[1:])
    site.wait(20 * HOUR)
    assert warnings(site) == []


def test_how_long_a_script_may_be_silent_the_site_decides(site: OwnSite):
    site.decide(silent_hours=2)
    site.queued()
    site.wait(2 * HOUR + 1)
    assert warnings(site) == ["SCRIPT_SILENT"]


def test_a_site_of_our_own_worker_misses_no_script(site: OwnSite):
    site.become(channel="api")
    site.queued()
    site.wait(25 * HOUR)
    assert warnings(site) == []


def test_an_open_breaker_is_a_warning_and_told(site: OwnSite):
    site.become(channel="api")
    assert site.stats()["breaker"] == "closed"
    broken = Breaker(kind="AUTH", code="invalid_grant", message="sign in again", opened_at=1)
    put_metadata(site.context, site.place, BREAKER, broken.to_dict())
    stats = site.stats()
    assert (stats["breaker"], stats["warnings"][0]["code"]) == ("open", "BREAKER_OPEN")
    assert "invalid_grant" in stats["warnings"][0]["message"]


def test_an_upload_that_google_refused_later_is_a_warning(site: OwnSite):
    refused_later = {"requestId": "r-1", "status": "PARTIAL_SUCCESS"}
    put_metadata(site.context, site.place, UPLOADS, {"refused": refused_later})
    [told] = site.stats()["warnings"]
    assert (told["code"], "r-1" in told["message"]) == ("UPLOAD_NOT_TAKEN", True)


# Many sites


def test_all_sites_together_are_the_sum_of_each(oci: Oci):
    oci.queued(3)
    ids = oci.queued(2, site="south")
    oci.export(site="south")
    told = multi(oci)
    assert (told["siteId"], told["totals"]) == (None, {**NOTHING, "QUEUED": 3, "PROCESSING": 2})
    assert {site["siteId"]: site["totals"]["QUEUED"] for site in told["sites"]} == {
        "north": 3,
        "south": 0,
    }
    oci.ack_failed(ids, site="south", headers=oci.other_key)
    told = multi(oci)
    assert (told["failedShare"], told["breaker"]) == (1.0, None)
    assert told["warnings"][0]["siteId"] == "south"


def test_only_ones_own_sites_are_shown_and_counted(site: OwnSite, neighbour: OwnSite):
    site.queued(2)
    neighbour.queued(5)
    told = multi(site.oci, site.oci.key("read", site=site.id))
    assert [site["siteId"] for site in told["sites"]] == [site.id]
    assert told["totals"]["QUEUED"] == 2


def test_whoever_has_no_site_sees_none(site: OwnSite):
    site.queued()
    name = site.oci.known("nobody-of-all")
    told = multi(site.oci, site.oci.cookie(name))
    assert (told["sites"], told["totals"]) == ([], NOTHING)


def test_a_key_that_may_not_read_is_refused(site: OwnSite):
    for scope in ("site", "multi"):
        answer = site.client.get(
            f"/api/oci/queue-stats?siteId={site.id}&scope={scope}", headers=site.script
        )
        assert refused(answer, 403)["details"] == {"needs": "read"}


def test_a_site_must_be_named_and_a_scope_known(site: OwnSite):
    def ask(query: str) -> int:
        path = f"/api/oci/queue-stats{query}"
        return int(site.client.get(path, headers=site.reader).status_code)

    assert [ask(""), ask("?siteId="), ask("?scope=all"), ask("?siteId=nowhere")] == [
        *(422, 422, 422),
        404,
    ]


def test_counting_reads_no_rows(site: OwnSite, monkeypatch: pytest.MonkeyPatch):
    site.queued(3)

    def walked(*_: Any, **__: Any) -> None:
        raise AssertionError("a count must not walk over rows")

    monkeypatch.setattr(site.oci.store, "jobs", walked)
    assert site.stats()["totals"]["QUEUED"] == 3
