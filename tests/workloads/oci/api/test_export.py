"""The export: preview, claim, and exactly the claimed rows. Its shape is lock 5 in test_locks."""

import threading
from collections import Counter
from typing import Any

import pytest

from kesin.engine.queue import apply_changes
from kesin.lifecycle.model import Change
from kesin.workloads.oci import script
from tests.workloads.oci.own_site import DAY, HOUR, MINUTE, OwnSite, bare, ok, refused

SCRIPTS = 4


def test_an_export_returns_the_oldest_rows_and_claims_only_them(site: OwnSite, neighbour: OwnSite):
    ids, theirs = site.enqueue(5), neighbour.enqueue(2)
    assert bare(site.export(limit=2)) == ids[:2]
    assert site.states(ids) == ["PROCESSING", "PROCESSING", *["QUEUED"] * 3]
    assert [bare(site.export(limit=1)) for _ in range(3)] == [[job_id] for job_id in ids[2:]]
    assert neighbour.states(theirs) == ["QUEUED", "QUEUED"]


def test_an_item_holds_the_conversion(site: OwnSite):
    site.enqueue(1, conversionValue="1.234,50", conversionTime="2023-11-10T09:08:07+00:00")
    [item] = site.export()
    assert item | {"id": "", "orderId": ""} == {
        "id": "",
        "orderId": "",
        "gclid": "Cj0KCQiA_click-000001",
        "wbraid": "",
        "gbraid": "",
        "conversionName": "Phone sale",
        "conversionTime": "2023-11-10 12:08:07+03:00",
        "conversionValue": 1234.5,
        "conversionCurrency": "TRY",
    }


def test_an_order_id_stays_the_same_on_every_attempt_and_differs_between_sites(site: OwnSite, neighbour: OwnSite):
    site.enqueue()
    neighbour.enqueue()
    first = site.export()[0]["orderId"]
    assert len(first) <= 64
    assert neighbour.export()[0]["orderId"] != first
    site.wait(16 * MINUTE, "recover")
    assert site.export()[0]["orderId"] == first


# Bounds


def test_a_limit_out_of_bounds_is_refused_and_a_thousand_are_the_default(
    site: OwnSite, monkeypatch: pytest.MonkeyPatch
):
    for limit in ("0", "1001", "-1", "many"):
        response = site.request_export(markAsExported="true", limit=limit)
        assert refused(response, 422)["details"]["fields"][0]["field"] == "limit"
    limits: list[int] = []
    monkeypatch.setattr(script, "export", lambda *_, limit, **__: limits.append(limit))
    site.request_export(markAsExported="true")
    assert limits == [1_000]


# Rows that cannot be sent


def test_rows_that_cannot_be_sent_fail_before_the_claim_and_use_up_no_limit(site: OwnSite):
    bad = [site.enqueue_raw({"externalId": f"bad-{n}"}) for n in range(3)]
    good = site.enqueue(2)
    assert bare(site.export(limit=2)) == good
    for job_id in bad:
        row = site.row_of(job_id)
        assert (row["status"], row["attempt_count"]) == ("FAILED", 0)
        assert row["provider_error_code"] == "MISSING_CLICK_ID"
        assert row["provider_error_category"] == "VALIDATION"
        assert [event.move for event in site.events(job_id)] == ["enqueue", "reject"]


def test_a_row_that_waited_too_long_is_not_exported_though_no_sweeper_ran(site: OwnSite):
    rows = {"EXPIRED": site.oci.ago(90 * DAY), "TIME_IN_FUTURE": site.oci.ago(-2 * HOUR)}
    old, early = (site.enqueue_raw(site.row(n, conversionTime=at)) for n, at in enumerate(rows.values()))
    skipped = ok(site.request_export())["warnings"]
    assert [warning["code"] for warning in skipped] == [*rows]
    assert site.export() == []
    assert [site.job(job_id).error_code for job_id in (old, early)] == [*rows]
    assert site.job(old).attempt_count == 0


def test_a_bad_row_enqueued_between_the_check_and_the_claim_is_not_exported(
    site: OwnSite, monkeypatch: pytest.MonkeyPatch
):
    bad = site.enqueue_raw({"externalId": "bad"})
    [good] = site.enqueue()
    monkeypatch.setattr(script, "reject_unsendable", lambda *_, **__: 0)
    assert bare(site.export()) == [good]
    assert site.job(bad).error_code == "MISSING_CLICK_ID"
    assert site.states([bad, good]) == ["FAILED", "PROCESSING"]


# Preview


def test_a_preview_says_why_each_row_would_be_left_out_and_leaves_it(site: OwnSite):
    bad_click = site.enqueue_raw({**site.row(1), "gclid": "no spaces allowed"}, key="sale-1")
    bad_time = site.enqueue_raw({**site.row(2), "conversionTime": "yesterday"}, key="sale-2")
    site.enqueue(1, first=3)
    before = site.jobs()
    site.wait(1)
    body = ok(site.request_export())
    assert body["counts"] == {"queued": 1, "skipped": 2}
    assert [(one["id"], one["externalId"], one["code"]) for one in body["warnings"]] == [
        (f"seal_{bad_click}", "sale-1", "INVALID_CLICK_ID_FORMAT"),
        (f"seal_{bad_time}", "sale-2", "INVALID_TIME_FORMAT"),
    ]
    assert all(warning["message"] for warning in body["warnings"])
    assert site.jobs() == before


