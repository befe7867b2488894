"""The transition table of the specification, row by row, on each database."""

from collections.abc import Iterator
from itertools import cycle, pairwise

import pytest

from kesin.engine.queue import apply_changes
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.store.records import Filter, Outcome
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.lifecycle import (
    APPROVED,
    CANCEL_REQUESTED,
    HOLD_CODES,
    NEVER_RETRIED,
    REISSUED,
    TRIGGER_REQUIRED,
)
from tests.workloads.optiplan.workbench import LEASE_S, ME, MINUTE, Workbench, audited, open_bench

WAY = {
    "NEW": "prepare",
    "PREPARED": "import",
    "OPTI_IMPORTED": "run",
    "OPTI_RUNNING": "collect",
    "OPTI_DONE": "validate",
    "XML_READY": "deliver",
    "DELIVERED": "done",
    "DONE": "",
}
STATES = list(WAY)
EARLY = STATES[:6]
STAND_ALONE = ["NEW", "OPTI_IMPORTED", "OPTI_RUNNING", "OPTI_DONE", "XML_READY"]
LATE = ["OPTI_RUNNING", "OPTI_DONE", "XML_READY"]
GATES = sorted(HOLD_CODES)
NOT_OF_A_PASS = {"E_MAX_ATTEMPTS", "E_OPTI_XML_TIMEOUT", "E_OSI_ACK_TIMEOUT"}
FAILURES = sorted({*OptiCode} - {*HOLD_CODES, TRIGGER_REQUIRED} - NOT_OF_A_PASS)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    with open_bench(request.param, tmp_path_factory.mktemp("table"), request) as bench:
        yield bench


@pytest.fixture
def bench(shared: Workbench) -> Iterator[Workbench]:
    """A bench with a free slot."""
    yield shared
    free_slot(shared)


def free_slot(bench: Workbench) -> None:
    """Let the order in OPTI_RUNNING, if any, time out."""
    if bench.queue.jobs(Filter(states=("OPTI_RUNNING",))).jobs:
        bench.clock.advance(21 * MINUTE)
        bench.sweep()
        bench.sweep()


def claimed(bench: Workbench, state: str, job: Job | None = None) -> Job:
    """A job in this state that a runner has claimed."""
    [held] = bench.queue.claim("runner", ids=[(job or bench.order()).id])
    for at, call in WAY.items():
        if at == state:
            return held
        assert bench.queue.move(held, call).result == "moved"
    raise AssertionError(state)


def standing(bench: Workbench, state: str) -> Job:
    """An unclaimed job in this state."""
    if state == "NEW":
        return bench.order()
    if state in {"HOLD", "FAILED"}:
        return aside(bench, state, TRIGGER_REQUIRED if state == "HOLD" else "E_OPTI_RUNNER_FAILED")
    held = claimed(bench, state)
    if state != "DONE":
        assert apply(bench, "release", held).result == "moved"
    return bench.reload(held)


def aside(bench: Workbench, state: str, code: str, held: Job | None = None) -> Job:
    """A job that stopped with this code."""
    call = "hold_for_operator" if code == TRIGGER_REQUIRED else {"HOLD": "hold", "FAILED": "fail"}[state]
    held = held or claimed(bench, "OPTI_IMPORTED" if code == TRIGGER_REQUIRED else "NEW")
    assert apply(bench, call, held, code).result == "moved"
    return bench.reload(held)


def apply(bench: Workbench, call: str, held: Job, code: str | None = None) -> Outcome:
    change = Change(held.id, held.claim_seq)
    if call == "wait":
        change = change._replace(run_at=bench.queue.now() + 1)
    if code and call != "hold_for_operator":
        change = change._replace(error_code=code, error_category=Category.TRANSIENT.value, error_message="so it was")
    return apply_changes(bench.queue, call, [change], actor="runner")[0]


def flag(bench: Workbench, job: Job, name: str) -> bool:
    return bool(bench.reload(job).flags & bench.queue.lifecycle.flag_bit(name))


def used(job: Job) -> int:
    """Attempts that count."""
    return job.attempt_count - job.attempt_base


# claim, wait


def test_claim_leaves_the_state_and_counts_where_work_begins(bench: Workbench):
    for state in STAND_ALONE:
        job = standing(bench, state)
        [held] = bench.queue.claim("another", ids=[job.id])
        assert (held.state, held.worker) == (state, "another")
        assert used(held) - used(job) == (1 if state in {"NEW", "OPTI_DONE"} else 0)
        apply(bench, "release", held)
        free_slot(bench)
    for state in ("DELIVERED", "DONE", "HOLD", "FAILED"):  # it is over, or a person's
        assert bench.queue.claim("runner", ids=[standing(bench, state).id]) == []


