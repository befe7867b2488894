"""Orders that are cut from offcuts: reserved with their plan, and settled with their end."""

from contextlib import suppress

import pytest

from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.pipeline.runner import MAX_REPLANS
from kesin.workloads.optiplan.stock.offcut import OffcutFilter
from kesin.workloads.optiplan.stock.rack import Rack
from kesin.workloads.optiplan.stock.service import RackService
from kesin.workloads.optiplan.stock.settling import settle_orders
from tests.workloads.optiplan.at_the_saw import put, retry, sent, take, timed_out
from tests.workloads.optiplan.crashes import Crasher, SimulatedCrash
from tests.workloads.optiplan.order_bodies import part
from tests.workloads.optiplan.stock.racks import (
    PlanningProgram,
    offcuts_in,
    plan_with,
    put_offcut,
    state_of,
    stored_states,
)
from tests.workloads.optiplan.workbench import ME, Workbench


@pytest.fixture
def program(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> PlanningProgram:
    return PlanningProgram(bench, monkeypatch)


def settled(bench: Workbench) -> None:
    settle_orders(bench.orders.context)


def test_a_plan_reserves_its_offcuts_and_a_done_order_has_used_them(bench: Workbench, program: PlanningProgram):
    offcut, other = put_offcut(bench.queue, "a"), put_offcut(bench.queue, "b", thickness_mm=8)
    job = bench.until(bench.order(), "XML_READY")
    reserved = Rack(bench.queue).get(offcut)
    assert (reserved.state, reserved.reserved_by_job) == ("RESERVED", job.id)
    assert reserved.reserved_batch in bench.progress(job).stems
    bench.until(job, "DONE")
    used = Rack(bench.queue).get(offcut)
    assert (used.state, used.used_by_job) == ("USED", job.id)
    assert state_of(bench.queue, other) == "FREE"
    assert Rack(bench.queue).orders() == []


def test_a_plan_whose_offcut_is_gone_is_made_anew_and_after_two_nothing_is_offered(
    bench: Workbench, program: PlanningProgram
):
    offcut, job = put_offcut(bench.queue, "0"), bench.order()
    bench.until(job, "OPTI_RUNNING")
    for number in range(1, MAX_REPLANS + 1):
        assert program.offered == [offcut]
        RackService(bench.orders.context).act(ME, offcut, "lost", {})
        offcut = put_offcut(bench.queue, str(number))
        bench.poll()
    assert program.offered == []
    bench.until(job, "DONE")
    assert (program.starts[job.id], state_of(bench.queue, offcut)) == (MAX_REPLANS + 1, "FREE")


def test_an_order_can_do_without_the_rack(bench: Workbench, program: PlanningProgram):
    offcut = put_offcut(bench.queue, "a")
    bench.until(bench.order(use_rack=False), "DONE")
    job = bench.until(bench.order(opti_mode="C"), "HOLD")
    bench.orders.approve(ME, job.id, confirmed=True)
    bench.poll()
    bench.solve(job)
    bench.until(job, "DONE")
    assert state_of(bench.queue, offcut) == "FREE"


def test_a_plan_made_by_hand_cannot_take_an_offcut_that_is_not_free(bench: Workbench, program: PlanningProgram):
    job = bench.order(opti_mode="C")
    bench.poll()
    bench.orders.approve(ME, job.id, confirmed=True)
    bench.poll()
    bench.solve(job, plan_with(["R2"]))
    failed = bench.until(job, "FAILED")
    assert failed.error_code == "E_OPTI_RUNNER_FAILED"
    assert "R2" in (failed.error_message or "")


def at_the_saw(bench: Workbench) -> tuple[Job, str]:
    offcut = put_offcut(bench.queue, str(bench.queue.now()))
    return sent(bench, bench.order()), offcut


def test_a_cancel_and_a_refused_file_free_the_offcuts_of_an_order(bench: Workbench, program: PlanningProgram):
    job, offcut = at_the_saw(bench)
    bench.orders.cancel(ME, job.id)
    assert state_of(bench.queue, offcut) == "IN_DOUBT"
    settled(bench)
    assert state_of(bench.queue, offcut) == "FREE"
    job = sent(bench, bench.order())
    assert state_of(bench.queue, offcut) == "RESERVED"
    [name] = bench.files("inbox", job)
    put(bench, name, "failed")
    bench.until(job, "FAILED")
    settled(bench)
    assert state_of(bench.queue, offcut) == "FREE"


def test_an_offcut_in_the_inbox_of_a_saw_that_does_not_answer_is_in_doubt_until_it_is_known(
    bench: Workbench, program: PlanningProgram
):
    job, offcut = at_the_saw(bench)
    timed_out(bench, job)
    settled(bench)
    assert state_of(bench.queue, offcut) == "IN_DOUBT"
    with pytest.raises(Exception, match="may still cut"):
        RackService(bench.orders.context).act(ME, offcut, "uncut", {})
    [name] = bench.files("inbox", job)
    take(bench, name)
    settled(bench)
    assert stored_states(bench.queue)[offcut] == "IN_DOUBT"
    bench.until(bench.order(), "XML_READY")
    assert program.offered == []
    assert RackService(bench.orders.context).act(ME, offcut, "uncut", {}).state == "FREE"


def test_a_retry_plans_anew_and_uses_what_its_carried_over_file_used(bench: Workbench, program: PlanningProgram):
    job, offcut = at_the_saw(bench)
    timed_out(bench, job)
    bench.saw.process_inbox()
    other = put_offcut(bench.queue, "other")
    bench.until(retry(bench, job), "DONE")
    assert stored_states(bench.queue) == {offcut: "USED", other: "FREE"}
    assert Rack(bench.queue).orders() == []


def test_an_order_that_the_clock_finished_is_settled_too(
    bench: Workbench, program: PlanningProgram, monkeypatch: pytest.MonkeyPatch
):
    job, offcut = at_the_saw(bench)
    bench.saw.process_inbox()
    crasher = Crasher(monkeypatch)
    with suppress(SimulatedCrash), crasher.armed(1):  # after the move to DELIVERED
        bench.poll()
    assert bench.reload(job).state == "DELIVERED"
    for _ in range(3):
        bench.lose_runner()
    assert bench.reload(job).state == "DONE"
    settled(bench)
    assert stored_states(bench.queue)[offcut] == "USED"


def test_nothing_is_lost_or_used_twice_wherever_the_runner_crashed(
    bench: Workbench, program: PlanningProgram, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    step = 1 if request.config.getoption("--long") else 4
    crasher, effects, where = Crasher(monkeypatch), 0, "start"
    while where:
        offcut, job, where = put_offcut(bench.queue, f"{effects}"), bench.order(), ""
        try:
            with crasher.armed(effects):
                for _ in range(4):
                    bench.poll(bench.new_worker())
                    bench.saw.process_inbox()
        except SimulatedCrash as crash:
            where = str(crash)
            bench.lose_runner()
        settled(bench)
        bench.until(job, "DONE")
        settled(bench)
        bench.assert_delivered_once(job)
        [cut] = bench.files("processed", job)
        text = (bench.paths.machine_drop_folder / "processed" / cut).read_text()
        assert offcuts_in(text) == [offcut], (where, effects)
        assert stored_states(bench.queue)[offcut] == "USED", (where, effects)
        effects += step
    assert effects > 20
    assert set(stored_states(bench.queue).values()) == {"USED"}


def test_the_built_in_optimiser_fills_the_rack_and_cuts_from_it(bench: Workbench):
    first = bench.until(bench.order(part(quantity=2)), "DONE")
    made, _ = Rack(bench.queue).page(OffcutFilter(), 50)
    for each in made:
        assert (each.made_by_job, each.state, each.place) == (first.id, "FREE", "")
        assert (each.material, each.color, each.trim_needed) == ("18MM 210*280", "Beyaz", False)
    assert max(each.length_mm for each in made) > 2_000
    Rack(bench.queue).keep_order(first.id, [])
    settled(bench)
    assert Rack(bench.queue).page(OffcutFilter(), 50)[0] == made
    second = bench.until(bench.order(part(quantity=2)), "DONE")
    [xml] = bench.progress(second).xml
    used = offcuts_in((bench.paths.export_folder / xml).read_text())
    assert used
    assert set(used) <= {each.id for each in made}
    assert {Rack(bench.queue).get(each).used_by_job for each in used} == {second.id}
