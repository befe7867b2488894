"""A script's reports: late, repeated, about rows of others; no delivery is ever lost."""

from typing import Any

import pytest

from kesin.workloads.oci.site import HEARTBEAT, read_metadata
from tests.workloads.oci import own_site
from tests.workloads.oci.conftest import Oci, bare, seals
from tests.workloads.oci.own_site import OwnSite, refused, well

shared, site, neighbour = own_site.shared, own_site.site, own_site.neighbour
MINUTE = 60
NOWHERE = "00000000-0000-7000-8000-000000000000"
UNKNOWN = "no such row of this site"


def post(site: OwnSite, path: str, headers: Any = None, **fields: Any) -> Any:
    body = {"siteId": site.id, **fields}
    return site.client.post(f"/api/oci/{path}", json=body, headers=headers or site.script)


# Ack


def test_an_ack_completes_the_row_and_says_when(site: OwnSite):
    [job_id] = site.exported()
    site.wait(30)
    assert site.ack([job_id]) == {"ok": True, "updated": 1, "refused": []}
    row = site.shown(job_id)
    assert (row["status"], row["claimed_at"]) == ("COMPLETED", None)
    assert row["uploaded_at"] == row["updated_at"]
    assert site.look(job_id).stamp_2 == site.clock.time_us


def test_an_ack_clears_the_error_of_an_earlier_try(site: OwnSite):
    [job_id] = site.failed()
    site.act("RETRY_SELECTED", [job_id])
    site.export()
    site.ack([job_id])
    row = site.shown(job_id)
    assert (row["last_error"], row["provider_error_code"]) == (None, None)
    assert (row["provider_error_category"], row["failed_at"]) == (None, None)


def test_a_repeated_ack_is_a_success_that_changes_nothing(site: OwnSite):
    [job_id] = site.exported()
    site.ack([job_id])
    before = site.look(job_id)
    site.wait(60)
    assert site.ack([job_id]) == {"ok": True, "updated": 0, "refused": []}
    assert site.look(job_id) == before


def test_an_id_named_twice_counts_once(site: OwnSite):
    [job_id] = site.exported()
    assert site.ack([job_id, job_id])["updated"] == 1


@pytest.mark.parametrize("path", ["ack", "ack-failed"])
def test_a_report_about_nothing_is_well(site: OwnSite, path: str):
    assert well(post(site, path, queueIds=[])) == {"ok": True, "updated": 0, "refused": []}


# Late acks


def test_a_late_ack_wins_over_a_row_that_was_recovered(site: OwnSite):
    [job_id] = site.exported()
    site.wait(16 * MINUTE, "recover")
    assert site.state(job_id) == "RETRY"
    assert site.ack([job_id])["updated"] == 1
    assert site.state(job_id) == "COMPLETED"
    assert site.export() == []


def test_a_late_ack_wins_over_a_row_an_operator_queued_again(site: OwnSite):
    [job_id] = site.exported()
    site.act("RESET_TO_QUEUED", [job_id])
    assert site.state(job_id) == "QUEUED"
    assert site.ack([job_id])["updated"] == 1
    assert site.state(job_id) == "COMPLETED"


@pytest.mark.parametrize("category", ["VALIDATION", "TRANSIENT", "AUTH", "RATE_LIMIT"])
def test_a_late_ack_wins_over_a_failure_that_was_reported(site: OwnSite, category: str):
    [job_id] = site.failed(category=category)
    assert site.ack([job_id])["updated"] == 1
    row = site.shown(job_id)
    assert (row["status"], row["provider_error_code"]) == ("COMPLETED", None)
    assert row["next_retry_at"] is None


def test_a_late_ack_wins_over_the_attempt_cap(oci: Oci):
    [job_id] = oci.queued()
    for _ in range(5):
        oci.export()
        oci.clock.advance(16 * MINUTE)
        oci.sweep()
    assert oci.look(job_id).error_code == "MAX_ATTEMPTS"
    assert oci.ack([job_id])["updated"] == 1
    assert oci.state(job_id) == "COMPLETED"


