"""The generic queue routes with the oci queue."""

from tests.workloads.oci.conftest import Oci


def test_a_conversion_is_not_born_through_the_door_of_all_queues(oci: Oci):
    body = {"jobs": [{"payload": oci.row(), "site": "north"}]}
    answer = oci.client.post("/api/queues/oci/jobs", json=body, headers=oci.key("admin"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "needs_stamps")
    assert oci.rows() == []


def test_a_correction_is_neither_offered_nor_made_there(oci: Oci):
    (job_id,) = oci.queued(1)
    oci.export()
    oci.ack_failed([job_id])
    shown = oci.client.get(f"/api/jobs/{job_id}", headers=oci.operator).json()
    assert shown["actions"] == ["RETRY_SELECTED", "RESET_TO_QUEUED"]
    body = {"action": "correct", "ids": [job_id]}
    answer = oci.client.post("/api/queues/oci/actions", json=body, headers=oci.operator)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "needs_payload")


def test_a_job_is_shown_with_the_advice_on_its_code(oci: Oci):
    (job_id,) = oci.queued(1)
    oci.export()
    oci.ack_failed([job_id], errorCode="INVALID_TIME_FORMAT")
    advice = oci.client.get(f"/api/jobs/{job_id}", headers=oci.operator).json()["advice"]
    assert set(advice) == {"who", "en", "tr"}
    assert set(advice["tr"]) == {"means", "act", "next"}


def test_what_an_operator_marks_failed_there_has_the_same_defaults(oci: Oci):
    (job_id,) = oci.queued(1)
    body = {"action": "MARK_FAILED", "ids": [job_id]}
    oci.client.post("/api/queues/oci/actions", json=body, headers=oci.operator)
    row = oci.shown(job_id)
    assert (row["provider_error_code"], row["provider_error_category"], row["last_error"]) == (
        "MANUAL_FAIL",
        "PERMANENT",
        "MANUALLY_MARKED_FAILED",
    )
