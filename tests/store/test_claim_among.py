"""Claims of certain jobs: for a worker that was sent for one by somebody else."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from kesin.foundation.ids import IdMaker
from kesin.store.errors import StoreError
from kesin.store.limits import MAX_BATCH
from tests.store.scene import MINUTE, NOW, UNKNOWN_ID, error, sent_by


def ids(jobs):
    return [job.id for job in jobs]


def test_the_named_job_is_given_though_others_are_due_before_it(task):
    task.create_jobs(3)
    wanted = task.create_job(run_at=NOW)
    assert ids(task.claim(ids=[wanted])) == [wanted]
    assert task.job(wanted).worker == "w1"


def test_several_named_jobs_come_in_the_order_they_are_due_up_to_the_limit(task):
    late, soon, first = (task.create_job(run_at=NOW - n * MINUTE) for n in (1, 2, 3))
    task.create_jobs(2)
    assert ids(task.claim(2, ids=[late, soon, first])) == [first, soon]


def test_named_jobs_are_given_whosever_they_are(task):
    one, other = task.create_job(tenant="a"), task.create_job(tenant="b")
    assert sorted(ids(task.claim(9, ids=[other, one, one]))) == sorted([one, other])


def test_what_no_claim_would_give_is_not_given_by_its_name(task):
    running = task.claim_new_job()
    done = task.move("complete", task.claim_new_job())
    failed = task.move("fail", task.claim_new_job(), **error())
    later = task.create_job(run_at=NOW + MINUTE)
    named = [running.id, done.id, failed.id, later, UNKNOWN_ID, "no id at all"]
    before = task.snapshot()
    assert task.claim(9, worker="w2", ids=named) == []
    assert task.snapshot() == before


def test_a_job_of_another_queue_is_not_given(task, oci):
    foreign = oci.create_job(key="k")
    assert task.claim(9, ids=[foreign]) == []


def test_nothing_named_is_nothing_given(task):
    task.create_jobs(2)
    assert task.claim(9, ids=[]) == []


@pytest.mark.parametrize("tenant", ["", "a"])
def test_a_pause_holds_for_named_jobs_too(task, tenant):
    job = task.create_job(tenant="a")
    task.store.pause(task.queue, tenant=tenant, actor="ada")
    assert task.claim(ids=[job]) == []
    task.store.resume(task.queue, tenant=tenant)
    assert ids(task.claim(ids=[job])) == [job]


def test_a_spent_budget_holds_for_named_jobs_too(oci):
    job = oci.claim_new_job(max_attempts=1)
    oci.move("retry_later", job, **error())
    oci.clock.advance(2 * 86_400)
    assert oci.claim(ids=[job.id]) == []


def test_a_claim_by_name_writes_what_any_claim_writes(task):
    one, other = task.create_jobs(2)
    task.claim(1, ids=[other])
    task.claim(1)
    facts = ("state", "worker", "claim_seq", "attempt_count", "claimed_at", "lease_until", "seq")
    named, plain = task.job(other), task.job(one)
    assert [getattr(named, fact) for fact in facts] == [getattr(plain, fact) for fact in facts]
    assert task.history(other) == task.history(one)


def test_named_and_plain_claims_agree_on_one_tenant(task):
    chance = random.Random(11)
    born = [task.create_job(run_at=NOW + chance.randint(-9, 3) * MINUTE) for _ in range(30)]
    for limit in (1, 2, 5, 9):
        seen = ids(task.peek(limit))
        chance.shuffle(born)
        assert ids(task.claim(limit, ids=born)) == seen


def test_an_exclusive_state_is_taken_by_one_named_job(lonely):
    _, second, third = lonely.create_jobs(3)
    assert ids(lonely.claim(9, ids=[third, second])) == [second]
    assert lonely.claim(9, ids=[third]) == []


def test_of_two_who_are_sent_for_one_job_one_gets_it(task):
    job = task.create_job()
    with ThreadPoolExecutor(4) as crowd:
        got = list(crowd.map(lambda n: task.claim(ids=[job], worker=f"w{n}"), range(8)))
    assert sorted(len(one) for one in got) == [0] * 7 + [1]


def test_more_names_than_a_call_takes_are_refused(task):
    with pytest.raises(StoreError, match=str(MAX_BATCH)):
        task.claim(ids=IdMaker(task.clock).make(MAX_BATCH + 1))


# A place in line


def ahead(scene, job, most=100):
    return scene.store.count_ahead(scene.queue, job, limit=most)


def test_a_job_has_those_ahead_that_are_due_before_it(task):
    third, first, second = (task.create_job(run_at=NOW - n * MINUTE) for n in (1, 3, 2))
    assert [ahead(task, one) for one in (first, second, third)] == [0, 1, 2]


def test_of_jobs_due_at_once_the_first_born_is_ahead(task):
    assert [ahead(task, one) for one in task.create_jobs(3)] == [0, 1, 2]


def test_jobs_of_all_tenants_are_counted(task):
    task.create_jobs(2, tenant="a")
    assert ahead(task, task.create_job(tenant="b")) == 2


def test_the_count_ends_where_it_is_told_to(task):
    task.create_jobs(5)
    assert ahead(task, task.create_job(), most=3) == 3


def test_who_does_not_wait_has_no_place(task, oci):
    running = task.claim_new_job()
    assert ahead(task, running.id) is None
    assert ahead(task, task.move("complete", running).id) is None
    assert ahead(task, UNKNOWN_ID) is None
    assert ahead(task, "no id at all") is None
    assert ahead(task, oci.create_job(key="k")) is None


def test_jobs_that_are_taken_are_no_longer_ahead(task):
    task.create_jobs(2)
    last = task.create_job()
    task.claim(1)
    assert ahead(task, last) == 1


def test_a_place_is_told_by_one_statement(task, statements):
    task.create_jobs(3)
    last = task.create_job()
    with task.store.transaction():
        assert sent_by(statements, lambda: ahead(task, last)) == 1
