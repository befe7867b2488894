"""The five locks, each by its name, and what is not negotiable."""

import pytest

from tests.workloads.oci.own_site import MINUTE, OwnSite, bare, ok

NINE = [
    *("id", "orderId", "gclid", "wbraid", "gbraid", "conversionName"),
    *("conversionTime", "conversionValue", "conversionCurrency"),
]
BROKEN = ("it broke", "BROKEN", "VALIDATION")


def errors(row: dict) -> tuple:
    return row["last_error"], row["provider_error_code"], row["provider_error_category"]


# Lock 1: attempt_count is raised by the claim


def test_lock_1_a_claim_sets_state_time_and_attempt_in_one_move(site: OwnSite):
    job_id, waiting = site.enqueue(2)
    site.wait(5)
    site.export(limit=1)
    job = site.job(job_id)
    assert (job.state, job.attempt_count) == ("PROCESSING", 1)
    assert job.claimed_at == job.moved_at == site.clock.time_us
    assert [event.move for event in site.events(job_id)] == ["enqueue", "claim"]
    assert site.row_of(waiting)["attempt_count"] == 0


def test_lock_1_nothing_but_a_claim_counts(site: OwnSite):
    [job_id] = site.claim()
    site.ack_failed([job_id], errorCategory="TRANSIENT")
    for action in ("RETRY_SELECTED", "RESET_TO_QUEUED", "MARK_FAILED"):
        site.act(action, [job_id])
    assert site.row_of(job_id)["attempt_count"] == 1


def test_lock_1_only_rows_that_wait_are_claimed(site: OwnSite):
    ids = site.claim(4)
    site.ack(ids[:1])
    site.ack_failed(ids[1:2])
    site.wait(16 * MINUTE, "recover")
    site.act("RESET_TO_QUEUED", ids[3:])
    assert site.states(ids) == ["COMPLETED", "FAILED", "RETRY", "QUEUED"]
    assert sorted(bare(site.export())) == sorted(ids[2:])


# Lock 2: the attempt cap


def test_lock_2_after_five_claims_a_row_is_failed_for_good(alone: OwnSite):
    [job_id] = alone.claim()
    for _ in range(4):
        alone.clock.advance(16 * MINUTE)
        alone.cron("recover-processing")
        alone.export()
    alone.clock.advance(16 * MINUTE)
    assert alone.cron("attempt-cap") == {"ok": True, "affected": 1}
    row = alone.row_of(job_id)
    assert (row["status"], row["attempt_count"]) == ("FAILED", 5)
    assert errors(row) == ("MAX_ATTEMPTS_EXCEEDED", "MAX_ATTEMPTS", "PERMANENT")
    assert row["updated_at"] == row["failed_at"]


@pytest.mark.parametrize("state", ["RETRY", "PROCESSING"])
def test_lock_2_a_named_cap_counts_rows_of_each_open_state(alone: OwnSite, state: str):
    job_id = alone.row_in(state)
    alone.clock.advance(16 * MINUTE)
    assert alone.cron("attempt-cap", max_attempts=1)["affected"] == 1
    assert alone.state(job_id) == "FAILED"


# Lock 3: what queue-actions clean up


@pytest.mark.parametrize("action", ["RETRY_SELECTED", "RESET_TO_QUEUED"])
def test_lock_3_a_row_sent_back_is_due_unclaimed_and_keeps_its_error(site: OwnSite, action: str):
    [job_id] = site.fail(category="TRANSIENT")
    assert site.row_of(job_id)["next_retry_at"] is not None
    site.wait(1)
    site.act(action, [job_id])
    row = site.row_of(job_id)
    assert (row["status"], row["claimed_at"], row["next_retry_at"]) == ("QUEUED", None, None)
    assert errors(row) == ("it broke", "BROKEN", "TRANSIENT")
    assert site.job(job_id).moved_at == site.clock.time_us
    assert bare(site.export()) == [job_id]


def test_lock_3_only_a_reset_with_clear_errors_clears_them(site: OwnSite):
    ids = site.fail(2)
    for action, job_id in zip(("RESET_TO_QUEUED", "RETRY_SELECTED"), ids, strict=True):
        site.act(action, [job_id], clearErrors=True)
    assert [errors(site.row_of(job_id)) for job_id in ids] == [(None, None, None), BROKEN]


def test_lock_3_completed_is_never_touched(site: OwnSite):
    job_id = site.row_in("COMPLETED")
    before = site.job(job_id)
    refusal = {"id": job_id, "reason": "it is already COMPLETED"}
    for action in ("RETRY_SELECTED", "RESET_TO_QUEUED", "MARK_FAILED"):
        body = site.act(action, [job_id])
        assert (body["affected"], body["refused"]) == (0, [refusal])
    assert site.job(job_id) == before


# Lock 4: the defaults of MARK_FAILED


@pytest.mark.parametrize("state", ["PROCESSING", "QUEUED", "RETRY"])
def test_lock_4_mark_failed_has_defaults_from_each_open_state(site: OwnSite, state: str):
    job_id = site.row_in(state)
    assert site.act("MARK_FAILED", [job_id])["affected"] == 1
    row = site.row_of(job_id)
    assert row["status"] == "FAILED"
    assert errors(row) == ("MANUALLY_MARKED_FAILED", "MANUAL_FAIL", "PERMANENT")


def test_lock_4_given_values_replace_the_defaults(site: OwnSite):
    [job_id] = site.enqueue()
    body = {"errorCode": "WRONG_SHOP", "errorCategory": "VALIDATION", "reason": "not ours"}
    site.act("MARK_FAILED", [job_id], **body)
    assert errors(site.row_of(job_id)) == ("not ours", "WRONG_SHOP", "VALIDATION")


# Lock 5: the shape of the export


def test_lock_5_the_script_gets_a_flat_array_of_nine_fields(site: OwnSite):
    assert ok(site.request_export(markAsExported="true")) == []
    site.enqueue(2)
    items = ok(site.request_export(markAsExported="true"))
    assert isinstance(items, list)
    assert [list(item) for item in items] == [NINE, NINE]


def test_lock_5_a_preview_is_an_object_and_changes_nothing(site: OwnSite):
    empty = {"siteId": site.id, "items": [], "counts": {"queued": 0, "skipped": 0}, "warnings": []}
    assert ok(site.request_export(markAsExported="false")) == empty
    site.enqueue(2)
    before = site.jobs()
    body = ok(site.request_export())
    assert list(body) == list(empty)
    assert (body["siteId"], body["counts"]) == (site.id, {"queued": 2, "skipped": 0})
    assert [list(item) for item in body["items"]] == [NINE, NINE]
    assert site.jobs() == before


# Not negotiable


def test_non_negotiable_attempt_count_is_the_number_of_claims(site: OwnSite):
    [job_id] = site.enqueue()
    counts = []
    for _ in range(4):
        site.export()
        counts.append(site.row_of(job_id)["attempt_count"])
        site.wait(16 * MINUTE, "recover")
    assert counts == [1, 2, 3, 4]
    site.act("RETRY_SELECTED", [job_id])
    site.export()
    claims = [event for event in site.events(job_id) if event.move == "claim"]
    assert site.job(job_id).attempt_count == len(claims) == 5


def test_non_negotiable_a_row_cannot_be_claimed_for_ever(site: OwnSite):
    [job_id] = site.enqueue()
    rounds = 0
    while site.state(job_id) != "FAILED":
        site.export()
        site.wait(16 * MINUTE, "cap", "recover")
        rounds += 1
    assert (rounds, site.job(job_id).error_code) == (5, "MAX_ATTEMPTS")
