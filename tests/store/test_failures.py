"""Jobs with an error, counted by what is to be done about them."""

from __future__ import annotations

from kesin.lifecycle.failures import decided_codes, decided_moves, failure_states, revivals
from kesin.lifecycle.task import task_lifecycle
from kesin.store.records import FailureCount
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from tests.store.scene import OPERATOR


def fail(scene, action: str, tenant: str = "default", **error) -> str:
    scene.create_job(tenant=tenant)
    [job] = scene.claim()
    scene.move(action, job, **error)
    return job.id


def failures(scene, **how) -> list[FailureCount]:
    return scene.store.failures(scene.queue, **how)


BAD = {"error_code": "BAD", "error_category": "VALIDATION"}
BUSY = {"error_code": "BUSY", "error_category": "TRANSIENT"}


def test_jobs_at_rest_and_jobs_to_be_tried_again_are_counted_apart(task):
    """``test_histories`` compares these counts with the reference."""
    failed = fail(task, "fail", **BAD)
    started = task.now
    task.clock.advance(10)
    fail(task, "fail", **BAD)
    retried = fail(task, "retry", "south", **BUSY)
    run_at = task.store.job(retried).run_at
    at_rest = FailureCount("default", "failed", "BAD", "VALIDATION", False, 2, started, None, task.now, ((0, 1),))
    tried = FailureCount("south", "ready", "BUSY", "TRANSIENT", True, 1, task.now, run_at, task.now, ((0, 1),))
    assert failures(task, recent_from=task.now) == [at_rest, tried]
    for states, tenants in ((("failed",), ["default"]), (("ready",), ["south"]), (("done",), [])):
        assert [one.tenant for one in failures(task, states=states)] == tenants
    assert [one.tenant for one in failures(task, tenants=["south", "west"])] == ["south"]
    assert failures(task, tenants=[]) == []
    task.move("requeue", failed, **OPERATOR)
    assert [(one.state, one.retries, one.n) for one in failures(task, tenants=["default"])] == [
        ("failed", False, 1),
        ("ready", True, 1),
    ]
    [job] = task.claim(ids=[failed])
    task.move("complete", job)
    assert [(one.state, one.n) for one in failures(task, tenants=["default"])] == [("failed", 1)]


def test_the_declaration_says_what_the_sweeper_takes_back():
    assert [move.name for move in revivals(oci_lifecycle())] == ["revive"]
    assert revivals(task_lifecycle()) == revivals(optiplan_lifecycle()) == ()
    assert failure_states(optiplan_lifecycle()) == ("HOLD", "FAILED")
    assert failure_states(task_lifecycle(parents=True)) == ("failed",)  # not ``blocked``


def test_codes_that_only_an_operator_records_or_declared_so_are_decisions():
    assert decided_codes(oci_lifecycle()) == {"MANUAL_FAIL", "CONSENT_DENIED", "RETRACTED"}
    assert decided_moves(oci_lifecycle()) == {"withhold", "retract"}  # not in the chart of failures
    assert decided_codes(optiplan_lifecycle()) == {"E_CANCELLED", "E_REISSUED"}
    assert decided_codes(task_lifecycle()) == {"CANCELLED", "DISMISSED"}
