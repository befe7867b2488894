"""The fence: a result needs the claim it was computed under, unless declared without."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from kesin.lifecycle.model import Change
from kesin.store.records import Note, Outcome
from tests.store.scene import LEASE_S, NOW, OPERATOR, PRODUCER, SECOND, error, results

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")
BROWSER = error("BROWSER_LAUNCH_FAILED")


# The fence


def test_a_job_is_finished_even_after_the_lease_and_stale_once_it_was_recovered_or_claimed_again(task):
    first, job = task.claim_new_jobs(2, worker="w1")
    task.clock.advance(LEASE_S * 10)
    assert task.move("complete", first).state == "done"
    task.sweep("recover", to="ready")
    assert task.apply_one("complete", job) == Outcome("refused", job.id, "ready", 3, "stale")
    (again,) = task.claim(worker="w2")
    assert task.apply_one("complete", job).reason == "stale"
    assert task.move("complete", again, actor="w2").state == "done"
    assert task.apply_one("complete", job).reason == "stale", "the other claim's finish"


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


def test_a_repeated_finish_answers_already_and_changes_nothing_whatever_came_after_it(task):
    job, retried = task.claim_new_jobs(2)
    task.move("complete", job, result="[1]")
    task.move("retry", retried, **error())
    assert task.apply_one("complete", retried).reason == "stale", "another finish"
    task.clock.advance(86_400)
    task.claim(worker="w2")
    before = task.snapshot()
    assert task.apply_one("complete", job, result="[2]") == Outcome("already", job.id, "done", 3)
    assert task.apply_one("retry", retried, **error()) == Outcome("already", retried.id, "running", 4)
    assert task.snapshot() == before
    assert task.notes(job) == []


def test_a_repeated_chain_answers_already_and_so_does_a_finish_after_later_moves(pdf):
    job = pdf.claim_new_job()
    pdf.move("fail", job, **BROWSER)
    assert pdf.apply_one("fail", job, **BROWSER) == Outcome("already", job.id, "queued", 4)
    pdf.clock.advance(60)
    (job,) = pdf.claim()
    pdf.move("succeed", job)
    pdf.move("artifact_gone", job.id, **PRODUCER)
    assert pdf.apply_one("succeed", job) == Outcome("already", job.id, "expired", 7)


def test_of_many_finishes_at_once_exactly_one_moves(task):
    with ThreadPoolExecutor(4) as pool:
        for actions in (["complete"] * 12, ["complete", "fail", "release", "retry"] * 2):
            job = task.claim_new_job()
            outcomes = list(pool.map(lambda action, job=job: task.apply_one(action, job, **error()), actions))
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


def test_a_job_can_be_acknowledged_once_it_was_claimed_since_its_creation_or_correction(oci):
    job = oci.create_job()
    assert oci.apply_one("ack", job) == Outcome("refused", job, "QUEUED", 1, "was_claimed")
    oci.move("ack_failed", oci.claim()[0], **error("BAD", "VALIDATION"))
    oci.move("correct", job, payload='{"v":2}', **PRODUCER)
    assert oci.apply_one("ack", job).reason == "was_claimed"
    oci.move("retry_later", oci.claim()[0], **TRANSIENT)
    assert oci.move("ack", job).state == "COMPLETED"
    before = oci.snapshot()
    assert oci.apply_one("ack", job) == Outcome("already", job, "COMPLETED", 7)
    assert oci.apply_one("ack_failed", job, **TRANSIENT).reason == "state"
    assert oci.snapshot() == before
