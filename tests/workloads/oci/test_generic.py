"""The generic queue routes with the oci queue."""

from typing import Any

from tests.workloads.oci.own_site import OwnSite, ok, refused


def post(site: OwnSite, path: str, **body: Any) -> Any:
    return site.client.post(f"/api/queues/oci/{path}", json=body, headers=site.oci.key("admin"))


def test_a_conversion_is_not_enqueued_through_the_generic_route(site: OwnSite):
    jobs = [{"payload": site.row(), "site": site.id}]
    assert refused(post(site, "jobs", jobs=jobs), 409)["code"] == "needs_stamps"
    assert site.rows() == []


def test_a_failed_job_is_shown_with_its_actions_and_advice_and_is_not_corrected_there(site: OwnSite):
    [job_id] = site.claim()
    site.ack_failed([job_id], errorCode="INVALID_TIME_FORMAT")
    shown = ok(site.client.get(f"/api/jobs/{job_id}", headers=site.operator))
    assert shown["actions"] == ["RETRY_SELECTED", "RESET_TO_QUEUED"]
    assert set(shown["advice"]) == {"who", "en", "tr"}
    assert set(shown["advice"]["tr"]) == {"means", "act", "next"}
    response = post(site, "actions", action="correct", ids=[job_id])
    assert refused(response, 422)["code"] == "needs_payload"


def test_mark_failed_has_the_same_defaults_there(site: OwnSite):
    [job_id] = site.enqueue()
    post(site, "actions", action="MARK_FAILED", ids=[job_id])
    job = site.job(job_id)
    assert (job.error_code, job.error_category) == ("MANUAL_FAIL", "PERMANENT")
    assert job.error_message == "MANUALLY_MARKED_FAILED"
