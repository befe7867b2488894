"""The export: preview, claim, and exactly the claimed rows."""

import threading
from collections import Counter
from typing import Any

import pytest

from kesin.lifecycle.model import Change
from kesin.workloads.oci import script
from tests.workloads.oci import own_site
from tests.workloads.oci.conftest import Oci, bare, seals
from tests.workloads.oci.own_site import OwnSite, refused, well

shared, site, neighbour = own_site.shared, own_site.site, own_site.neighbour
MINUTE = 60
SCRIPTS = 6


def test_an_export_hands_over_what_it_claimed_and_counts_the_attempt(site: OwnSite):
    ids = site.queued(3)
    items = site.export(limit=2)
    assert bare(items) == ids[:2]
    assert site.states(ids) == ["PROCESSING", "PROCESSING", "QUEUED"]
    assert [site.look(job_id).attempt_count for job_id in ids] == [1, 1, 0]


def test_an_item_says_what_was_sold(site: OwnSite):
    site.queued(1, conversionValue="1.234,50", conversionTime="2023-11-10T09:08:07+00:00")
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


@pytest.mark.parametrize("kind", ["wbraid", "gbraid"])
def test_another_kind_of_click_id_stands_in_its_own_field(site: OwnSite, kind: str):
    site.queued(1, gclid=None, **{kind: "Cl8KCQjw_braid"})
    [item] = site.export()
    assert {name: item[name] for name in ("gclid", "wbraid", "gbraid")} == {
        "gclid": "",
        "wbraid": "",
        "gbraid": "",
        kind: "Cl8KCQjw_braid",
    }


@pytest.mark.parametrize(
    ("zone", "given", "told"),
    [
        ("Europe/Istanbul", "2023-07-01T10:00:00+00:00", "2023-07-01 13:00:00+03:00"),
        ("Europe/Berlin", "2023-07-01T10:00:00+00:00", "2023-07-01 12:00:00+02:00"),
        ("Europe/Berlin", "2023-11-01T10:00:00+00:00", "2023-11-01 11:00:00+01:00"),
        ("America/St_Johns", "2023-11-01T10:00:00+00:00", "2023-11-01 07:30:00-02:30"),
        ("UTC", "2023-11-01T10:00:00+05:45", "2023-11-01 04:15:00+00:00"),
    ],
)
def test_a_time_is_told_in_the_zone_of_the_site(site: OwnSite, zone: str, given: str, told: str):
    site.become(timezone=zone)
    site.queued(1, conversionTime=given)
    assert site.export()[0]["conversionTime"] == told


def test_an_order_id_stays_the_same_on_every_try(site: OwnSite):
    site.queued()
    first = site.export()[0]["orderId"]
    site.wait(16 * MINUTE, "recover")
    assert site.export()[0]["orderId"] == first
    assert len(first) <= 64


def test_two_sites_never_share_an_order_id(site: OwnSite, neighbour: OwnSite):
    site.queued()
    neighbour.queued()
    assert site.export()[0]["orderId"] != neighbour.export()[0]["orderId"]


# Bounds


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "many"])
def test_a_limit_out_of_bounds_is_refused(site: OwnSite, limit: str):
    ids = site.queued()
    answer = site.ask_export(markAsExported="true", limit=limit)
    assert refused(answer, 422)["details"]["fields"][0]["field"] == "limit"
    assert site.states(ids) == ["QUEUED"]


def test_without_a_limit_a_thousand_rows_go(site: OwnSite):
    site.queued(1_005)
    assert len(well(site.ask_export(markAsExported="true"))) == 1_000
    assert len(site.export()) == 5


def test_rows_go_in_the_order_they_came(site: OwnSite):
    ids = site.queued(5)
    assert [bare(site.export(limit=1)) for _ in range(5)] == [[job_id] for job_id in ids]


def test_a_row_that_waits_for_its_next_try_is_not_handed_over(site: OwnSite):
    [job_id] = site.failed(category="TRANSIENT")
    assert site.export() == []
    site.wait(400, "revive")
    assert bare(site.export()) == [job_id]


# What cannot be sent


def test_a_row_that_cannot_be_sent_is_failed_before_it_is_claimed(site: OwnSite):
    bad = site.raw({"externalId": "x", "conversionName": "Sale"})
    [good] = site.queued()
    assert bare(site.export()) == [good]
    row = site.shown(bad)
    assert (row["status"], row["attempt_count"]) == ("FAILED", 0)
    assert row["provider_error_code"] == "MISSING_CLICK_ID"
    assert row["provider_error_category"] == "VALIDATION"
    assert [event.move for event in site.events(bad)] == ["enqueue", "reject"]


