import pytest

from kesin.lifecycle.task import task_lifecycle
from kesin.web.dashboard.state_groups import (
    ORDER,
    attention_states,
    failed_states,
    hold_states,
    state_group,
    state_groups,
)
from kesin.workloads import built_in
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle


def test_the_states_of_conversions():
    assert state_groups(oci_lifecycle()) == {
        "QUEUED": "waiting",
        "PROCESSING": "working",
        "RETRY": "retrying",
        "COMPLETED": "done",
        "FAILED": "failed",
    }


def test_the_states_of_orders():
    found = state_groups(optiplan_lifecycle())
    assert found["NEW"] == "waiting"
    assert found["HOLD"] == "person"
    assert found["DONE"] == "done"
    assert found["FAILED"] == "failed"
    assert {one for name, one in found.items() if name.startswith("OPTI_")} == {"working"}


def test_the_states_of_pdfs():
    found = state_groups(pdf_lifecycle())
    assert (found["queued"], found["succeeded"]) == ("waiting", "done")
    assert (found["failed"], found["expired"]) == ("failed", "expired")


@pytest.mark.parametrize("workload", built_in(), ids=lambda one: one.name)
def test_every_state_of_every_workload_is_at_home_in_a_family(workload):
    lifecycle = workload.lifecycle()
    found = state_groups(lifecycle)
    assert set(found.values()) <= set(ORDER)
    for state in lifecycle.states:
        if state.success:
            assert found[state.name] in {"done", "person"}, state.name
        if state.initial:
            assert found[state.name] == "waiting", state.name


def test_a_state_that_nobody_knows_any_more_is_of_the_past():
    assert state_group(task_lifecycle(), "CHOPPED") == "expired"


def test_a_person_is_needed_where_something_waits_for_one_or_failed():
    assert attention_states(oci_lifecycle()) == ("FAILED",)
    assert set(attention_states(optiplan_lifecycle())) == {"HOLD", "FAILED"}
    assert attention_states(task_lifecycle()) == ("failed",)
    assert hold_states(optiplan_lifecycle()) == ("HOLD",)
    assert failed_states(optiplan_lifecycle()) == ("FAILED",)
