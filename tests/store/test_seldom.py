"""What no workload declares and a lifecycle may; random lifecycles led to these cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import After, age_over, retries_left, timer_over, unclaimed
from tests.store.scene import DAY, HOUR, SECOND, error


def changed(*moves: Move, **marks: Any) -> Lifecycle:
    """The plain lifecycle with moves added or put in place of their namesakes; ready marked."""
    task = task_lifecycle()
    names = {move.name for move in moves}
    others = tuple(move for move in task.moves if move.name not in names)
    states = tuple(replace(state, **marks) if state.name == "ready" else state for state in task.states)
    return replace(task, states=states, moves=(*others, *moves))


def test_jobs_share_a_key_where_enqueueing_takes_none_and_a_claim_takes_one_of_them(open_queue):
    """Ready holds no key and running does; both are due and picked together."""
    queue = open_queue(changed(holds_key=False))
    outcomes = queue.enqueue(queue.new(key="k"), queue.new(key="k"))
    assert [outcome.result for outcome in outcomes] == ["inserted", "inserted"]
    assert len({outcome.id for outcome in outcomes}) == 2
    [first] = queue.claim(limit=2)
    assert queue.claim(limit=2) == []
    queue.move("complete", first)
    assert len(queue.claim(limit=2)) == 1


def test_of_jobs_with_one_key_a_sweep_takes_one_and_every_other_job(open_queue):
    """Ready holds no key and done does: rivals that are due together are no obstacle to others."""
    expire = Move(
        "expire",
        ("ready",),
        "done",
        by=("clock",),
        when=(unclaimed, age_over("created_at", seconds=60)),
        stamp=("finished_at",),
        stage="expire",
    )
    lifecycle = changed(expire)
    states = [replace(state, holds_key=state.name == "done") for state in lifecycle.states]
    queue = open_queue(replace(lifecycle, states=tuple(states)))
    queue.enqueue(*(queue.new(key=key) for key in ("a", "a", "b", "b", "b", "c")))
    queue.clock.time_us += 61 * SECOND
    assert queue.sweep("expire") == 3
    assert sorted(job.dedup_key for job in queue.all().values() if job.state == "ready") == ["a", "b", "b"]
    assert queue.sweep("expire") == 0


def test_a_scheduled_move_renews_a_budget_without_a_cap(open_queue):
    revive = Move(
        "revive",
        ("failed",),
        "ready",
        by=("clock",),
        when=(timer_over, retries_left(2)),
        attempt="renew",
        retry="count",
        timer="clear",
        run_at="now",
        unstamp=("finished_at",),
        stage="revive",
    )
    fail = Move(
        "fail",
        ("running",),
        "failed",
        by=("worker",),
        when=(next(m for m in task_lifecycle().moves if m.name == "fail").when[0],),
        claim="drop",
        error="record",
        timer=After(60),
        stamp=("finished_at",),
    )
    queue = open_queue(changed(revive, fail))
    job = queue.create_job(max_attempts=2)
    queue.move("fail", queue.claim()[0], **error("BUSY", "TRANSIENT"))
    queue.clock.time_us += 61 * SECOND
    assert queue.sweep("revive") == 1
    revived = queue.job(job)
    assert (revived.state, revived.max_attempts, revived.attempts_left) == ("ready", 2, 2)
    assert revived.retry_count == 1


def test_a_prune_may_wait_for_a_timer(open_queue):
    task = task_lifecycle()
    prune = next(move for move in task.moves if move.name == "prune")
    cancel = next(move for move in task.moves if move.name == "cancel")
    queue = open_queue(
        changed(replace(prune, when=(age_over("finished_at", 3_600), timer_over)), replace(cancel, timer=After(86_400)))
    )
    job = queue.create_job()
    queue.move("cancel", job, role="operator", actor="op")
    queue.clock.time_us += 2 * HOUR
    assert queue.sweep("prune") == 0
    queue.clock.time_us += DAY
    assert queue.sweep("prune") == 1
    assert queue.store.job(job) is None
