"""Exclusive states, which hold one job, and keys, which one job holds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from kesin.lifecycle.model import Change
from kesin.store.records import Outcome
from tests.store.scene import HOUR, OPERATOR, error, results

# Exclusive states


def at_the_slot(optiplan, count):
    jobs = optiplan.claim_new_jobs(count)
    for call in ("prepare", "import"):
        optiplan.apply(call, jobs)
    return jobs


def test_the_second_at_an_exclusive_state_is_busy_and_unchanged_until_it_is_left(optiplan):
    first, second = at_the_slot(optiplan, 2)
    running = optiplan.move("run", first)
    before = optiplan.snapshot()
    assert optiplan.apply_one("run", second) == Outcome("busy", second.id, "OPTI_IMPORTED", 4)
    assert optiplan.apply_one("run", first).result == "already"
    assert optiplan.snapshot() == before
    assert optiplan.notes(second) == []
    optiplan.clock.time_us = first.lease_until
    optiplan.sweep("recover", to="=")
    recovered = optiplan.job(first)
    assert (recovered.state, recovered.worker, recovered.timer_at) == ("OPTI_RUNNING", None, running.timer_at)
    assert optiplan.apply_one("run", second).result == "busy", "it keeps its slot"
    optiplan.clock.time_us = running.timer_at
    optiplan.sweep("xml_timeout")
    assert optiplan.move("run", second).state == "OPTI_RUNNING"


def test_of_many_jobs_in_one_call_one_enters_that_may(optiplan):
    first, *others = at_the_slot(optiplan, 4)
    assert sorted(results(optiplan.apply("run", [Change(first.id, 1), *others]))) == ["busy", "busy", "moved", "stale"]


def test_of_many_entering_at_once_exactly_one_gets_in(optiplan):
    jobs = at_the_slot(optiplan, 8)
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda job: optiplan.apply_one("run", job), jobs))
    assert sorted(results(outcomes)) == ["busy"] * 7 + ["moved"]


# Keys


def test_a_job_takes_its_key_back_only_when_it_is_free(task):
    old = task.move("fail", task.claim_new_job(key="k", tenant="a"), **error())
    task.create_job(key="k", tenant="b", run_at=task.now + HOUR)  # which is another key
    holder = task.create_job(key="k", tenant="a")
    assert task.apply_one("requeue", old.id, **OPERATOR) == Outcome(
        "refused", old.id, "failed", old.seq, "duplicate", holder
    )
    task.move("complete", task.claim()[0])
    assert task.move("requeue", old.id, **OPERATOR).state == "ready"
    assert task.enqueue(task.new(key="k", tenant="a"))[0].id == old.id


def test_of_two_jobs_with_one_key_moving_at_once_exactly_one_gets_it(task):
    jobs = [task.move("fail", task.claim_new_job(key="k"), **error()).id for _ in range(6)]
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda job: task.apply_one("requeue", job, **OPERATOR), jobs))
    assert sorted(results(outcomes)) == ["duplicate"] * 5 + ["moved"]
