"""A script's reports: late, repeated, about rows of others; no delivery is ever lost."""

from typing import Any

from kesin.engine.access.masking import MASK
from kesin.workloads.oci.site import HEARTBEAT
from tests.workloads.oci.own_site import MINUTE, NOWHERE, UNKNOWN, Oci, OwnSite, bare, ok, refused, seals

NOTHING_DONE = {"ok": True, "updated": 0, "already": 1, "refused": []}
DONE = {"ok": True, "updated": 1, "already": 0, "refused": []}
REPORTS = ["ack", "ack-failed"]


# Ack


def test_an_ack_completes_the_row_and_records_the_time(site: OwnSite):
    [job_id] = site.claim()
    site.wait(30)
    assert ok(site.report("ack", queueIds=seals([job_id, job_id]))) == DONE
    row = site.row_of(job_id)
    assert (row["status"], row["claimed_at"]) == ("COMPLETED", None)
    assert row["uploaded_at"] == row["updated_at"]
    assert site.job(job_id).stamp_2 == site.clock.time_us


def test_a_message_about_several_rows_is_stored_without_their_click_ids(site: OwnSite):
    clicks = ["wolf_7", "the-click-of-a-friend"]
    for number, click in enumerate(clicks, 1):
        site.enqueue(first=number, gclid=click)
    ids = bare(site.export())
    message = f"gclid {clicks[0]!r} and,{clicks[1]}: no such click; wolf_77 stays"
    site.ack_failed(ids, errorMessage=message)
    shown = f"gclid '{MASK}' and,{MASK}iend: no such click; wolf_77 stays"
    for job_id in ids:
        assert site.job(job_id).error_message == shown
        assert site.events(job_id)[-1].error_message == shown
    [long] = bare([{"id": one} for one in seals(site.claim(1, first=9))])
    site.ack_failed([long], errorMessage="x" * 990 + " Cj0KCQiA_click-000009")
    assert site.job(long).error_message == "x" * 990 + f" {MASK}0009"  # masked before it is cut


def test_a_repeated_report_is_a_success_that_changes_nothing(site: OwnSite):
    for path, job_id in zip(REPORTS, site.claim(2), strict=True):
        ids = seals([job_id])
        assert ok(site.report(path, queueIds=ids)) == DONE
        before = site.job(job_id)
        site.wait(60)
        assert ok(site.report(path, queueIds=ids)) == NOTHING_DONE
        assert ok(site.report(path, queueIds=[])) == NOTHING_DONE | {"already": 0}
        assert site.job(job_id) == before


# Late acks


def spend(site: OwnSite) -> str:
    """A row that the attempt cap failed."""
    [job_id] = site.enqueue()
    for _ in range(5):
        site.export()
        site.wait(16 * MINUTE, "cap", "recover")
    assert site.job(job_id).error_code == "MAX_ATTEMPTS"
    return job_id


def requeue(site: OwnSite) -> str:
    [job_id] = site.claim()
    site.act("RESET_TO_QUEUED", [job_id])
    return job_id


def mark_failed(site: OwnSite) -> str:
    [job_id] = site.claim()
    site.act("MARK_FAILED", [job_id])
    return job_id


def test_a_late_ack_wins(shared: Oci):
    """Of rows that were recovered or reported as failed, see the test below."""
    for make, state in ((requeue, "QUEUED"), (spend, "FAILED"), (mark_failed, "FAILED")):
        site = OwnSite(shared)
        job_id = make(site)
        assert site.state(job_id) == state
        assert site.ack([job_id])["updated"] == 1
        assert site.state(job_id) == "COMPLETED"
        assert site.export() == []


def test_a_script_that_dies_between_upload_and_ack_may_report_later(site: OwnSite):
    ids = site.claim(3)
    site.wait(16 * MINUTE, "recover")
    again = bare(site.export(limit=1))
    site.ack_failed(again, errorCode="UPLOAD_EXCEPTION", errorCategory="TRANSIENT")
    assert site.ack(ids)["updated"] == 3
    assert site.states(ids) == ["COMPLETED"] * 3


# Acks that are refused


def test_a_row_that_was_never_exported_is_not_acknowledged(site: OwnSite):
    [job_id] = site.enqueue()
    bad = site.enqueue_raw({"externalId": "bad"})
    body = site.ack([job_id])
    assert (body["updated"], site.state(job_id)) == (0, "QUEUED")
    assert body["refused"][0]["id"] == f"seal_{job_id}"
    assert "not been exported" in body["refused"][0]["reason"]
    site.export()  # which rejects the other before its claim
    assert (site.ack([bad])["updated"], site.state(bad)) == (0, "FAILED")


def test_an_ack_for_corrected_data_counts_only_once_that_was_exported(site: OwnSite):
    [job_id] = site.fail()
    assert site.post([site.row(1, conversionValue=5)])[0]["result"] == "corrected"
    body = site.ack([job_id])
    assert (body["updated"], site.state(job_id)) == (0, "QUEUED")
    assert "not been exported since its data last changed" in body["refused"][0]["reason"]
    site.export()
    assert site.ack([job_id])["updated"] == 1


