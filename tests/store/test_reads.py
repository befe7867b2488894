"""Looking without touching: what a claim would give, jobs by id, who holds a key, what waits."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreError, UnknownQueue
from kesin.store.limits import MAX_BATCH
from kesin.store.records import Backlog, Filter
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.store.scene import (
    DAY,
    HOUR,
    LEASE_S,
    MINUTE,
    NOW,
    OPERATOR,
    SECOND,
    UNKNOWN_ID,
    error,
    sent_by,
)
from tests.store.traffic import traffic

NOTHING = Backlog(None, {}, 0, 0)


def ids(jobs):
    return [job.id for job in jobs]


# What a claim would give


def test_a_look_shows_the_jobs_a_claim_then_gives_in_its_order(oci):
    chance = random.Random(7)
    for n in range(60):
        tenant = chance.choice("aaaabc")
        oci.create_job(tenant=tenant, key=f"k{n}", run_at=NOW + chance.randint(-9, 3) * MINUTE)
    for limit in (1, 2, 3, 5, 8, 13, 21):
        for tenants in (None, ["a"], ["b", "c", "b"], ["z"], []):
            seen = oci.peek(limit, tenants=tenants)
            assert ids(oci.claim(limit, tenants=tenants)) == ids(seen)


def test_a_look_shows_the_jobs_as_they_are(oci):
    job = oci.create_job(key="k", payload='{"a":1}')
    assert oci.peek() == [oci.job(job)]
    assert oci.peek()[0].worker is None


def test_a_look_changes_nothing(oci):
    oci.create_jobs(3)
    before = oci.snapshot(), oci.store.move_counts("oci")
    assert oci.peek(2) == oci.peek(2)
    assert (oci.snapshot(), oci.store.move_counts("oci")) == before


def test_a_look_is_one_statement(oci, statements):
    oci.create_jobs(2, tenant="a")
    oci.create_jobs(2, tenant="b")
    with oci.store.transaction():  # where SQLite reads through the connection that is watched
        assert sent_by(statements, lambda: oci.peek(4)) == 1
    assert not any("FOR UPDATE" in sql for sql in statements)


def test_a_look_does_not_stand_in_the_way_of_a_claim(oci):
    oci.create_jobs(2)
    with oci.store.transaction():
        seen = oci.peek(2)
        assert ids(oci.claim(2, worker="w2")) == ids(seen)
        assert oci.peek(2) == []


def test_a_look_shows_no_job_that_is_paused_held_later_or_spent(oci):
    oci.claim_new_job(tenant="held")
    oci.create_job(tenant="later", run_at=NOW + 1)
    spent = oci.claim_new_job(tenant="spent", max_attempts=1)
    oci.move("retry_later", spent, **error())
    oci.clock.advance(DAY / SECOND)
    oci.store.pause("oci", tenant="paused", actor="op", now=NOW)
    oci.create_job(tenant="paused")
    oci.create_job(tenant="other")
    assert [job.tenant for job in oci.peek(9)] == ["later", "other"]
    oci.store.pause("oci", actor="op", now=NOW)
    assert oci.peek(9) == []


def test_a_look_at_a_queue_with_an_exclusive_claim_shows_one_job(lonely):
    first, _ = lonely.create_jobs(2)
    assert ids(lonely.peek(5)) == [first]
    assert ids(lonely.claim(5)) == [first]
    assert lonely.peek(5) == []


def test_a_look_at_rivals_for_a_key_shows_the_one_that_a_claim_takes(open_queue):
    lifecycle = task_lifecycle()
    states = tuple(replace(one, holds_key=one.name == "running") for one in lifecycle.states)
    scene = open_queue(replace(lifecycle, name="rivals", states=states))
    first, _, other = (scene.create_job(key=key) for key in ("k", "k", "other"))
    for expected in (first, other):
        assert ids(scene.peek(5)) == [expected]
        assert ids(scene.claim(5)) == [expected]
    assert scene.peek(5) == scene.claim(5) == []


def test_a_look_of_nothing_shows_nothing(oci):
    oci.create_job()
    assert oci.peek(0) == []


def test_a_look_without_a_time_goes_by_the_stores_own(oci):
    oci.create_job()
    assert len(oci.store.peek("oci", limit=1)) == 1


# Jobs by id


def test_jobs_are_found_by_id_whole(oci):
    jobs = [oci.claim_new_job(key="k", payload="[1]"), oci.job(oci.create_job(tenant="b"))]
    assert oci.store.find("oci", [job.id for job in jobs]) == {job.id: job for job in jobs}


def test_what_is_no_id_or_of_no_job_is_absent(oci):
    job = oci.create_job()
    asked = [job, UNKNOWN_ID, "", "nope", "' OR 1=1 --", "\x00", job.upper(), job]
    assert list(oci.store.find("oci", asked)) == [job]
    assert oci.store.find("oci", ["nope"]) == {}
    assert oci.store.find("oci", []) == {}


def test_jobs_of_another_queue_are_not_found(oci, task):
    assert oci.store.find("oci", [task.create_job()]) == {}


def test_jobs_are_found_in_one_read(oci, statements):
    born = oci.create_jobs(5)
    with oci.store.transaction():
        assert sent_by(statements, lambda: oci.store.find("oci", born)) == 1


def test_where_jobs_are_is_told_in_one_read(oci, task, statements):
    running, waiting, stranger = (
        oci.claim_new_job().id,
        oci.create_job(tenant="b"),
        task.create_job(),
    )
    asked = [running, waiting, stranger, UNKNOWN_ID, "nope", waiting]
    with oci.store.transaction():
        assert sent_by(statements, lambda: oci.store.states("oci", asked)) == 1
    told = oci.store.states("oci", asked)
    assert told == {running: "PROCESSING", waiting: "QUEUED"}
    assert told == {one.id: one.state for one in oci.store.find("oci", asked).values()}
    assert oci.store.states("oci", ["nope"]) == {}


# Who holds a key


def test_the_holder_of_each_key_is_told(oci):
    second, first = oci.claim_new_job(key="b").id, oci.create_job(key="a")
    oci.create_job(key="a", tenant="other")
    oci.create_job()
    assert oci.store.ids_by_key("oci", "default", ["b", "a", "c", "a", ""]) == {
        "a": first,
        "b": second,
    }
    assert oci.store.ids_by_key("oci", "nobody", ["a"]) == {}
    assert oci.store.ids_by_key("oci", "default", []) == {}


def test_a_key_that_was_let_go_has_no_holder_until_the_next(task):
    task.move("complete", task.claim_new_job(key="k"))
    assert task.store.ids_by_key("task", "default", ["k"]) == {}
    again = task.create_job(key="k")
    assert task.store.ids_by_key("task", "default", ["k"]) == {"k": again}


def test_holders_are_of_one_queue(oci, task):
    task.create_job(key="k")
    assert oci.store.ids_by_key("oci", "default", ["k"]) == {}


def test_odd_keys_are_told_as_they_were_asked(oci):
    odd = ["it's", "100%", "{schema}", ":now", "İ", '"', "a\\b"]
    born = {key: oci.create_job(key=key) for key in odd}
    assert oci.store.ids_by_key("oci", "default", odd) == born


# What waits


def waiting(scene, tenant="default", **how):
    return scene.store.backlog(scene.queue, tenant, now=scene.now, **how)


def test_a_tenant_without_jobs_waits_for_nothing(oci):
    oci.create_job(tenant="a")
    assert waiting(oci) == NOTHING
    assert waiting(oci, aged=("conversion_at", NOW)) == NOTHING


def test_the_job_that_waits_longest_is_told_and_only_of_its_tenant(oci):
    oci.create_job(tenant="b", run_at=NOW - DAY)
    oci.create_job(run_at=NOW + 1)
    assert waiting(oci).oldest_due_at is None
    for minutes in (1, 9, 5):
        oci.create_job(run_at=NOW - minutes * MINUTE)
    assert waiting(oci).oldest_due_at == NOW - 9 * MINUTE


def test_the_oldest_birth_of_every_state_on_the_way_is_told(oci):
    failed, retried, taken = oci.claim_new_jobs(3)
    oci.move("ack_failed", failed, **error("BAD", "VALIDATION"))
    oci.clock.advance(60)
    oci.create_jobs(2)
    oci.clock.advance(60)
    oci.create_job()
    oci.move("retry_later", retried, **error())
    assert oci.state(taken) == "PROCESSING"
    assert waiting(oci).first_created_at == {"QUEUED": NOW + MINUTE, "RETRY": NOW}


def test_a_state_that_only_the_clock_takes_on_is_on_the_way_too(optiplan):
    traffic(optiplan, random.Random(4), steps=120)
    ended = {state.name for state in optiplan.lifecycle.states if state.terminal or state.resting}
    for tenant in {job.tenant for job in optiplan.all().values()}:
        expected = {}
        for job in optiplan.all().values():
            if job.tenant == tenant and job.state not in ended and job.worker is None:
                expected.setdefault(job.state, job.created_at)
        assert waiting(optiplan, tenant).first_created_at == expected


def test_claims_of_the_tenant_whose_lease_ran_out_are_counted(oci):
    oci.claim_new_jobs(2)
    oci.claim_new_jobs(1, tenant="b")
    oci.clock.advance(LEASE_S - 1)
    oci.claim_new_job()
    oci.clock.advance(1)
    assert (waiting(oci).lease_over, waiting(oci, "b").lease_over) == (2, 1)


def test_ready_jobs_whose_first_stamp_is_old_are_counted(oci):
    for days in (80, 85, 85):
        oci.create_job(stamps={"conversion_at": NOW - days * DAY})
    oci.create_job(tenant="b", stamps={"conversion_at": NOW - 85 * DAY})
    oci.create_job()

    def aging(before, tenant="default"):
        return waiting(oci, tenant, aged=("conversion_at", before)).aging

    assert aging(NOW - 85 * DAY) == 0
    assert aging(NOW - 85 * DAY + 1) == 2
    assert aging(NOW) == 3
    assert aging(NOW, "b") == 1
    oci.claim(1, tenants=["default"])
    assert aging(NOW) == 2
    assert waiting(oci).aging == 0


@pytest.mark.parametrize("stamp", ["uploaded_at", "created_at", "nothing", ""])
def test_age_goes_by_the_first_stamp_and_by_no_other(oci, stamp):
    with pytest.raises(StoreError, match=f"'{stamp}' is not the first stamp of the queue 'oci'"):
        waiting(oci, aged=(stamp, NOW))


def test_a_queue_without_stamps_has_none_to_age_by(task):
    with pytest.raises(StoreError, match="is not the first stamp"):
        waiting(task, aged=("created_at", NOW))


def test_waiting_without_a_time_goes_by_the_stores_own(oci):
    oci.create_job(run_at=NOW + HOUR)
    assert oci.store.backlog("oci", "default").oldest_due_at == NOW + HOUR


def test_a_requeued_job_waits_since_its_birth(task):
    job = task.claim_new_job()
    task.move("fail", job, **error())
    assert waiting(task) == NOTHING
    task.clock.advance(60)
    task.move("requeue", job.id, **OPERATOR)
    assert waiting(task).first_created_at == {"ready": NOW}


# Limits


LOOKS = {
    "peek": lambda store, queue: store.peek(queue, limit=1),
    "find": lambda store, queue: store.find(queue, [UNKNOWN_ID]),
    "states": lambda store, queue: store.states(queue, [UNKNOWN_ID]),
    "holders": lambda store, queue: store.ids_by_key(queue, "a", ["k"]),
    "waiting": lambda store, queue: store.backlog(queue, "a"),
}


@pytest.mark.parametrize("look", LOOKS)
def test_an_unknown_queue_is_refused_by_name(store, look):
    with pytest.raises(UnknownQueue, match="'nope'"):
        LOOKS[look](store, "nope")


def test_one_call_asks_for_no_more_than_a_batch(oci):
    many = ["x"] * (MAX_BATCH + 1)
    with pytest.raises(StoreError, match="at most 10000 jobs, got 10001"):
        oci.store.find("oci", many)
    with pytest.raises(StoreError, match="at most 10000 jobs, got 10001"):
        oci.store.states("oci", many)
    with pytest.raises(StoreError, match="at most 10000 jobs, got 10001"):
        oci.store.ids_by_key("oci", "default", many)


# Through a queue


def test_a_queue_looks_through_its_store_at_its_own_time(store):
    clock = ManualClock(NOW)
    queue = Queue("oci", oci_lifecycle(), store, clock=clock)
    stamp = {"conversion_at": NOW - 80 * DAY}
    made = queue.enqueue({"city": "İzmir"}, key="a\0b", tenant="n\0orth", stamps=stamp)
    later = queue.enqueue({}, tenant="north", run_at=NOW + HOUR)
    assert ids(queue.peek(limit=5)) == ids(queue.peek(tenants=["no\0rth"])) == [made.id]
    assert list(queue.find([later.id, "nope"])) == [later.id]
    assert queue.holders("north", ["a\0b", "ab", "c"]) == {"a\0b": made.id, "ab": made.id}
    expected = Backlog(NOW, {"QUEUED": NOW}, 0, 1)
    assert queue.waiting("no\0rth", ("conversion_at", NOW)) == expected
    assert ids(queue.jobs(Filter(contains="İz\0mir")).jobs) == [made.id]
    clock.advance(3_600)
    assert ids(queue.peek(limit=5)) == [made.id, later.id]


def test_a_queue_refuses_a_look_at_less_than_one_job(store):
    queue = Queue("oci", oci_lifecycle(), store)
    with pytest.raises(BadInput, match="limit must be at least 1, got 0"):
        queue.peek(limit=0)
