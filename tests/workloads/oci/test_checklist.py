"""The verification checklist of the plan, row by row."""

from tests.workloads.oci import own_site
from tests.workloads.oci.conftest import Oci
from tests.workloads.oci.own_site import OwnSite, well

shared, site = own_site.shared, own_site.site
MINUTE = 60


def test_checklist_export_claim_raises_attempt_count_by_one(site: OwnSite):
    ids = site.queued(3)
    site.export(limit=2)
    assert [site.shown(job_id)["attempt_count"] for job_id in ids] == [1, 1, 0]


def test_checklist_mark_as_exported_false_is_structured_and_updates_nothing(site: OwnSite):
    site.queued(2)
    before = site.jobs()
    body = well(site.ask_export(markAsExported="false"))
    assert body.keys() == {"siteId", "items", "counts", "warnings"}
    assert site.jobs() == before


def test_checklist_retry_selected_requeues_and_keeps_the_error(site: OwnSite):
    [job_id] = site.failed()
    site.act("RETRY_SELECTED", [job_id])
    row = site.shown(job_id)
    assert (row["status"], row["claimed_at"], row["next_retry_at"]) == ("QUEUED", None, None)
    assert (row["last_error"], row["provider_error_code"]) == ("it broke", "BROKEN")
    assert row["provider_error_category"] == "VALIDATION"


def test_checklist_reset_to_queued_requeues_and_may_clear_the_error(site: OwnSite):
    kept, cleared = site.failed(2)
    site.act("RESET_TO_QUEUED", [kept])
    site.act("RESET_TO_QUEUED", [cleared], clearErrors=True)
    rows = [site.shown(kept), site.shown(cleared)]
    assert [
        (row["status"], row["claimed_at"], row["next_retry_at"], row["provider_error_code"])
        for row in rows
    ] == [("QUEUED", None, None, "BROKEN"), ("QUEUED", None, None, None)]
    assert (rows[1]["last_error"], rows[1]["provider_error_category"]) == (None, None)


def test_checklist_mark_failed_with_an_empty_body_has_defaults(site: OwnSite):
    [job_id] = site.queued()
    site.act("MARK_FAILED", [job_id])
    row = site.shown(job_id)
    assert row["provider_error_code"] == "MANUAL_FAIL"
    assert row["provider_error_category"] == "PERMANENT"
    assert row["last_error"] == "MANUALLY_MARKED_FAILED"


def test_checklist_attempt_cap_fails_rows_with_five_attempts(oci: Oci):
    [job_id] = oci.queued()
    for _ in range(5):
        oci.export()
        oci.clock.advance(16 * MINUTE)
        if oci.look(job_id).attempt_count < 5:
            oci.sweep("recover")
    assert oci.cron("attempt-cap")["affected"] == 1
    row = oci.shown(job_id)
    assert (row["status"], row["provider_error_code"]) == ("FAILED", "MAX_ATTEMPTS")
