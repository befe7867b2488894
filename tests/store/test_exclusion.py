"""States only one job may be in, and keys only one job may hold."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from kesin.lifecycle.model import Change
from kesin.store.records import Outcome
from tests.store.scene import OPERATOR, error, results

# Exclusive states


def at_the_slot(optiplan, count):
    jobs = optiplan.claim_new_jobs(count)
    for call in ("prepare", "import"):
        optiplan.apply(call, jobs)
    return jobs


def test_the_second_at_an_exclusive_state_is_busy(optiplan):
    first, second = at_the_slot(optiplan, 2)
    optiplan.move("run", first)
    assert optiplan.apply_one("run", second) == Outcome("busy", second.id, "OPTI_IMPORTED", 4)


def test_a_busy_job_is_left_as_it_was(optiplan):
    first, second = at_the_slot(optiplan, 2)
    optiplan.move("run", first)
    before = optiplan.snapshot()
    optiplan.apply_one("run", second)
    assert optiplan.snapshot() == before
    assert optiplan.notes(second) == []


def test_of_many_asked_for_together_one_enters(optiplan):
    jobs = at_the_slot(optiplan, 4)
    assert sorted(results(optiplan.apply("run", jobs))) == ["busy", "busy", "busy", "moved"]


def test_a_job_that_may_not_enter_does_not_keep_others_from_a_free_slot(optiplan):
    first, second = at_the_slot(optiplan, 2)
    lost = Change(first.id, 1)
    assert results(optiplan.apply("run", [lost, second])) == ["stale", "moved"]


def test_the_next_enters_once_the_slot_is_left(optiplan):
    first, second = at_the_slot(optiplan, 2)
    optiplan.move("run", first)
    optiplan.move("collect", first)
    assert optiplan.move("run", second).state == "OPTI_RUNNING"


def test_the_holder_of_the_slot_asking_again_answers_already(optiplan):
    (job,) = at_the_slot(optiplan, 1)
    optiplan.move("run", job)
    assert optiplan.apply_one("run", job).result == "already"


def test_of_many_entering_at_once_exactly_one_gets_in(optiplan):
    jobs = at_the_slot(optiplan, 8)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda job: optiplan.apply_one("run", job), jobs))
    assert sorted(results(answers)) == ["busy"] * 7 + ["moved"]


# Keys


def test_a_move_into_a_state_that_holds_a_taken_key_is_refused_naming_the_holder(task):
    old = task.move("fail", task.claim_new_job(key="k"), **error())
    holder = task.create_job(key="k")
    assert task.apply_one("requeue", old.id, **OPERATOR) == Outcome(
        "refused", old.id, "failed", old.seq, "duplicate", holder
    )


def test_a_move_takes_the_key_back_when_it_is_free(task):
    old = task.move("fail", task.claim_new_job(key="k"), **error())
    task.move("requeue", old.id, **OPERATOR)
    assert task.enqueue(task.new(key="k"))[0].id == old.id


def test_the_key_can_be_taken_back_once_its_holder_is_done(task):
    old = task.move("fail", task.claim_new_job(key="k"), **error())
    task.move("complete", task.claim_new_job(key="k"))
    assert task.move("requeue", old.id, **OPERATOR).state == "ready"


def test_of_two_jobs_with_one_key_asked_for_together_one_gets_it(task):
    first = task.move("fail", task.claim_new_job(key="k"), **error())
    second = task.move("fail", task.claim_new_job(key="k"), **error())
    other = task.move("fail", task.claim_new_job(key="other"), **error())
    outcomes = task.apply("requeue", [first.id, second.id, other.id], **OPERATOR)
    assert sorted(results(outcomes[:2])) == ["duplicate", "moved"]
    assert outcomes[2].result == "moved"


def test_of_two_jobs_with_one_key_moving_at_once_exactly_one_gets_it(task):
    jobs = [task.move("fail", task.claim_new_job(key="k"), **error()).id for _ in range(6)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda one: task.apply_one("requeue", one, **OPERATOR), jobs))
    assert sorted(results(answers)) == ["duplicate"] * 5 + ["moved"]


def test_the_same_key_of_another_tenant_is_no_obstacle(task):
    old = task.move("fail", task.claim_new_job(key="k", tenant="a"), **error())
    task.create_job(key="k", tenant="b")
    assert task.move("requeue", old.id, **OPERATOR).state == "ready"