def test_a_late_ack_wins_over_an_operators_mark(site: OwnSite):
    [job_id] = site.exported()
    site.act("MARK_FAILED", [job_id])
    assert site.ack([job_id])["updated"] == 1
    assert site.state(job_id) == "COMPLETED"


def test_a_row_another_script_has_meanwhile_is_completed_by_either(site: OwnSite):
    [job_id] = site.exported()
    site.wait(16 * MINUTE, "recover")
    site.export()
    assert site.ack([job_id])["updated"] == 1
    assert site.ack([job_id]) == {"ok": True, "updated": 0, "refused": []}


def test_a_failure_reported_after_the_late_ack_downgrades_nothing(site: OwnSite):
    [job_id] = site.exported()
    site.wait(16 * MINUTE, "recover")
    site.ack([job_id])
    body = site.ack_failed([job_id])
    assert (body["updated"], site.state(job_id)) == (0, "COMPLETED")


# Acks that are none


def test_a_row_that_was_never_exported_is_not_acknowledged(site: OwnSite):
    [job_id] = site.queued()
    body = site.ack([job_id])
    assert body["updated"] == 0
    assert body["refused"][0]["id"] == f"seal_{job_id}"
    assert "never exported" in body["refused"][0]["reason"]
    assert site.state(job_id) == "QUEUED"


def test_a_row_rejected_before_its_claim_is_not_acknowledged(site: OwnSite):
    bad = site.raw({"externalId": "bad"})
    site.export()
    assert (site.ack([bad])["updated"], site.state(bad)) == (0, "FAILED")


def test_an_ack_for_data_that_was_corrected_meanwhile_is_refused(site: OwnSite):
    [job_id] = site.failed()
    assert site.post([site.row(1, conversionValue=5)])[0]["result"] == "corrected"
    body = site.ack([job_id])
    assert (body["updated"], site.state(job_id)) == (0, "QUEUED")
    assert "never exported since its data last changed" in body["refused"][0]["reason"]


def test_once_the_corrected_data_was_exported_its_ack_counts(site: OwnSite):
    [job_id] = site.failed()
    site.post([site.row(1, conversionValue=5)])
    site.export()
    assert site.ack([job_id])["updated"] == 1


@pytest.mark.parametrize("path", ["ack", "ack-failed"])
def test_ids_of_another_site_are_unknown_and_the_others_count(
    site: OwnSite, neighbour: OwnSite, path: str
):
    [mine], [theirs] = site.exported(), neighbour.exported()
    body = well(post(site, path, queueIds=seals([theirs, mine, NOWHERE])))
    assert body["updated"] == 1
    assert body["refused"] == [
        {"id": f"seal_{theirs}", "reason": UNKNOWN},
        {"id": f"seal_{NOWHERE}", "reason": UNKNOWN},
    ]
    assert neighbour.state(theirs) == "PROCESSING"


@pytest.mark.parametrize("path", ["ack", "ack-failed"])
@pytest.mark.parametrize("named", ["seal_", "seal_nothing", "seal_☃", "seal_" + "9" * 100])
def test_what_is_no_id_is_unknown(site: OwnSite, path: str, named: str):
    body = well(post(site, path, queueIds=[named]))
    assert body == {"ok": True, "updated": 0, "refused": [{"id": named, "reason": UNKNOWN}]}


@pytest.mark.parametrize("path", ["ack", "ack-failed"])
def test_ids_without_a_seal_are_named_and_nothing_happens(site: OwnSite, path: str):
    ids = site.exported(2)
    answer = post(site, path, queueIds=[ids[0], f"seal_{ids[1]}", f"signal_{ids[0]}"])
    error = refused(answer, 400)
    assert error["code"] == "bad_queue_id"
    assert error["details"]["ids"] == [ids[0], f"signal_{ids[0]}"]
    assert site.states(ids) == ["PROCESSING", "PROCESSING"]


