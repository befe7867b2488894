"""Every guard and every effect, on jobs in all sorts of conditions, as the model has them."""

from __future__ import annotations

import pytest

from kesin.lifecycle.model import Change, MoveContext, guard_holds
from kesin.lifecycle.vocabulary import GuardKind
from kesin.store.records import Outcome
from tests.store.every_word import EFFECTS, GUARDS, cast, every_word
from tests.store.scene import HOUR, NOW, OPERATOR, SECOND, error

TOLD = {
    **error("TOLD", "TRANSIENT", "the caller's 100% own words"),
    "result": '{"done":true}',
    "run_at": NOW + 5 * HOUR,
    "payload": '{"other":"payload"}',
    "max_attempts": 7,
    "note": '{"reason":"because"}',
    "stamps": {"first_at": NOW - 3},
}


TOLD_LITTLE = {"payload": "[]"}
JUDGED_ALIKE = [
    name
    for name in GUARDS
    if name not in ("if_holds_claim", "if_slot_free", "if_option", "if_no_option")
]


@pytest.fixture
def words(open_queue):
    return open_queue(every_word())


def test_the_suite_asks_every_guard_there_is():
    assert {guard.kind for guard in GUARDS.values()} == set(GuardKind.__args__)


@pytest.mark.parametrize("call", JUDGED_ALIKE)
def test_a_guard_lets_through_exactly_the_jobs_the_model_lets_through(words, call):
    jobs = cast(words)
    asked = MoveContext(words.now, "op")
    let = {one: guard_holds(GUARDS[call], jobs[one], words.lifecycle, asked, None) for one in jobs}
    assert {*let.values()} == {True, False}, "the cast does not try this guard both ways"
    outcomes = words.apply(call, jobs, **OPERATOR)
    assert {one.id: (one.result, one.reason) for one in outcomes} == {
        one: ("moved", "") if is_let else ("refused", GUARDS[call].kind)
        for one, is_let in let.items()
    }


@pytest.mark.parametrize("given", [False, True])
def test_an_option_opens_one_door_and_closes_the_other(words, given):
    job = words.create_job()
    options = ["loud"] if given else []
    doors = [
        words.apply_one(call, job, options=options, **OPERATOR)
        for call in ("if_option", "if_no_option")
    ]
    assert [one.result for one in doors] == (
        ["moved", "refused"] if given else ["refused", "moved"]
    )
    assert {one.reason for one in doors} == {"", "option"}


def test_a_slot_guard_opens_while_nobody_is_in_the_state(words):
    first, second = words.create_jobs(2)
    assert words.apply_one("if_slot_free", first, **OPERATOR).result == "moved"
    words.move("take_slot", second, **OPERATOR)
    assert words.apply_one("if_slot_free", first, **OPERATOR).reason == "slot_free"


def test_a_claim_guard_wants_the_claim_at_hand(words):
    job = words.claim_new_job()
    answers = [
        words.apply_one("if_holds_claim", Change(job.id, token), **OPERATOR)
        for token in (job.claim_seq - 1, job.claim_seq + 1, None, job.claim_seq)
    ]
    assert [one.reason or one.result for one in answers] == ["stale", "stale", "stale", "moved"]


@pytest.mark.parametrize("move", EFFECTS, ids=lambda move: move.name)
def test_an_effect_leaves_exactly_the_jobs_the_model_leaves(words, move):
    jobs = cast(words)
    asked = MoveContext(words.now, "op")
    fit = [
        job
        for job in jobs.values()
        if job.state in move.sources
        and all(guard_holds(guard, job, words.lifecycle, asked, None) for guard in move.when)
    ]
    changes = [Change(job.id, **(TOLD, TOLD_LITTLE)[n % 2]) for n, job in enumerate(fit)]
    moved = [
        words.modelled(move, job, change, actor="op")
        for job, change in zip(fit, changes, strict=True)
    ]
    assert len(moved) > 3, "too few in the cast can make this move"
    outcomes = words.apply(move.name, changes, **OPERATOR)
    assert outcomes == [Outcome("moved", job.id, job.state, job.seq) for job in moved]
    assert words.all() == jobs | {job.id: job for job in moved}


def test_a_backoff_grows_with_the_attempts_and_then_stays(words):
    job = words.create_job(max_attempts=6)
    waits = []
    for _ in range(5):
        words.claim()
        words.move("let_go", job, **OPERATOR)
        waits.append((words.move("back_off", job, **OPERATOR).run_at - words.now) // SECOND)
        words.move("run_now", job, **OPERATOR)
    assert waits == [10, 20, 40, 40, 40]


def test_jitter_spreads_jobs_and_stays_in_its_bounds(words):
    jobs = words.create_jobs(50)
    words.apply("back_off_jittered", jobs, **OPERATOR)
    waits = {words.job(one).run_at - NOW for one in jobs}
    assert len(waits) > 40
    assert all(300 * SECOND <= wait <= 360 * SECOND for wait in waits)
