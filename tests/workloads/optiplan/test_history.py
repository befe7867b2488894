"""A job's history with the event types of the seed."""

from kesin.workloads.optiplan.history import audit_events
from tests.workloads.optiplan.floor import Floor
from tests.workloads.optiplan.order_bodies import back, part


def test_each_state_is_reported_with_its_details_and_wake_ups_are_not(floor: Floor):
    job_id = floor.done(part(), back(id="b1", edge_up="1mm", length_cm=50, width_cm=40))
    stems = [f"{job_id}_GOVDE_Beyaz_18mm", f"{job_id}_ARKALIK_Beyaz_8mm"]
    assert floor.details(job_id, "JOB_CREATED") == {"mode": "C"}
    assert floor.details(job_id, "STATE_PREPARED") == {"batch_count": 2, "backing_edge_reset_count": 1}
    assert floor.details(job_id, "BACKING_EDGE_RESET") == {"count": 1}
    assert floor.details(job_id, "STATE_OPTI_IMPORTED")["import_files"] == [f"{stem}.xlsx" for stem in stems]
    assert floor.details(job_id, "STATE_OPTI_DONE")["xml_file"] == ", ".join(f"{stem}.xml" for stem in stems)
    assert floor.details(job_id, "STATE_DELIVERED")["try"] == 1
    assert floor.details(job_id, "HOLD_APPROVED") == {"mode_c_approved": True}
    assert floor.details(job_id, "STATE_HOLD")["errorCode"] == "E_OPERATOR_TRIGGER_REQUIRED"
    passes = {"STATE_PREPARED", "BACKING_EDGE_RESET", "STATE_OPTI_IMPORTED"}
    kinds = floor.event_types(job_id)
    assert all(kinds.count(kind) == 2 for kind in passes)  # before the approval and after it
    assert [kind.removeprefix("STATE_") for kind in kinds if kind not in passes] == [
        *("JOB_CREATED", "HOLD", "HOLD_APPROVED", "OPTI_RUNNING", "OPTI_DONE", "XML_READY"),
        *("DELIVERED", "DONE"),
    ]
    assert len(floor.queue.events(job_id)) > len(kinds)


def test_lines_are_numbered_and_never_go_back_in_time(floor: Floor):
    job_id = floor.timed_out()
    floor.act(job_id, "retry")
    lines = audit_events(floor.queue, job_id, floor.queue.events(job_id), floor.queue.notes(job_id))
    assert [line.id for line in lines] == list(range(1, len(lines) + 1))
    assert [line.created_at for line in lines] == sorted(line.created_at for line in lines)
    assert lines[-2].message == "no XML appeared in time"
    assert floor.details(job_id, "STATE_FAILED")["errorCode"] == "E_OPTI_XML_TIMEOUT"
    assert floor.details(job_id, "JOB_RETRY_SCHEDULED")["retry_count"] == 1


def test_a_dead_runner_and_the_same_order_again_are_reported(floor: Floor):
    job_id = floor.new()
    floor.post(floor.job_body(job_id)["payload"])
    floor.claim(job_id)
    floor.clock.advance(120)
    floor.sweep()
    assert floor.event_types(job_id) == ["JOB_CREATED", "JOB_DEDUP", "JOB_RECOVERED"]
    assert floor.job_audit(job_id)[1]["message"] == "the same order was sent again"
    assert floor.job_audit(job_id)[1]["details_json"] is None