def test_a_preview_says_how_many_rows_wait_beyond_it(site: OwnSite):
    site.enqueue(3)
    body = ok(site.request_export(limit=2))
    expected = {"code": "MORE_WAIT", "message": "1 more rows are waiting for later exports"}
    assert body["warnings"] == [expected]
    assert body["counts"] == {"queued": 2, "skipped": 0, "atLeast": True}
    whole = ok(site.request_export(limit=3))
    assert (whole["warnings"], whole["counts"]) == ([], {"queued": 3, "skipped": 0})
    assert site.export(limit=3) == whole["items"]  # it shows what an export then returns


def test_a_preview_warns_of_rows_that_are_not_due(site: OwnSite):
    [job_id] = site.claim()
    job = site.job(job_id)
    later = [Change(job_id, job.claim_seq, error_code="X", error_category="TRANSIENT")]
    apply_changes(site.oci.queue, "retry_later", later, actor="tests")
    assert [one["code"] for one in ok(site.request_export())["warnings"]] == ["NOT_DUE"]


def test_a_key_without_permission_is_told_each_that_would_do(site: OwnSite):
    assert refused(site.request_export(site.producer), 403)["message"] == (
        "this needs the permission 'read' / 'oci:script'"
    )
    claim = site.request_export(site.producer, markAsExported="true")
    assert refused(claim, 403)["message"] == "this needs the permission 'oci:script'"
    site.oci.known("boss", "admin")
    by_person = site.request_export(site.oci.cookie("boss"), markAsExported="true")
    assert refused(by_person, 403)["message"].startswith("only a key can claim rows")


# Paused, and the wrong channel


def test_a_paused_site_returns_nothing_rejects_nothing_and_says_so(site: OwnSite):
    bad = site.enqueue_raw({"externalId": "bad"})
    ids = site.enqueue()
    site.pause()
    response = site.request_export(markAsExported="true")
    assert (ok(response), response.headers["x-kesin-paused"]) == ([], "true")
    assert response.headers["cache-control"] == "private, no-store"
    assert site.request_export().headers["cache-control"] == "private, no-store"
    assert site.states([bad, *ids]) == ["QUEUED", "QUEUED"]
    preview = ok(site.request_export())
    assert preview["items"] == []
    assert "PAUSED" in [warning["code"] for warning in preview["warnings"]]
    site.resume()
    response = site.request_export(markAsExported="true")
    assert bare(ok(response)) == ids
    assert "x-kesin-paused" not in response.headers


def test_a_paused_queue_returns_nothing_to_any_site(site: OwnSite):
    site.enqueue()
    site.oci.queue.pause(actor="tests")
    response = site.request_export(markAsExported="true")
    site.oci.queue.resume()
    assert (ok(response), response.headers["x-kesin-paused"]) == ([], "true")


def test_a_site_on_another_channel_is_a_conflict(site: OwnSite):
    ids = site.enqueue()
    for channel in ("api", "data_manager"):
        site.change(channel=channel)
        assert refused(site.request_export(markAsExported="true"), 409)["code"] == "wrong_channel"
        assert site.states(ids) == ["QUEUED"]
        assert ok(site.request_export())["warnings"][0]["code"] == "WRONG_CHANNEL"


# Whose rows


def test_the_dashed_uuid_of_a_site_works_as_well(site: OwnSite):
    ids = site.enqueue()
    assert ok(site.request_export(siteId=site.uuid))["siteId"] == site.id
    assert bare(ok(site.request_export(siteId=site.uuid, markAsExported="true"))) == ids


def test_a_foreign_site_and_one_that_does_not_exist_are_refused_alike(site: OwnSite, neighbour: OwnSite):
    neighbour.enqueue()
    for mark in ("true", "false"):
        responses = [
            site.request_export(siteId=site_id, markAsExported=mark)
            for site_id in (neighbour.id, neighbour.uuid, "nowhere")
        ]
        assert {response.status_code for response in responses} == {403}
        assert len({response.content for response in responses}) == 1


# Many scripts at once


def at_once(count: int, work: Any) -> list[Any]:
    """Run this many threads that begin together; returns their results."""
    begin = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(n: int) -> None:
        begin.wait()
        results[n] = work(n)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_many_scripts_at_once_never_share_a_row_and_end_each_once(site: OwnSite):
    ids = site.enqueue(40)

    def drain(_: int) -> tuple[list[str], int]:
        taken: list[str] = []
        done = 0
        while items := ok(site.request_export(markAsExported="true", limit=7)):
            taken += bare(items)
            done += site.ack(bare(items))["updated"]
        return taken, done

    results = at_once(SCRIPTS, drain)
    assert Counter(job_id for taken, _ in results for job_id in taken) == Counter(ids)
    assert sum(done for _, done in results) == len(ids)
    assert {(site.state(job_id), site.job(job_id).attempt_count) for job_id in ids} == {("COMPLETED", 1)}


def test_two_scripts_at_once_reject_a_bad_row_once(site: OwnSite):
    bad = [site.enqueue_raw({"externalId": f"bad-{n}"}) for n in range(8)]
    at_once(2, lambda _: site.export())
    moves = {tuple(event.move for event in site.events(job_id)) for job_id in bad}
    assert moves == {("enqueue", "reject")}


def test_a_claim_lasts_as_long_as_the_settings_of_its_site_say(site: OwnSite):
    site.change_settings(recover_minutes=45)
    [job_id] = site.claim()
    site.wait(44 * MINUTE, "recover")
    assert site.state(job_id) == "PROCESSING"
    site.wait(2 * MINUTE, "recover")
    assert site.state(job_id) == "RETRY"
