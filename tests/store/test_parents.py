"""Jobs that come after others: they wait, run once all have succeeded, and fail if one has not."""

from __future__ import annotations

import random
import threading
from contextlib import closing, suppress
from dataclasses import replace
from itertools import product

import psycopg
import pytest

from kesin import BadInput, NewJob, Queue, open_store, task_lifecycle
from kesin.engine import queue_reader
from kesin.store.errors import UnknownParents
from tests.store.scene import DAY, UNKNOWN_ID

AFTER = task_lifecycle(parents=True, keep_days=1)
guarded = pytest.mark.parametrize("store", ["sqlite-file", "postgres"], indirect=True)


@pytest.fixture
def jobs(open_queue):
    return open_queue(AFTER)


def states(scene, ids) -> list[str]:
    found = scene.store.find(scene.queue, ids)
    return [found[job_id].state for job_id in ids]


def settle(scene) -> int:
    return scene.store.settle(scene.queue, limit=1_000, now=scene.now)


def end(scene, job_id, action="complete") -> None:
    [job] = scene.claim(1, ids=[job_id])
    scene.move(action, job)


def test_a_job_waits_until_the_last_of_those_it_comes_after(jobs):
    first, second = jobs.create_jobs(2)
    child = jobs.create_job(after=(first, second))
    last = jobs.create_job(after=(child,))
    assert jobs.claim(9, ids=[child, last]) == []
    end(jobs, first)
    assert settle(jobs) == 0
    assert states(jobs, [child, last]) == ["blocked", "blocked"]
    end(jobs, second)
    assert settle(jobs) == 1
    assert states(jobs, [child, last]) == ["ready", "blocked"], "one that waits itself is not at rest"
    assert [job.id for job in jobs.claim(9)] == [child]
    assert [event.move for event in jobs.store.events(child)] == [*("enqueue_after", "unblock", "claim")]


def test_what_fails_or_is_cancelled_takes_all_that_come_after_it_along(jobs):
    first, second = jobs.create_jobs(2)
    line = [jobs.create_job(after=(first, second))]
    for _ in range(4):
        line.append(jobs.create_job(after=(line[-1],)))
    cancelled = jobs.create_job()
    beside = jobs.create_job(after=(cancelled,))
    end(jobs, first, "fail")
    jobs.move("cancel", cancelled, role="operator", actor="op")
    assert settle(jobs) == 6
    assert set(states(jobs, [*line, beside])) == {"failed"}
    for child in (line[0], beside):
        job = jobs.store.job(child)
        assert (job.error_code, job.finished_at) == ("PARENT_FAILED", jobs.now)


def test_parents_that_are_over_already_count_but_for_a_failed_one_that_is_tried_again(jobs):
    done, failed, again = jobs.create_jobs(3)
    early = jobs.create_job(after=(again,))
    end(jobs, done)
    for parent in (failed, again):
        end(jobs, parent, "fail")
    jobs.move("requeue", again, role="operator", actor="op")
    good, bad = jobs.create_job(after=(done,)), jobs.create_job(after=(done, failed))
    assert settle(jobs) == 2
    assert states(jobs, [good, bad, early]) == ["ready", "failed", "blocked"]
    end(jobs, again)
    assert settle(jobs) == 1
    assert states(jobs, [early]) == ["ready"]


def test_parents_may_be_of_any_queue_of_the_store(store):
    children, others = Queue("children", AFTER, store), Queue("others", task_lifecycle(), store)
    parent = others.enqueue({"n": 1}).id
    child = children.enqueue({}, after=[parent]).id
    assert [job.id for job in others.children(parent)] == [child]
    [claimed] = others.claim("w")
    others.move(claimed, "complete", result={"found": 7})
    [job] = children.claim("w")  # a claim that finds too little looks for those that can go on
    assert job.id == child
    assert [(p.queue, p.result) for p in children.parents(child)] == [("others", {"found": 7})]


def test_what_is_refused_or_undone_leaves_no_parents_behind(jobs):
    parent = jobs.create_job()
    with pytest.raises(UnknownParents, match=UNKNOWN_ID):
        jobs.enqueue(jobs.new(), jobs.new(after=(parent, UNKNOWN_ID)))
    with suppress(ZeroDivisionError), jobs.store.transaction():
        jobs.create_job(after=(parent,))
        raise ZeroDivisionError
    assert jobs.store.stats(jobs.queue, now=jobs.now).total == 1
    assert jobs.store.children(jobs.queue, parent, limit=9) == []
    first = jobs.create_job(key="k", after=(parent,))
    [outcome] = jobs.enqueue(jobs.new(key="k", after=(parent,)))
    assert (outcome.result, outcome.id) == ("duplicate", first)
    assert [job.id for job in jobs.store.children(jobs.queue, parent, limit=9)] == [first]


