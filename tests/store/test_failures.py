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
    fail(task, "fail", **BAD)
    started = task.now
    task.clock.advance(10)
    fail(task, "fail", **BAD)
    retried = fail(task, "retry", **BUSY)
    run_at = task.store.job(retried).run_at
    assert failures(task, recent_from=task.now) == [
        FailureCount("default", "failed", "BAD", "VALIDATION", False, 2, started, None, task.now, ((0, 1),)),
        FailureCount("default", "ready", "BUSY", "TRANSIENT", True, 1, task.now, run_at, task.now, ((0, 1),)),
    ]


def test_a_job_that_an_operator_takes_back_is_tried_again_and_then_over(task):
    failed = fail(task, "fail", **BAD)
    task.move("requeue", failed, **OPERATOR)
    assert [(one.state, one.retries) for one in failures(task)] == [("ready", True)]
    [job] = task.claim()
    assert failures(task) == []  # a worker has it
    task.move("complete", job)
    assert failures(task) == []


def test_states_can_be_chosen(task):
    fail(task, "fail", **BAD)
    fail(task, "retry", **BUSY)
    for states in (("failed",), ("ready",)):
        assert [one.state for one in failures(task, states=states)] == [*states]
    assert failures(task, states=("done",)) == []


def test_tenants_are_counted_apart_and_can_be_chosen(task):
    for tenant in ("north", "north", "south"):
        fail(task, "fail", tenant, **BAD)
    assert [(one.tenant, one.n) for one in failures(task)] == [("north", 2), ("south", 1)]
    assert [one.tenant for one in failures(task, tenants=["south", "west"])] == ["south"]
    assert failures(task, tenants=[]) == []


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
