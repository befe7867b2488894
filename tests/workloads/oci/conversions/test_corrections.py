"""Corrections by an operator: a delivered row becomes a revision, a failed row is corrected."""

import json
from typing import Any

from kesin.foundation.permissions import system_actor
from kesin.workloads.oci.conversions.conversion import MAX_REVISION, Unsendable, key_of, order_id_of
from kesin.workloads.oci.conversions.corrections import fix_rows
from kesin.workloads.oci.conversions.ingest import IngestResult
from kesin.workloads.oci.conversions.refusals import latest_revisions
from tests.workloads.oci.own_site import OwnSite, bare

OPERATOR = system_actor("cli:operator")


def fix(site: OwnSite, *rows: Any, **how: Any) -> list[IngestResult]:
    return fix_rows(site.place, OPERATOR, rows, **how)


def deliver(site: OwnSite, count: int = 1) -> list[str]:
    ids = site.claim(count)
    site.ack(ids)
    return ids


def test_changed_data_of_a_delivered_row_is_a_new_revision(site: OwnSite):
    [job_id] = deliver(site)
    before = site.job(job_id)
    [result] = fix(site, {"externalId": "sale-1", "conversionValue": 9}, reason="a typo")
    assert (result.result, result.external_id) == ("queued", "sale-1")
    revision = site.job(result.id or "")
    assert revision.payload == {
        **before.payload,
        "conversionValue": 9,
        "revision": 2,
        "orderId": order_id_of(site.id, "sale-1", 2),
    }
    note = site.events(revision.id)[0].note or ""
    assert json.loads(note) == {"reason": "a typo", "fixes": job_id}
    assert site.job(job_id) == before


def test_what_a_row_does_not_say_stays_as_it_was(site: OwnSite):
    deliver(site)
    fix(site, {"externalId": "sale-1", "gclid": "", "conversionName": None, "wbraid": "W-braid"})
    [item] = site.export()
    assert (item["gclid"], item["wbraid"]) == ("Cj0KCQiA_click-000001", "W-braid")
    assert item["conversionName"] == "Phone sale"


def test_each_fix_is_a_revision_more_once_the_one_before_was_delivered(site: OwnSite):
    [job_id] = deliver(site)
    [unchanged] = fix(site, {"externalId": "sale-1"})
    assert (unchanged.result, unchanged.id) == ("duplicate", job_id)  # it is sent again only on request
    orders = set()
    for _ in range(3):
        [first] = fix(site, {"externalId": "sale-1"}, again=True)
        [second] = fix(site, {"externalId": "sale-1", "conversionValue": 9}, again=True)
        assert (first.result, second.result, second.id) == ("queued", "duplicate", first.id)
        [item] = site.export()
        orders.add(item["orderId"])
        site.ack([item["id"]])
    assert orders == {order_id_of(site.id, "sale-1", n) for n in (2, 3, 4)}
    job = latest_revisions(site.place, ["sale-1"])["sale-1"]
    assert job.payload["revision"] == 4


def test_a_revision_that_failed_is_corrected_in_place(site: OwnSite):
    deliver(site)
    fix(site, {"externalId": "sale-1"}, again=True)
    [second] = bare(site.export())
    site.ack_failed([second])
    [result] = fix(site, {"externalId": "sale-1", "conversionValue": 9})
    assert (result.result, result.id) == ("corrected", second)
    assert site.job(second).payload["revision"] == 2


def test_a_row_that_failed_for_another_reason_is_left_and_says_so(site: OwnSite):
    [job_id] = site.fail(category="TRANSIENT")
    [result] = fix(site, {"externalId": "sale-1", "conversionValue": 9})
    assert (result.result, result.id) == ("duplicate", job_id)
    assert "RETRY_SELECTED" in (result.message or "")


def test_one_row_in_one_file_twice_is_sent_once(site: OwnSite):
    deliver(site)
    row = {"externalId": "sale-1", "conversionValue": 9}
    assert [one.result for one in fix(site, row, row)] == ["queued", "duplicate"]


def test_there_is_an_end_to_revisions(site: OwnSite):
    ids = [
        site.enqueue_raw({**site.row(), "revision": n, "orderId": f"x{n}"}, key=key_of("sale-1", n))
        for n in range(1, MAX_REVISION + 1)
    ]
    site.export()
    site.ack(ids)
    [result] = fix(site, {"externalId": "sale-1"}, again=True)
    assert (result.result, result.code) == ("rejected", "INVALID_REVISION")


def test_a_row_that_cannot_be_mended_says_why_and_sinks_no_other(site: OwnSite):
    deliver(site)
    cases: list[tuple[Any, str]] = [
        ({"externalId": "nobody"}, "UNKNOWN_ROW"),
        ({}, "UNKNOWN_ROW"),
        ({"externalId": None}, "UNKNOWN_ROW"),
        ({"externalId": "sale-1", "conversionValue": "?"}, "INVALID_CONVERSION_VALUE"),
        ({"externalId": "sale-1", "conversionTime": "2099-01-01T00:00:00Z"}, "TIME_IN_FUTURE"),
        ({"externalId": "\ud800"}, "UNKNOWN_ROW"),
        (Unsendable("NOT_JSON", "", "this line is not JSON"), "NOT_JSON"),
    ]
    results = fix(site, *(row for row, _ in cases), {"externalId": "sale-1", "conversionValue": 9})
    expected = [*(("rejected", code) for _, code in cases), ("queued", None)]
    assert [(result.result, result.code) for result in results] == expected


def test_a_row_that_holds_no_conversion_is_not_mended(site: OwnSite):
    site.enqueue_raw("not ours", key="sale-1")
    [result] = fix(site, {"externalId": "sale-1", "conversionValue": 9})
    assert result.result == "rejected"


def test_a_file_of_fixes_leaves_one_line_in_the_audit_log(site: OwnSite):
    deliver(site, 2)
    rows = [{"externalId": f"sale-{n}", "conversionValue": 9} for n in (1, 2, 3)]
    [line] = site.audit_lines(lambda: fix(site, *rows, reason="a typo"))
    assert (line.actor, line.action, line.site) == ("cli:operator", "oci.fix", site.id)
    assert json.loads(line.details or "") == {"changed": 2, "reason": "a typo"}


def test_the_budget_of_a_revision_is_that_of_the_channel(site: OwnSite):
    deliver(site)
    site.change(channel="api")
    site.change_settings(conversion_name="Phone sale")
    [result] = fix(site, {"externalId": "sale-1"}, again=True)
    assert site.job(result.id or "").max_attempts == 8
