"""Guards: at each edge, one job that passes and one that does not."""

from typing import get_args

from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import failing_guard, guard_holds
from kesin.lifecycle.vocabulary import (
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
    parents_done,
    parents_failed,
    rate,
    retries_left,
    returns_left,
    slot_free,
    timer_not_over,
    timer_over,
    unclaimed,
    was_claimed,
)
from tests.lifecycle.adversary import NOW, new_job
from tests.lifecycle.plain import FRAGILE, PLAIN, VIP, context
from tests.lifecycle.table import CLAIMED, FUTURE, LOST, MINUTE, PAST
from tests.tables import table

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
    (budget_spent, {"attempt_count": 8, "max_attempts": 8}, {"attempt_count": 5, "max_attempts": 8}),
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


@table(("guard", "passes", "fails"), GUARDS)
def test_a_guard_lets_the_right_job_through_and_stops_the_wrong_one(guard, passes, fails):
    jobs = [new_job(PLAIN, **columns) for columns in (passes, fails)]
    held = [guard_holds(guard, job, PLAIN, context(), job.claim_seq) for job in jobs]
    assert held == [True, False]


CALLS = [
    (option("hard", is_set=True), {"options": frozenset({"hard"})}, {"options": frozenset()}),
    (option("hard", is_set=False), {"options": frozenset({"soft"})}, {"options": frozenset({"hard"})}),
    (slot_free("slot"), {"slots_taken": frozenset({"other"})}, {"slots_taken": frozenset({"slot"})}),
    (rate(1, 60), {"rate_used": False}, {"rate_used": True}),
    (parents_done, {"parents": "done"}, {"parents": "pending"}),
    (parents_failed, {"parents": "failed"}, {"parents": "done"}),
]


@table(("guard", "passes", "fails"), CALLS)
def test_a_guard_that_reads_the_call_tells_calls_apart(guard, passes, fails):
    job = new_job(PLAIN)
    answers = [guard_holds(guard, job, PLAIN, context(**case), None) for case in (passes, fails)]
    assert answers == [True, False]


def test_every_guard_of_the_closed_set_is_tried_above():
    tried = {guard.kind for guard, *_ in (*GUARDS, *CALLS)}
    assert tried == set(get_args(GuardKind))


def test_a_claim_is_held_by_its_own_token_alone_and_the_first_guard_that_stops_a_move_is_named():
    for token in (3, 5, None):
        assert not guard_holds(holds_claim, new_job(PLAIN, **CLAIMED), PLAIN, context(), token)
    claim = PLAIN.claims[0]
    spent = new_job(PLAIN, run_at=FUTURE, attempt_count=5)
    assert failing_guard(claim, spent, PLAIN, context(), None) == due
    assert failing_guard(claim, new_job(PLAIN), PLAIN, context(), None) is None
