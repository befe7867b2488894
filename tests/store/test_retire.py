"""Retiring a state: three steps, and never while a job enters it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest

from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.engine.validation import BadInput
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.declare import Move, State
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import GuardRefused, StoreError
from kesin.store.postgres.store import PostgresStore
from tests.store.checking import all_at_once, checking_lifecycle, refused, versions
from tests.store.scene import NOW, OPERATOR, Scene


def with_rules_of(store: Any, queue: str) -> Callable[[], None]:
    """Keeps what a process knows of the queue now; the call makes this process that one again."""
    known = store._queues[queue]

    def restore() -> None:
        store._queues[queue] = known

    return restore


def enter(scene: Scene, job: str) -> bool:
    """Whether the job may enter the state; SQL refuses the statement, Redis the move."""
    try:
        return scene.apply_one("check", job, **OPERATOR).result == "moved"
    except GuardRefused:
        return False


def test_a_state_leaves_in_three_steps(open_queue):
    old = open_queue(checking_lifecycle(), "q")
    store = old.store
    inside, outside = old.create_jobs(2)
    old.move("check", inside, **OPERATOR)
    as_old_process = with_rules_of(store, "q")

    new = open_queue(checking_lifecycle(retiring=True), "q")
    with pytest.raises(StoreError, match="the state checking of q holds 1 job:"):
        store.retire("q", "checking", now=NOW)
    assert store.retired_states("q") == frozenset()
    new.move("checked", inside, **OPERATOR)
    as_old_process()
    assert enter(old, inside), "it is not retired yet"
    new = open_queue(checking_lifecycle(retiring=True), "q")
    new.move("checked", inside, **OPERATOR)

    for _ in range(2):
        store.retire("q", "checking", now=NOW)
    assert store.retired_states("q") == {"checking"}
    as_old_process()
    before = old.snapshot()
    assert not enter(old, outside)
    assert not enter(old, inside)
    assert old.snapshot() == before

    last = open_queue(task_lifecycle(), "q")
    assert versions(store, "q") == [1, 2, 3]
    assert len(last.claim(2)) == 2
    reasons = refused(store, "q", replace(checking_lifecycle(), flags=("again",)))
    assert reasons == ["U2: the state checking was retired: give the new one another name"]
    assert verify(store, "q"), "the moves of then are accounted for"


def test_a_claim_by_an_old_process_does_not_enter_a_retired_state_either(open_queue):
    """Not only operators' moves: a worker's claim into it is refused as well."""
    task = task_lifecycle()
    claims = tuple(replace(move, to="checking") if move.claims else move for move in task.moves)
    state = State("checking", holds_key=True)
    ways_out = tuple(
        replace(move, sources=("running", "checking")) if "running" in move.sources else move for move in claims
    )
    start = Move("start", ("checking",), "running", by=("worker",))
    older = replace(task, states=(*task.states, state), moves=(*ways_out, start))
    retiring = replace(state, retiring=True)
    moves = tuple(
        replace(move, sources=("running", "checking")) if "running" in move.sources else move
        for move in (*task.moves, start)
    )
    newer = replace(task, states=(*task.states, retiring), moves=moves)
    old = open_queue(older, "q")
    job = old.create_job()
    as_old_process = with_rules_of(old.store, "q")
    open_queue(newer, "q")
    old.store.retire("q", "checking", now=NOW)
    as_old_process()
    with suppress(GuardRefused):
        assert old.claim() == []
    assert old.state(job) == "ready"


def test_a_queue_retires_only_what_it_declares_as_retiring(store):
    clock = ManualClock(NOW)
    queue = Queue("q", checking_lifecycle(), store, clock=clock)
    for state in ("checking", "failed", "nowhere"):
        with pytest.raises(BadInput, match="not declared with retiring=True"):
            queue.retire(state)
    Queue("q", checking_lifecycle(retiring=True), store, clock=clock).retire("checking")
    assert store.retired_states("q") == {"checking"}


# At once


def test_a_state_is_retired_or_entered_at_once_and_never_both(store):
    for number in range(3):
        scene = Scene(store, f"q{number}", checking_lifecycle())
        job = scene.create_job()
        as_old_process = with_rules_of(store, scene.queue)
        store.open(scene.queue, checking_lifecycle(retiring=True))
        as_old_process()
        retire = partial(store.retire, scene.queue, "checking", now=NOW)
        all_at_once(partial(enter, scene, job), retire)
        retired = store.retired_states(scene.queue) == {"checking"}
        assert scene.state(job) == ("ready" if retired else "checking")


def until_somebody_waits(url: str, store: PostgresStore) -> None:
    """Look until a session waits for a lock on the table of jobs."""
    waiting = f"SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{store.dialect.table('job')}'::regclass"
    with psycopg.connect(url, autocommit=True) as looker:
        while looker.execute(waiting).fetchall() == [(0,)]:
            pass


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_postgres_retires_after_a_move_that_is_under_way(open_queue, postgres_url):
    scene = open_queue(checking_lifecycle(), "q")
    job = scene.create_job()
    with ThreadPoolExecutor(1) as pool:
        with scene.store.transaction():
            assert enter(scene, job)
            retired: Future[None] = pool.submit(scene.store.retire, "q", "checking", now=NOW)
            until_somebody_waits(postgres_url, scene.store)
        with pytest.raises(StoreError, match="holds 1 job:"):
            retired.result()
    assert scene.store.retired_states("q") == frozenset()


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_postgres_moves_nothing_into_a_state_that_is_being_retired(open_queue, postgres_url):
    scene = open_queue(checking_lifecycle(), "q")
    job = scene.create_job()
    with ThreadPoolExecutor(1) as pool:
        with scene.store.transaction():
            scene.store.retire("q", "checking", now=NOW)
            entered: Future[bool] = pool.submit(enter, scene, job)
            until_somebody_waits(postgres_url, scene.store)
        assert entered.result() is False
    assert scene.state(job) == "ready"
