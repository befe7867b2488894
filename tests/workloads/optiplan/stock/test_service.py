"""The rack as operators use it: what is found, what is done with an offcut, what is refused."""

from typing import Any

import pytest

from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.stock.offcut import Offcut, OffcutFilter, OffcutGiven
from kesin.workloads.optiplan.stock.rack import Rack
from kesin.workloads.optiplan.stock.service import OffcutAction, RackService
from tests.workloads.optiplan.offcut_bodies import BODY
from tests.workloads.optiplan.stock.racks import put_offcut
from tests.workloads.optiplan.workbench import ME, Workbench

NO_JOB = "01900000-0000-7000-8000-000000000000"


@pytest.fixture
def rack(bench: Workbench) -> RackService:
    return RackService(bench.orders.context)


def add(rack: RackService, **other: Any) -> Offcut:
    return rack.add(ME, OffcutGiven.model_validate({**BODY, **other}))


def refusal(rack: RackService, offcut: str, action: OffcutAction, **given: Any) -> OrderProblem:
    with pytest.raises(OrderProblem) as refused:
        rack.act(ME, offcut, action, given)
    return refused.value


def ids(rack: RackService, limit: int = 50, **where: Any) -> list[str]:
    return [each.id for each in rack.page(ME, OffcutFilter(**where), limit)[0]]


def test_an_offcut_that_was_found_is_added_once_for_its_key(rack: RackService):
    first, second = add(rack, made_key="k"), add(rack, made_key="k", length_mm=1)
    assert first == second == rack.get(ME, f" {first.id.lower()}")
    assert (first.state, first.length_mm, first.trim_needed) == ("FREE", 900, True)
    assert add(rack).id != add(rack).id


def test_offcuts_are_found_by_state_and_text_page_by_page(rack: RackService):
    oak, walnut = (add(rack, color=name).id for name in ("Meşe", "Ceviz"))
    assert ids(rack) == sorted([oak, walnut])
    assert ids(rack, search="mese") == [oak]
    rack.act(ME, oak, "scrap", {})
    assert (ids(rack), ids(rack, state="SCRAPPED")) == ([walnut], [oak])
    add(rack)
    [first], cursor = rack.page(ME, OffcutFilter(), 1)
    assert [first.id, *ids(rack, cursor=cursor)] == ids(rack)
    assert rack.page(ME, OffcutFilter(), 2)[1] is None


def test_a_resized_offcut_costs_its_share(rack: RackService):
    changed = rack.act(ME, add(rack, price=90).id, "resize", {"length_mm": 450, "width_mm": 700})
    assert (changed.length_mm, changed.price) == (450, 45)
    assert rack.act(ME, changed.id, "place", {"place": "C1"}).place == "C1"


def test_what_an_action_does_not_take_is_refused_by_name(rack: RackService):
    offcut = add(rack).id
    cases: list[tuple[OffcutAction, dict[str, Any], str]] = [
        ("resize", {"length_mm": 5}, "width_mm: is missing"),
        ("resize", {"length_mm": 0, "width_mm": 5}, "length_mm: must be in 1…10000, got 0"),
        ("scrap", {"place": "C1"}, "place: is not a known field"),
        ("place", {"size": 1}, "size: is not a known field"),
    ]
    for action, given, named in cases:
        problem = refusal(rack, offcut, action, **given)
        assert (problem.code, named in problem.message) == ("E_VALIDATION", True)


def test_used_and_scrapped_offcuts_never_change_and_all_that_is_done_is_in_the_audit_log(
    bench: Workbench, rack: RackService
):
    offcut = add(rack).id
    assert rack.act(ME, offcut, "lost", {}).state == "SCRAPPED"
    assert rack.act(ME, offcut, "scrap", {}).state == "SCRAPPED"
    assert refusal(rack, offcut, "resize", length_mm=9, width_mm=9).code == "E_OFFCUT_STATE"
    assert refusal(rack, offcut, "place", place="").code == "E_OFFCUT_STATE"
    assert refusal(rack, offcut, "cut").code == "E_OFFCUT_STATE"
    assert refusal(rack, "R0", "scrap").code == "E_OFFCUT_NOT_FOUND"
    lines = bench.orders.context.commands.accounts.audit(ME, target=offcut)
    done = [f"optiplan.rack_{action}" for action in ("scrap", "lost", "add")]
    assert [line.action for line in lines if line.allowed] == done


def test_a_reserved_offcut_stays_as_it_is_and_one_in_doubt_is_decided(bench: Workbench, rack: RackService):
    job, reserved = bench.until(bench.order(), "OPTI_RUNNING"), put_offcut(bench.queue, "reserved")
    Rack(bench.queue).reserve(job.id, bench.progress(job).runs, {reserved: ""})
    actions: tuple[OffcutAction, ...] = ("scrap", "cut", "uncut")
    for action in actions:
        assert refusal(rack, reserved, action).details["job_id"] == job.id
    doubt = {"state": "IN_DOUBT", "reserved_by_job": NO_JOB}
    cut, uncut = (put_offcut(bench.queue, name, **doubt) for name in ("cut", "uncut"))
    assert rack.act(ME, cut, "cut", {}).used_by_job == NO_JOB
    free = rack.act(ME, uncut, "uncut", {})
    assert (free.state, free.reserved_by_job) == ("FREE", None)
