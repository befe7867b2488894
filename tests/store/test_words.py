"""Every guard and every effect, on jobs in many conditions, compared with the Python model."""

from __future__ import annotations

from typing import get_args

import pytest

from kesin.engine.replay import differences
from kesin.lifecycle.model import Change, MoveContext, guard_holds
from kesin.lifecycle.vocabulary import GuardKind
from kesin.store.records import Outcome
from tests.store.every_word import EFFECTS, GUARDS, cast, every_word
from tests.store.scene import HOUR, NOW, OPERATOR, SECOND, error, results, rolled_back

FULL_INPUT = {
    **error("GIVEN", "TRANSIENT", "the caller's 100% own words"),
    "result": '{"done":true}',
    "run_at": NOW + 5 * HOUR,
    "payload": '{"other":"payload"}',
    "max_attempts": 7,
    "priority": 2,
    "note": '{"reason":"because"}',
    "stamps": {"first_at": NOW - 3},
}
LITTLE_INPUT = {"payload": "[]", "priority": -1}
NEED_INPUT = ("if_holds_claim", "if_slot_free", "if_option", "if_no_option")
CONTEXT = MoveContext(NOW + 1, "op")  # as the cast leaves the clock


@pytest.fixture
def words(open_queue):
    return open_queue(every_word())


def test_the_suite_tries_every_guard_there_is():
    elsewhere = {"rate", "parents_done", "parents_failed"}  # test_slots.py and test_parents.py
    assert {guard.kind for guard in GUARDS.values()} == set(get_args(GuardKind)) - elsewhere


def test_a_guard_admits_exactly_the_jobs_the_model_admits(words):
    jobs = cast(words)
    assert words.now == CONTEXT.now
    for action in GUARDS.keys() - set(NEED_INPUT):
        guard = GUARDS[action]
        expected = {
            job.id: "moved" if guard_holds(guard, job, words.lifecycle, CONTEXT, None) else guard.kind
            for job in jobs.values()
        }
        assert len({*expected.values()}) == 2, f"the cast does not try {action} both ways"
        with rolled_back(words.store):
            outcomes = words.apply(action, jobs, **OPERATOR)
        answers = results(outcomes)
        assert dict(zip(jobs, answers, strict=True)) == expected, action


def test_options_slots_and_claims_admit_a_move_by_what_the_caller_brings(words):
    claimed = words.claim_new_job()
    job, first, second = words.create_jobs(3)
    for options, expected in (([], ["option", "moved"]), (["loud"], ["moved", "option"])):
        outcomes = [
            words.apply_one(action, job, options=options, **OPERATOR) for action in ("if_option", "if_no_option")
        ]
        assert results(outcomes) == expected
    assert words.apply_one("if_slot_free", first, **OPERATOR).result == "moved"
    words.move("take_slot", second, **OPERATOR)
    assert words.apply_one("if_slot_free", first, **OPERATOR).reason == "slot_free"
    outcomes = [
        words.apply_one("if_holds_claim", Change(claimed.id, token), **OPERATOR)
        for token in (claimed.claim_seq - 1, claimed.claim_seq + 1, None, claimed.claim_seq)
    ]
    assert results(outcomes) == ["stale", "stale", "stale", "moved"]


@pytest.mark.parametrize("now", [CONTEXT.now, NOW - HOUR], ids=["on time", "clock set back"])
def test_an_effect_leaves_exactly_the_jobs_the_model_leaves(words, now):
    jobs = cast(words)
    words.clock.time_us = now
    context = MoveContext(now, "op")
    for number, move in enumerate(EFFECTS):
        eligible = [
            job
            for job in jobs.values()
            if job.state in move.sources
            and all(guard_holds(guard, job, words.lifecycle, context, None) for guard in move.when)
        ]
        assert len(eligible) > 3, f"too few jobs of the cast can make the move {move.name}"
        changes = [Change(job.id, **(FULL_INPUT, LITTLE_INPUT)[n % 2]) for n, job in enumerate(eligible)]
        moved = [words.modelled(move, job, change, actor="op") for job, change in zip(eligible, changes, strict=True)]
        assert max(job.moved_at for job in moved) >= NOW, "no time runs backward"
        with rolled_back(words.store):
            outcomes = words.apply(move.name, changes, **OPERATOR)
            assert outcomes == [Outcome("moved", job.id, job.state, job.seq) for job in moved]
            assert words.store.find(words.queue, list(jobs)) == jobs | {j.id: j for j in moved}
            for job in moved[number % 3 :: 3]:  # of each effect others
                assert list(differences(job, words.events(job))) == [], "the events give the row"


def test_jitter_spreads_jobs_and_stays_in_its_bounds(words):
    jobs = words.create_jobs(50)
    words.apply("back_off_jittered", jobs, **OPERATOR)
    waits = {job.run_at - NOW for job in words.all().values()}
    assert len(waits) > 40
    assert all(300 * SECOND <= wait <= 360 * SECOND for wait in waits)