@pytest.mark.parametrize("path", ["ack", "ack-failed"])
def test_too_many_ids_are_refused(site: OwnSite, path: str):
    answer = post(site, path, queueIds=[f"seal_{n}" for n in range(10_001)])
    assert answer.status_code == 422


@pytest.mark.parametrize("path", ["ack", "ack-failed", "script-heartbeat", "v2/verify"])
@pytest.mark.parametrize("foreign", [True, False])
def test_a_foreign_site_is_refused_like_one_that_is_not_there(
    site: OwnSite, neighbour: OwnSite, path: str, foreign: bool
):
    named = neighbour.id if foreign else "nowhere"
    answer = post(site, path, siteId=named, queueIds=[])
    assert refused(answer, 403)["message"] == "this site is not yours"


def test_the_dashed_uuid_names_the_site_in_a_report_too(site: OwnSite):
    ids = site.exported(2)
    body = well(post(site, "ack", siteId=site.uuid, queueIds=seals(ids[:1])))
    failed = well(post(site, "ack-failed", siteId=site.uuid, queueIds=seals(ids[1:])))
    assert (body["updated"], failed["updated"]) == (1, 1)


def test_a_paused_site_takes_reports(site: OwnSite):
    ids = site.exported(2)
    site.pause()
    assert site.ack(ids[:1])["updated"] == 1
    assert site.ack_failed(ids[1:])["updated"] == 1


# Ack-failed


def test_a_failure_is_kept_with_everything_that_was_said(site: OwnSite):
    [job_id] = site.exported()
    body = site.ack_failed(
        [job_id],
        errorCode="INVALID_TIME_FORMAT",
        errorMessage="Expected yyyy-mm-dd HH:mm:ss±HH:mm",
        errorCategory="VALIDATION",
    )
    assert body == {"ok": True, "updated": 1, "refused": []}
    row = site.shown(job_id)
    assert (row["status"], row["claimed_at"], row["attempt_count"]) == ("FAILED", None, 1)
    assert row["provider_error_code"] == "INVALID_TIME_FORMAT"
    assert row["provider_error_category"] == "VALIDATION"
    assert row["last_error"] == "Expected yyyy-mm-dd HH:mm:ss±HH:mm"
    assert row["failed_at"] == row["updated_at"]


def test_without_a_word_it_is_a_failed_validation(site: OwnSite):
    [job_id] = site.exported()
    site.ack_failed([job_id])
    row = site.shown(job_id)
    assert row["provider_error_code"] == row["last_error"] == "VALIDATION_FAILED"
    assert row["provider_error_category"] == "VALIDATION"


@pytest.mark.parametrize("said", [{"errorCode": "ONLY_THIS"}, {"errorCode": " ONLY_THIS "}])
def test_without_a_message_the_code_is_the_message(site: OwnSite, said: dict):
    [job_id] = site.exported()
    site.ack_failed([job_id], **said)
    row = site.shown(job_id)
    assert (row["provider_error_code"], row["last_error"]) == ("ONLY_THIS", "ONLY_THIS")


@pytest.mark.parametrize("said", [None, "", "   "])
def test_an_empty_word_is_no_word(site: OwnSite, said: str | None):
    [job_id] = site.exported()
    site.ack_failed([job_id], errorCode=said, errorMessage=said, errorCategory=None)
    assert site.shown(job_id)["last_error"] == "VALIDATION_FAILED"


@pytest.mark.parametrize("category", ["VALIDATION", "TRANSIENT", "AUTH", "RATE_LIMIT"])
def test_every_category_rests_in_failed(site: OwnSite, category: str):
    [job_id] = site.failed(category=category)
    row = site.shown(job_id)
    assert (row["status"], row["provider_error_category"]) == ("FAILED", category)
    assert (row["next_retry_at"] is not None) == (category in {"TRANSIENT", "RATE_LIMIT"})


@pytest.mark.parametrize("category", ["PERMANENT", "validation", "UNKNOWN", "?" * 2_000])
def test_any_other_category_is_refused_and_nothing_happens(site: OwnSite, category: str):
    [job_id] = site.exported()
    answer = post(site, "ack-failed", queueIds=seals([job_id]), errorCategory=category)
    error = refused(answer, 400)
    assert (error["code"], error["details"]["field"]) == ("bad_error_category", "errorCategory")
    assert site.state(job_id) == "PROCESSING"