def test_unknown_ids_are_refused_and_the_others_count(site: OwnSite, neighbour: OwnSite):
    [theirs] = neighbour.claim()
    unknown = [*seals([theirs, NOWHERE]), "seal_", "seal_nothing", "seal_☃", "seal_" + "9" * 100]
    for path, mine in zip(REPORTS, site.claim(2), strict=True):
        body = ok(site.report(path, queueIds=[*unknown, *seals([mine])]))
        assert body["updated"] == 1
        assert {refusal["reason"] for refusal in body["refused"]} == {UNKNOWN}
        assert sorted(refusal["id"] for refusal in body["refused"]) == sorted(unknown)
        assert neighbour.state(theirs) == "PROCESSING"


def test_ids_without_a_seal_and_too_many_ids_are_refused_as_a_whole(site: OwnSite):
    ids = site.claim(2)
    bad = [ids[0], f"signal_{ids[0]}"]
    for path in REPORTS:
        error = refused(site.report(path, queueIds=[bad[0], f"seal_{ids[1]}", bad[1]]), 400)
        assert (error["code"], error["details"]["ids"]) == ("bad_queue_id", bad)
        many = [f"seal_{n}" for n in range(10_001)]
        assert site.report(path, queueIds=many).status_code == 422
    assert site.states(ids) == ["PROCESSING", "PROCESSING"]


def test_a_paused_site_takes_reports_also_under_its_dashed_uuid(site: OwnSite):
    ids = site.claim(2)
    site.pause()
    assert ok(site.report("ack", siteId=site.uuid, queueIds=seals(ids[:1])))["updated"] == 1
    assert ok(site.report("ack-failed", siteId=site.uuid, queueIds=seals(ids[1:])))["updated"] == 1


# Ack-failed


def test_a_failure_is_kept_with_what_was_reported(site: OwnSite):
    nothing = ("VALIDATION_FAILED", "VALIDATION_FAILED", "VALIDATION")
    cases: list[tuple[dict[str, Any], tuple[str, str, str]]] = [
        ({"errorCode": "BAD", "errorMessage": "not ±HH:mm", "errorCategory": "AUTH"}, ("BAD", "not ±HH:mm", "AUTH")),
        ({}, nothing),
        ({"errorCode": " ONLY_THIS "}, ("ONLY_THIS", "ONLY_THIS", "VALIDATION")),
        (dict.fromkeys(["errorCode", "errorMessage", "errorCategory"]), nothing),
        ({"errorCode": "", "errorMessage": "   "}, nothing),
        ({"errorCode": "C" * 100, "errorMessage": "é" * 5_000}, ("C" * 64, "é" * 1_000, "VALIDATION")),
        ({"errorCode": "A\0B", "errorMessage": "it\0 broke"}, ("AB", "it broke", "VALIDATION")),
    ]
    for (fields, stored), job_id in zip(cases, site.claim(len(cases)), strict=True):
        assert ok(site.report("ack-failed", queueIds=seals([job_id]), **fields)) == DONE
        row = site.row_of(job_id)
        assert (row["status"], row["claimed_at"], row["attempt_count"]) == ("FAILED", None, 1)
        assert (row["provider_error_code"], row["last_error"], row["provider_error_category"]) == stored
        assert row["failed_at"] == row["updated_at"]


def test_any_other_category_is_refused_and_nothing_happens(site: OwnSite):
    [job_id] = site.claim()
    for category in ("PERMANENT", "validation", "UNKNOWN", "?" * 2_000):
        error = refused(site.report("ack-failed", queueIds=seals([job_id]), errorCategory=category), 400)
        assert (error["code"], error["details"]["field"]) == ("bad_error_category", "errorCategory")
    assert site.state(job_id) == "PROCESSING"


def test_a_late_failure_is_refused_with_the_state_and_downgrades_nothing(shared: Oci):
    for state in ("RETRY", "QUEUED", "COMPLETED"):
        site = OwnSite(shared)
        job_id = requeue(site) if state == "QUEUED" else site.row_in(state)
        before = site.job(job_id)
        body = site.ack_failed([job_id], errorCategory="TRANSIENT")
        assert body["refused"] == [{"id": f"seal_{job_id}", "reason": f"it is already {state}"}]
        assert (body["updated"], site.job(job_id)) == (0, before)


def test_the_events_name_the_key_that_reported(site: OwnSite):
    [job_id] = bare(ok(site.request_export(markAsExported="true"))) if site.enqueue() else []
    ok(site.report("ack", queueIds=seals([job_id])))
    _, claimed, acknowledged = [event.actor for event in site.events(job_id)]
    [key] = [key.id for key in site.oci.accounts.directory.api_keys() if key.site == site.id]
    assert claimed == acknowledged == f"key:{key}"


# Heartbeat


def test_a_heartbeat_is_kept_with_its_time(site: OwnSite):
    ok(site.report("script-heartbeat", scriptVersion="4.2", exported=3))
    heartbeat = site.place.read_metadata(HEARTBEAT)
    assert heartbeat == {"script_version": "4.2", "exported": 3, "at": site.clock.time_us}


def test_a_heartbeat_that_makes_no_sense_is_refused(site: OwnSite):
    wrong: list[dict[str, Any]] = [{"scriptVersion": "v" * 65}, {"exported": -1}, {"acked": "x"}]
    for fields in wrong:
        assert site.report("script-heartbeat", **fields).status_code == 422
