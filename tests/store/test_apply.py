"""Moves asked for: one outcome each, refused with a reason."""

from __future__ import annotations

import pytest

from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreError, UnknownQueue
from kesin.store.limits import MAX_BATCH
from kesin.store.records import Outcome
from tests.store.scene import (
    NOW,
    OPERATOR,
    PRODUCER,
    SECOND,
    UNKNOWN_ID,
    error,
    results,
    sent_by,
)

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")


# Outcomes


def test_a_move_answers_with_the_job_as_it_is_now(task):
    job = task.claim_new_job()
    assert task.apply_one("complete", job) == Outcome("moved", job.id, "done", 3)


def test_a_move_leaves_one_event(task):
    job = task.claim_new_job()
    task.clock.advance(3)
    task.apply_one("complete", job, actor="w1", result="[1]", note='{"n":1}')
    event = task.events(job)[-1]
    assert (event.seq, event.at, event.move, event.from_state, event.to_state, event.actor) == (
        3,
        NOW + 3 * SECOND,
        "complete",
        "running",
        "done",
        "w1",
    )
    assert (event.result, event.note, event.worker, event.attempt) == ("[1]", '{"n":1}', None, 1)


def test_outcomes_stand_in_the_order_asked_not_in_the_order_of_ids(task):
    jobs = task.claim_new_jobs(5)
    asked = [jobs[n] for n in (3, 0, 4, 1, 2)]
    assert [one.id for one in task.apply("complete", asked)] == [job.id for job in asked]


def test_each_job_of_a_call_gets_its_own_answer(task):
    done, lost, good = task.claim_new_jobs(3)
    task.move("complete", done)
    waiting = task.create_job()
    outcomes = task.apply(
        "complete", [good, Change(UNKNOWN_ID, 2), Change(lost.id, 1), done, waiting, Change("?", 2)]
    )
    assert results(outcomes) == ["moved", "unknown", "stale", "already", "stale", "unknown"]


def test_an_id_asked_for_twice_moves_once(task):
    job = task.claim_new_job()
    first, second = task.apply("complete", [job, job])
    assert first == Outcome("moved", job.id, "done", 3)
    assert second.done
    assert (second.state, second.seq) == ("done", 3)
    assert task.history(job) == ["enqueue", "claim", "complete"]


def test_nothing_to_move_is_no_mistake(task):
    assert task.apply("complete", []) == []


def test_a_call_that_is_too_large_is_refused_whole(task):
    job = task.claim_new_job()
    with pytest.raises(StoreError, match="at most 10000 jobs, got 10001"):
        task.apply("complete", [job] * (MAX_BATCH + 1))
    assert task.state(job) == "running"


def test_an_id_nobody_has_is_unknown(task):
    assert task.apply_one("complete", Change(UNKNOWN_ID, 2)) == Outcome("unknown", UNKNOWN_ID)


@pytest.mark.parametrize(
    "text", ["", "nope", "123", "seal_1", "' OR 1=1 --", "{}", "0" * 32, "x" * 5_000, "ü", "\x00"]
)
def test_an_id_that_is_none_is_unknown_and_sinks_nobody(task, text):
    job = task.claim_new_job()
    assert results(task.apply("complete", [Change(text, 2), job])) == ["unknown", "moved"]


def test_a_job_of_another_queue_is_unknown(task, open_queue):
    other = open_queue(task_lifecycle(), "other").claim_new_job()
    assert task.apply_one("complete", other) == Outcome("unknown", other.id)
    assert task.store.job(other.id).state == "running"


def test_a_job_of_another_tenant_is_unknown(oci):
    mine, theirs = oci.claim_new_job(tenant="a"), oci.claim_new_job(tenant="b")
    outcomes = oci.apply("ack", [mine.id, theirs.id], tenants=["a"])
    assert outcomes == [Outcome("moved", mine.id, "COMPLETED", 3), Outcome("unknown", theirs.id)]
    assert oci.state(theirs) == "PROCESSING"


def test_a_call_for_no_tenant_knows_no_job(oci):
    job = oci.claim_new_job(tenant="a")
    assert oci.apply_one("ack", job.id, tenants=[]).result == "unknown"


def test_a_call_for_several_tenants_reaches_all_of_them(oci):
    jobs = [oci.claim_new_job(tenant=tenant).id for tenant in "abc"]
    assert results(oci.apply("ack", jobs, tenants=["a", "c"])) == ["moved", "unknown", "moved"]


