"""The order service: reissues, and who may do what; ``test_transitions.py`` has the states."""

from itertools import product

import pytest

from kesin.engine.access.masking import MASK
from kesin.foundation.problems import Forbidden, NotFound
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.payload import read_payload
from tests.web.conftest import ROOT
from tests.workloads.optiplan.floor import NO_JOB, Floor, actor_with, any_order


def refused(floor: Floor, call: str, job_id: str) -> OptiCode:
    with pytest.raises(OrderProblem) as caught:
        getattr(floor.orders, call)(ROOT, job_id)
    return caught.value.code


# Reissue


def test_an_order_only_marked_as_reissued_can_still_be_reissued(each_floor: Floor):
    floor = each_floor
    job_id = floor.timed_out()
    floor.context.commands.act(ROOT, "optiplan", "reissue", ids=[job_id], by_workload=True)
    made = floor.orders.reissue(ROOT, job_id)
    assert made.new
    assert made.job.id != job_id
    assert refused(floor, "reissue", job_id) is OptiCode.REISSUED
    assert "JOB_DEDUP" not in floor.event_types(made.job.id)


def test_a_reissue_of_a_failed_order_is_one_transaction(each_floor: Floor, monkeypatch: pytest.MonkeyPatch):
    floor = each_floor
    job_id = floor.unknown()
    floor.orders.cancel(ROOT, job_id)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the lights went out")

    with monkeypatch.context() as patch:
        patch.setattr(floor.orders, "_enqueue", broken)
        with pytest.raises(RuntimeError):
            floor.orders.reissue(ROOT, job_id)
    assert "JOB_REISSUED" not in floor.event_types(job_id)
    made = floor.orders.reissue(ROOT, job_id)
    assert made.new
    assert made.job.id != job_id
    assert floor.event_types(job_id)[-1] == "JOB_REISSUED"


def test_an_order_that_is_done_can_be_cut_once_more(each_floor: Floor):
    floor = each_floor
    job_id = floor.done()
    made = floor.orders.reissue(ROOT, job_id)
    assert (made.new, floor.job_body(made.job.id)["revision"]) == (True, 2)
    assert floor.event_types(job_id)[-1] == "JOB_REISSUED"
    assert floor.state(job_id) == "DONE"
    again = floor.orders.reissue(ROOT, job_id)
    assert (again.new, again.job.id) == (False, made.job.id)
    floor.orders.cancel(ROOT, made.job.id)
    third = floor.orders.reissue(ROOT, made.job.id)
    assert floor.job_body(third.job.id)["revision"] == 3


def test_the_first_revision_is_still_what_the_same_payload_finds(each_floor: Floor):
    floor = each_floor
    payload = read_payload(any_order())
    first = floor.orders.create_order(ROOT, payload)
    floor.orders.cancel(ROOT, first.job.id)
    floor.orders.reissue(ROOT, first.job.id)
    again = floor.orders.create_order(ROOT, payload)
    assert (again.new, again.job.id) == (False, first.job.id)


# Permissions


def test_an_actor_without_operate_learns_nothing_of_a_job_and_withdraws_no_file(floor: Floor):
    known = floor.unknown()
    for call, job_id in product(("approve", "retry", "cancel", "reissue"), (known, NO_JOB)):
        act = getattr(floor.orders, call)
        with pytest.raises(Forbidden):
            act(actor_with("optiplan"), job_id)
        with pytest.raises(NotFound, match="no queue"):
            act(actor_with("operator", sites=frozenset({"north"})), job_id)
    assert floor.state(known) == "HOLD"
    job_id = floor.sent()
    with pytest.raises(NotFound):
        floor.orders.cancel(actor_with("operator", queues=frozenset({"pdf"})), job_id)
    assert len(floor.inbox()) == 1
    floor.orders.cancel(ROOT, job_id)


def test_a_customer_is_removed_with_a_line(floor: Floor):
    floor.orders.add_customer(ROOT, "Can", "0532 999 88 77")
    [line] = floor.said(lambda: floor.orders.remove_customer(ROOT, "05329998877"))
    assert (line.action, line.target) == ("optiplan.customer_removed", f"{MASK}8877")
    assert floor.orders.remove_customer(ROOT, "05329998877") is None


def test_every_reader_of_the_queue_reads_its_orders(floor: Floor):
    job_id = floor.new()
    for actor in (
        actor_with("viewer", all_sites=True),
        actor_with("viewer", queues=frozenset({"optiplan"})),
        actor_with("optiplan"),
    ):
        assert floor.orders.job(actor, job_id).id == job_id
    with pytest.raises(NotFound):
        floor.orders.jobs(actor_with("viewer", sites=frozenset({"north"})))
