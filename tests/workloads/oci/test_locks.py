"""The five locks, each by its name, and what is not negotiable."""

import pytest

from kesin.store.records import Event
from tests.workloads.oci import own_site
from tests.workloads.oci.conftest import Oci, bare
from tests.workloads.oci.own_site import OwnSite, well

shared, site = own_site.shared, own_site.site
MINUTE = 60
NINE = [
    *("id", "orderId", "gclid", "wbraid", "gbraid", "conversionName"),
    *("conversionTime", "conversionValue", "conversionCurrency"),
]
ERRORS = ("last_error", "provider_error_code", "provider_error_category")


def errors(row: dict) -> tuple:
    return tuple(row[name] for name in ERRORS)


# Lock 1: attempt_count is raised by the claim


def test_lock_1_a_claim_sets_state_time_and_attempt_in_one_move(site: OwnSite):
    [job_id] = site.queued()
    site.wait(5)
    site.export()
    now = site.clock.time_us
    job = site.look(job_id)
    assert (job.state, job.attempt_count) == ("PROCESSING", 1)
    assert job.claimed_at == job.moved_at == now
    assert [event.move for event in site.events(job_id)] == ["enqueue", "claim"]


def test_lock_1_every_claim_counts_one_more(site: OwnSite):
    [job_id] = site.queued()
    counts = []
    for _ in range(3):
        site.export()
        counts.append(site.shown(job_id)["attempt_count"])
        site.wait(16 * MINUTE, "recover")
    assert counts == [1, 2, 3]


def test_lock_1_nothing_but_a_claim_counts(site: OwnSite):
    [job_id] = site.exported()
    site.ack_failed([job_id], errorCategory="TRANSIENT")
    site.act("RETRY_SELECTED", [job_id])
    site.act("RESET_TO_QUEUED", [job_id])
    site.act("MARK_FAILED", [job_id])
    assert site.shown(job_id)["attempt_count"] == 1


def test_lock_1_only_rows_that_wait_are_claimed(site: OwnSite):
    ids = site.exported(4)
    site.ack(ids[:1])
    site.ack_failed(ids[1:2])
    site.wait(16 * MINUTE, "recover")
    site.act("RESET_TO_QUEUED", ids[3:])
    assert site.states(ids) == ["COMPLETED", "FAILED", "RETRY", "QUEUED"]
    assert sorted(bare(site.export())) == sorted(ids[2:])


# Lock 2: the attempt cap


def spent(oci: Oci) -> str:
    """A row whose fifth claim is on its way."""
    [job_id] = oci.queued()
    for _ in range(4):
        oci.export()
        oci.clock.advance(16 * MINUTE)
        oci.cron("recover-processing")
    oci.export()
    return job_id


def test_lock_2_after_five_claims_a_row_is_failed_for_good(oci: Oci):
    job_id = spent(oci)
    oci.clock.advance(16 * MINUTE)
    assert oci.cron("attempt-cap") == {"ok": True, "affected": 1}
    row = oci.shown(job_id)
    assert (row["status"], row["attempt_count"]) == ("FAILED", 5)
    assert errors(row) == ("MAX_ATTEMPTS_EXCEEDED", "MAX_ATTEMPTS", "PERMANENT")
    assert row["updated_at"] == row["failed_at"]


@pytest.mark.parametrize("state", ["RETRY", "PROCESSING"])
def test_lock_2_a_named_cap_counts_rows_of_each_open_state(oci: Oci, state: str):
    [job_id] = oci.queued()
    oci.export()
    oci.clock.advance(16 * MINUTE)
    if state == "RETRY":
        oci.cron("recover-processing")
    assert oci.state(job_id) == state
    affected = oci.cron("attempt-cap", max_attempts=1)["affected"]
    assert (affected, oci.state(job_id)) == (1, "FAILED")


# Lock 3: what queue-actions clean up


@pytest.mark.parametrize("action", ["RETRY_SELECTED", "RESET_TO_QUEUED"])
def test_lock_3_a_row_sent_back_to_queued_is_due_and_held_by_nobody(site: OwnSite, action: str):
    [job_id] = site.failed(category="TRANSIENT")
    assert site.shown(job_id)["next_retry_at"] is not None
    site.wait(1)
    site.act(action, [job_id])
    row = site.shown(job_id)
    assert (row["status"], row["claimed_at"], row["next_retry_at"]) == ("QUEUED", None, None)
    assert site.look(job_id).moved_at == site.clock.time_us
    assert bare(site.export()) == [job_id]


