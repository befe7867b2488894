"""Slots: as many at once as declared, however many claim."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

import pytest

from kesin import Filter, Job, Move, NewJob, Queue, State, task_lifecycle, unclaimed
from kesin.lifecycle.model import slot_name
from kesin.store.errors import GuardRefused
from kesin.store.rules import UpgradeRefused
from kesin.store.sql.limited_claims import BLOCKS_OF_QUEUE
from tests.store.scene import MINUTE, rows, tenants, until_held

THREE = task_lifecycle(concurrency=3)
BUSY = 48  # jobs for claimers at once
guarded = pytest.mark.parametrize("store", ["sqlite-file", "postgres"], indirect=True)
TWO_EACH = task_lifecycle(concurrency=2, per="tenant")
EXCLUSIVE = replace(
    task_lifecycle(),
    states=tuple(replace(state, exclusive=state.name == "running") for state in task_lifecycle().states),
)


# Slots


def test_a_queue_runs_no_more_jobs_than_it_has_slots(open_queue):
    scene = open_queue(THREE)
    scene.create_jobs(10)
    assert len(scene.peek(10)) == 3
    running = scene.claim(10)
    assert len(running) == 3
    assert scene.claim(10) == scene.peek(10) == []
    scene.move("complete", running[1])
    assert len(scene.claim(10)) == 1
    assert scene.claim(10) == []


def test_each_tenant_has_slots_of_its_own_whatever_its_name(open_queue):
    scene = open_queue(TWO_EACH)
    names = ("a", "a/1", "a/1/2", "x//", "ü", "1")
    scene.create_jobs(3, tenant="a")
    assert tenants(scene.claim(2)) == {"a": 2}
    for tenant in names[1:]:
        scene.create_jobs(3, tenant=tenant)
    scene.create_job(tenant="c")
    assert tenants(scene.claim(1)).keys() <= set(names[1:]), "a tenant whose slots are taken is passed by"
    assert tenants(scene.claim(20)).total() == 2 * len(names[1:])
    assert scene.claim(20) == []
    running = Counter(job.tenant for job in scene.all().values() if job.state == "running")
    assert running == dict.fromkeys(names, 2) | {"c": 1}


def test_named_jobs_are_claimed_within_the_slots_oldest_first(open_queue):
    scene = open_queue(TWO_EACH)
    a = scene.create_jobs(3, tenant="a")
    scene.clock.advance(1)
    b = scene.create_jobs(3, tenant="b")
    assert [job.id for job in scene.claim(9, ids=[*reversed(a), *b])] == [*a[:2], *b[:2]]
    assert scene.claim(9, ids=[*a, *b]) == []


@pytest.mark.parametrize("lifecycle", [THREE, TWO_EACH], ids=["queue", "tenant"])
def test_claimers_at_once_never_go_above_it(store, lifecycle):
    queue = Queue("busy", lifecycle, store)
    names = ("a", "b", "c", "d")
    queue.enqueue_many(NewJob({"n": n}, tenant=names[n % 4]) for n in range(BUSY))
    at_once, highest, lock = Counter[str](), Counter[str](), threading.Lock()
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for _ in range(400):
                claimed = queue.claim(name, limit=2)
                scopes = [job.tenant if lifecycle is TWO_EACH else "all" for job in claimed]
                with lock:
                    at_once.update(scopes)
                    for scope in scopes:
                        highest[scope] = max(highest[scope], at_once[scope])
                for job, scope in zip(claimed, scopes, strict=True):
                    with lock:
                        at_once[scope] -= 1
                    queue.move(job, "complete")
                if not queue.stats().states["ready"]:
                    return
        except BaseException as problem:  # noqa: BLE001  # shown below
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert max(highest.values()) <= (2 if lifecycle is TWO_EACH else 3)
    assert queue.stats().states["done"] == BUSY


def filled(store, lifecycle, name="q") -> Queue:
    """A queue with nine jobs."""
    queue = Queue(name, lifecycle, store)
    queue.enqueue_many(NewJob({"n": n}) for n in range(9))
    return queue


def test_lowered_slots_drain_and_a_process_of_older_rules_keeps_to_them(store):
    before, after = task_lifecycle(concurrency=3), task_lifecycle(concurrency=1)
    old = filled(store, before)
    running = old.claim("w", limit=9)
    assert len(running) == 3
    new = Queue("q", after, store)
    assert new.claim("w", limit=9) == []
    for job in running[:2]:
        new.move(job, "complete")
    store.open("q", before)  # a process of the older rules starts again
    assert old.claim("w", limit=9) == []
    new.move(running[2], "complete")
    store.open("q", before)
    assert len(old.claim("w", limit=9)) == 1


def test_slots_above_a_lowered_limit_count(store):
    for name, after in (("one", task_lifecycle(concurrency=1)), ("alone", EXCLUSIVE)):
        running = filled(store, task_lifecycle(concurrency=4), name).claim("w", limit=4)
        new = Queue(name, after, store)
        for job in running[:3]:
            new.move(job, "complete")
            assert new.claim("w", limit=9) == []
        new.move(running[3], "complete")
        assert len(new.claim("w", limit=9)) == 1


def test_lowered_slots_hold_for_a_claim_of_another_name(store):
    plain = task_lifecycle(concurrency=2)
    renamed = replace(
        plain, moves=tuple(replace(move, name="take", action="claim") if move.claims else move for move in plain.moves)
    )
    old = filled(store, task_lifecycle(concurrency=3))
    first = old.claim("w", limit=1)
    new = Queue("q", renamed, store)
    assert len(new.claim("w", limit=9)) == 1
    new.move(first[0], "complete")
    assert len(new.claim("w", limit=9)) == 1
    assert new.claim("w", limit=9) == []


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
@pytest.mark.parametrize("per", ["queue", "tenant"])
def test_claims_at_once_do_not_exceed_a_lowered_limit(store, postgres_url, per):
    running = filled(store, task_lifecycle(concurrency=4, per=per)).claim("w", limit=4)
    new = Queue("q", task_lifecycle(concurrency=2, per=per), store)
    for job in running[:3]:
        new.move(job, "complete")  # the fourth slot is taken yet: one more may run
    late: list[Job] = []
    claims = threading.Thread(target=lambda: late.extend(new.claim("late", limit=1)))
    with store.transaction():
        assert len(new.claim("first", limit=2)) == 1
        claims.start()
        until_held(claims, postgres_url)
    claims.join()
    assert late == []
    assert new.stats().states["running"] == 2


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_claims_at_once_take_different_slots_and_few_locks(store):
    queue = Queue("q", task_lifecycle(concurrency=1_000), store)
    queue.enqueue_many([NewJob({"n": n}) for n in range(600)])
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    late: list[Job] = []
    claims = threading.Thread(target=lambda: late.extend(queue.claim("late", limit=300)))
    with store.transaction() as connection:
        assert len(queue.claim("first", limit=300)) == 300
        assert connection.execute(held).fetchone() <= (BLOCKS_OF_QUEUE,)
        claims.start()
        claims.join()
    assert len(late) == 300
    assert queue.stats().states["running"] == 600


def test_raised_slots_are_there_at_once_and_whose_they_are_does_not_change(store):
    assert len(filled(store, task_lifecycle(concurrency=1)).claim("w", limit=9)) == 1
    new = Queue("q", THREE, store)
    assert len(new.claim("w", limit=9)) == 2
    for after in (task_lifecycle(), TWO_EACH):
        with pytest.raises(UpgradeRefused, match="U3: running had slots per queue but would have"):
            Queue("q", after, store)


def test_a_preview_says_for_how_many_there_is_a_slot(open_queue):
    task, aside = task_lifecycle(), State("aside", slots=2, slots_per="tenant", holds_key=True)
    put_aside = Move("put_aside", ("ready",), "aside", by=("operator",), when=(unclaimed,))
    scene = open_queue(replace(task, states=(*task.states, aside), moves=(*task.moves, put_aside)))
    jobs = [*scene.create_jobs(3, tenant="a"), *scene.create_jobs(1, tenant="b")]
    foreseen = scene.store.preview(scene.queue, "put_aside", Filter(), role="operator", ids=jobs, now=scene.now)
    assert foreseen == {("ready", ""): 3, ("ready", "busy"): 1}
    outcomes = scene.apply("put_aside", jobs, role="operator", actor="op")
    assert Counter(outcome.result for outcome in outcomes) == {"moved": 3, "busy": 1}


# What the database itself refuses


@guarded
def test_the_database_keeps_the_slots_against_a_prompt(open_queue):
    scene = open_queue(TWO_EACH)
    first, second = scene.create_jobs(2, tenant="a")
    other = scene.create_job(tenant="b")
    [claimed] = scene.claim(1, ids=[first])
    assert rows(scene.store, "SELECT slot FROM {job} WHERE slot IS NOT NULL") == [("running/a/1",)]
    sets = (
        "state = 'running', phase = 1, move = 'claim', actor = 'me', seq = 2, claim_seq = 2,"
        f" attempt_count = 1, worker = 'me', moved_at = {scene.now}, claimed_at = {scene.now},"
        f" lease_until = {scene.now + MINUTE}"
    )
    for job_id, slot in (
        *((second, f"'running/a/{number}'") for number in ("0", "3", "02", "1", "", "-1", "2x")),
        *((second, f"'{name}'") for name in ("running", "running//2", "running/b/1", "other/a/1")),
        (second, "NULL"),
        (other, "'running/a/2'"),
    ):
        with pytest.raises(Exception, match=r"a job changes only by|UNIQUE|unique|job_slot"):
            scene.store._rows(
                f"UPDATE {scene.store.dialect.table('job')} SET {sets}, slot = {slot} WHERE id = '{job_id}'", {}
            )
    with pytest.raises((GuardRefused, Exception)):
        scene.store._rows(
            f"UPDATE {scene.store.dialect.table('job')} SET slot = 'running/a/2' WHERE id = '{claimed.id}'", {}
        )
    scene.store._rows(
        f"UPDATE {scene.store.dialect.table('job')} SET {sets}, slot = 'running/a/2' WHERE id = '{second}'", {}
    )


def test_slots_are_spelled_in_one_way():
    assert [slot_name("run", n) for n in (1, 2, 30)] == ["run", "run//2", "run//30"]
    assert [slot_name("run", n, "a") for n in (1, 2)] == ["run/a/1", "run/a/2"]