def test_a_parent_is_kept_until_what_comes_after_it_is_over(jobs):
    parent = jobs.create_job()
    child = jobs.create_job(after=(parent,))
    end(jobs, parent)
    settle(jobs)
    jobs.clock.advance(2 * DAY // 1_000_000)
    assert jobs.sweep("prune") == 0
    end(jobs, child)
    assert jobs.sweep("prune") == 1
    assert jobs.store.parents(jobs.queue, child, limit=9) == []
    jobs.clock.advance(2 * DAY // 1_000_000)
    assert jobs.sweep("prune") == 1


def test_the_last_two_parents_at_once_leave_no_job_behind(store):
    queue = Queue("q", AFTER, store)
    for round_ in range(5):
        parents = [queue.enqueue({"n": n}).id for n in range(4)]
        child = queue.enqueue({}, after=parents).id
        claimed = queue.claim("w", limit=4)
        start = threading.Barrier(4)

        def finish(job, start=start) -> None:
            start.wait(60)
            queue.move(job, "complete")

        threads = [threading.Thread(target=finish, args=(job,)) for job in claimed]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [job] = queue.claim("w")
        assert job.id == child, f"round {round_}"
        queue.move(job, "complete")


def test_children_that_are_created_while_their_parents_end_are_not_forgotten(store):
    queue = Queue("q", AFTER, store)
    parents = [queue.enqueue({"n": n}).id for n in range(20)]
    failures: list[BaseException] = []

    def enqueue_children() -> None:
        try:
            for parent in parents:
                queue.enqueue({}, after=[parent])
        except BaseException as problem:  # noqa: BLE001  # shown below
            failures.append(problem)

    producer = threading.Thread(target=enqueue_children)
    producer.start()
    for parent in parents:
        while not (claimed := queue.claim("w", ids=[parent])):
            pass  # its child is being enqueued
        queue.move(claimed[0], "complete")
    producer.join()
    assert failures == []
    while jobs := queue.claim("w", limit=50):
        for job in jobs:
            queue.move(job, "complete")
    assert queue.stats().states == {"ready": 0, "running": 0, "done": 40, "failed": 0, "blocked": 0}


def test_parents_are_read_in_pages_and_those_that_have_not_succeeded_without_the_others(jobs, monkeypatch):
    parents = sorted(jobs.create_jobs(5))
    child = jobs.create_job(after=tuple(parents))
    page = jobs.store.parents(jobs.queue, child, limit=2)
    assert [job.id for job in page] == parents[:2]
    page = jobs.store.parents(jobs.queue, child, limit=2, after=parents[1])
    assert [job.id for job in page] == parents[2:4]
    monkeypatch.setattr(queue_reader, "MAX_PAGE", 5)
    queue = Queue(jobs.queue, AFTER, jobs.store, clock=jobs.clock)
    assert [job.id for job in queue.parents(child)] == parents
    end(jobs, parents[0])
    end(jobs, parents[1], "fail")
    undone = jobs.store.parents(jobs.queue, child, limit=3, undone=True)
    assert [job.id for job in undone] == parents[1:4]


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
def test_every_job_of_a_random_graph_ends(jobs, seed):
    chance, ids = random.Random(seed), jobs.create_jobs(3)
    for _ in range(25):
        after = tuple(chance.sample(ids, chance.randint(1, 3)))
        ids.append(jobs.create_job(after=after))
    failed = set()
    for _ in range(200):
        settle(jobs)
        claimed = jobs.claim(3)
        if not claimed:
            break
        for job in claimed:
            action = "fail" if chance.random() < 0.1 else "complete"
            failed |= {job.id} if action == "fail" else set()
            jobs.move(action, job)
    for job_id in ids:
        job = jobs.store.job(job_id)
        parents = jobs.store.parents(jobs.queue, job_id, limit=9)
        good = all(parent.state == "done" for parent in parents) and job_id not in failed
        assert job.state == ("done" if good else "failed")


@guarded
def test_what_is_overlooked_is_found_by_the_walk_of_the_sweeper(jobs):
    parent = jobs.create_job()
    child = jobs.create_job(after=(parent,))
    end(jobs, parent)
    jobs.store._rows(f"UPDATE {jobs.store.dialect.table('parent')} SET news = FALSE", {})
    assert settle(jobs) == 0
    assert jobs.sweep("unblock") == 1
    assert states(jobs, [child]) == ["ready"]


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_producer_that_takes_its_time_holds_up_no_lease(store, postgres_url: str):
    queue = Queue("q", AFTER, store)
    ids = [queue.enqueue({"n": n}).id for n in range(2)]
    claimed = queue.claim("w", limit=2)
    with psycopg.connect(postgres_url) as connection:
        child = queue.enqueue({}, after=ids, within=connection).id
        connection.execute("SET statement_timeout = 0")
        assert queue.renew(claimed) == set(ids)
        for job in claimed:
            assert queue.move(job, "complete").result == "moved"
        connection.commit()
    assert [job.id for job in queue.claim("w")] == [child]


# What a queue refuses


def test_what_cannot_be_meant_is_refused_by_name(store, tmp_path):
    plain = Queue("plain", task_lifecycle(), store)
    with pytest.raises(BadInput, match=r"task_lifecycle\(parents=True\)") as refused:
        plain.enqueue({}, after=[plain.enqueue({}).id])
    assert (refused.value.code, refused.value.field) == ("bad_after", "after")
    queue = Queue("q", AFTER, store)
    with closing(open_store(tmp_path / "another.db")) as another:
        foreign = Queue("q", AFTER, another).enqueue({}).id
    with pytest.raises(BadInput, match=f"a job that is not in this store: {foreign}") as refused:
        queue.enqueue({}, after=[foreign])
    assert (refused.value.code, refused.value.field) == ("unknown_parent", "after")
    parent = queue.enqueue({}).id
    for wrong, code in (
        ({"after": parent}, "bad_after"),
        ({"after": None}, "bad_after"),
        ({"after": [None]}, "bad_after"),
        ({"after": 1}, "bad_after"),
        ({"after": b"id"}, "bad_after"),
        ({"after": ["nonsense"]}, "unknown_parent"),
        ({"after": [UNKNOWN_ID]}, "unknown_parent"),
        ({"after": [parent], "delay_s": 5}, "bad_after"),
        ({"after": [parent] + [f"{n:032x}" for n in range(10_000)]}, "bad_after"),
    ):
        with pytest.raises(BadInput) as refused:
            queue.enqueue({}, **wrong)
        assert refused.value.code == code, wrong
    with pytest.raises(BadInput, match=UNKNOWN_ID):
        queue.enqueue_many([NewJob({}), NewJob({}, after=[UNKNOWN_ID])])
    assert queue.stats().total == 1
    child = queue.enqueue({}, after=[parent, parent]).id
    assert [job.id for job in queue.parents(child)] == [parent], "named twice, it is waited for once"


# What the database itself refuses


@guarded
def test_the_database_keeps_the_parents_against_a_prompt(jobs):
    parent, other = jobs.create_jobs(2)
    child = jobs.create_job(after=(parent,))
    assert settle(jobs) == 0
    table = jobs.store.dialect.table("parent")
    for attack in (
        f"UPDATE {table} SET done = TRUE",
        f"UPDATE {table} SET news = TRUE",
        f"UPDATE {table} SET parent = '{other}'",
        f"DELETE FROM {table}",
        f"INSERT INTO {table} (child, parent, queue) VALUES ('{other}', '{parent}', 'q')",
        f"INSERT INTO {table} (child, parent, queue) VALUES ('{child}', '{child}', '{jobs.queue}')",
    ):
        with pytest.raises(Exception, match="parent"):
            jobs.store._rows(attack, {})
    assert settle(jobs) == 0
    assert states(jobs, [child]) == ["blocked"]


def test_a_key_of_a_batch_refuses_those_behind_its_holder_only(open_queue):
    task = task_lifecycle(parents=True)
    for holder, holder_first in product(("ready", "blocked"), (False, True)):
        states = tuple(
            replace(one, holds_key=one.name == holder) if one.name in ("ready", "blocked") else one
            for one in task.states
        )
        scene = open_queue(replace(task, states=states), f"{holder}_{holder_first}".lower())
        parent = scene.create_job()
        plain, child = scene.new(key="k"), scene.new(key="k", after=(parent,))
        holds, other = (child, plain) if holder == "blocked" else (plain, child)
        batch = (holds, other) if holder_first else (other, holds)
        results = [outcome.result for outcome in scene.enqueue(*batch)]
        assert results == ["inserted", "duplicate" if holder_first else "inserted"]