def test_a_state_no_move_of_that_name_leaves_is_the_reason(task):
    job = task.claim_new_job()
    assert task.apply_one("requeue", job.id, **OPERATOR) == Outcome(
        "refused", job.id, "running", 2, "state"
    )


def test_a_job_that_is_where_the_call_leads_is_there_already(task):
    job = task.create_job()
    assert task.apply_one("requeue", job, **OPERATOR) == Outcome("already", job, "ready", 1)


def test_a_refusal_changes_nothing(oci):
    job = oci.move("ack_failed", oci.claim_new_job(), **error("AUTH_ERROR", "AUTH"))
    before = oci.snapshot()
    assert oci.apply_one("correct", job.id, payload="{}", **PRODUCER).reason == "category_in"
    assert oci.snapshot() == before


def test_moving_many_costs_the_same_number_of_statements_as_moving_one(task, statements):
    first, second, *others = task.claim_new_jobs(200)
    task.move("complete", first)
    one = sent_by(statements, lambda: task.apply("complete", [second]))
    assert sent_by(statements, lambda: task.apply("complete", others)) == one


def test_refusing_many_costs_the_same_number_of_statements_as_refusing_one(task, statements):
    jobs = [job._replace(claim_seq=1) for job in task.claim_new_jobs(200)]
    one = sent_by(statements, lambda: task.apply("complete", jobs[:1]))
    assert sent_by(statements, lambda: task.apply("complete", jobs[1:])) == one


def test_an_unknown_queue_is_refused_by_name(task):
    with pytest.raises(UnknownQueue, match="'nope'"):
        task.store.apply("nope", "complete", [], role="worker", actor="w", now=NOW)


# Roles


@pytest.mark.parametrize(
    ("call", "role"),
    [
        ("complete", "operator"),
        ("requeue", "worker"),
        ("cancel", "worker"),
        ("recover", "worker"),
        ("prune", "operator"),
        ("nonsense", "worker"),
        ("", "operator"),
    ],
)
def test_a_call_a_role_may_not_make_is_refused(task, call, role):
    job = task.claim_new_job()
    before = task.snapshot()
    with pytest.raises(StoreError, match=f"no call a {role} can make on the queue 'task'"):
        task.apply(call, [job], role=role)
    assert task.snapshot() == before


def test_the_second_link_of_a_chain_cannot_be_asked_for_alone(pdf):
    job = pdf.claim_new_job()
    with pytest.raises(StoreError, match="'requeue' is no call a worker can make"):
        pdf.apply("requeue", [job])


def test_of_moves_with_one_name_a_role_makes_only_its_own(optiplan):
    job = optiplan.claim_new_job()
    with pytest.raises(StoreError, match="'done' is no call a operator can make"):
        optiplan.apply("done", [job.id], **OPERATOR)


# Options


def failed_in_oci(oci):
    return oci.move("ack_failed", oci.claim_new_job(), **TRANSIENT)


def test_a_reset_keeps_the_error_unless_told_to_clear_it(oci):
    job = oci.move("RESET_TO_QUEUED", failed_in_oci(oci).id, **OPERATOR)
    assert (job.state, job.error_code, job.error_category, job.error_message) == (
        "QUEUED",
        *TRANSIENT.values(),
    )


def test_a_reset_with_the_option_clears_the_error(oci):
    job = oci.move("RESET_TO_QUEUED", failed_in_oci(oci).id, options=["clearErrors"], **OPERATOR)
    assert (job.state, job.error_code, job.error_category, job.error_message) == (
        "QUEUED",
        None,
        None,
        None,
    )


def test_an_option_the_call_does_not_have_is_refused(oci):
    job = failed_in_oci(oci)
    with pytest.raises(StoreError, match="no option 'clearerrors': it takes clearErrors"):
        oci.apply("RESET_TO_QUEUED", [job.id], options=["clearerrors"], **OPERATOR)
    assert oci.state(job) == "FAILED"


def test_a_call_without_options_takes_none(oci):
    job = failed_in_oci(oci)
    with pytest.raises(StoreError, match="no option 'clearErrors': it takes none"):
        oci.apply("RETRY_SELECTED", [job.id], options=["clearErrors"], **OPERATOR)
