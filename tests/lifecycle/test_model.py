"""What a move means, effect by effect, on the reference model."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, apply_move, declared_edges, guard_holds, wait_us
from kesin.lifecycle.vocabulary import (
    FINISHED,
    GONE,
    OWNED,
    READY,
    RESTING,
    STAY,
    After,
    Fixed,
    returns_left,
    was_claimed,
)
from tests.lifecycle.adversary import NOW, new_job
from tests.lifecycle.plain import FRAGILE, PLAIN, TASK, VIP, context
from tests.lifecycle.table import CLAIMED, FUTURE, HOUR, LEASE, MINUTE, NO_ERROR, PAST, SECOND, error


def apply(given=None, change=None, at=NOW, source="running", to="ready", **effects):
    """One move with nothing but these effects, made on one job."""
    move = Move("move", (source,), to, by=("worker",), **effects)
    job = new_job(PLAIN, state=source, **(given or {}))
    return apply_move(PLAIN, move, job, Change(job.id, **(change or {})), context(now=at))


# What a move does to claims and counters


def test_a_claim_is_a_worker_a_lease_and_a_token_of_its_own():
    job = apply(source="ready", to="running", claim="take", given={"seq": 7})
    claim = (job.worker, job.claimed_at, job.lease_until, job.claim_seq, job.phase)
    assert claim == ("worker-2", NOW, NOW + LEASE, 8, OWNED)
    job = apply(source="ready", to=STAY, claim="take", given={"seq": 7, "claim_seq": 3})
    assert (job.claim_seq, job.attempt_count) == (8, 0), "a wake-up does not count"


def test_a_dropped_claim_keeps_its_token_so_that_a_repeat_is_known():
    job = apply(given=CLAIMED, claim="drop")
    assert (job.claim_seq, job.token, job.worker, job.phase) == (4, 4, None, READY)


def test_a_claim_that_is_kept_travels_with_the_job():
    job = apply(given=CLAIMED)
    claim = (job.worker, job.claim_seq, job.claimed_at, job.lease_until, job.phase)
    assert claim == ("worker-1", 4, NOW - MINUTE, NOW + HOUR, OWNED)


@pytest.mark.parametrize(("to", "phase"), [("ready", READY), ("done", FINISHED), ("failed", RESTING), ("slot", 4)])
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
    assert job.attempts_left == job.max_attempts - (count - base)
    asked = apply(given={"attempt_count": 1}, attempt="return", when=(returns_left,))
    assert (asked.attempt_base, asked.return_count) == (1, 1)
    for retry, retries in (("count", 3), ("keep", 2)):
        assert apply(given={"retry_count": 2}, retry=retry).retry_count == retries


@pytest.mark.parametrize(("attempt", "cap"), [("renew", 8), ("keep", 5)])
def test_only_a_renewal_takes_the_cap_it_is_given(attempt, cap):
    assert apply(attempt=attempt, change={"max_attempts": 8}).max_attempts == cap
    assert apply(attempt=attempt).max_attempts == 5


# What it does to errors, results, payloads and flags


OLD = error("OLD", "AUTH", "before")
ERROR_INPUT = {"error_code": "NEW", "error_category": "TRANSIENT", "error_message": "after"}
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
    job = apply(given=OLD, change=ERROR_INPUT, error=effect)
    assert {column: getattr(job, column) for column in left} == left


def test_a_replaced_payload_forgets_the_claims_before_it():
    given = {"payload_json": "1", "seq": 6, "claim_seq": 5}
    job = apply(given=given, change={"payload": "2"}, payload="replace")
    assert (job.payload_json, job.payload_seq) == ("2", 7)
    assert not guard_holds(was_claimed, job, PLAIN, context(), None)
    kept = apply(given={"payload_json": "1"}, change={"payload": "2"})
    assert (kept.payload_json, kept.payload_seq) == ("1", 1), "whatever the caller sends"


def test_results_and_priorities_are_given_by_the_caller_or_kept():
    for effect, left in (("record", '{"n":2}'), ("keep", '{"n":1}')):
        job = apply(given={"result_json": '{"n":1}'}, change={"result": '{"n":2}'}, result=effect)
        assert job.result_json == left
    for effect, priority in (("input", 2), ("keep", 1)):
        assert apply(given={"priority": 1}, change={"priority": 2}, priority=effect).priority == priority


def test_flags_are_added_to_those_already_up():
    assert apply(given={"flags": FRAGILE}, flag=("vip",)).flags == VIP | FRAGILE
    assert apply(flag=("vip", "fragile")).flags == VIP | FRAGILE


# What it does to times


@pytest.mark.parametrize(
    ("effect", "change", "left"),
    [
        ("now", {"run_at": FUTURE}, NOW),
        ("input", {"run_at": FUTURE}, FUTURE),
        ("input", {}, NOW),
        ("keep", {"run_at": FUTURE}, PAST),
        ("clear", {"run_at": FUTURE}, None),
        (Backoff((5,)), {}, NOW + 5 * SECOND),
    ],
    ids=["now", "input", "input without one", "keep", "clear", "backoff"],
)
def test_the_time_to_run_at_is_set_as_declared(effect, change, left):
    assert apply(given={"run_at": PAST}, change=change, run_at=effect).run_at == left


@pytest.mark.parametrize(
    ("effect", "left"),
    [("clear", None), ("keep", PAST), (After(20), NOW + 20 * SECOND), (Backoff((7,)), NOW + 7 * SECOND)],
    ids=["clear", "keep", "after", "backoff"],
)
def test_a_timer_is_armed_cleared_or_kept(effect, left):
    assert apply(given={"timer_at": PAST}, timer=effect).timer_at == left


@pytest.mark.parametrize(("category", "left"), [("TRANSIENT", NOW + 20 * SECOND), ("AUTH", None), (None, None)])
def test_a_timer_for_some_errors_is_armed_by_those_alone(category, left):
    effects = {"error": "record", "timer": After(20), "timer_for": (Category.TRANSIENT,)}
    change = {"error_category": category}
    assert apply(given={"timer_at": PAST}, change=change, **effects).timer_at == left


@pytest.mark.parametrize(("counts", "expected"), [("attempts", 30), ("retries", 90)], ids=["attempts", "retries"])
def test_a_backoff_picks_its_delay_by_the_counter_it_names(counts, expected):
    backoff = Backoff((10, 30, 50, 70, 90), counts=counts)
    given = {"attempt_count": 7, "attempt_base": 5, "retry_count": 4}
    assert apply(given=given, run_at=backoff).run_at == NOW + expected * SECOND


def test_a_backoff_by_retries_reads_the_count_before_the_move_raises_it():
    backoff = Backoff((10, 30), counts="retries")
    job = apply(run_at=backoff, retry="count")
    assert (job.run_at, job.retry_count) == (NOW + 10 * SECOND, 1)
    failed = new_job(PLAIN, attempt_count=6, attempt_base=3)
    assert wait_us(Backoff((1, 2, 3, 4)), failed) == 3 * SECOND, "by attempts, it does not count the try that failed"


@given(salt=st.integers(0, 2**31 - 1))
def test_a_jitter_comes_from_the_jobs_own_salt(salt):
    backoff = Backoff((10,), jitter_s=60)
    job = apply(given={"salt": salt, "attempt_count": 1}, run_at=backoff)
    assert job.run_at == NOW + backoff.delay_us(0, salt)


def test_stamps_are_set_given_and_cleared_in_their_columns():
    job = apply(
        given={"stamp_3": PAST, "stamp_4": PAST},
        change={"stamps": {"sent_at": 77}},
        stamp=("sold_at", "finished_at"),
        stamp_input=("sent_at",),
        unstamp=("seen_at",),
    )
    stamps = (job.stamp_1, job.stamp_2, job.stamp_3, job.stamp_4, job.finished_at)
    assert stamps == (NOW, 77, None, PAST, NOW)
    assert apply(given={"stamp_2": PAST}, stamp_input=("sent_at",)).stamp_2 is None


def test_every_time_of_a_move_counts_from_the_jobs_last_one_when_the_clock_jumps_back():
    effects = {"run_at": Backoff((5,)), "timer": After(7), "stamp": ("sold_at", "finished_at")}
    job = apply(at=NOW - HOUR, claim="take", **effects)
    times = (job.moved_at, job.claimed_at, job.stamp_1, job.finished_at)
    assert times == (NOW, NOW, NOW, NOW)
    assert (job.run_at, job.timer_at, job.lease_until) == (NOW + 5 * SECOND, NOW + 7 * SECOND, NOW + LEASE)


@given(jumps=st.lists(st.integers(-HOUR, HOUR), min_size=1, max_size=8))
def test_a_jobs_own_time_never_runs_backwards(jumps):
    job = new_job(PLAIN, state="running")
    move = Move("move", ("running",), "running", by=("worker",), run_at="now")
    for jump in jumps:
        after = apply_move(PLAIN, move, job, Change(job.id), context(now=job.moved_at + jump))
        assert after.moved_at == max(job.moved_at, job.moved_at + jump) == after.run_at
        job = after


def test_a_move_is_written_on_the_job_with_who_made_it():
    job = apply(given={"seq": 7, "note": "old"}, change={"note": "because"})
    assert (job.seq, job.move, job.actor, job.note) == (8, "move", "somebody", "because")
    assert apply(given={"note": "old"}).note is None, "a note does not outlive its move"


UNTOUCHED = {
    **CLAIMED,
    **OLD,
    "attempt_base": 1,
    "attempt_count": 3,
    "return_count": 1,
    "retry_count": 2,
    "salt": 12,
    "flags": VIP,
    "result_json": '{"n":1}',
    "run_at": PAST,
    "timer_at": FUTURE,
    "finished_at": PAST,
    "stamp_1": 1,
    "stamp_2": 2,
    "stamp_3": 3,
    "stamp_4": 4,
    "dedup_key": "key",
    "payload_json": '{"n":0}',
    "max_attempts": 6,
    "created_at": PAST,
}


def test_a_move_without_effects_changes_nothing_but_where_it_stands_in_history():
    before = new_job(PLAIN, state="running", **UNTOUCHED)
    after = apply(given=UNTOUCHED, to=STAY)
    changed = {c for c in before._fields if getattr(before, c) != getattr(after, c)}
    assert changed == {"move", "actor", "seq"}


# A job as people read it


def test_payload_and_result_are_decoded_when_asked_for():
    job = new_job(PLAIN, payload_json='{"n":1}', result_json="[2]")
    assert (job.payload, job.result) == ({"n": 1}, [2])
    assert new_job(PLAIN).result is None


def test_edges_name_where_a_job_comes_from_and_goes_to():
    found = {
        (move.name, source, to)
        for move, source, to in declared_edges(TASK)
        if move.creates or move.prunes or move.claims
    }
    assert found == {
        ("enqueue", GONE, "ready"),
        ("claim", "ready", "running"),
        ("prune", "done", GONE),
        ("prune", "failed", GONE),
    }
    stays = replace(TASK, moves=(*TASK.moves, Move("nudge", ("ready", "failed"), STAY, by=("operator",))))
    nudges = {(source, to) for move, source, to in declared_edges(stays) if move.name == "nudge"}
    assert nudges == {("ready", "ready"), ("failed", "failed")}, "an edge that stays ends where it begins"
