"""Claims of named jobs, and a job's place in the queue."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from tests.store.scene import MINUTE, NOW, UNKNOWN_ID, error, sent_by


def ids(jobs):
    return [job.id for job in jobs]


def test_named_jobs_are_given_in_the_order_they_are_due_whatever_else_is_due(task):
    task.create_jobs(3, run_at=NOW - MINUTE)
    late, soon, first = (task.create_job(tenant=f"t{n}", run_at=NOW - n) for n in (1, 2, 3))
    assert ids(task.claim(2, ids=[late, soon, first, soon])) == [first, soon]
    assert ids(task.claim(ids=[late])) == [late]
    assert task.job(late).worker == "w1"


def test_what_no_claim_would_give_is_not_given_by_its_id(task, oci):
    running = task.claim_new_job()
    done = task.move("complete", task.claim_new_job())
    failed = task.move("fail", task.claim_new_job(), **error())
    later, foreign = task.create_job(run_at=NOW + MINUTE), oci.claim_new_job(max_attempts=1, key="k")
    oci.move("retry_later", foreign, **error())
    oci.clock.advance(2 * 86_400)
    assert oci.claim(ids=[foreign.id]) == [], "its budget is spent"
    task.create_jobs(2)
    before = task.snapshot()
    named = [running.id, done.id, failed.id, later, foreign.id, UNKNOWN_ID, "no id at all"]
    for job_ids in (named, []):
        assert task.claim(9, worker="w2", ids=job_ids) == []
    assert task.snapshot() == before


def test_a_pause_holds_for_named_jobs_too(task):
    job = task.create_job(tenant="a")
    for tenant in ("", "a"):
        task.store.pause(task.queue, tenant=tenant, actor="ada")
        assert task.claim(ids=[job]) == []
        task.store.resume(task.queue, tenant=tenant)
    assert ids(task.claim(ids=[job])) == [job]


def test_a_claim_by_name_writes_what_any_claim_writes(task):
    first, other = task.create_jobs(2)
    task.claim(1, ids=[other])
    task.claim(1)
    facts = ("state", "worker", "claim_seq", "attempt_count", "claimed_at", "lease_until", "seq")
    named, plain = task.job(other), task.job(first)
    assert [getattr(named, fact) for fact in facts] == [getattr(plain, fact) for fact in facts]
    assert task.history(other) == task.history(first)


def test_named_and_plain_claims_agree_on_one_tenant(task):
    chance = random.Random(11)
    created = [task.create_job(run_at=NOW + chance.randint(-9, 3) * MINUTE) for _ in range(30)]
    for limit in (1, 2, 5, 9):
        expected = ids(task.peek(limit))
        chance.shuffle(created)
        assert ids(task.claim(limit, ids=created)) == expected


def test_an_exclusive_state_is_taken_by_one_named_job(lonely):
    _, second, third = lonely.create_jobs(3)
    assert ids(lonely.claim(9, ids=[third, second])) == [second]
    assert lonely.claim(9, ids=[third]) == []


def test_of_many_claims_of_one_job_at_once_one_succeeds(task):
    job = task.create_job()
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda n: task.claim(ids=[job], worker=f"w{n}"), range(8)))
    assert sorted(len(jobs) for jobs in batches) == [0] * 7 + [1]


# A place in the queue


def ahead(scene, job, most=100):
    return scene.store.count_ahead(scene.queue, job, limit=most)


def test_jobs_of_all_tenants_that_are_due_before_are_ahead(task, oci):
    third, first, second = (task.create_job(tenant=f"t{n}", run_at=NOW - n * MINUTE) for n in (1, 3, 2))
    same_time = task.create_jobs(2)
    line = [first, second, third, *same_time]
    assert [ahead(task, job) for job in line] == [0, 1, 2, 3, 4]
    assert ahead(task, same_time[1], most=3) == 3
    [running] = task.claim(1, ids=[second])
    assert ahead(task, third) == 1, "a claimed job is no longer ahead"
    for without in (running, task.move("complete", running)):
        assert ahead(task, without.id) is None
    for without in (UNKNOWN_ID, "no id at all", oci.create_job(key="k")):
        assert ahead(task, without) is None


def test_a_place_is_read_by_one_statement(task, statements):
    task.create_jobs(3)
    last = task.create_job()
    with task.store.transaction():
        assert sent_by(statements, lambda: ahead(task, last)) == 1
