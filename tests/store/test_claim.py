"""Claims: which jobs a worker gets, in what order, and what a claim writes."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.store.scene import HOUR, LEASE_S, MINUTE, NOW, SECOND, error, sent_by


def ids(jobs):
    return [job.id for job in jobs]


def share(jobs):
    """The number of jobs of each tenant."""
    return dict(Counter(job.tenant for job in jobs))


# Which jobs


def test_the_oldest_due_jobs_are_claimed_oldest_first(task):
    for minutes in (1, 5, 3, 4, 2):
        task.create_job(run_at=NOW - minutes * MINUTE)
    batches = [[(NOW - job.run_at) // MINUTE for job in task.claim(3)] for _ in range(2)]
    assert batches == [[5, 4, 3], [2, 1]]


def test_a_job_is_due_at_its_very_microsecond_and_not_before(task):
    job = task.create_job(run_at=NOW + 1)
    assert task.claim() == []
    task.clock.time_us += 1
    assert ids(task.claim()) == [job]


def test_a_job_that_is_held_finished_or_spent_is_not_claimed(task, oci):
    task.move("complete", task.claim_new_job())
    task.move("fail", task.claim_new_job(), **error())
    task.claim_new_job()
    oci.move("retry_later", oci.claim_new_job(max_attempts=1), **error())
    for seconds in (0, LEASE_S + 1, 2 * 86_400):
        for scene in (task, oci):
            scene.clock.advance(seconds)
            assert scene.claim(10, worker="w2") == []


def test_a_claim_takes_what_there_is_up_to_its_limit_of_one_time_the_first_created_first(task, pdf):
    pdf.create_job()
    assert task.claim(10) == [], "a job of another queue"
    created = task.create_jobs(5)
    assert [ids(task.claim(limit)) for limit in (0, 3, 100, 1)] == [[], created[:3], created[3:], []]


# Tenants


def test_a_claim_may_name_its_tenants(oci):
    for tenant in "abc":
        oci.create_jobs(6, tenant=tenant)
    for limit, tenants, expected in (
        (10, [], {}),
        (10, ["z"], {}),
        (4, ["b"], {"b": 4}),  # one tenant may fill the limit
        (4, ["a", "a", "c"], {"a": 2, "c": 2}),  # named twice, a tenant has one share
        (10, ["a", "b"], {"a": 4, "b": 2}),
    ):
        assert share(oci.claim(limit, tenants=tenants)) == expected, tenants


def test_a_heavy_tenant_does_not_crowd_out_nine_light_ones_and_of_each_the_oldest_due_is_taken(oci):
    oci.create_jobs(50, tenant="heavy", run_at=NOW - HOUR)
    for n in range(9):
        for minutes in (1, 3, 2):
            oci.create_job(tenant=f"light{n}", run_at=NOW - minutes * MINUTE)
    taken = oci.claim(20)
    assert share(taken) == {"heavy": 2, **{f"light{n}": 2 for n in range(9)}}
    assert {job.run_at for job in taken if job.tenant != "heavy"} == {NOW - 3 * MINUTE, NOW - 2 * MINUTE}


def test_with_more_tenants_than_the_limit_each_gets_at_most_one(oci):
    for n in range(10):
        oci.create_jobs(3, tenant=f"t{n}", run_at=NOW - n * MINUTE)
    assert share(oci.claim(4, after="t7")) == {f"t{n}": 1 for n in (8, 9, 0, 1)}


# Pauses


def test_a_paused_tenant_gives_out_nothing_takes_no_share_and_takes_results(oci):
    held = oci.claim_new_job(tenant="paused")
    oci.create_jobs(10, tenant="a")
    oci.create_jobs(10, tenant="later", run_at=NOW + HOUR)
    oci.create_jobs(9, tenant="paused")
    oci.store.pause("oci", tenant="paused", actor="op", now=NOW)
    assert share(oci.claim(6)) == {"a": 6}
    assert share(oci.claim(10, tenants=["a", "paused"])) == {"a": 4}
    oci.store.pause("oci", actor="op", now=NOW)
    oci.store.resume("oci")
    assert oci.claim(10) == [], "the pause of the queue was another"
    assert oci.move("ack", held).state == "COMPLETED"


def test_a_paused_queue_gives_out_nothing_until_it_is_resumed(oci, task):
    held = oci.claim_new_job()
    oci.create_jobs(2, tenant="a")
    task.create_job()
    oci.store.pause("oci", actor="op", now=NOW)
    assert oci.claim(10) == oci.claim(10, tenants=["a"]) == []
    assert len(task.claim(10)) == 1, "the pause of another queue"
    assert oci.move("ack", held).state == "COMPLETED"
    oci.store.resume("oci")
    assert len(oci.claim(10)) == 2


# Wake-ups


def imported(optiplan, **details):
    """A job that has reached OPTI_IMPORTED and waits there, unclaimed."""
    job = optiplan.claim_new_job(**details)
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    return optiplan.move("wait", job, run_at=optiplan.now)


def optimising(optiplan, look_again_s=0):
    """A job that has taken the slot and waits for its XML, unclaimed."""
    waiting = imported(optiplan)
    (job,) = optiplan.claim()
    assert job.id == waiting.id
    optiplan.move("run", job)
    return optiplan.move("wait", job, run_at=optiplan.now + look_again_s * SECOND)


def test_a_wake_up_has_its_own_token_and_needs_and_counts_no_attempt(optiplan):
    waiting = imported(optiplan, max_attempts=1)
    (job,) = optiplan.claim()
    assert (waiting.attempt_count, job.attempt_count) == (1, 1)
    assert job.claim_seq == waiting.seq + 1 > waiting.claim_seq
    assert optiplan.events(job)[-1].from_state == job.state, "a claim may keep the state"


def test_a_job_waiting_for_the_slot_is_claimed_once_it_is_free_in_its_own_queue(optiplan, open_queue):
    holder = optimising(optiplan, look_again_s=600)
    waiting = imported(optiplan)
    second = open_queue(optiplan.lifecycle, "optiplan-2")
    elsewhere = imported(second)
    assert optiplan.claim(10) == []
    assert ids(second.claim(10)) == [elsewhere.id]
    optiplan.move("cancel", holder.id, role="operator")
    assert ids(optiplan.claim(10)) == [waiting.id]


def test_a_wake_up_comes_from_its_time_until_the_timer_is_over(optiplan):
    job = optimising(optiplan, look_again_s=5)
    for now, claimed in ((job.run_at - 1, []), (job.timer_at, []), (job.timer_at - 1, [job.id])):
        optiplan.clock.time_us = now
        assert ids(optiplan.claim(10)) == claimed


# Claims that take a slot


def test_a_claim_into_an_exclusive_state_takes_one_job_and_the_next_once_it_is_left(lonely):
    first, second, _ = lonely.create_jobs(3)
    (job,) = lonely.claim(3)
    assert job.id == first
    assert lonely.claim(3, worker="w2") == []
    lonely.move("complete", job)
    assert ids(lonely.claim(3)) == [second]


def test_of_many_claims_into_an_exclusive_state_at_once_one_succeeds(lonely):
    lonely.create_jobs(8)
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda n: lonely.claim(2, worker=f"w{n}"), range(8)))
    assert sorted(len(jobs) for jobs in batches) == [0] * 7 + [1]


# Concurrency


def test_workers_at_once_never_claim_the_same_job(task):
    created = task.create_jobs(100)

    def claim_all(worker):
        claimed = []
        while jobs := task.claim(7, worker=worker):
            claimed += ids(jobs)
        return claimed

    with ThreadPoolExecutor(4) as pool:
        batches = pool.map(claim_all, [f"w{n}" for n in range(4)])
    claimed = [job_id for batch in batches for job_id in batch]
    # A worker may see only rows that others are taking, and stop early; the rest stays due.
    assert len(claimed) == len(set(claimed))
    assert sorted(claimed + ids(task.claim(100))) == created


def test_workers_at_once_never_claim_the_same_job_of_several_tenants(oci):
    for tenant in "abcde":
        oci.create_jobs(20, tenant=tenant)
    with ThreadPoolExecutor(4) as pool:
        batches = pool.map(lambda n: ids(oci.claim(9, worker=f"w{n}")), range(12))
    claimed = [job_id for batch in batches for job_id in batch]
    assert len(claimed) == len(set(claimed))


def test_the_number_of_statements_does_not_depend_on_the_number_of_jobs(task, statements):
    task.create_jobs(101)
    single = sent_by(statements, lambda: task.claim(1))
    assert sent_by(statements, lambda: task.claim(100)) == single
