"""The fence: a result needs the claim it was computed under, unless declared without."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kesin.lifecycle.model import Change
from kesin.store.records import Note, Outcome
from tests.store.scene import LEASE_S, NOW, OPERATOR, PRODUCER, SECOND, error, results

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")
BROWSER = error("BROWSER_LAUNCH_FAILED")


# The fence


def test_a_job_is_finished_under_its_claim_even_after_the_lease_if_no_other_worker_took_it(task):
    job = task.claim_new_job()
    task.clock.advance(LEASE_S * 10)
    assert task.move("complete", job).state == "done"


def test_a_finish_without_the_right_token_is_stale_and_leaves_only_a_note(task):
    job = task.claim_new_job()
    before = task.snapshot()
    task.clock.advance(9)
    for token in (None, 0, 1, 3, -1, 2**31 - 1):
        change = Change(job.id, token, result="[1]")
        outcome = task.apply_one("complete", change, actor="late worker")
        assert outcome == Outcome("refused", job.id, "running", 2, "stale")
        note = Note(job.id, NOW + 9 * SECOND, "stale", "late worker", "complete")
        assert task.notes(job)[-1] == note
    assert len(task.notes(job)) == 6
    assert task.snapshot() == before


def test_a_finish_is_stale_once_the_job_was_recovered_claimed_or_finished_by_another(task):
    job = task.claim_new_job(worker="w1")
    task.clock.advance(LEASE_S)
    task.sweep("recover", to="ready")
    assert task.apply_one("complete", job) == Outcome("refused", job.id, "ready", 3, "stale")
    (again,) = task.claim(worker="w2")
    assert task.apply_one("complete", job).reason == "stale"
    assert task.move("complete", again, actor="w2").state == "done"
    assert task.apply_one("complete", job).reason == "stale", "the other claim's finish"


def test_the_fence_is_the_claim_not_the_worker_and_the_attempt(optiplan):
    job = optiplan.claim_new_job()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    optiplan.move("wait", job, run_at=optiplan.now)
    (again,) = optiplan.claim()
    assert (again.worker, again.attempt_count) == (job.worker, job.attempt_count)
    claims = [(each.id, each.claim_seq) for each in (job, again)]
    renewed = [optiplan.store.renew("optiplan", [c], lease_us=1, now=NOW) for c in claims]
    assert renewed == [set(), {job.id}]
    assert optiplan.apply_one("run", job).reason == "stale"
    assert optiplan.move("run", again).state == "OPTI_RUNNING"


def test_a_repeated_finish_answers_already_and_changes_nothing(task):
    job = task.claim_new_job()
    task.move("complete", job, result="[1]")
    before = task.snapshot()
    assert task.apply_one("complete", job, result="[2]") == Outcome("already", job.id, "done", 3)
    assert task.snapshot() == before
    assert task.notes(job) == []


def test_the_same_finish_again_answers_already_after_later_moves(pdf):
    job = pdf.claim_new_job()
    pdf.move("succeed", job)
    pdf.move("artifact_gone", job.id, **PRODUCER)
    assert pdf.apply_one("succeed", job) == Outcome("already", job.id, "expired", 4)


def test_the_same_finish_again_answers_already_after_the_job_was_claimed_again(task):
    job = task.claim_new_job()
    task.move("retry", job, **error())
    task.clock.advance(86_400)
    (again,) = task.claim(worker="w2")
    assert task.apply_one("retry", job, **error()) == Outcome("already", job.id, "running", 4)
    assert task.job(job) == again


def test_a_repeated_chain_answers_already(pdf):
    job = pdf.claim_new_job()
    pdf.move("fail", job, **BROWSER)
    assert pdf.apply_one("fail", job, **BROWSER) == Outcome("already", job.id, "queued", 4)


def test_another_finish_of_a_claim_that_is_finished_is_stale(task):
    job = task.claim_new_job()
    task.move("retry", job, **error())
    assert task.apply_one("complete", job).reason == "stale"


@pytest.mark.parametrize(
    "actions", [["complete"] * 12, ["complete", "fail", "release", "retry"] * 2], ids=["equal", "different"]
)
def test_of_many_finishes_at_once_exactly_one_moves(task, actions):
    job = task.claim_new_job()
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda action: task.apply_one(action, job, **error()), actions))
    answers = sorted(results(outcomes))
    assert answers.count("moved") == 1
    assert len(set(actions)) > 1 or answers == ["already"] * 11 + ["moved"]
    assert len(task.events(job)) == 3


# Moves without a fence


def test_the_row_decides_between_an_ack_and_a_late_ack(oci):
    jobs = failed, retried, reset, _ = oci.claim_new_jobs(4)
    oci.move("ack_failed", failed, **TRANSIENT)
    oci.move("retry_later", retried, **TRANSIENT)
    oci.move("RESET_TO_QUEUED", reset.id, **OPERATOR)
    oci.apply("ack", [job.id for job in jobs])
    jobs = [oci.job(job) for job in jobs]
    assert [job.move for job in jobs] == ["late_ack", "late_ack", "late_ack", "ack"]
    assert {(job.state, job.error_code) for job in jobs} == {("COMPLETED", None)}


def test_a_job_that_was_never_claimed_cannot_be_acknowledged(oci):
    job = oci.create_job()
    assert oci.apply_one("ack", job) == Outcome("refused", job, "QUEUED", 1, "was_claimed")


def test_a_corrected_job_can_be_acknowledged_only_once_it_was_claimed_again(oci):
    job = oci.move("ack_failed", oci.claim_new_job(), **error("BAD", "VALIDATION"))
    oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    assert oci.apply_one("ack", job.id).reason == "was_claimed"
    (again,) = oci.claim()
    oci.move("retry_later", again, **TRANSIENT)
    assert oci.move("ack", job.id).state == "COMPLETED"


def test_a_repeated_ack_answers_already_and_an_ack_failed_after_it_is_refused(oci):
    job = oci.move("ack", oci.claim_new_job().id)
    before = oci.snapshot()
    assert oci.apply_one("ack", job.id) == Outcome("already", job.id, "COMPLETED", 3)
    assert oci.apply_one("ack_failed", job.id, **TRANSIENT).reason == "state"
    assert oci.snapshot() == before