def test_long_words_are_cut(site: OwnSite):
    [job_id] = site.exported()
    site.ack_failed([job_id], errorCode="C" * 100, errorMessage="é" * 5_000)
    row = site.shown(job_id)
    assert row["provider_error_code"] == "C" * 64
    assert row["last_error"] == "é" * 1_000


def test_what_no_database_keeps_is_dropped_from_a_message(site: OwnSite):
    [job_id] = site.exported()
    site.ack_failed([job_id], errorCode="A\0B", errorMessage="it\0 broke")
    row = site.shown(job_id)
    assert (row["provider_error_code"], row["last_error"]) == ("AB", "it broke")


def test_a_repeated_failure_changes_nothing(site: OwnSite):
    [job_id] = site.failed()
    before = site.look(job_id)
    site.wait(60)
    body = site.ack_failed([job_id], errorCode="ANOTHER")
    assert body == {"ok": True, "updated": 0, "refused": []}
    assert site.look(job_id) == before


@pytest.mark.parametrize("state", ["RETRY", "QUEUED"])
def test_a_late_failure_is_refused_with_the_state(site: OwnSite, state: str):
    [job_id] = site.exported()
    if state == "RETRY":
        site.wait(16 * MINUTE, "recover")
    else:
        site.act("RESET_TO_QUEUED", [job_id])
    body = site.ack_failed([job_id])
    assert body["updated"] == 0
    assert body["refused"] == [{"id": f"seal_{job_id}", "reason": f"it is {state} already"}]
    assert site.state(job_id) == state


def test_completed_is_never_downgraded(site: OwnSite):
    [job_id] = site.exported()
    site.ack([job_id])
    before = site.look(job_id)
    body = site.ack_failed([job_id], errorCategory="TRANSIENT")
    assert body["refused"] == [{"id": f"seal_{job_id}", "reason": "it is COMPLETED already"}]
    assert (body["updated"], site.look(job_id)) == (0, before)


def test_one_call_may_end_rows_and_refuse_others(site: OwnSite):
    done, open_, new = [*site.exported(2), *site.queued(1, first=9)]
    site.ack([done])
    body = site.ack_failed([done, open_, new])
    assert body["updated"] == 1
    assert [refusal["id"] for refusal in body["refused"]] == seals([done, new])
    assert site.states([done, open_, new]) == ["COMPLETED", "FAILED", "QUEUED"]


def test_the_history_says_whose_key_reported(site: OwnSite):
    [job_id] = site.exported()
    site.ack([job_id])
    actors = [event.actor for event in site.events(job_id)]
    assert [one.partition(":")[0] for one in actors] == ["key", "key", "key"]
    assert actors[1] == actors[2] != actors[0]


def test_a_script_that_dies_between_upload_and_ack_may_tell_later(site: OwnSite):
    ids = site.exported(3)
    site.wait(16 * MINUTE, "recover")
    again = bare(site.export(limit=1))
    site.ack_failed(again, errorCode="UPLOAD_EXCEPTION", errorCategory="TRANSIENT")
    assert site.ack(ids)["updated"] == 3
    assert site.states(ids) == ["COMPLETED"] * 3


# Heartbeat


def test_a_heartbeat_is_kept_with_its_time(site: OwnSite):
    site.beat(scriptVersion="4.2", exported=3)
    kept = read_metadata(site.context, site.place, HEARTBEAT)
    assert kept == {"script_version": "4.2", "exported": 3, "at": site.clock.time_us}


@pytest.mark.parametrize("told", [{"scriptVersion": "v" * 65}, {"exported": -1}, {"acked": "x"}])
def test_a_heartbeat_that_makes_no_sense_is_refused(site: OwnSite, told: dict):
    assert post(site, "script-heartbeat", **told).status_code == 422
