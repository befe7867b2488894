"""What a claim hands over: whole jobs, as they are stored, however little of them is read."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from kesin.lifecycle.declare import Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import After, Fixed
from kesin.store.records import NewJob
from kesin.store.sql.columns import INITIAL_VALUES
from kesin.store.sqlite.store import SqliteStore
from tests.store.attacks import WRONG_BIRTHS
from tests.store.scene import LEASE_S, MINUTE, NOW, OPERATOR, SECOND, Scene, error

MODEL_CLAIM = {"worker": "w1", "actor": "w1"}
ODD = 'no: "\\u0000"\n\tçığ 🪚 {[,]} %s :now'


def test_a_claim_is_what_the_model_says(task):
    before = task.job(task.create_job(key="k", payload='{"a":1}'))
    task.clock.advance(5)
    expected = task.modelled(task.declared("claim"), before, **MODEL_CLAIM)
    assert task.claim() == [expected]


def test_a_claim_gives_the_job_as_it_is_stored(task, oci):
    for scene in (task, oci):
        job = scene.claim_new_job()
        assert scene.job(job) == job


def test_a_claim_returns_exactly_the_rows_it_changed(oci):
    for n in range(20):
        oci.create_job(key=f"k{n}", payload=f'{{"n":{n}}}', tenant=f"t{n % 3}")
    taken = oci.claim(12)
    stored = [job for job, _ in oci.store.scan("oci")]
    assert sorted(taken) == [job for job in stored if job.seq == 2]


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
    seen = {"flag": ("seen",), "timer": After(60), "error": Fixed("SEEN", Category.TRANSIENT, ODD)}
    moves = tuple(replace(one, **seen) if one.claims else one for one in task.moves)
    scene = Scene(store, "seen", replace(task, flags=("seen",), moves=moves))
    job = scene.claim_new_job()
    assert scene.job(job) == job
    assert (job.flags, job.timer_at, job.error_message) == (1, NOW + MINUTE, ODD)


def test_a_claim_brings_payload_and_key(task):
    task.create_job(key="the key", payload='{"the":"payload"}')
    (job,) = task.claim()
    assert (job.dedup_key, job.payload) == ("the key", '{"the":"payload"}')


def test_a_claim_reads_what_a_move_of_another_version_sets(store):
    """A process of an older version does not know the move, but the database does."""
    older = task_lifecycle()
    see = Move("see", ("ready",), "ready", by=("operator",), stamp=("seen_at",))
    newer = replace(older, stamps=("seen_at",), moves=(*older.moves, see))
    scene = Scene(store, "aged", newer)
    job = scene.create_job()
    scene.move("see", job, **OPERATOR)
    store.open("aged", older)
    assert scene.claim()[0].stamp_1 == NOW


def test_a_claim_reads_what_another_version_of_a_move_sets(store):
    older = task_lifecycle()
    moves = [
        replace(one, stamp=("given_at",)) if one.name == "release" else one for one in older.moves
    ]
    scene = Scene(store, "aged", replace(older, stamps=("given_at",), moves=tuple(moves)))
    scene.move("release", scene.claim_new_job())
    store.open("aged", older)
    assert scene.claim()[0].stamp_1 == NOW


def test_what_is_taken_for_granted_of_a_new_job_the_guard_sees_to():
    """A claim does not read these of a job whose first move it is; test_guard tries each."""
    assert set(INITIAL_VALUES) <= set(WRONG_BIRTHS)


def test_an_id_that_is_none_of_ours_spoils_no_claim():
    """PostgreSQL refuses it by its type; on SQLite a prompt can bring it in."""
    with closing(SqliteStore(":memory:")) as store:
        scene = Scene(store, "task", task_lifecycle())
        odd = ['a"b', "x\\u0031", "x1"]
        scene.enqueue(*(NewJob(id_, "{}", max_attempts=3, salt=1) for id_ in odd))
        mine = scene.create_job()
        assert sorted(job.id for job in scene.claim(9)) == sorted([*odd, mine])
        assert scene.claim(9) == []
