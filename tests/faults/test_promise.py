"""The checker finds what is broken: here the guards are taken away and a history is forged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from kesin.engine.queue import Queue
from kesin.store.sqlite.store import SqliteStore
from tests.faults.cast import LIFECYCLES, Ahead
from tests.faults.conftest import bring_to_rest, fill
from tests.faults.promise import check_promise

FORGERIES = {
    "DELETE FROM job": "lost: ",
    "UPDATE event SET actor = 'dead' WHERE move = 'complete'": "is not made by heir",
    "UPDATE event SET claim = -1 WHERE move = 'recover'": "takes what dead holds",
    "UPDATE event SET move = 'complete', to_state = 'done', actor = 'dead' WHERE seq = 3": ("completed 2 times"),
    "UPDATE event SET to_state = 'failed' WHERE move = 'claim'": "is not declared",
    "UPDATE event SET max_attempts = 1 WHERE seq = 4": "2 attempts at 4",
    "UPDATE event SET return_count = 9 WHERE seq = 4": "too many returns",
    "UPDATE event SET at = 1 WHERE seq = 5": "time runs back",
    "DELETE FROM event WHERE seq = 3": "not without a gap",
    "UPDATE job SET result = '7'": "result is '7'",
    "UPDATE flow SET n = n + 1 WHERE move = 'claim'": "the count of",
}


@contextmanager
def opened(like: sqlite3.Connection | None = None) -> Iterator[Queue]:
    with closing(SqliteStore(":memory:")) as store:
        if like:
            like.backup(store._writer)
        yield Queue("work", LIFECYCLES["task"], store, clock=Ahead())


@pytest.fixture
def queue() -> Iterator[Queue]:
    with opened() as queue:
        yield queue


def forge(queue: Queue, statement: str) -> None:
    assert isinstance(queue.store, SqliteStore)
    writer = queue.store._writer
    guards = writer.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for (name,) in guards:
        writer.execute(f"DROP TRIGGER {name}")
    writer.execute(statement)


def test_a_forged_history_is_found(queue: Queue):
    """Two jobs: claimed, lost, claimed again and done."""
    ids = fill(queue, 2)
    queue.claim("dead", limit=2)
    report = bring_to_rest(queue, ids)
    assert (report.jobs, report.claims, report.lost_claims) == (2, 4, 2)
    assert isinstance(queue.store, SqliteStore)
    for forgery, found in FORGERIES.items():
        with opened(like=queue.store._writer) as copied:
            check_promise(copied.store, "work", copied.lifecycle, ids)
            forge(copied, forgery)
            with pytest.raises(AssertionError, match=found):
                check_promise(copied.store, "work", copied.lifecycle, ids)


def test_two_jobs_with_one_key_and_one_that_is_left_in_hand_are_found(queue: Queue):
    ids = fill(queue, 2)
    queue.claim("dead")
    with pytest.raises(AssertionError, match="is left running"):
        check_promise(queue.store, "work", queue.lifecycle, ids)
    assert check_promise(queue.store, "work", queue.lifecycle, ids, at_rest=False).jobs == 2
    forge(queue, "UPDATE job_body SET dedup_key = 'k'")
    with pytest.raises(AssertionError, match="hold the key k"):
        check_promise(queue.store, "work", queue.lifecycle, ids, at_rest=False)


def test_a_job_that_nobody_was_told_of_and_one_that_was_pruned_break_no_promise(queue: Queue):
    ids = fill(queue, 3)
    bring_to_rest(queue, ids[:2])
    assert check_promise(queue.store, "work", queue.lifecycle, ids[:2]).untold == 1
    [prune] = [move for move in queue.lifecycle.moves if move.prunes]
    assert isinstance(queue.clock, Ahead)
    queue.clock.seconds += 31 * 86_400
    assert queue.sweep(prune, limit=1) == 1
    report = check_promise(queue.store, "work", queue.lifecycle, ids)
    assert (report.jobs, report.pruned) == (2, 1)
