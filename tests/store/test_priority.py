"""Priorities: strict within a tenant, never across tenants."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from kesin import BadInput, NewJob, Queue, task_lifecycle
from kesin.engine.replay import verify
from kesin.lifecycle.model import Change
from kesin.lifecycle.moves import prioritize
from kesin.store.errors import StoreError
from tests.store.scene import OPERATOR
from tests.store.sql.test_plans import nodes

LEVELS = (-1, 0, 1, 2)
ODD: list[Any] = [-2, 3, 1.0, "2", None, True]
EVERYWHERE = ("ready", "running", "failed")


def claimed(scene, **how) -> list[str]:
    return [job.payload_json for job in scene.claim(**how)]


def test_a_higher_priority_comes_first_and_older_jobs_of_the_same(task):
    later = task.create_job(priority=2, run_at=task.now + 60_000_000)  # which holds up no lower one
    for n, priority in enumerate([0, -1, 2, 1, 2, 0]):
        task.enqueue(task.new(f'"{n}:{priority}"', priority=priority))
        task.clock.advance(1)
    order = ['"2:2"', '"4:2"', '"3:1"', '"0:0"', '"5:0"', '"1:-1"']
    assert [job.payload_json for job in task.store.peek("task", limit=9, now=task.now)] == order
    assert claimed(task, limit=2) == order[:2]
    assert claimed(task, limit=9) == order[2:]
    task.clock.advance(61)
    assert [job.id for job in task.claim(limit=9)] == [later]


def test_an_urgent_job_passes_by_no_other_tenant(task):
    for n in range(4):
        task.enqueue(task.new(f'"urgent {n}"', tenant="loud", priority=2))
        task.enqueue(task.new(f'"plain {n}"', tenant="quiet"))
    assert sorted(claimed(task, limit=4)) == [*('"plain 0"', '"plain 1"', '"urgent 0"', '"urgent 1"')]


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


# A queue without priorities pays nothing for them


def visited_levels(task: Any, statements: list[str]) -> list[str]:
    """The levels in which a claim of one job of one tenant looked for it."""
    statements.clear()
    assert len(task.claim()) == 1
    picks = [sql for sql in statements if "j.priority = " in sql and "ORDER BY" in sql]
    return [re.findall(r"j\.priority = (-?\d)", sql)[0] for sql in picks]


@pytest.mark.parametrize("store", ["sqlite-file"], indirect=True)
def test_a_claim_asks_for_one_level_unless_a_waiting_job_has_another(task, statements):
    jobs = task.create_jobs(4)
    assert visited_levels(task, statements) == ["0"]
    low = task.create_job(priority=-1)
    assert visited_levels(task, statements) == ["2", "1", "0"]
    high = task.create_job(priority=2)
    assert visited_levels(task, statements) == ["2"]
    task.claim(limit=9)
    assert {task.job(job).state for job in (*jobs, low, high)} == {"running"}
    task.create_jobs(1)
    assert visited_levels(task, statements) == ["0"], "none waits that has another"


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_claim_on_postgresql_walks_one_level_unless_a_waiting_job_has_another(store, task):
    task.create_jobs(3)

    def levels() -> int:
        """The rows of the levels in the plan that a claim of one job is carried out by."""
        sent: list[tuple[Any, Any]] = []
        with pytest.MonkeyPatch.context() as patch:
            execute = psycopg.Cursor.execute

            def kept(self: Any, query: Any, params: Any = None, **how: Any) -> Any:
                sent.append((query, params))
                return execute(self, query, params, **how)

            patch.setattr(psycopg.Cursor, "execute", kept)
            assert len(task.claim()) == 1
        [(query, params)] = [one for one in sent if "levels AS MATERIALIZED" in str(one[0])]
        text = query.decode() if isinstance(query, bytes) else str(query)
        explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {text}"
        with store.transaction() as connection:
            [(found,)] = connection.execute(explained.encode(), params).fetchall()
        [node] = [node for node in nodes(found[0]["Plan"]) if node.get("Subplan Name") == "CTE levels"]
        return round(node["Actual Rows"])

    assert levels() == 1
    task.create_job(priority=1)
    task.create_job(priority=1)
    assert levels() > 1


# An operator's action that gives another priority


def with_a_choice():
    rules = task_lifecycle()
    return replace(rules, moves=(*rules.moves, prioritize(EVERYWHERE)))


@pytest.fixture
def chosen(open_queue):
    return open_queue(with_a_choice())


def test_an_operator_puts_jobs_before_and_behind_others_of_their_tenant(chosen):
    first, second, third = chosen.create_jobs(3)
    held = chosen.claim(ids=[second])[0]
    chosen.move("prioritize", third, priority=2, **OPERATOR)
    chosen.move("prioritize", first, priority=-1, **OPERATOR)
    moved = chosen.move("prioritize", second, priority=1, **OPERATOR)
    assert (moved.worker, moved.claim_seq) == (held.worker, held.claim_seq)
    chosen.move("release", held)
    assert [job.id for job in chosen.claim(limit=9)] == [third, second, first], "one that was held in its next attempt"


def test_the_last_of_another_priority_leaves_a_line_of_one_level(chosen):
    first, second = chosen.create_jobs(2)
    for priority in (2, 0, 1, 0):
        assert chosen.move("prioritize", second, priority=priority, **OPERATOR).priority == priority
    assert [event.priority for event in chosen.events(second)] == [0, 2, 0, 1, 0]
    assert verify(chosen.store, chosen.queue)
    assert chosen.store.ready_tenants(chosen.queue, 9) == ["default"]
    assert [job.id for job in chosen.claim(limit=9)] == [first, second]
    assert chosen.store.ready_tenants(chosen.queue, 9) == []


def test_an_action_that_sets_the_priority_keeps_it_from_no_other_move(chosen):
    job = chosen.create_job(priority=1)
    changes = [Change(job, priority=2)]
    chosen.store.apply(chosen.queue, "cancel", changes, role="operator", actor="op")
    assert chosen.job(job).priority == 1


def test_a_store_refuses_what_is_no_priority_in_words(chosen):
    jobs = chosen.create_jobs(2)
    for priority in (-2, 3, None):
        changes = [Change(jobs[0], priority=1), Change(jobs[1], priority=priority)]
        with pytest.raises(StoreError, match="prioritize sets the priority: give -1, 0, 1 or 2"):
            chosen.store.apply(chosen.queue, "prioritize", changes, role="operator", actor="op")
    assert [chosen.job(job).seq for job in jobs] == [1, 1]


@pytest.mark.parametrize("store", ["sqlite-memory"], indirect=True)
def test_a_queue_names_what_is_no_priority_and_where_none_is_set(store):
    queue = Queue("chosen", with_a_choice(), store)
    job_id = queue.enqueue({}).id
    for priority in ODD:
        with pytest.raises(BadInput, match="priority must be -1, 0, 1 or 2"):
            queue.enqueue({}, priority=priority)
        [not_enqueued] = queue.enqueue_many([NewJob({}, priority=priority)])
        assert isinstance(not_enqueued, BadInput)
        with pytest.raises(BadInput, match="priority must be -1, 0, 1 or 2") as refused:
            queue.act("prioritize", actor="op", ids=[job_id], priority=priority)
        assert (refused.value.code, refused.value.field) == ("bad_priority", "priority")
    assert queue.stats().total == 1
    with pytest.raises(BadInput, match="cancel cannot set priority"):
        queue.act("cancel", actor="op", ids=[job_id], priority=1)
    assert queue.act("prioritize", actor="op", ids=[job_id], priority=2).moved == 1
    assert queue.job(job_id).priority == 2
