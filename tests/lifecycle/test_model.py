from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Asked, Change, edges, failing_guard, holds, step, tries
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.words import (
    GONE,
    OVER,
    OWNED,
    READY,
    RESTING,
    STAY,
    After,
    Fixed,
    GuardKind,
    age_over,
    budget_left,
    budget_spent,
    category_in,
    code_in,
    code_not_in,
    due,
    flag_not_set,
    flag_set,
    holds_claim,
    lease_over,
    option,
    retries_left,
    returns_left,
    slot_free,
    timer_not_over,
    timer_over,
    unclaimed,
    was_claimed,
)
from tests.lifecycle.adversary import NOW, born
from tests.lifecycle.table import (
    CLAIMED,
    FUTURE,
    HOUR,
    LEASE,
    LOST,
    MINUTE,
    NO_CLAIM,
    NO_ERROR,
    PAST,
    SECOND,
    STALE,
    Row,
    error,
    hold,
    rows,
)

TASK = task_lifecycle()
PLAIN = replace(
    TASK,
    states=(*TASK.states, State("slot", exclusive=True)),
    stamps=("sold_at", "sent_at", "seen_at", "paid_at"),
    flags=("vip", "fragile"),
)
VIP, FRAGILE = (PLAIN.flag_bit(flag) for flag in ("vip", "fragile"))


def asked(**changes):
    return replace(Asked(NOW, "somebody", "worker-2", LEASE), **changes)


def apply(given=None, told=None, at=NOW, source="running", to="ready", **effects):
    """One move with nothing but these effects, made on one job."""
    move = Move("move", (source,), to, by=("worker",), **effects)
    job = born(PLAIN, state=source, **(given or {}))
    return step(PLAIN, move, job, Change(job.id, **(told or {})), asked(now=at))


# Guards: at each edge, one job that passes and one that does not


GUARDS = [
    (due, {"run_at": NOW}, {"run_at": NOW + 1}),
    (due, {"run_at": PAST}, {"run_at": None}),
    (unclaimed, {}, CLAIMED),
    (holds_claim, CLAIMED, {"claim_seq": 4}),
    (lease_over, LOST, {**CLAIMED, "lease_until": NOW + 1}),
    (lease_over, {**CLAIMED, "lease_until": PAST}, {"lease_until": PAST}),
    (timer_over, {"timer_at": NOW}, {"timer_at": NOW + 1}),
    (timer_over, {"timer_at": PAST}, {"timer_at": None}),
    (timer_not_over, {"timer_at": NOW + 1}, {"timer_at": NOW}),
    (timer_not_over, {"timer_at": None}, {"timer_at": PAST}),
    (budget_left, {"attempt_count": 4}, {"attempt_count": 5}),
    (budget_left, {"attempt_count": 9, "attempt_base": 5}, {"attempt_count": 9, "attempt_base": 4}),
    (budget_left, {"attempt_count": 5, "max_attempts": 8}, {"attempt_count": 8, "max_attempts": 8}),
    (budget_spent, {"attempt_count": 5}, {"attempt_count": 4}),
    (
        budget_spent,
        {"attempt_count": 8, "max_attempts": 8},
        {"attempt_count": 5, "max_attempts": 8},
    ),
    (retries_left(3), {"retry_count": 2}, {"retry_count": 3}),
    (code_in("A", "B"), {"error_code": "B"}, {"error_code": "C"}),
    (code_in("A"), {"error_code": "A"}, {"error_code": None}),
    (code_not_in("A", "B"), {"error_code": "C"}, {"error_code": "A"}),
    (code_not_in("A"), {"error_code": None}, {"error_code": "A"}),
    (category_in(Category.AUTH), {"error_category": "AUTH"}, {"error_category": "TRANSIENT"}),
    (category_in(Category.AUTH), {"error_category": "AUTH"}, {"error_category": None}),
    (returns_left, {"return_count": 1}, {"return_count": 2}),
    (was_claimed, {"claim_seq": 4, "payload_seq": 1}, {"claim_seq": 4, "payload_seq": 6}),
    (was_claimed, {"claim_seq": 2, "payload_seq": 1}, {"claim_seq": 0, "payload_seq": 1}),
    (flag_set("vip"), {"flags": VIP | FRAGILE}, {"flags": FRAGILE}),
    (flag_not_set("vip"), {"flags": FRAGILE}, {"flags": VIP}),
    (age_over("created_at", 60), {"created_at": NOW - MINUTE}, {"created_at": NOW - MINUTE + 1}),
    (age_over("sent_at", 60), {"stamp_2": NOW - MINUTE}, {"stamp_2": None, "stamp_1": 0}),
]


