from kesin.lifecycle.task import task_lifecycle
from kesin.web.dashboard.state_groups import LABELS, state_group, state_groups, states_in
from kesin.workloads import built_in
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.tables import table


def test_the_states_of_conversions():
    assert state_groups(oci_lifecycle()) == {
        "QUEUED": "waiting",
        "PROCESSING": "working",
        "RETRY": "retrying",
        "COMPLETED": "done",
        "FAILED": "failed",
    }


def test_the_states_of_orders():
    groups = state_groups(optiplan_lifecycle())
    assert groups["NEW"] == "waiting"
    assert groups["HOLD"] == "person"
    assert groups["DONE"] == "done"
    assert groups["FAILED"] == "failed"
    assert {one for name, one in groups.items() if name.startswith("OPTI_")} == {"working"}


def test_the_states_of_pdfs():
    groups = state_groups(pdf_lifecycle())
    assert (groups["queued"], groups["succeeded"]) == ("waiting", "done")
    assert (groups["failed"], groups["expired"]) == ("failed", "expired")


@table("workload", built_in())
def test_every_state_of_every_workload_is_in_a_group(workload):
    lifecycle = workload.lifecycle()
    groups = state_groups(lifecycle)
    assert set(groups.values()) <= set(LABELS)
    for state in lifecycle.states:
        if state.success:
            assert groups[state.name] in {"done", "person"}, state.name
        if state.initial:
            assert groups[state.name] == "waiting", state.name


def test_an_unknown_state_is_of_the_past():
    assert state_group(task_lifecycle(), "CHOPPED") == "expired"


def test_held_and_failed_states_need_attention():
    assert states_in(oci_lifecycle(), "failed") == ("FAILED",)
    assert states_in(oci_lifecycle(), "person") == ()
    assert states_in(task_lifecycle(), "failed") == ("failed",)
    assert states_in(optiplan_lifecycle(), "person") == ("HOLD",)
    assert states_in(optiplan_lifecycle(), "failed") == ("FAILED",)


def test_a_job_that_waits_for_others_needs_nobody():
    lifecycle = task_lifecycle(parents=True)
    assert state_group(lifecycle, "blocked") == "waiting"
    assert states_in(lifecycle, "failed") == ("failed",)
    assert states_in(lifecycle, "person") == ()
