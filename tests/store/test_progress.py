"""How far a claimed job is: said under its claim, beside the audit."""

from __future__ import annotations

from kesin.store.records import Progress
from tests.store.scene import UNKNOWN_ID


def report(scene, job, fraction, message=None) -> bool:
    claim = (job.id, job.token)
    return scene.store.report_progress(scene.queue, claim, fraction, message, now=scene.now)


def progress(scene, *ids) -> dict[str, Progress]:
    return scene.store.progress(scene.queue, [*ids, UNKNOWN_ID, "nonsense"])


def test_the_last_word_of_the_claim_is_read_and_leaves_no_event(task):
    job, other = task.claim_new_jobs(2)
    before = task.snapshot()
    assert progress(task, job.id, other.id) == {}
    assert report(task, job, 0.25, "page 3 of 12")
    task.clock.advance(2)
    assert report(task, job, 0.5, "page 6 of 12, «ü»\n")
    said = Progress(task.now, 0.5, "page 6 of 12, «ü»\n")
    assert progress(task, job.id, other.id) == {job.id: said}
    assert report(task, other, None, "starting")
    assert progress(task, other.id) == {other.id: Progress(task.now, None, "starting")}
    assert task.snapshot() == before


def test_a_claim_that_was_lost_says_nothing_more_and_all_goes_with_the_job(task):
    job = task.claim_new_job()
    report(task, job, 0.5)
    task.move("release", job)
    assert progress(task, job.id) == {}
    assert not report(task, job, 0.6)
    [again] = task.claim(1)
    assert not report(task, job, 0.7)
    assert progress(task, job.id) == {}
    assert report(task, again, 0.1)
    assert progress(task, job.id)[job.id].fraction == 0.1
    task.move("complete", again)
    assert progress(task, job.id) == {}
    task.clock.advance(40 * 86_400)
    assert task.sweep("prune") == 1
    assert not report(task, again, 0.6)