@pytest.mark.parametrize(("guard", "passes", "_"), GUARDS, ids=str)
def test_a_guard_lets_the_right_job_through(guard, passes, _):
    job = born(PLAIN, **passes)
    assert holds(guard, job, PLAIN, asked(), job.claim_seq) is True


@pytest.mark.parametrize(("guard", "_", "fails"), GUARDS, ids=str)
def test_a_guard_stops_the_wrong_job(guard, _, fails):
    job = born(PLAIN, **fails)
    assert holds(guard, job, PLAIN, asked(), job.claim_seq) is False


CALLS = [
    (option("hard", is_set=True), {"options": frozenset({"hard"})}, {"options": frozenset()}),
    (
        option("hard", is_set=False),
        {"options": frozenset({"soft"})},
        {"options": frozenset({"hard"})},
    ),
    (
        slot_free("slot"),
        {"slots_taken": frozenset({"other"})},
        {"slots_taken": frozenset({"slot"})},
    ),
]


@pytest.mark.parametrize(("guard", "passes", "fails"), CALLS, ids=str)
def test_a_guard_that_reads_the_call_tells_calls_apart(guard, passes, fails):
    job = born(PLAIN)
    answers = [holds(guard, job, PLAIN, asked(**case), None) for case in (passes, fails)]
    assert answers == [True, False]


def test_every_guard_of_the_closed_set_is_tried_above():
    tried = {guard.kind for guard, *_ in (*GUARDS, *CALLS)}
    assert tried == set(get_args(GuardKind))


@pytest.mark.parametrize("token", [3, 5, None])
def test_a_claim_is_held_by_its_own_token_alone(token):
    assert not holds(holds_claim, born(PLAIN, **CLAIMED), PLAIN, asked(), token)


def test_the_first_guard_that_stops_a_move_is_named():
    claim = PLAIN.claims[0]
    spent = born(PLAIN, run_at=FUTURE, attempt_count=5)
    assert failing_guard(claim, spent, PLAIN, asked(), None) == due


def test_a_move_whose_guards_all_hold_is_stopped_by_none():
    assert failing_guard(PLAIN.claims[0], born(PLAIN), PLAIN, asked(), None) is None


# What a move does to claims and counters


def test_a_claim_is_a_worker_a_lease_and_a_token_of_its_own():
    job = apply(source="ready", to="running", claim="take", given={"seq": 7})
    claim = (job.worker, job.claimed_at, job.lease_until, job.claim_seq, job.phase)
    assert claim == ("worker-2", NOW, NOW + LEASE, 8, OWNED)


def test_a_dropped_claim_keeps_its_token_so_that_a_repeat_is_known():
    job = apply(given=CLAIMED, claim="drop")
    assert (job.claim_seq, job.token, job.worker, job.phase) == (4, 4, None, READY)


def test_a_wake_up_gets_a_new_token_without_counting():
    job = apply(source="ready", to=STAY, claim="take", given={"seq": 7, "claim_seq": 3})
    assert (job.claim_seq, job.attempt_count) == (8, 0)


def test_a_claim_that_is_kept_travels_with_the_job():
    job = apply(given=CLAIMED)
    claim = (job.worker, job.claim_seq, job.claimed_at, job.lease_until, job.phase)
    assert claim == ("worker-1", 4, NOW - MINUTE, NOW + HOUR, OWNED)


@pytest.mark.parametrize(
    ("to", "phase"), [("ready", READY), ("done", OVER), ("failed", RESTING), ("slot", 4)]
)
def test_an_unclaimed_job_takes_the_phase_of_where_it_goes(to, phase):
    assert apply(to=to, claim="drop", given=CLAIMED).phase == phase


@pytest.mark.parametrize(
    ("attempt", "count", "base", "returns"),
    [("count", 4, 1, 1), ("return", 3, 2, 1), ("renew", 3, 3, 0), ("keep", 3, 1, 1)],
)
def test_the_budget_moves_as_declared(attempt, count, base, returns):
    used = {"attempt_count": 3, "attempt_base": 1, "return_count": 1}
    job = apply(given=used, attempt=attempt)
    assert (job.attempt_count, job.attempt_base, job.return_count) == (count, base, returns)


def test_a_return_that_asks_for_returns_left_is_counted():
    job = apply(given={"attempt_count": 1}, attempt="return", when=(returns_left,))
    assert (job.attempt_base, job.return_count) == (1, 1)


@pytest.mark.parametrize(("told", "cap"), [({}, 5), ({"max_attempts": 8}, 8)])
def test_a_renewal_stamps_the_cap_it_is_given(told, cap):
    assert apply(attempt="renew", told=told).max_attempts == cap


