"""Actions: one outcome for each job, a refusal with its reason."""

from __future__ import annotations

import pytest

from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreError
from kesin.store.records import Outcome
from tests.store.scene import OPERATOR, PRODUCER, UNKNOWN_ID, error, results, sent_by

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")


# Outcomes


def test_a_move_answers_with_the_new_state_and_leaves_one_event(task):
    job = task.claim_new_job()
    task.clock.advance(3)
    outcome = task.apply_one("complete", job, actor="w1", result="[1]", note='{"n":1}')
    assert outcome == Outcome("moved", job.id, "done", 3)
    event = task.events(job)[-1]
    assert (event.seq, event.at, event.move, event.actor) == (3, task.now, "complete", "w1")
    assert (event.from_state, event.to_state) == ("running", "done")
    assert (event.result, event.note, event.worker, event.attempt) == ("[1]", '{"n":1}', None, 1)


def test_each_job_of_a_call_gets_its_own_answer_in_the_order_of_the_changes(task, open_queue):
    done, lost, *good = task.claim_new_jobs(5)
    task.move("complete", done)
    waiting = task.create_job()
    foreign = open_queue(task_lifecycle(), "other").claim_new_job()
    texts = ["", "nope", "123", "seal_1", "' OR 1=1 --", "{}", "0" * 32, "x" * 5_000, "ü", "\x00"]
    changes = [good[2], *(Change(text, 2) for text in (UNKNOWN_ID, *texts)), foreign, Change(lost.id, 1), done, waiting]
    outcomes = task.apply("complete", [*changes, good[0], good[1]])
    unknown = ["unknown"] * (len(texts) + 2)
    assert results(outcomes) == ["moved", *unknown, "stale", "already", "stale", "moved", "moved"]
    assert [outcomes[at].id for at in (0, -2, -1)] == [good[n].id for n in (2, 0, 1)]
    assert outcomes[1] == Outcome("unknown", UNKNOWN_ID)
    assert task.store.job(foreign.id) == foreign
    assert task.apply("complete", []) == []


def test_an_id_asked_for_twice_moves_once(task):
    job = task.claim_new_job()
    first, second = task.apply("complete", [job, job])
    assert first == Outcome("moved", job.id, "done", 3)
    assert second.done
    assert (second.state, second.seq) == ("done", 3)
    assert task.history(job) == ["enqueue", "claim", "complete"]


def test_an_action_reaches_exactly_the_tenants_it_names(oci):
    jobs = [oci.claim_new_job(tenant=tenant).id for tenant in "abc"]
    assert results(oci.apply("ack", jobs, tenants=[])) == ["unknown"] * 3
    outcomes = oci.apply("ack", jobs, tenants=["a", "c"])
    assert results(outcomes) == ["moved", "unknown", "moved"]
    assert outcomes[1] == Outcome("unknown", jobs[1])
    assert oci.state(jobs[1]) == "PROCESSING"


def test_a_job_in_another_state_is_refused_and_one_at_the_target_is_there_already(task):
    running, ready = task.claim_new_job().id, task.create_job()
    outcomes = task.apply("requeue", [running, ready], **OPERATOR)
    assert outcomes == [Outcome("refused", running, "running", 2, "state"), Outcome("already", ready, "ready", 1)]


def test_a_refusal_changes_nothing(oci):
    job = oci.move("ack_failed", oci.claim_new_job(), **error("AUTH_ERROR", "AUTH"))
    before = oci.snapshot()
    assert oci.apply_one("correct", job.id, payload="{}", **PRODUCER).reason == "category_in"
    assert oci.snapshot() == before


def test_the_number_of_statements_does_not_depend_on_the_number_of_jobs(task, statements):
    first, second, *others = task.claim_new_jobs(102)
    task.move("complete", first)
    stale = [job._replace(claim_seq=1) for job in others]
    refused = sent_by(statements, lambda: task.apply("complete", stale[:1]))
    assert sent_by(statements, lambda: task.apply("complete", stale[1:])) == refused
    moved = sent_by(statements, lambda: task.apply("complete", [second]))
    assert sent_by(statements, lambda: task.apply("complete", others)) == moved


# Roles


def test_an_action_or_option_that_a_role_does_not_have_is_refused(task, pdf, optiplan, oci):
    """The second link of a chain is no action either."""
    job = task.claim_new_job()
    before = task.snapshot()
    for action, role in (
        ("complete", "operator"),
        ("requeue", "worker"),
        ("cancel", "worker"),
        ("recover", "worker"),
        ("prune", "operator"),
        ("nonsense", "worker"),
        ("", "operator"),
    ):
        with pytest.raises(StoreError, match=f"not an action that the {role} can take on the queue 'task'"):
            task.apply(action, [job], role=role)
    assert task.snapshot() == before
    with pytest.raises(StoreError, match="'requeue' is not an action that the worker can take"):
        pdf.apply("requeue", [pdf.claim_new_job()])
    with pytest.raises(StoreError, match="'done' is not an action that the operator can take"):
        optiplan.apply("done", [optiplan.claim_new_job().id], **OPERATOR)
    failed = failed_in_oci(oci)
    with pytest.raises(StoreError, match="no option 'clearerrors': it has clearErrors"):
        oci.apply("RESET_TO_QUEUED", [failed.id], options=["clearerrors"], **OPERATOR)
    with pytest.raises(StoreError, match="no option 'clearErrors': it has none"):
        oci.apply("RETRY_SELECTED", [failed.id], options=["clearErrors"], **OPERATOR)
    assert oci.state(failed) == "FAILED"


# Options


def failed_in_oci(oci):
    return oci.move("ack_failed", oci.claim_new_job(), **TRANSIENT)


def test_a_reset_clears_the_error_only_with_the_option(oci):
    for options, expected in (([], tuple(TRANSIENT.values())), (["clearErrors"], (None,) * 3)):
        job = oci.move("RESET_TO_QUEUED", failed_in_oci(oci).id, options=options, **OPERATOR)
        assert job.state == "QUEUED"
        assert (job.error_code, job.error_category, job.error_message) == expected
        oci.move("MARK_FAILED", job.id, **OPERATOR)


def test_a_correction_replaces_the_payload_and_its_event_holds_both(oci):
    job = oci.move("ack_failed", oci.claim_new_job(payload='{"v":1}'), **error("BAD", "VALIDATION"))
    with pytest.raises(StoreError, match="payload"):
        oci.apply_one("correct", job.id, **PRODUCER)
    assert oci.job(job) == job
    corrected = oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    assert (corrected.payload, corrected.payload_seq) == ({"v": 2}, corrected.seq)
    (claimed,) = oci.claim()
    assert claimed.payload == {"v": 2}
    oci.move("ack", claimed)
    payloads = [(event.move, event.payload, event.old_payload) for event in oci.events(job)]
    assert [row for row in payloads if row[1:] != (None, None)] == [("correct", '{"v":2}', '{"v":1}')]
