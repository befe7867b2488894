"""Priorities: strict within a tenant, never across tenants."""

from __future__ import annotations

import pytest

from kesin import BadInput, NewJob, Queue, task_lifecycle

LEVELS = (-1, 0, 1, 2)


def claimed(scene, **how) -> list[str]:
    return [job.payload_json for job in scene.claim(**how)]


def test_a_higher_priority_comes_first_and_older_jobs_of_the_same(task):
    for n, priority in enumerate([0, -1, 2, 1, 2, 0]):
        task.enqueue(task.new(f'"{n}:{priority}"', priority=priority))
        task.clock.advance(1)
    order = ['"2:2"', '"4:2"', '"3:1"', '"0:0"', '"5:0"', '"1:-1"']
    assert [job.payload_json for job in task.store.peek("task", limit=9, now=task.now)] == order
    assert claimed(task, limit=2) == order[:2]
    assert claimed(task, limit=9) == order[2:]


def test_an_urgent_job_passes_by_no_other_tenant(task):
    for n in range(4):
        task.enqueue(task.new(f'"urgent {n}"', tenant="loud", priority=2))
        task.enqueue(task.new(f'"plain {n}"', tenant="quiet"))
    assert sorted(claimed(task, limit=4)) == [
        *('"plain 0"', '"plain 1"', '"urgent 0"', '"urgent 1"')
    ]


def test_a_job_that_is_not_due_holds_up_no_lower_one(task):
    task.enqueue(task.new('"later"', priority=2, run_at=task.now + 60_000_000))
    task.enqueue(task.new('"low"', priority=-1))
    assert claimed(task, limit=9) == ['"low"']
    task.clock.advance(61)
    assert claimed(task, limit=9) == ['"later"']


def test_statistics_know_the_oldest_of_every_priority(task):
    task.enqueue(task.new(priority=2))
    task.clock.advance(10)
    task.enqueue(task.new())
    stats = task.store.stats("task", now=task.now)
    assert stats.oldest_due_at == task.now - 10_000_000
    backlog = task.store.backlog("task", "default", now=task.now)
    assert backlog.oldest_due_at == task.now - 10_000_000
    assert task.store.ready_tenants("task", 9) == ["default"]
    task.claim(limit=9)
    assert task.store.ready_tenants("task", 9) == []


def test_a_priority_stays_through_retries_and_is_read_with_the_job(store):
    queue = Queue("task", task_lifecycle(), store)
    job_id = queue.enqueue({}, priority=2).id
    [job] = queue.claim("w")
    queue.move(job, "release")
    assert (job.priority, queue.job(job_id).priority) == (2, 2)
    assert [found.priority for found in queue.jobs().jobs] == [2]
    assert [again.id for again in queue.claim("w")] == [job_id]


@pytest.mark.parametrize("store", ["sqlite-memory"], indirect=True)
@pytest.mark.parametrize("priority", [-2, 3, 1.0, "2", None, True])
def test_what_is_no_priority_is_refused(store, priority):
    queue = Queue("task", task_lifecycle(), store)
    with pytest.raises(BadInput, match="priority must be -1, 0, 1 or 2"):
        queue.enqueue({}, priority=priority)
    [refused] = queue.enqueue_many([NewJob({}, priority=priority)])
    assert isinstance(refused, BadInput)
    assert queue.stats().total == 0