def test_only_a_renewal_changes_the_cap():
    assert apply(attempt="keep", told={"max_attempts": 8}).max_attempts == 5


@pytest.mark.parametrize(("retry", "count"), [("count", 3), ("keep", 2)])
def test_retries_are_counted_where_declared(retry, count):
    assert apply(given={"retry_count": 2}, retry=retry).retry_count == count


def test_attempts_left_are_what_the_budget_still_allows():
    assert born(PLAIN, attempt_count=6, attempt_base=3, max_attempts=8).attempts_left == 5


# What it does to errors, results, payloads and flags


OLD = error("OLD", "AUTH", "before")
TOLD = {"error_code": "NEW", "error_category": "TRANSIENT", "error_message": "after"}
FIXED = Fixed("SET", Category.PERMANENT, "by the move")


@pytest.mark.parametrize(
    ("effect", "left"),
    [
        ("record", error("NEW", "TRANSIENT", "after")),
        ("clear", NO_ERROR),
        ("keep", OLD),
        (FIXED, error("SET", "PERMANENT", "by the move")),
    ],
    ids=["record", "clear", "keep", "fixed"],
)
def test_an_error_is_recorded_fixed_cleared_or_kept(effect, left):
    job = apply(given=OLD, told=TOLD, error=effect)
    assert {column: getattr(job, column) for column in left} == left


@pytest.mark.parametrize(("effect", "left"), [("record", '{"n":2}'), ("keep", '{"n":1}')])
def test_a_result_is_recorded_or_kept(effect, left):
    assert (
        apply(given={"result": '{"n":1}'}, told={"result": '{"n":2}'}, result=effect).result == left
    )


def test_a_replaced_payload_forgets_the_claims_before_it():
    given = {"payload": "1", "seq": 6, "claim_seq": 5}
    job = apply(given=given, told={"payload": "2"}, payload="replace")
    assert (job.payload, job.payload_seq) == ("2", 7)
    assert not holds(was_claimed, job, PLAIN, asked(), None)


def test_a_payload_is_kept_whatever_the_caller_sends():
    job = apply(given={"payload": "1"}, told={"payload": "2"})
    assert (job.payload, job.payload_seq) == ("1", 1)


def test_flags_are_added_to_those_already_up():
    assert apply(given={"flags": FRAGILE}, flag=("vip",)).flags == VIP | FRAGILE


def test_several_flags_are_set_by_one_move():
    assert apply(flag=("vip", "fragile")).flags == VIP | FRAGILE


# What it does to times


@pytest.mark.parametrize(
    ("effect", "told", "left"),
    [
        ("now", {"run_at": FUTURE}, NOW),
        ("input", {"run_at": FUTURE}, FUTURE),
        ("input", {}, NOW),
        ("keep", {"run_at": FUTURE}, PAST),
        (Backoff((5,)), {}, NOW + 5 * SECOND),
    ],
    ids=["now", "input", "input without one", "keep", "backoff"],
)
def test_the_time_to_run_at_is_set_as_declared(effect, told, left):
    assert apply(given={"run_at": PAST}, told=told, run_at=effect).run_at == left


def test_the_time_to_run_at_is_cleared_when_the_work_ends():
    assert apply(to="done", run_at="clear", given={"run_at": PAST}).run_at is None


@pytest.mark.parametrize(
    ("effect", "left"),
    [
        ("clear", None),
        ("keep", PAST),
        (After(20), NOW + 20 * SECOND),
        (Backoff((7,)), NOW + 7 * SECOND),
    ],
    ids=["clear", "keep", "after", "backoff"],
)
def test_a_timer_is_armed_cleared_or_kept(effect, left):
    assert apply(given={"timer_at": PAST}, timer=effect).timer_at == left


@pytest.mark.parametrize(
    ("category", "left"), [("TRANSIENT", NOW + 20 * SECOND), ("AUTH", None), (None, None)]
)
def test_a_timer_for_some_errors_is_armed_by_those_alone(category, left):
    effects = {"error": "record", "timer": After(20), "timer_for": (Category.TRANSIENT,)}
    told = {"error_category": category}
    assert apply(given={"timer_at": PAST}, told=told, **effects).timer_at == left


@pytest.mark.parametrize(
    ("counts", "expected"), [("attempts", 30), ("retries", 90)], ids=["attempts", "retries"]
)
def test_a_backoff_picks_its_delay_by_the_counter_it_names(counts, expected):
    backoff = Backoff((10, 30, 50, 70, 90), counts=counts)
    given = {"attempt_count": 7, "attempt_base": 5, "retry_count": 4}
    assert apply(given=given, run_at=backoff).run_at == NOW + expected * SECOND