def test_claim_waits_for_the_slot_and_run_answers_busy(bench: Workbench):
    waiting, second = standing(bench, "OPTI_IMPORTED"), claimed(bench, "OPTI_IMPORTED")
    running = claimed(bench, "OPTI_RUNNING")
    assert bench.queue.move(second, "run").result == "busy"
    assert bench.reload(second).state == "OPTI_IMPORTED"
    assert bench.queue.claim("runner", ids=[waiting.id]) == []
    bench.queue.move(running, "collect")
    assert len(bench.queue.claim("runner", ids=[waiting.id])) == 1


def test_wait_drops_the_claim_and_nothing_else_and_only_where_something_is_waited_for(bench: Workbench):
    for state in ("OPTI_IMPORTED", "OPTI_RUNNING", "XML_READY"):
        held = claimed(bench, state)
        before = bench.reload(held)
        assert apply(bench, "wait", held).result == "moved"
        after = bench.reload(held)
        assert (after.state, after.worker, after.timer_at) == (state, None, before.timer_at)
        free_slot(bench)
    for state in ("NEW", "PREPARED", "OPTI_DONE", "DELIVERED"):
        assert apply(bench, "wait", claimed(bench, state)).result == "refused"


# forward


def test_forward_goes_to_the_next_state_with_one_event_and_skips_none(bench: Workbench):
    for state, to in pairwise([*STATES, ""]):
        held = claimed(bench, state)
        for at, call in WAY.items():
            if call and at != state:
                outcome = apply_changes(bench.queue, call, [Change(held.id, held.claim_seq)], actor="runner")
                assert outcome[0].result in {"refused", "already"}
        assert bench.reload(held).state == state
        if to:
            assert bench.queue.move(held, WAY[state]).state == to
            assert audited(bench, held)[-1] == f"STATE_{to}"
        free_slot(bench)


# hold, fail


def test_hold_for_each_hold_code_before_files_are_out(bench: Workbench):
    for code, state in zip(GATES, cycle(["NEW", "PREPARED"]), strict=False):
        resolved = bench.queue.lifecycle.errors.resolve(code, channel="runner", category=None)
        assert (resolved.move, resolved.category) == ("hold", Category.VALIDATION)
        job = aside(bench, "HOLD", code, claimed(bench, state))
        assert (job.state, job.error_code, job.worker) == ("HOLD", code, None)
        assert audited(bench, job)[-1] == "STATE_HOLD"
    for state in ("OPTI_IMPORTED", *LATE, "DELIVERED"):
        assert apply(bench, "hold", claimed(bench, state), GATES[0]).result == "refused"
        free_slot(bench)


def test_fail_for_each_other_code_and_from_every_state_before_the_delivery(bench: Workbench):
    for code in FAILURES:
        resolved = bench.queue.lifecycle.errors.resolve(code, channel="runner", category=None)
        permanent = code in {"E_XML_INVALID", "E_CANCELLED", "E_REISSUED"}
        assert resolved.move == "fail", code
        assert resolved.category == (Category.PERMANENT if permanent else Category.TRANSIENT)
    for state in EARLY:
        job = aside(bench, "FAILED", "E_OPTI_RUNNER_FAILED", claimed(bench, state))
        assert (job.state, job.error_code) == ("FAILED", "E_OPTI_RUNNER_FAILED")
        assert (job.worker, job.timer_at) == (None, None)
    assert apply(bench, "fail", claimed(bench, "DELIVERED"), "E_OPTI_RUNNER_FAILED").result == "refused"


# xml_timeout, ack_timeout

TIMEOUTS = [("OPTI_RUNNING", 20, "E_OPTI_XML_TIMEOUT"), ("XML_READY", 5, "E_OSI_ACK_TIMEOUT")]


@pytest.mark.parametrize(("state", "minutes", "code"), TIMEOUTS)
def test_timeout_counts_from_the_entry_into_the_state(bench: Workbench, state: str, minutes: int, code: str):
    for meanwhile in ("", "wait", "release", "recover"):
        held = claimed(bench, state)
        entered = bench.queue.now()
        for _ in range(3 if meanwhile else 0):
            bench.clock.advance(LEASE_S)
            if meanwhile == "recover":
                bench.sweep()
            else:
                apply(bench, meanwhile, held)
            bench.clock.advance(1)
            [held] = bench.queue.claim("runner", ids=[held.id])
        apply(bench, "wait", held)
        bench.clock.time_us = entered + minutes * MINUTE * 1_000_000 - 1
        bench.sweep()
        assert bench.reload(held).state == state
        bench.clock.time_us += 1
        bench.sweep()
        assert (bench.reload(held).state, bench.reload(held).error_code) == ("FAILED", code), meanwhile