def test_rejected_rows_do_not_use_up_the_limit(site: OwnSite):
    for n in range(3):
        site.raw({"externalId": f"bad-{n}"})
    ids = site.queued(2)
    assert bare(site.export(limit=2)) == ids


@pytest.mark.parametrize("payload", [None, 7, "text", [], {}, {"gclid": ["no"]}])
def test_whatever_a_stored_row_holds_an_export_survives_it(site: OwnSite, payload: Any):
    bad = site.raw(payload)
    assert site.export() == []
    assert site.state(bad) == "FAILED"


def test_a_bad_row_born_between_the_look_and_the_claim_is_not_handed_over(
    site: OwnSite, monkeypatch: pytest.MonkeyPatch
):
    bad = site.raw({"externalId": "bad"})
    [good] = site.queued()
    monkeypatch.setattr(script, "reject_unsendable", lambda *_, **__: 0)
    assert bare(site.export()) == [good]
    assert site.look(bad).error_code == "MISSING_CLICK_ID"
    assert site.states([bad, good]) == ["FAILED", "PROCESSING"]


# Preview


def test_a_preview_changes_no_row(site: OwnSite):
    site.queued(2)
    site.raw({"externalId": "bad"})
    before = site.jobs()
    events = [site.events(job.id) for job in before]
    site.wait(1)
    site.ask_export()
    assert site.jobs() == before
    assert [site.events(job.id) for job in before] == events


def test_a_preview_shows_what_the_export_then_gives(site: OwnSite):
    site.queued(3)
    shown = well(site.ask_export(limit=2))["items"]
    assert site.export(limit=2) == shown


def test_a_preview_tells_why_each_row_would_be_left_out(site: OwnSite):
    one = site.raw({**site.row(1), "gclid": "no spaces allowed"}, key="sale-1")
    other = site.raw({**site.row(2), "conversionTime": "yesterday"}, key="sale-2")
    site.queued(1, first=3)
    body = well(site.ask_export())
    assert body["counts"] == {"queued": 1, "skipped": 2}
    assert [(w["id"], w["externalId"], w["code"]) for w in body["warnings"]] == [
        (f"seal_{one}", "sale-1", "INVALID_CLICK_ID_FORMAT"),
        (f"seal_{other}", "sale-2", "INVALID_TIME_FORMAT"),
    ]
    assert all(warning["message"] for warning in body["warnings"])


def test_a_preview_tells_of_rows_that_are_not_due(site: OwnSite):
    [job_id] = site.queued()
    site.export()
    job = site.look(job_id)
    later = [Change(job_id, job.claim_seq, error_code="X", error_category="TRANSIENT")]
    site.oci.queue.apply("retry_later", later, actor="tests")
    assert [warning["code"] for warning in well(site.ask_export())["warnings"]] == ["NOT_DUE"]


def test_a_preview_is_open_to_people_who_may_read(site: OwnSite):
    site.queued()
    assert len(well(site.ask_export(site.reader))["items"]) == 1


def test_a_preview_and_an_export_are_kept_by_nobody_on_the_way(site: OwnSite):
    for asked in ({}, {"markAsExported": "true"}):
        assert site.ask_export(**asked).headers["cache-control"] == "private, no-store"


# Paused, and the wrong channel


def test_a_paused_site_gives_nothing_and_says_so(site: OwnSite):
    ids = site.queued()
    site.pause()
    answer = site.ask_export(markAsExported="true")
    assert (well(answer), answer.headers["x-kesin-paused"]) == ([], "true")
    assert site.states(ids) == ["QUEUED"]


def test_a_paused_queue_gives_nothing_to_any_site(oci: Oci):
    oci.queued()
    oci.queue.pause(actor="tests")
    answer = oci.client.get(
        "/api/oci/google-ads-export?siteId=north&markAsExported=true", headers=oci.script_key
    )
    assert (well(answer), answer.headers["x-kesin-paused"]) == ([], "true")


def test_a_paused_site_rejects_no_row_either(site: OwnSite):
    bad = site.raw({"externalId": "bad"})
    site.pause()
    site.export()
    assert site.state(bad) == "QUEUED"


def test_after_resuming_rows_go_again(site: OwnSite):
    ids = site.queued()
    site.pause()
    site.export()
    site.oci.queue.resume(tenant=site.id)
    answer = site.ask_export(markAsExported="true")
    assert bare(well(answer)) == ids
    assert "x-kesin-paused" not in answer.headers


def test_a_preview_of_a_paused_site_shows_the_same_nothing_and_says_why(site: OwnSite):
    site.queued()
    site.pause()
    body = well(site.ask_export())
    assert (body["items"], body["warnings"][0]["code"]) == ([], "PAUSED")