def test_a_backoff_by_retries_reads_the_count_before_the_move_raises_it():
    backoff = Backoff((10, 30), counts="retries")
    job = apply(run_at=backoff, retry="count")
    assert (job.run_at, job.retry_count) == (NOW + 10 * SECOND, 1)


def test_a_backoff_by_attempts_does_not_count_the_try_that_failed():
    assert tries(Backoff((1,)), born(PLAIN, attempt_count=6, attempt_base=3)) == 2


@given(salt=st.integers(0, 2**31 - 1))
def test_a_jitter_comes_from_the_jobs_own_salt(salt):
    backoff = Backoff((10,), jitter_s=60)
    job = apply(given={"salt": salt, "attempt_count": 1}, run_at=backoff)
    assert job.run_at == NOW + backoff.delay_us(0, salt)


def test_stamps_are_set_given_and_cleared_in_their_columns():
    job = apply(
        given={"stamp_3": PAST, "stamp_4": PAST},
        told={"stamps": {"sent_at": 77}},
        stamp=("sold_at", "finished_at"),
        stamp_input=("sent_at",),
        unstamp=("seen_at",),
    )
    stamps = (job.stamp_1, job.stamp_2, job.stamp_3, job.stamp_4, job.finished_at)
    assert stamps == (NOW, 77, None, PAST, NOW)


def test_a_stamp_that_is_not_given_is_empty():
    assert apply(given={"stamp_2": PAST}, stamp_input=("sent_at",)).stamp_2 is None


def test_every_time_of_a_move_counts_from_the_jobs_last_one_when_the_clock_jumps_back():
    effects = {"run_at": Backoff((5,)), "timer": After(7), "stamp": ("sold_at", "finished_at")}
    job = apply(at=NOW - HOUR, claim="take", **effects)
    times = (job.moved_at, job.claimed_at, job.stamp_1, job.finished_at)
    assert times == (NOW, NOW, NOW, NOW)
    assert (job.run_at, job.timer_at, job.lease_until) == (
        NOW + 5 * SECOND,
        NOW + 7 * SECOND,
        NOW + LEASE,
    )


@given(jumps=st.lists(st.integers(-HOUR, HOUR), min_size=1, max_size=8))
def test_a_jobs_own_time_never_runs_backwards(jumps):
    job = born(PLAIN, state="running")
    move = Move("move", ("running",), "running", by=("worker",), run_at="now")
    for jump in jumps:
        after = step(PLAIN, move, job, Change(job.id), asked(now=job.moved_at + jump))
        assert after.moved_at == max(job.moved_at, job.moved_at + jump) == after.run_at
        job = after


def test_a_move_is_written_on_the_job_with_who_made_it():
    job = apply(given={"seq": 7, "note": "old"}, told={"note": "because"})
    assert (job.seq, job.move, job.actor, job.note) == (8, "move", "somebody", "because")


def test_a_note_does_not_outlive_its_move():
    assert apply(given={"note": "old"}).note is None


UNTOUCHED = {
    **CLAIMED,
    **OLD,
    "attempt_base": 1,
    "attempt_count": 3,
    "return_count": 1,
    "retry_count": 2,
    "salt": 12,
    "flags": VIP,
    "result": '{"n":1}',
    "run_at": PAST,
    "timer_at": FUTURE,
    "finished_at": PAST,
    "stamp_1": 1,
    "stamp_2": 2,
    "stamp_3": 3,
    "stamp_4": 4,
    "dedup_key": "key",
    "payload": '{"n":0}',
    "max_attempts": 6,
    "created_at": PAST,
}


def test_a_move_without_effects_changes_nothing_but_where_it_stands_in_history():
    before = born(PLAIN, state="running", **UNTOUCHED)
    after = apply(given=UNTOUCHED, to=STAY)
    changed = {c for c in before._fields if getattr(before, c) != getattr(after, c)}
    assert changed == {"move", "actor", "seq"}


# A job as people read it


def test_payload_and_result_are_decoded_when_asked_for():
    job = born(PLAIN, payload='{"n":1}', result="[2]")
    assert (job.data, job.outcome) == ({"n": 1}, [2])


def test_a_job_without_a_result_has_no_outcome():
    assert born(PLAIN).outcome is None


def test_edges_name_where_a_job_comes_from_and_goes_to():
    found = {
        (move.name, source, to)
        for move, source, to in edges(TASK)
        if move.births or move.prunes or move.claims
    }
    assert found == {
        ("enqueue", GONE, "ready"),
        ("claim", "ready", "running"),
        ("prune", "done", GONE),
        ("prune", "failed", GONE),
    }


