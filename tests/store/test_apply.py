"""Moves asked for: one outcome each, fenced by the claim, refused with a reason."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.words import budget_left, budget_spent, holds_claim
from kesin.store.contract import MAX_BATCH, Note, Outcome, StoreError, UnknownQueue
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.scene import DAY, HOUR, LEASE_S, MINUTE, NOBODY, NOW, SECOND, error, sent_by

OPERATOR = {"role": "operator", "actor": "op"}
PRODUCER = {"role": "producer", "actor": "p"}
TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")
BROWSER = error("BROWSER_LAUNCH_FAILED")


def unchanged(scene):
    """Everything the queue holds, to be compared before and after."""
    return [(job, events) for job, events in scene.store.scan(scene.queue)]


def results(outcomes):
    return [one.reason or one.result for one in outcomes]


# Outcomes


def test_a_move_answers_with_the_job_as_it_is_now(task):
    job = task.running()
    assert task.ask("complete", job) == Outcome("moved", job.id, "done", 3)


def test_a_move_leaves_one_event(task):
    job = task.running()
    task.clock.advance(3)
    task.ask("complete", job, actor="w1", result="[1]", note='{"n":1}')
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
    jobs = task.claimed(5)
    asked = [jobs[n] for n in (3, 0, 4, 1, 2)]
    assert [one.id for one in task.apply("complete", asked)] == [job.id for job in asked]


def test_each_job_of_a_call_gets_its_own_answer(task):
    done, lost, good = task.claimed(3)
    task.move("complete", done)
    waiting = task.one()
    outcomes = task.apply(
        "complete", [good, Change(NOBODY, 2), Change(lost.id, 1), done, waiting, Change("?", 2)]
    )
    assert results(outcomes) == ["moved", "unknown", "stale", "already", "stale", "unknown"]


def test_an_id_asked_for_twice_moves_once(task):
    job = task.running()
    first, second = task.apply("complete", [job, job])
    assert first == Outcome("moved", job.id, "done", 3)
    assert second.done
    assert (second.state, second.seq) == ("done", 3)
    assert task.history(job) == ["enqueue", "claim", "complete"]


def test_nothing_to_move_is_no_mistake(task):
    assert task.apply("complete", []) == []


def test_a_call_that_is_too_large_is_refused_whole(task):
    job = task.running()
    with pytest.raises(StoreError, match="at most 10000 jobs, got 10001"):
        task.apply("complete", [job] * (MAX_BATCH + 1))
    assert task.state(job) == "running"


def test_an_id_nobody_has_is_unknown(task):
    assert task.ask("complete", Change(NOBODY, 2)) == Outcome("unknown", NOBODY)


@pytest.mark.parametrize(
    "text", ["", "nope", "123", "seal_1", "' OR 1=1 --", "{}", "0" * 32, "x" * 5_000, "ü", "\x00"]
)
def test_an_id_that_is_none_is_unknown_and_sinks_nobody(task, text):
    job = task.running()
    assert results(task.apply("complete", [Change(text, 2), job])) == ["unknown", "moved"]


def test_a_job_of_another_queue_is_unknown(task, open_queue):
    other = open_queue(task_lifecycle(), "other").running()
    assert task.ask("complete", other) == Outcome("unknown", other.id)
    assert task.store.job(other.id).state == "running"


def test_a_job_of_another_tenant_is_unknown(oci):
    mine, theirs = oci.running(tenant="a"), oci.running(tenant="b")
    outcomes = oci.apply("ack", [mine.id, theirs.id], tenants=["a"])
    assert outcomes == [Outcome("moved", mine.id, "COMPLETED", 3), Outcome("unknown", theirs.id)]
    assert oci.state(theirs) == "PROCESSING"


def test_a_call_for_no_tenant_knows_no_job(oci):
    job = oci.running(tenant="a")
    assert oci.ask("ack", job.id, tenants=[]).result == "unknown"


def test_a_call_for_several_tenants_reaches_all_of_them(oci):
    jobs = [oci.running(tenant=tenant).id for tenant in "abc"]
    assert results(oci.apply("ack", jobs, tenants=["a", "c"])) == ["moved", "unknown", "moved"]


def test_a_state_no_move_of_that_name_leaves_is_the_reason(task):
    job = task.running()
    assert task.ask("requeue", job.id, **OPERATOR) == Outcome(
        "refused", job.id, "running", 2, "state"
    )


def test_a_job_that_is_where_the_call_leads_is_there_already(task):
    job = task.one()
    assert task.ask("requeue", job, **OPERATOR) == Outcome("already", job, "ready", 1)


def test_a_refusal_changes_nothing(oci):
    job = oci.move("ack_failed", oci.running(), **error("AUTH_ERROR", "AUTH"))
    before = unchanged(oci)
    assert oci.ask("correct", job.id, payload="{}", **PRODUCER).reason == "category_in"
    assert unchanged(oci) == before


def test_moving_many_costs_the_same_number_of_statements_as_moving_one(task, statements):
    first, second, *others = task.claimed(200)
    task.move("complete", first)
    one = sent_by(statements, lambda: task.apply("complete", [second]))
    assert sent_by(statements, lambda: task.apply("complete", others)) == one


def test_refusing_many_costs_the_same_number_of_statements_as_refusing_one(task, statements):
    jobs = [job._replace(claim_seq=1) for job in task.claimed(200)]
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
    job = task.running()
    before = unchanged(task)
    with pytest.raises(StoreError, match=f"no call a {role} can make on the queue 'task'"):
        task.apply(call, [job], role=role)
    assert unchanged(task) == before


def test_the_second_link_of_a_chain_cannot_be_asked_for_alone(pdf):
    job = pdf.running()
    with pytest.raises(StoreError, match="'requeue' is no call a worker can make"):
        pdf.apply("requeue", [job])


def test_of_moves_with_one_name_a_role_makes_only_its_own(optiplan):
    job = optiplan.running()
    with pytest.raises(StoreError, match="'done' is no call a operator can make"):
        optiplan.apply("done", [job.id], **OPERATOR)


# The fence


def test_a_finish_under_the_claim_is_made(task):
    assert task.move("complete", task.running()).state == "done"


def test_a_finish_is_made_though_the_lease_is_over_as_long_as_nobody_took_the_job(task):
    job = task.running()
    task.clock.advance(LEASE_S * 10)
    assert task.move("complete", job).state == "done"


@pytest.mark.parametrize("token", [None, 0, 1, 3, -1, 2**31 - 1])
def test_a_finish_without_the_right_token_is_stale(task, token):
    job = task.running()
    assert task.ask("complete", Change(job.id, token)) == Outcome(
        "refused", job.id, "running", 2, "stale"
    )


def test_a_stale_finish_changes_nothing(task):
    job = task.running()
    before = unchanged(task)
    task.ask("complete", Change(job.id, 1, result="[1]"))
    assert unchanged(task) == before


def test_a_stale_finish_is_noted(task):
    job = task.running()
    task.clock.advance(9)
    task.ask("complete", Change(job.id, 1), actor="late worker")
    assert task.notes(job) == [Note(job.id, NOW + 9 * SECOND, "stale", "late worker", "complete")]


def test_a_finish_after_the_job_was_recovered_is_stale(task):
    job = task.running()
    task.clock.advance(LEASE_S)
    task.sweep("recover", to="ready")
    assert task.ask("complete", job) == Outcome("refused", job.id, "ready", 3, "stale")


def test_a_finish_after_another_worker_took_the_job_is_stale(task):
    job = task.running(worker="w1")
    task.clock.advance(LEASE_S)
    task.sweep("recover", to="ready")
    (again,) = task.claim(worker="w2")
    assert task.ask("complete", job).reason == "stale"
    assert task.move("complete", again, actor="w2").state == "done"


def test_the_fence_is_the_claim_not_the_worker_and_the_attempt(optiplan):
    job = optiplan.running()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    optiplan.move("wait", job, run_at=optiplan.now)
    (again,) = optiplan.claim()
    assert (again.worker, again.attempt_count) == (job.worker, job.attempt_count)
    assert optiplan.ask("run", job).reason == "stale"
    assert optiplan.move("run", again).state == "OPTI_RUNNING"


def test_a_claim_carries_through_several_moves(optiplan):
    job = optiplan.running()
    for call in ("prepare", "import", "run", "collect", "validate", "deliver", "done"):
        optiplan.move(call, job)
    assert optiplan.state(job) == "DONE"


def test_the_same_finish_again_answers_already(task):
    job = task.running()
    task.move("complete", job, result="[1]")
    assert task.ask("complete", job) == Outcome("already", job.id, "done", 3)


def test_the_same_finish_again_changes_nothing(task):
    job = task.running()
    task.move("complete", job, result="[1]")
    before = unchanged(task)
    task.ask("complete", job, result="[2]")
    assert unchanged(task) == before
    assert task.notes(job) == []


def test_the_same_finish_again_answers_already_after_later_moves(pdf):
    job = pdf.running()
    pdf.move("succeed", job)
    pdf.move("artifact_gone", job.id, **PRODUCER)
    assert pdf.ask("succeed", job) == Outcome("already", job.id, "expired", 4)


def test_the_same_finish_again_answers_already_after_the_job_was_claimed_again(task):
    job = task.running()
    task.move("retry", job, **error())
    task.clock.advance(86_400)
    (again,) = task.claim(worker="w2")
    assert task.ask("retry", job, **error()) == Outcome("already", job.id, "running", 4)
    assert task.job(job) == again


def test_the_same_step_in_the_middle_of_the_work_answers_already(optiplan):
    job = optiplan.running()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    assert optiplan.ask("prepare", job) == Outcome("already", job.id, "OPTI_IMPORTED", 4)


def test_a_repeated_chain_answers_already(pdf):
    job = pdf.running()
    pdf.move("fail", job, **BROWSER)
    assert pdf.ask("fail", job, **BROWSER) == Outcome("already", job.id, "queued", 4)


def test_another_claims_finish_is_not_taken_for_ones_own(task):
    job = task.running()
    task.clock.advance(LEASE_S)
    task.sweep("recover", to="ready")
    (again,) = task.claim(worker="w2")
    task.move("complete", again, actor="w2")
    assert task.ask("complete", job).reason == "stale"


def test_another_finish_of_a_claim_that_is_finished_is_stale(task):
    job = task.running()
    task.move("retry", job, **error())
    assert task.ask("complete", job).reason == "stale"


def test_of_many_equal_finishes_at_once_exactly_one_moves(task):
    job = task.running()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: task.ask("complete", job), range(12)))
    assert sorted(results(answers)) == ["already"] * 11 + ["moved"]
    assert len(task.events(job)) == 3


def test_of_different_finishes_at_once_exactly_one_moves(task):
    job = task.running()
    calls = ["complete", "fail", "release", "retry"] * 2
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda call: task.ask(call, job, **error()), calls))
    assert [one.result for one in answers].count("moved") == 1
    assert len(task.events(job)) == 3


# Moves without a fence


def test_an_ack_needs_no_token(oci):
    job = oci.running()
    assert oci.move("ack", job.id, actor="script").state == "COMPLETED"


@pytest.mark.parametrize("aside", ["FAILED", "RETRY", "QUEUED"])
def test_a_late_ack_is_told_from_an_ack_by_the_row(oci, aside):
    job = oci.running()
    if aside == "FAILED":
        oci.move("ack_failed", job, **TRANSIENT)
    elif aside == "RETRY":
        oci.move("retry_later", job, **TRANSIENT)
    else:
        oci.move("RESET_TO_QUEUED", job.id, **OPERATOR)
    done = oci.move("ack", job.id)
    assert (done.state, done.move, done.error_code) == ("COMPLETED", "late_ack", None)


def test_one_call_makes_acks_and_late_acks(oci):
    first, second = oci.claimed(2)
    oci.move("retry_later", second, **TRANSIENT)
    oci.apply("ack", [first.id, second.id])
    assert (oci.job(first).move, oci.job(second).move) == ("ack", "late_ack")


def test_a_job_that_was_never_claimed_cannot_be_acknowledged(oci):
    job = oci.one()
    assert oci.ask("ack", job) == Outcome("refused", job, "QUEUED", 1, "was_claimed")


def test_a_corrected_job_cannot_be_acknowledged_for_what_it_was_before(oci):
    job = oci.move("ack_failed", oci.running(), **error("BAD", "VALIDATION"))
    oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    assert oci.ask("ack", job.id).reason == "was_claimed"


def test_a_corrected_job_can_be_acknowledged_once_it_was_claimed_again(oci):
    job = oci.move("ack_failed", oci.running(), **error("BAD", "VALIDATION"))
    oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    (again,) = oci.claim()
    oci.move("retry_later", again, **TRANSIENT)
    assert oci.move("ack", job.id).state == "COMPLETED"


def test_a_repeated_ack_answers_already_and_changes_nothing(oci):
    job = oci.move("ack", oci.running().id)
    before = unchanged(oci)
    assert oci.ask("ack", job.id) == Outcome("already", job.id, "COMPLETED", 3)
    assert unchanged(oci) == before


def test_an_ack_failed_of_a_completed_job_is_refused(oci):
    job = oci.move("ack", oci.running().id)
    assert oci.ask("ack_failed", job.id, **TRANSIENT).reason == "state"


def test_a_repeated_ack_failed_answers_already(oci):
    job = oci.running()
    oci.move("ack_failed", job.id, **TRANSIENT)
    assert oci.ask("ack_failed", job.id, **error("OTHER", "AUTH")).result == "already"
    assert oci.job(job).error_code == "UPLOAD_EXCEPTION"


def test_a_cancel_of_a_claimed_job_is_refused(task):
    job = task.running()
    assert task.ask("cancel", job.id, **OPERATOR).reason == "state"


def test_a_reject_of_a_waiting_job_counts_no_attempt(oci):
    job = oci.move("reject", oci.one(), **error("MISSING_CLICK_ID", "VALIDATION"))
    assert (job.state, job.attempt_count, job.claim_seq) == ("FAILED", 0, 0)


# Options


def failed_in_oci(oci):
    return oci.move("ack_failed", oci.running(), **TRANSIENT)


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


# Errors and payloads


def test_a_recorded_error_is_the_callers(oci):
    job = oci.move("ack_failed", oci.running(), **error("CODE", "AUTH", "the words"))
    assert (job.error_code, job.error_category, job.error_message) == ("CODE", "AUTH", "the words")


def test_a_fixed_error_is_the_moves_own_whatever_the_caller_says(task):
    job = task.move("cancel", task.one(), **OPERATOR, **error("MINE", "AUTH", "my words"))
    assert (job.error_code, job.error_category, job.error_message) == (
        "CANCELLED",
        "PERMANENT",
        "cancelled before it ran",
    )


def test_a_success_clears_the_error(task):
    job = task.running()
    task.move("retry", job, **error())
    task.clock.advance(86_400)
    (again,) = task.claim()
    assert again.error_code == "BOOM"
    done = task.move("complete", again)
    assert (done.error_code, done.error_category, done.error_message) == (None, None, None)


def test_a_move_that_keeps_the_error_keeps_it(task):
    job = task.move("fail", task.running(), **error())
    assert task.move("requeue", job.id, **OPERATOR).error_code == "BOOM"


def test_the_event_of_a_failure_holds_its_error(task):
    job = task.running()
    task.move("retry", job, **error("BOOM", "TRANSIENT", "it's 100% broken"))
    task.clock.advance(86_400)
    task.move("complete", task.claim()[0])
    event = task.events(job)[2]
    assert (event.error_code, event.error_category, event.error_message) == (
        "BOOM",
        "TRANSIENT",
        "it's 100% broken",
    )


def invalid_in_oci(oci, **details):
    return oci.move("ack_failed", oci.running(**details), **error("BAD", "VALIDATION"))


def test_a_correction_replaces_the_payload(oci):
    job = invalid_in_oci(oci, payload='{"v":1}')
    corrected = oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    assert (corrected.payload, corrected.payload_seq) == ('{"v":2}', corrected.seq)


def test_a_correction_keeps_old_and_new_payload_in_its_event(oci):
    job = invalid_in_oci(oci, payload='{"v":1}')
    oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    event = oci.events(job)[-1]
    assert (event.payload, event.old_payload) == ('{"v":2}', '{"v":1}')


def test_no_other_event_holds_a_payload(oci):
    job = invalid_in_oci(oci)
    oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    oci.move("ack", oci.claim()[0])
    held = [(one.move, one.payload) for one in oci.events(job) if one.payload or one.old_payload]
    assert held == [("correct", '{"v":2}')]


def test_the_next_claim_brings_the_corrected_payload(oci):
    job = invalid_in_oci(oci, payload='{"v":1}')
    oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    assert oci.claim()[0].payload == '{"v":2}'


def test_a_correction_takes_the_stamp_it_is_given(oci):
    job = invalid_in_oci(oci, stamps={"conversion_at": NOW - DAY})
    corrected = oci.move(
        "correct", job.id, payload="{}", stamps={"conversion_at": NOW - HOUR}, **PRODUCER
    )
    assert corrected.stamp_1 == NOW - HOUR


def test_a_batch_of_corrections_gives_each_job_its_own_payload(oci):
    jobs = oci.claimed(20)
    oci.apply("ack_failed", jobs, **error("BAD", "VALIDATION"))
    oci.apply(
        "correct",
        [Change(job.id, payload=f'{{"n":{n}}}') for n, job in enumerate(jobs)],
        **PRODUCER,
    )
    assert [oci.job(job).data["n"] for job in jobs] == list(range(20))


# Times, as the model has them


def test_every_retry_waits_as_long_as_the_model_says(oci):
    job = oci.one(max_attempts=12)
    waits = []
    for _ in range(12):
        (held,) = oci.claim()
        expected = oci.modelled(oci.declared("retry_later"), held, Change(held.id, **TRANSIENT))
        assert oci.move("retry_later", held, **TRANSIENT) == expected
        waits.append((expected.run_at - oci.now) // MINUTE)
        oci.clock.time_us = expected.run_at
    assert waits[:3] == [5, 10, 20]
    assert waits[-1] == 24 * 60
    assert oci.job(job).attempt_count == 12


@pytest.mark.parametrize("category", ["TRANSIENT", "RATE_LIMIT", "VALIDATION", "AUTH", "PERMANENT"])
def test_a_failure_arms_a_timer_only_where_it_may_pass(oci, category):
    held = oci.running()
    change = Change(held.id, held.claim_seq, **error("CODE", category))
    move = next(m for m in oci.lifecycle.calls["ack_failed"] if m.timer != "keep")
    expected = oci.modelled(move, held, change)
    assert oci.move("ack_failed", change) == expected
    assert (expected.timer_at is not None) == (category in ("TRANSIENT", "RATE_LIMIT"))


def test_the_last_failure_arms_no_timer(oci):
    held = oci.running(max_attempts=1)
    assert oci.move("ack_failed", held, **TRANSIENT).timer_at is None


def test_a_click_too_young_for_google_waits_six_hours(oci):
    job = oci.move("too_recent", oci.running(), **error("TOO_RECENT_CLICK"))
    assert (job.run_at, job.retry_count, job.attempt_base) == (NOW + 6 * HOUR, 1, 1)


def test_a_counter_of_its_own_bounds_those_waits(oci):
    job = oci.one()
    for _ in range(8):
        oci.move("too_recent", oci.claim()[0], **error("TOO_RECENT_CLICK"))
        oci.clock.advance(6 * 3_600)
    (held,) = oci.claim()
    assert oci.ask("too_recent", held).reason == "retries_left"
    assert (oci.job(job).attempt_count, oci.job(job).attempts_left) == (9, 4)


def test_an_operators_retry_waits_longer_each_time_and_then_no_more(optiplan):
    job = optiplan.one()
    waits = []
    for _ in range(3):
        optiplan.move("fail", optiplan.claim()[0], **error("E_OPTI_RUNNER_FAILED"))
        again = optiplan.move("retry", job, **OPERATOR)
        waits.append((again.run_at - optiplan.now) // MINUTE)
        optiplan.clock.time_us = again.run_at
    optiplan.move("fail", optiplan.claim()[0], **error("E_OPTI_RUNNER_FAILED"))
    assert waits == [1, 3, 9]
    assert optiplan.ask("retry", job, **OPERATOR).reason == "retries_left"


def test_a_step_arms_its_deadline_from_the_entry_into_the_state(optiplan):
    job = optiplan.running()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    optiplan.clock.advance(5)
    running = optiplan.move("run", job)
    assert running.timer_at == optiplan.now + 20 * MINUTE


def test_waiting_keeps_the_deadline(optiplan):
    job = optiplan.running()
    for call in ("prepare", "import", "run"):
        armed = optiplan.move(call, job)
    optiplan.clock.advance(30)
    waiting = optiplan.move("wait", job, run_at=optiplan.now + 10 * SECOND)
    assert (waiting.timer_at, waiting.run_at) == (armed.timer_at, optiplan.now + 10 * SECOND)


def test_a_wait_without_a_time_may_look_again_at_once(optiplan):
    job = optiplan.running()
    for call in ("prepare", "import"):
        optiplan.move(call, job)
    assert optiplan.move("wait", job).run_at == NOW


# Budgets


def test_a_release_returns_the_attempt(task):
    job = task.move("release", task.running())
    assert (job.attempt_count, job.attempt_base, job.return_count, job.attempts_left) == (
        1,
        1,
        1,
        5,
    )


def test_a_budget_returns_no_more_than_two_attempts(task):
    task.one()
    for _ in range(2):
        task.move("release", task.claim()[0])
    (held,) = task.claim()
    assert task.ask("release", held) == Outcome("refused", held.id, "running", 6, "returns_left")


def test_a_release_of_a_later_step_returns_no_attempt(optiplan):
    job = optiplan.running()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    released = optiplan.move("release", job)
    assert (released.state, released.attempts_left, released.return_count) == (
        "OPTI_IMPORTED",
        4,
        0,
    )


def test_a_renewal_gives_a_full_budget_and_all_returns(task):
    job = task.one(max_attempts=2)
    task.move("release", task.claim()[0])
    task.move("fail", task.claim()[0], **error())
    again = task.move("requeue", job, **OPERATOR)
    assert (again.attempt_count, again.attempt_base, again.return_count, again.attempts_left) == (
        2,
        2,
        0,
        2,
    )


def test_a_renewal_may_stamp_another_cap(oci):
    job = oci.move("RETRY_SELECTED", failed_in_oci(oci).id, max_attempts=8, **OPERATOR)
    assert (job.max_attempts, job.attempts_left) == (8, 8)


def test_a_renewal_keeps_the_cap_unless_told(oci):
    assert oci.move("RETRY_SELECTED", failed_in_oci(oci).id, **OPERATOR).max_attempts == 5


def test_no_other_move_changes_the_cap(task):
    job = task.running()
    assert task.move("complete", job, max_attempts=9).max_attempts == 5


def test_the_attempt_count_never_falls(oci):
    job = oci.one()
    counts = []
    for call in ("release", "too_recent", "retry_later", "ack_failed"):
        counts.append(oci.move(call, oci.claim()[0], **TRANSIENT).attempt_count)
        counts.append(oci.move("RESET_TO_QUEUED", job, **OPERATOR).attempt_count)
    assert counts == [1, 1, 2, 2, 3, 3, 4, 4]


def test_the_row_decides_between_a_retry_and_the_end(task):
    task.one(max_attempts=2)
    assert task.move("retry", task.claim()[0], **error()).state == "ready"
    task.clock.advance(86_400)
    assert task.move("retry", task.claim()[0], **error()).state == "failed"


# Flags and holds


def on_hold(optiplan, code):
    return optiplan.move("hold", optiplan.running(), **error(code, "VALIDATION"))


def awaiting_trigger(optiplan):
    job = optiplan.running()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    return optiplan.move("hold_for_operator", job)


def test_the_approval_of_a_trigger_raises_the_flag(optiplan):
    job = optiplan.move("approve", awaiting_trigger(optiplan).id, **OPERATOR)
    assert (job.state, job.flags) == ("NEW", optiplan.lifecycle.flag_bit("manual_trigger_approved"))


def test_any_other_approval_leaves_the_flag_down(optiplan):
    job = optiplan.move("approve", on_hold(optiplan, "E_CRM_NO_MATCH").id, **OPERATOR)
    assert (job.state, job.flags) == ("NEW", 0)


def test_an_approved_job_is_not_held_for_the_trigger_again(optiplan):
    optiplan.move("approve", awaiting_trigger(optiplan).id, **OPERATOR)
    (job,) = optiplan.claim()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    assert optiplan.ask("hold_for_operator", job).reason == "flag_not_set"


def test_a_code_that_is_never_retried_is_the_reason(optiplan):
    job = optiplan.move("fail", optiplan.running(), **error("E_XML_INVALID", "PERMANENT"))
    assert optiplan.ask("retry", job.id, **OPERATOR).reason == "code_not_in"


def test_a_reissued_job_keeps_its_state_and_refuses_a_retry(optiplan):
    job = optiplan.move("fail", optiplan.running(), **error("E_OPTI_RUNNER_FAILED"))
    assert optiplan.move("reissue", job.id, **OPERATOR).state == "FAILED"
    assert optiplan.ask("retry", job.id, **OPERATOR).reason == "flag_not_set"


def test_a_flag_on_a_claimed_job_leaves_its_claim_alone(optiplan):
    job = optiplan.running()
    flagged = optiplan.move("request_cancel", job.id, **OPERATOR)
    assert (flagged.worker, flagged.claim_seq, flagged.lease_until) == (
        job.worker,
        job.claim_seq,
        job.lease_until,
    )
    assert optiplan.move("prepare", job).state == "PREPARED"


# Exclusive states


def at_the_slot(optiplan, count):
    jobs = optiplan.claimed(count)
    for call in ("prepare", "import"):
        optiplan.apply(call, jobs)
    return jobs


def test_the_second_at_an_exclusive_state_is_busy(optiplan):
    first, second = at_the_slot(optiplan, 2)
    optiplan.move("run", first)
    assert optiplan.ask("run", second) == Outcome("busy", second.id, "OPTI_IMPORTED", 4)


def test_a_busy_job_is_left_as_it_was(optiplan):
    first, second = at_the_slot(optiplan, 2)
    optiplan.move("run", first)
    before = unchanged(optiplan)
    optiplan.ask("run", second)
    assert unchanged(optiplan) == before
    assert optiplan.notes(second) == []


def test_of_many_asked_for_together_one_enters(optiplan):
    jobs = at_the_slot(optiplan, 4)
    assert sorted(results(optiplan.apply("run", jobs))) == ["busy", "busy", "busy", "moved"]


def test_a_job_that_may_not_enter_does_not_keep_others_from_a_free_slot(optiplan):
    first, second = at_the_slot(optiplan, 2)
    lost = Change(first.id, 1)
    assert results(optiplan.apply("run", [lost, second])) == ["stale", "moved"]


def test_the_next_enters_once_the_slot_is_left(optiplan):
    first, second = at_the_slot(optiplan, 2)
    optiplan.move("run", first)
    optiplan.move("collect", first)
    assert optiplan.move("run", second).state == "OPTI_RUNNING"


def test_the_holder_of_the_slot_asking_again_answers_already(optiplan):
    (job,) = at_the_slot(optiplan, 1)
    optiplan.move("run", job)
    assert optiplan.ask("run", job).result == "already"


def test_of_many_entering_at_once_exactly_one_gets_in(optiplan):
    jobs = at_the_slot(optiplan, 8)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda job: optiplan.ask("run", job), jobs))
    assert sorted(results(answers)) == ["busy"] * 7 + ["moved"]


# Keys


def test_a_move_into_a_state_that_holds_a_taken_key_is_refused_naming_the_holder(task):
    old = task.move("fail", task.running(key="k"), **error())
    holder = task.one(key="k")
    assert task.ask("requeue", old.id, **OPERATOR) == Outcome(
        "refused", old.id, "failed", old.seq, "duplicate", holder
    )


def test_a_move_takes_the_key_back_when_it_is_free(task):
    old = task.move("fail", task.running(key="k"), **error())
    task.move("requeue", old.id, **OPERATOR)
    assert task.enqueue(task.new(key="k"))[0].id == old.id


def test_the_key_can_be_taken_back_once_its_holder_is_done(task):
    old = task.move("fail", task.running(key="k"), **error())
    task.move("complete", task.running(key="k"))
    assert task.move("requeue", old.id, **OPERATOR).state == "ready"


def test_of_two_jobs_with_one_key_asked_for_together_one_gets_it(task):
    first = task.move("fail", task.running(key="k"), **error())
    second = task.move("fail", task.running(key="k"), **error())
    other = task.move("fail", task.running(key="other"), **error())
    outcomes = task.apply("requeue", [first.id, second.id, other.id], **OPERATOR)
    assert sorted(results(outcomes[:2])) == ["duplicate", "moved"]
    assert outcomes[2].result == "moved"


def test_of_two_jobs_with_one_key_moving_at_once_exactly_one_gets_it(task):
    jobs = [task.move("fail", task.running(key="k"), **error()).id for _ in range(6)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda one: task.ask("requeue", one, **OPERATOR), jobs))
    assert sorted(results(answers)) == ["duplicate"] * 5 + ["moved"]


def test_the_same_key_of_another_tenant_is_no_obstacle(task):
    old = task.move("fail", task.running(key="k", tenant="a"), **error())
    task.one(key="k", tenant="b")
    assert task.move("requeue", old.id, **OPERATOR).state == "ready"


# Chains


def test_a_chain_ends_where_its_second_link_leads(pdf):
    job = pdf.running()
    assert pdf.ask("fail", job, **BROWSER) == Outcome("moved", job.id, "queued", 4)


def test_a_chain_is_two_events(pdf):
    job = pdf.running()
    pdf.move("fail", job, **BROWSER)
    assert [(one.move, one.from_state, one.to_state) for one in pdf.events(job)[2:]] == [
        ("fail", "running", "failed"),
        ("requeue", "failed", "queued"),
    ]


def test_a_chain_is_two_counts(pdf):
    pdf.move("fail", pdf.running(), **BROWSER)
    flows = {(one.move, one.from_state, one.to_state): one.n for one in pdf.store.flows("pdf")}
    assert (flows["fail", "running", "failed"], flows["requeue", "failed", "queued"]) == (1, 1)


def test_a_chain_is_what_the_model_says_twice(pdf):
    held = pdf.running()
    change = Change(held.id, held.claim_seq, **BROWSER)
    failed = pdf.modelled(pdf.declared("fail"), held, change)
    assert pdf.move("fail", change) == pdf.modelled(pdf.declared("requeue"), failed)


def test_a_chain_stops_where_its_second_link_may_not_be_made(pdf):
    job = pdf.move("fail", pdf.running(), **error("TEMPLATE_ERROR", "VALIDATION"))
    assert (job.state, job.seq, job.retry_count) == ("failed", 3, 0)


def test_a_chain_stops_when_its_retries_are_used_up(pdf):
    job = pdf.one()
    for _ in range(3):
        pdf.move("fail", pdf.claim()[0], **BROWSER)
        pdf.clock.advance(5)
    assert (pdf.state(job), pdf.job(job).retry_count) == ("failed", 2)


def test_a_batch_of_failures_chains_each_by_its_own_row(pdf):
    first, second, third = pdf.claimed(3)
    pdf.apply(
        "fail",
        [
            Change(first.id, first.claim_seq, **BROWSER),
            Change(second.id, second.claim_seq, **error("UNKNOWN", "PERMANENT")),
            Change(third.id, 1, **BROWSER),
        ],
    )
    assert [pdf.state(job) for job in (first, second, third)] == ["queued", "failed", "running"]


def test_the_row_decides_which_second_link_is_made(pdf):
    job = pdf.move("release", pdf.running())
    assert (job.state, job.move, job.retry_count, job.attempts_left) == ("queued", "resume", 0, 3)


def test_a_chained_job_holds_its_key_again(pdf):
    job = pdf.move("fail", pdf.running(key="k"), **BROWSER)
    assert pdf.enqueue(pdf.new(key="k")) == [Outcome("duplicate", job.id, "queued", 4)]


def test_a_chain_is_made_whole_or_not_at_all(pdf, monkeypatch):
    job = pdf.running()
    before = unchanged(pdf)
    monkeypatch.setattr(Lifecycle, "chained", property(lambda self: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        pdf.ask("fail", job, **BROWSER)
    assert unchanged(pdf) == before


def test_of_alternatives_with_one_name_only_the_chained_one_is_followed(open_queue):
    """A failure with budget left is chained to a requeue; the last one is not."""
    lifecycle = pdf_lifecycle()
    fail = next(move for move in lifecycle.moves if move.name == "fail")
    alternatives = (
        replace(fail, when=(holds_claim, budget_left)),
        replace(fail, when=(holds_claim, budget_spent), then=""),
    )
    moves = tuple(
        one for move in lifecycle.moves for one in (alternatives if move is fail else (move,))
    )
    pdf = open_queue(replace(lifecycle, moves=moves))
    assert pdf.move("fail", pdf.running(max_attempts=2), **BROWSER).state == "queued"
    assert pdf.move("fail", pdf.claim()[0], **BROWSER).state == "failed"