def test_timeout_leaves_a_claimed_job_alone_and_no_claim_comes_after_it(bench: Workbench):
    for state, minutes, _ in TIMEOUTS:
        held = claimed(bench, state)
        for _ in range(minutes):
            bench.clock.advance(MINUTE - 1)
            assert bench.queue.renew([held]) == {held.id}
        bench.clock.advance(minutes)
        bench.sweep()
        assert bench.reload(held).state == state
        apply(bench, "wait", held)
        bench.clock.advance(1)
        assert bench.queue.claim("runner", ids=[held.id]) == []
        free_slot(bench)


# recover, attempt_cap, release


def test_recover_begins_again_before_anything_was_started_and_stands_after(bench: Workbench):
    for state, to in {
        **dict.fromkeys(("NEW", "PREPARED", "OPTI_IMPORTED"), "NEW"),
        **{state: state for state in LATE},
        "DELIVERED": "DONE",  # without a runner
    }.items():
        held = claimed(bench, state)
        bench.clock.advance(LEASE_S - 2)
        bench.sweep()
        assert bench.reload(held).worker == "runner"
        bench.clock.advance(2)
        bench.sweep()
        assert (bench.reload(held).state, bench.reload(held).worker) == (to, None)
        assert "recover" in bench.moves(held)
        assert apply(bench, "fail", held, "E_UNKNOWN").result != "moved"
        free_slot(bench)


@pytest.mark.parametrize("state", ["NEW", "OPTI_DONE"])
def test_attempt_cap_after_five_counted_attempts(bench: Workbench, state: str):
    job = standing(bench, state)
    for _ in range(5 - used(job)):
        [_] = bench.queue.claim("runner", ids=[job.id])
        bench.clock.advance(LEASE_S)
        bench.sweep()
    bench.sweep()
    assert bench.reload(job).error_code == "E_MAX_ATTEMPTS"
    assert used(bench.orders.retry(ME, job.id)) == 0


def test_release_gives_the_attempt_back_before_files_are_out_and_later_changes_nothing_but_the_claim(bench: Workbench):
    for state in ("NEW", "PREPARED"):
        held = claimed(bench, state)
        apply(bench, "release", held)
        assert (bench.reload(held).state, used(bench.reload(held))) == ("NEW", 0)
    for state in ("OPTI_IMPORTED", *LATE, "DELIVERED"):
        held = claimed(bench, state)
        before = bench.reload(held)
        apply(bench, "release", held)
        after = bench.reload(held)
        assert (after.state, after.timer_at, used(after)) == (state, before.timer_at, used(before))
        assert after.worker is None
        free_slot(bench)


# approve, retry


def test_approve_begins_again_and_sets_the_flag_for_the_operators_hold_only(bench: Workbench):
    for code in (*GATES, TRIGGER_REQUIRED):
        job = aside(bench, "HOLD", code)
        bench.clock.advance(MINUTE)
        after = bench.orders.approve(ME, job.id, confirmed=True)
        assert (after.state, after.error_code, after.error_message) == ("NEW", None, None)
        assert (after.run_at, after.worker, used(after)) == (bench.queue.now(), None, 0)
        assert flag(bench, job, APPROVED) == (code == TRIGGER_REQUIRED)
        assert audited(bench, job)[-1] == "HOLD_APPROVED"


def test_the_operators_hold_comes_once_and_a_later_approval_or_retry_leaves_it_approved(bench: Workbench):
    resolved = bench.queue.lifecycle.errors.resolve(TRIGGER_REQUIRED, channel="runner", category=None)
    assert resolved.move == "hold_for_operator"
    job = aside(bench, "HOLD", TRIGGER_REQUIRED)
    assert (job.state, job.error_code, job.error_category) == ("HOLD", TRIGGER_REQUIRED, "VALIDATION")
    bench.orders.approve(ME, job.id, confirmed=True)
    aside(bench, "HOLD", GATES[0], claimed(bench, "NEW", job))
    bench.orders.approve(ME, job.id, confirmed=True)
    assert flag(bench, job, APPROVED)
    aside(bench, "FAILED", "E_OSI_ACK_FAILED", claimed(bench, "NEW", job))
    retried = bench.orders.retry(ME, job.id)
    assert flag(bench, job, APPROVED)
    assert retried.run_at is not None
    bench.clock.time_us = retried.run_at
    held = claimed(bench, "OPTI_IMPORTED", job)
    assert apply(bench, "hold_for_operator", held).reason == "flag_not_set"