def test_an_edge_that_stays_ends_where_it_begins():
    stays = replace(
        TASK, moves=(*TASK.moves, Move("nudge", ("ready", "failed"), STAY, by=("operator",)))
    )
    nudges = {(source, to) for move, source, to in edges(stays) if move.name == "nudge"}
    assert nudges == {("ready", "ready"), ("failed", "failed")}


# The plain lifecycle, row by row


SPENT = {"attempt_count": 5}
TIRED = {"attempt_count": 6, "attempt_base": 2, "return_count": 1}
PLAIN_ROWS = {
    "claim counts an attempt": Row(
        "claim",
        "worker",
        "ready",
        path="claim: ready → running",
        then={"attempt_count": 1, "worker": "worker-2", "lease_until": NOW + LEASE},
    ),
    "claim needs budget": Row("claim", "worker", "ready", given=SPENT, refused="budget_left"),
    "complete keeps the result": Row(
        "complete",
        "worker",
        "running",
        given={**CLAIMED, **OLD},
        told={"result": "[1]"},
        path="complete: running → done",
        then={**NO_CLAIM, **NO_ERROR, "result": "[1]", "finished_at": NOW},
    ),
    "complete from a worker that lost its claim is refused": Row(
        "complete", "worker", "running", given=CLAIMED, told={"token": STALE}, refused="holds_claim"
    ),
    "fail keeps the error": Row(
        "fail",
        "worker",
        "running",
        given=CLAIMED,
        told=TOLD,
        path="fail: running → failed",
        then={**NO_CLAIM, **error("NEW", "TRANSIENT", "after"), "finished_at": NOW},
    ),
    "release returns the attempt": Row(
        "release",
        "worker",
        "running",
        given=CLAIMED,
        path="release: running → ready",
        then={**NO_CLAIM, "attempt_base": 1, "return_count": 1, "run_at": NOW},
    ),
    "release is refused once two attempts were returned": Row(
        "release", "worker", "running", given={**CLAIMED, "return_count": 2}, refused="returns_left"
    ),
    "attempt_cap fails a spent job": Row(
        "attempt_cap",
        "clock",
        "ready",
        given=SPENT,
        path="attempt_cap: ready → failed",
        then={"error_code": "MAX_ATTEMPTS", "error_category": "PERMANENT", "finished_at": NOW},
    ),
    "recover with budget left makes the job ready at once": Row(
        "recover",
        "clock",
        "running",
        given={**LOST, "run_at": PAST},
        path="recover: running → ready",
        then={**NO_CLAIM, "run_at": NOW},
        kept=("attempt_count", "attempt_base"),
    ),
    "recover with the budget spent fails the job": Row(
        "recover",
        "clock",
        "running",
        given={**LOST, **SPENT},
        path="recover: running → failed",
        then={**NO_CLAIM, "error_code": "MAX_ATTEMPTS", "finished_at": NOW},
    ),
    "requeue gives a failed job a full budget": Row(
        "requeue",
        "operator",
        "failed",
        given={**TIRED, "finished_at": PAST},
        path="requeue: failed → ready",
        then={"attempt_base": 6, "return_count": 0, "run_at": NOW, "finished_at": None},
    ),
    "cancel ends a job before it runs": Row(
        "cancel",
        "producer",
        "ready",
        path="cancel: ready → failed",
        then={"error_code": "CANCELLED"},
    ),
    "cancel never touches a running job": Row(
        "cancel", "operator", "running", given=CLAIMED, refused="state"
    ),
}


@rows({f"task {name}": row for name, row in PLAIN_ROWS.items()})
def test_the_plain_lifecycle(row):
    hold(TASK, row)


def test_a_plain_retry_waits_longer_each_time():
    waits = []
    for attempt in (1, 2, 3, 4):
        job = born(TASK, state="running", **{**CLAIMED, "attempt_count": attempt})
        fitting = [
            move
            for move in TASK.calls["retry"]
            if failing_guard(move, job, TASK, asked(), job.claim_seq) is None
        ]
        assert [move.to for move in fitting] == ["ready"]
        waits.append(step(TASK, fitting[0], job, Change(job.id), asked()).run_at - NOW)
    assert [round(wait / SECOND) for wait in waits] == [15, 30, 60, 120]


def test_a_lifecycle_under_another_name_keeps_the_same_moves():
    renamed = task_lifecycle("mail")
    assert isinstance(renamed, Lifecycle)
    assert (renamed.name, renamed.moves) == ("mail", TASK.moves)