@pytest.mark.parametrize("channel", ["api", "data_manager"])
def test_a_site_on_another_channel_is_a_conflict(site: OwnSite, channel: str):
    ids = site.queued()
    site.become(channel=channel)
    assert refused(site.ask_export(markAsExported="true"), 409)["code"] == "wrong_channel"
    assert site.states(ids) == ["QUEUED"]


def test_a_preview_of_a_site_on_another_channel_warns(site: OwnSite):
    site.become(channel="api")
    assert well(site.ask_export())["warnings"][0]["code"] == "WRONG_CHANNEL"


# Whose rows


def test_the_dashed_uuid_of_a_site_works_as_well(site: OwnSite):
    ids = site.queued()
    params = {"siteId": site.uuid, "markAsExported": "true"}
    answer = site.client.get("/api/oci/google-ads-export", params=params, headers=site.script)
    assert bare(well(answer)) == ids
    preview = site.client.get(
        "/api/oci/google-ads-export", params={"siteId": site.uuid}, headers=site.script
    )
    assert well(preview)["siteId"] == site.id


@pytest.mark.parametrize("mark", ["true", "false"])
def test_a_foreign_site_and_one_that_is_not_there_are_refused_alike(
    site: OwnSite, neighbour: OwnSite, mark: str
):
    neighbour.queued()
    answers = [
        site.ask_export(siteId=one, markAsExported=mark)
        for one in (neighbour.id, neighbour.uuid, "nowhere")
    ]
    assert {answer.status_code for answer in answers} == {403}
    assert len({answer.content for answer in answers}) == 1


def test_a_missing_site_is_named(site: OwnSite):
    answer = site.client.get("/api/oci/google-ads-export", headers=site.script)
    assert refused(answer, 422)["code"] == "missing_site"


def test_an_export_takes_no_row_of_another_site(site: OwnSite, neighbour: OwnSite):
    mine, theirs = site.queued(2), neighbour.queued(2)
    assert bare(site.export()) == mine
    assert neighbour.states(theirs) == ["QUEUED", "QUEUED"]


def test_a_person_sees_what_would_go_and_claims_nothing(site: OwnSite):
    ids = site.queued()
    site.oci.known("boss", "admin")
    cookie = site.oci.cookie("boss")
    assert len(well(site.ask_export(cookie))["items"]) == 1
    answer = site.ask_export(cookie, markAsExported="true")
    assert refused(answer, 403)["message"].startswith("only a key claims rows")
    assert site.states(ids) == ["QUEUED"]


# Many scripts at once


def at_once(count: int, work: Any) -> list[Any]:
    """Let so many threads begin together; what each came to."""
    begin = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(n: int) -> None:
        begin.wait()
        results[n] = work(n)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return results


def test_many_scripts_at_once_never_share_a_row(site: OwnSite):
    ids = site.queued(60)

    def drain(_: int) -> list[str]:
        taken: list[str] = []
        while items := site.export(limit=7):
            taken += bare(items)
        return taken

    taken = Counter(job_id for one in at_once(SCRIPTS, drain) for job_id in one)
    assert taken == Counter(ids)
    assert {site.look(job_id).attempt_count for job_id in ids} == {1}


def test_two_scripts_at_once_reject_a_bad_row_once(site: OwnSite):
    bad = [site.raw({"externalId": f"bad-{n}"}) for n in range(20)]
    at_once(2, lambda _: site.export())
    assert {tuple(event.move for event in site.events(one)) for one in bad} == {
        ("enqueue", "reject")
    }


def test_exports_and_acks_at_once_end_every_row_once(site: OwnSite):
    ids = site.queued(40)

    def run(_: int) -> int:
        done = 0
        while items := site.export(limit=5):
            done += site.ack(bare(items))["updated"]
        return done

    assert sum(at_once(4, run)) == 40
    assert set(site.states(ids)) == {"COMPLETED"}


# A script that dies


def test_a_script_that_dies_after_the_export_leaves_its_rows_to_the_next(site: OwnSite):
    ids = site.exported(2)
    site.wait(14 * MINUTE, "cap", "recover")
    assert site.export() == []
    site.wait(2 * MINUTE, "cap", "recover")
    assert site.states(ids) == ["RETRY", "RETRY"]
    assert bare(site.export()) == ids


def test_a_claim_lasts_as_long_as_its_site_decided(site: OwnSite):
    site.decide(recover_minutes=45)
    [job_id] = site.exported()
    site.wait(44 * MINUTE, "recover")
    assert site.state(job_id) == "PROCESSING"
    site.wait(2 * MINUTE, "recover")
    assert site.state(job_id) == "RETRY"


def test_an_export_whose_answer_is_lost_is_taken_back_too(site: OwnSite):
    ids = site.queued(3)
    site.ask_export(markAsExported="true")  # nobody reads it
    site.wait(16 * MINUTE, "recover")
    assert seals(ids) == [one["id"] for one in site.export()]
