"""The whole lifecycle of an order on one machine: the real optimiser and a simulated saw."""

from kesin.workloads.optiplan.artifacts import JobArtifacts
from kesin.workloads.optiplan.optimizer.checker import find_faults
from tests.workloads.optiplan.order_bodies import back, part
from tests.workloads.optiplan.workbench import ME, Workbench, audited

STRANGER = "0532 765 43 21"


def test_an_order_of_a_new_customer_is_held_approved_optimised_and_cut(bench: Workbench):
    job = bench.order(
        part(quantity=7, edge_up="1mm"),
        part(id="p2", length_cm=60, width_cm=45, quantity=8, grain=0),
        back(id="p3", length_cm=70.05, quantity=2),
        customer_phone=STRANGER,
    )
    assert job.payload["mode"] == "A"  # with the built-in optimiser, out of the box
    bench.change_rules(language="tr")
    assert bench.until(job, "HOLD").error_code == "E_CRM_NO_MATCH"
    bench.orders.add_customer(ME, "Can", STRANGER)
    bench.orders.approve(ME, job.id, confirmed=True)
    done = bench.until(job, "DONE")
    bench.assert_delivered_once(job)
    assert list(bench.paths.inbox.iterdir()) == []

    plans = JobArtifacts(bench.paths, done, bench.progress(job)).read_plans()
    assert [find_faults(plan) for plan in plans] == [[], []]
    assert [plan.demand.name for plan in plans] == ["Beyaz 18 mm", "Beyaz 8 mm · back"]
    pieces = [len(layout.placements) * layout.times for plan in plans for layout in plan.layouts]
    assert sum(pieces) == 7 + 8 + 2
    for name in bench.files("processed", job):
        made = bench.paths.export_folder / name
        assert (bench.paths.processed / name).read_bytes() == made.read_bytes()
        assert 'lang="tr"' in made.with_suffix(".svg").read_text("utf-8")
    assert audited(bench, job) == [
        "JOB_CREATED",
        "STATE_HOLD",
        "HOLD_APPROVED",
        "STATE_PREPARED",
        "STATE_OPTI_IMPORTED",
        "STATE_OPTI_RUNNING",
        "STATE_OPTI_DONE",
        "STATE_XML_READY",
        "STATE_DELIVERED",
        "STATE_DONE",
    ]
