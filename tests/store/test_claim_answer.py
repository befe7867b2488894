"""What a claim returns: whole jobs, as they are stored, however little of them is read."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from kesin.lifecycle.declare import Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import After, Fixed
from kesin.store.records import NewJobRow
from kesin.store.sql.columns import INITIAL_VALUES
from kesin.store.sqlite.store import SqliteStore
from tests.store.attacks import WRONG_JOBS
from tests.store.scene import LEASE_S, MINUTE, NOW, OPERATOR, SECOND, Scene, error

ODD = 'no: "\\u0000"\n\tçığ 🪚 {[,]} %s :now'


def test_a_claim_gives_new_and_seasoned_jobs_as_they_are_stored(task):
    """What a job has been through travels apart from what every job has."""
    task.move("retry", task.claim_new_job(), **error(message=ODD))
    task.move("release", task.claim_new_job())
    task.clock.advance(86_400)
    task.create_job(key="k")
    taken = task.claim(3)
    assert [task.job(job) for job in taken] == taken
    assert {(job.seq, job.error_message) for job in taken} == {(4, ODD), (4, None), (2, None)}


def test_a_first_claim_by_a_clock_behind_the_jobs_birth_is_given_as_it_is_stored(task):
    task.clock.advance(60)
    task.create_job(run_at=NOW)
    task.clock.advance(-60)
    task.create_job()
    late, timely = taken = task.claim(2)
    assert [task.job(job) for job in taken] == taken
    assert (late.moved_at, timely.moved_at) == (NOW + MINUTE, NOW)
    assert late.lease_until == late.claimed_at + LEASE_S * SECOND


def test_a_claim_gives_what_it_sets_itself(store):
    task = task_lifecycle()
    seen: dict[str, Any] = {"flag": ("seen",), "timer": After(60), "error": Fixed("SEEN", Category.TRANSIENT, ODD)}
    moves = tuple(replace(move, **seen) if move.claims else move for move in task.moves)
    scene = Scene(store, "seen", replace(task, flags=("seen",), moves=moves))
    job = scene.claim_new_job()
    assert scene.job(job) == job
    assert (job.flags, job.timer_at, job.error_message) == (1, NOW + MINUTE, ODD)


def test_a_claim_reads_what_moves_of_another_version_set(store):
    """A process of an older version does not know the moves, but the database does."""
    older = task_lifecycle()
    see = Move("see", ("ready",), "ready", by=("operator",), stamp=("seen_at",))
    moves = [replace(move, stamp=("given_at",)) if move.name == "release" else move for move in (*older.moves, see)]
    newer = replace(older, stamps=("seen_at", "given_at"), moves=tuple(moves))
    store.open("aged", older)
    scene = Scene(store, "aged", newer)
    scene.move("release", scene.claim_new_job())
    scene.move("see", scene.create_job(), **OPERATOR)
    store.open("aged", older)
    stamps = {(job.stamp_1, job.stamp_2) for job in scene.claim(2)}
    assert stamps == {(NOW, None), (None, NOW)}


def test_the_guard_ensures_what_a_claim_assumes_of_a_new_job():
    """A claim does not read these of a job whose first move it is; test_guard tries each."""
    assert set(INITIAL_VALUES) <= set(WRONG_JOBS)


def test_a_foreign_id_does_not_break_a_claim():
    """PostgreSQL refuses it by its type; on SQLite a prompt can bring it in."""
    with closing(SqliteStore(":memory:")) as store:
        scene = Scene(store, "task", task_lifecycle())
        odd = ['a"b', "x\\u0031", "x1"]
        scene.enqueue(*(NewJobRow(id_, "{}", max_attempts=3, salt=1) for id_ in odd))
        mine = scene.create_job()
        assert sorted(job.id for job in scene.claim(9)) == sorted([*odd, mine])
        assert scene.claim(9) == []