@pytest.mark.parametrize("action", ["RETRY_SELECTED", "RESET_TO_QUEUED"])
def test_lock_3_the_error_is_kept_for_whoever_looks_back(site: OwnSite, action: str):
    [job_id] = site.failed()
    site.act(action, [job_id])
    assert errors(site.shown(job_id)) == ("it broke", "BROKEN", "VALIDATION")


def test_lock_3_clear_errors_clears_them(site: OwnSite):
    [job_id] = site.failed()
    site.act("RESET_TO_QUEUED", [job_id], clearErrors=True)
    assert errors(site.shown(job_id)) == (None, None, None)


def test_lock_3_retry_selected_never_clears_them(site: OwnSite):
    [job_id] = site.failed()
    site.act("RETRY_SELECTED", [job_id], clearErrors=True)
    assert errors(site.shown(job_id)) == ("it broke", "BROKEN", "VALIDATION")


def test_lock_3_completed_is_never_touched(site: OwnSite):
    [job_id] = site.exported()
    site.ack([job_id])
    before = site.look(job_id)
    for action in ("RETRY_SELECTED", "RESET_TO_QUEUED", "MARK_FAILED"):
        body = site.act(action, [job_id])
        assert (body["affected"], body["refused"]) == (
            0,
            [{"id": job_id, "reason": "it is COMPLETED already"}],
        )
    assert site.look(job_id) == before


# Lock 4: MARK_FAILED says the same whenever nothing is said


def test_lock_4_mark_failed_has_defaults(site: OwnSite):
    [job_id] = site.queued()
    site.act("MARK_FAILED", [job_id])
    row = site.shown(job_id)
    assert row["status"] == "FAILED"
    assert errors(row) == ("MANUALLY_MARKED_FAILED", "MANUAL_FAIL", "PERMANENT")


def test_lock_4_what_is_said_counts(site: OwnSite):
    [job_id] = site.queued()
    body = {"errorCode": "WRONG_SHOP", "errorCategory": "VALIDATION", "reason": "not ours"}
    site.act("MARK_FAILED", [job_id], **body)
    assert errors(site.shown(job_id)) == ("not ours", "WRONG_SHOP", "VALIDATION")


@pytest.mark.parametrize("state", ["PROCESSING", "QUEUED", "RETRY"])
def test_lock_4_each_open_state_can_be_marked(site: OwnSite, state: str):
    [job_id] = site.queued()
    if state != "QUEUED":
        site.export()
    if state == "RETRY":
        site.wait(16 * MINUTE, "recover")
    assert site.state(job_id) == state
    assert site.act("MARK_FAILED", [job_id])["affected"] == 1
    assert site.state(job_id) == "FAILED"


# Lock 5: the script's answer keeps its shape


def test_lock_5_the_script_gets_a_flat_array_of_nine_fields(site: OwnSite):
    site.queued(2)
    answer = well(site.ask_export(markAsExported="true"))
    assert isinstance(answer, list)
    assert [list(item) for item in answer] == [NINE, NINE]


def test_lock_5_an_empty_queue_is_an_empty_array(site: OwnSite):
    assert well(site.ask_export(markAsExported="true")) == []


@pytest.mark.parametrize("asked", [{}, {"markAsExported": "false"}])
def test_lock_5_a_preview_is_an_object(site: OwnSite, asked: dict):
    site.queued(2)
    body = well(site.ask_export(**asked))
    assert list(body) == ["siteId", "items", "counts", "warnings"]
    assert (body["siteId"], body["counts"]) == (site.id, {"queued": 2, "skipped": 0})
    assert [list(item) for item in body["items"]] == [NINE, NINE]


def test_lock_5_the_preview_of_an_empty_queue_is_an_object_too(site: OwnSite):
    assert well(site.ask_export()) == {
        "siteId": site.id,
        "items": [],
        "counts": {"queued": 0, "skipped": 0},
        "warnings": [],
    }


# Not negotiable


def claims(events: list[Event]) -> int:
    return sum(event.move == "claim" for event in events)


def test_non_negotiable_attempt_count_is_the_number_of_claims(site: OwnSite):
    [job_id] = site.queued()
    for _ in range(4):
        site.export()
        site.wait(16 * MINUTE, "recover")
    site.act("RETRY_SELECTED", [job_id])
    site.export()
    assert site.look(job_id).attempt_count == claims(site.events(job_id)) == 5


def test_non_negotiable_a_row_cannot_be_claimed_for_ever(oci: Oci):
    [job_id] = oci.queued()
    rounds = 0
    while oci.state(job_id) != "FAILED":
        oci.export()
        oci.clock.advance(16 * MINUTE)
        oci.sweep()
        rounds += 1
    assert (rounds, oci.look(job_id).error_code) == (5, "MAX_ATTEMPTS")