def test_retry_waits_one_three_and_nine_minutes_and_then_no_more(bench: Workbench):
    job = bench.order()
    for count, minutes in enumerate((1, 3, 9), 1):
        aside(bench, "FAILED", "E_OPTI_RUNNER_FAILED", claimed(bench, "NEW", job))
        after = bench.orders.retry(ME, job.id)
        assert (after.state, after.retry_count, after.error_code) == ("NEW", count, None)
        assert after.run_at == bench.queue.now() + minutes * MINUTE * 1_000_000
        assert audited(bench, job)[-1] == "JOB_RETRY_SCHEDULED"
        bench.clock.advance(minutes * MINUTE)
    aside(bench, "FAILED", "E_OPTI_RUNNER_FAILED", claimed(bench, "NEW", job))
    assert refusal(bench, "retry", job) == "E_RETRY_LIMIT_REACHED"
    assert bench.reload(job).retry_count == 3


def test_retry_is_refused_only_for_what_would_fail_again(bench: Workbench):
    for code in sorted({*FAILURES, *NOT_OF_A_PASS, *NEVER_RETRIED}):
        job = aside(bench, "FAILED", code)
        if code in NEVER_RETRIED:
            assert refusal(bench, "retry", job) == code
        else:
            assert bench.orders.retry(ME, job.id).state == "NEW", code


# cancel, reissue


def test_cancel_fails_an_unclaimed_job_for_good_and_asks_the_runner_that_has_one(bench: Workbench):
    for state in (*STAND_ALONE, "HOLD"):
        job = bench.orders.cancel(ME, standing(bench, state).id)
        assert (job.state, job.error_code, job.timer_at) == ("FAILED", "E_CANCELLED", None)
        assert refusal(bench, "retry", job) == "E_CANCELLED"
    for state in EARLY:
        held = claimed(bench, state)
        assert bench.orders.cancel(ME, held.id).state == state
        assert flag(bench, held, CANCEL_REQUESTED)
        assert bench.orders.cancel(ME, held.id).state == state  # the second request changes nothing
        assert apply(bench, "fail", held, "E_CANCELLED").result == "moved"


@pytest.mark.parametrize("state", ["FAILED", "DONE"])
def test_reissue_makes_a_new_revision_of_the_same_order(bench: Workbench, state: str):
    old = standing(bench, state)
    made = bench.orders.reissue(ME, old.id)
    assert (made.new, made.job.state, made.job.payload["revision"]) == (True, "NEW", 2)
    assert made.job.payload["order"] == old.payload["order"]
    assert bench.reload(old).state == state
    assert flag(bench, old, REISSUED) == (state == "FAILED")
    assert audited(bench, old)[-1] == "JOB_REISSUED"
    if state == "FAILED":
        assert {refusal(bench, action, old) for action in ("retry", "reissue")} == {"E_REISSUED"}


@pytest.mark.parametrize(
    ("action", "code", "states"),
    [
        ("approve", "E_JOB_NOT_IN_HOLD", [*STAND_ALONE, "DELIVERED", "DONE", "FAILED"]),
        ("retry", "E_JOB_NOT_FAILED", [*STAND_ALONE, "DELIVERED", "DONE", "HOLD"]),
        ("cancel", "E_JOB_NOT_CANCELLABLE", ["DELIVERED", "DONE", "FAILED"]),
        ("reissue", "E_JOB_NOT_FAILED", [*STAND_ALONE, "DELIVERED", "HOLD"]),
    ],
)
def test_an_operators_action_is_refused_in_every_other_state(
    bench: Workbench, action: str, code: str, states: list[str]
):
    for state in states:
        job = standing(bench, state)
        assert refusal(bench, action, job) == code, state
        free_slot(bench)


def refusal(bench: Workbench, call: str, job: Job) -> str:
    """The code of the rejection; nothing has changed then."""
    before = bench.reload(job)
    with pytest.raises(OrderProblem) as refused:
        getattr(bench.orders, call)(ME, job.id)
    assert bench.reload(job) == before
    assert refused.value.status == 409
    return str(refused.value.code)
