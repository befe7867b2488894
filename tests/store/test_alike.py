"""Values common to all jobs of a call are sent once; the outcomes are the same."""

from __future__ import annotations

from contextlib import closing
from itertools import combinations_with_replacement

from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.sqlite.store import SqliteStore
from tests.store.scene import Scene, error, results

NUL, SURROGATE = chr(0), chr(0xD800)


def last_events(task, jobs):
    """The values of the last event of each job."""
    events = [task.events(job)[-1] for job in jobs]
    return [(event.move, event.result, event.note, event.error_message) for event in events]


def test_unstorable_characters_are_dropped_from_common_and_own_values(task):
    for char in (NUL, SURROGATE):
        alike, *apart = task.claim_new_jobs(3)
        task.move("fail", alike, **error(message=f"a{char}b"))
        changes = [Change(job.id, 2, "E", "TRANSIENT", f"a{char}b", note=f'"{n}"') for n, job in enumerate(apart)]
        task.apply("fail", changes)
        assert {task.job(job).error_message for job in (alike, *apart)} == {"ab"}


def test_a_token_that_sqlite_cannot_hold_is_stale():
    with closing(SqliteStore(":memory:")) as store:
        task = Scene(store, "task", task_lifecycle())
        job = task.claim_new_job()
        assert results(task.apply("complete", [Change(job.id, 2**70)])) == ["stale"]
        assert task.state(job) == "running"


VALUES = [(2, None, None), (2, "[1]", None), (2, "[1]", '"n"'), (1, None, None), (None, "2", '"n"')]


def test_a_call_answers_as_its_jobs_would_one_by_one(store):
    together = Scene(store, "together", task_lifecycle())
    singly = Scene(store, "singly", task_lifecycle())
    for values in combinations_with_replacement(VALUES, 2):
        many, ones = (
            [Change(job.id, token, result=result, note=note) for job, (token, result, note) in pairs]
            for pairs in (zip(scene.claim_new_jobs(2), values, strict=True) for scene in (together, singly))
        )
        alone = [singly.apply_one("complete", change) for change in ones]
        assert results(together.apply("complete", many)) == results(alone), values
        assert last_events(together, [change.id for change in many]) == last_events(
            singly, [change.id for change in ones]
        )
