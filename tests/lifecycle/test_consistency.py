"""Contradictions are found by reading a declaration, and told by name."""

from dataclasses import replace

import pytest

from kesin.lifecycle.declare import Move, State
from kesin.lifecycle.errors import Category
from kesin.lifecycle.moves import enqueue_after, expire, unblock
from kesin.lifecycle.vocabulary import (
    STAY,
    After,
    DeclarationError,
    age_over,
    budget_left,
    due,
    flag_not_set,
    flag_set,
    holds_claim,
    lease_over,
    option,
    rate,
    slot_free,
    unclaimed,
)
from tests.lifecycle.small import (
    BROKEN,
    CLAIM,
    ENQUEUE,
    FAIL,
    FINISH,
    PRUNE,
    RECOVER,
    REQUEUE,
    STATES,
    small,
    swapped,
    with_state,
)
from tests.tables import table


def chain(**link):
    """The small lifecycle in which a failure is queued again, with such a second link."""
    return small(replace(FAIL, then="requeue"), replace(REQUEUE, **link), without=(FAIL,))


NO_SOURCE = "small there must be one enqueue, at most one enqueue_after, and no other move without a source"

REFUSALS = [
    # the header
    (lambda: small(name="9 lives"), "lifecycle '9 lives'"),
    (lambda: small(max_attempts=0), "small max_attempts at least 1 got 0"),
    (lambda: small(max_returns=-1), "small max_returns at least 0 got -1"),
    (lambda: small(lease_seconds=0), "small lease_seconds at least 1 got 0"),
    (lambda: small(max_run_seconds=0), "small max_run_seconds at least 1 got 0"),
    (lambda: small(stamps=tuple("abcde")), "small at most 4 stamps got 5"),
    (lambda: small(flags=tuple(f"flag{n}" for n in range(32))), "small at most 31 flags got 32"),
    # the states
    (lambda: small(states=(*STATES, State("on hold"))), "small 'on hold' is not a state name"),
    (lambda: small(states=(*STATES, State("failed"))), "small state failed is declared twice"),
    (lambda: small(states=with_state(initial=True)), "small exactly one state must be initial ready aside"),
    (
        lambda: small(states=(replace(STATES[0], initial=False), *STATES[1:])),
        "small exactly one state must be initial got none",
    ),
    (
        lambda: small(states=(replace(STATES[0], exclusive=True), *STATES[1:])),
        "small.ready an initial state cannot have slots",
    ),
    (lambda: small(states=with_state(slots=0)), "small.aside slots must be in 1…10000, got 0"),
    (lambda: small(states=with_state(slots=-1)), "small.aside slots must be in 1…10000, got -1"),
    (lambda: small(states=with_state(slots=10_001)), "small.aside slots must be in 1…10000, got 10001"),
    (
        lambda: small(states=with_state(slots=2, slots_per="worker")),
        "small.aside slots_per must be 'queue' or 'tenant', got 'worker'",
    ),
    (lambda: small(states=with_state(slots_per="tenant")), "small.aside slots_per without slots= has no effect"),
    (lambda: small(states=with_state(exclusive=True, slots=2)), "small.aside exclusive means one slot per queue"),
    (lambda: swapped(CLAIM, when=(*CLAIM.when, rate(0, 60))), "small.claim rate 1…10000 claims got rate(0, 60)"),
    (lambda: swapped(CLAIM, when=(*CLAIM.when, rate(5, 0))), "small.claim rate 1…86400 seconds, got rate(5, 0)"),
    (
        lambda: swapped(FINISH, when=(*FINISH.when, rate(1, 1))),
        "small.finish a rate needs a lifecycle with a single claim",
    ),
    (
        lambda: small(
            replace(CLAIM, when=(*CLAIM.when, rate(1, 1))),
            replace(CLAIM, name="wake", sources=("aside",)),
            without=(CLAIM,),
            states=with_state(),
        ),
        "small.claim a rate needs a lifecycle with a single claim",
    ),
    (
        lambda: small(states=tuple(replace(state, success=False) for state in STATES)),
        "small no state is marked success",
    ),
    # a move's ends
    (lambda: swapped(FINISH, name="fin-ish"), "small.fin-ish name"),
    (lambda: swapped(FINISH, by=()), "small.finish no role by="),
    (lambda: swapped(FINISH, sources=("flying",)), "small.finish unknown state 'flying'"),
    (lambda: swapped(FINISH, to="flown"), "small.finish unknown 'flown'"),
    (lambda: swapped(FINISH, sources=(STAY,)), "small.finish unknown state '='"),
    (lambda: swapped(FINISH, sources=("running", "running")), "small.finish source named twice"),
    (lambda: swapped(CLAIM, when=(*CLAIM.when, slot_free("running"))), "small.claim slot_free running has no slots"),
    (lambda: swapped(CLAIM, when=(*CLAIM.when, slot_free("flying"))), "small.claim slot_free flying"),
    (
        lambda: small(replace(CLAIM, attempt="keep")),
        "small.claim two moves ready → running have different effects on the counters",
    ),
    # run_at
    (lambda: swapped(RECOVER, run_at="clear"), "small.recover clear run_at"),
    (lambda: swapped(RECOVER, to=STAY, run_at="clear"), "small.recover clear run_at"),
    (lambda: swapped(ENQUEUE, run_at="keep"), "small.enqueue work ready must set run_at"),
    (lambda: small(Move("again", ("failed",), "ready", by=("operator",))), "small.again work ready must set run_at"),
    # stamps, flags and timers
    (lambda: swapped(CLAIM, stamp=("started_at",)), "small.claim unknown stamp 'started_at'"),
    (lambda: swapped(ENQUEUE, stamp_input=("ordered_at",)), "small.enqueue unknown stamp 'ordered_at'"),
    (lambda: swapped(CLAIM, unstamp=("ended_at",)), "small.claim unknown stamp 'ended_at'"),
    (lambda: swapped(PRUNE, when=(age_over("sold_at", 60),)), "small.prune age_over unknown stamp 'sold_at'"),
    (lambda: swapped(CLAIM, when=(*CLAIM.when, flag_set("vip"))), "small.claim unknown flag 'vip'"),
    (lambda: swapped(CLAIM, when=(*CLAIM.when, flag_not_set("vip"))), "small.claim unknown flag 'vip'"),
    (lambda: swapped(CLAIM, flag=("vip",)), "small.claim unknown flag 'vip'"),
    (lambda: swapped(FAIL, stamp=()), "small.fail ends failed must stamp finished_at"),
    (lambda: swapped(FINISH, timer=After(5), timer_for=(Category.AUTH,)), "small.finish timer_for error='record'"),
    (lambda: swapped(FAIL, timer_for=(Category.AUTH,)), "small.fail timer_for needs a timer"),
    # claims
    (lambda: swapped(CLAIM, when=(unclaimed, budget_left)), "claim needs the guards due"),
    (lambda: swapped(CLAIM, when=(due, budget_left)), "claim needs the guards unclaimed"),
    (lambda: swapped(CLAIM, by=("worker", "operator")), "claim only a worker can claim"),
    (lambda: swapped(FAIL, attempt="count"), "fail only a claim can count an attempt"),
    (lambda: swapped(FINISH, when=(holds_claim, unclaimed)), "finish holds_claim contradicts unclaimed"),
    (lambda: swapped(FINISH, when=(holds_claim, lease_over)), "finish holds_claim contradicts lease_over"),
    # the clock
    (lambda: swapped(RECOVER, stage=None), "small.recover scheduled needs a stage"),
    (lambda: swapped(RECOVER, by=("worker",)), "small.recover only a scheduled move can have a stage"),
    (
        lambda: small(expire("ready", "failed", 60, when=(age_over("created_at", 60),))),
        "small.expire add the guard unclaimed or lease_over",
    ),
    (lambda: swapped(RECOVER, when=(holds_claim,)), "small.recover scheduled cannot have holds_claim"),
    (
        lambda: swapped(RECOVER, when=(lease_over, option("hard", is_set=True))),
        "small.recover scheduled cannot have option",
    ),
    (lambda: swapped(RECOVER, run_at="input"), "small.recover scheduled cannot take input"),
    (
        lambda: small(replace(RECOVER, stamp_input=("sold_at",)), without=(RECOVER,), stamps=("sold_at",)),
        "small.recover scheduled cannot take input",
    ),
    (lambda: swapped(RECOVER, payload="replace"), "small.recover scheduled cannot take input"),
    (
        lambda: swapped(RECOVER, priority="input"),
        "small.recover only an operator or a producer can change a job's priority",
    ),
    (
        lambda: swapped(FINISH, priority="input"),
        "small.finish only an operator or a producer can change a job's priority",
    ),
    (lambda: swapped(ENQUEUE, priority="input"), "small.enqueue producers set the priority of new jobs"),
    (lambda: swapped(RECOVER, error="record"), "small.recover scheduled has no caller to record an error use Fixed"),
    (lambda: swapped(RECOVER, result="record"), "small.recover scheduled has no caller error or result"),
    (
        lambda: small(replace(PRUNE, when=(age_over("second", 60),)), without=(PRUNE,), stamps=("first", "second")),
        "small.prune first named stamp declare second first",
    ),
    # chains
    (lambda: swapped(FAIL, then="nowhere"), "small.fail then='nowhere' does not name a chained move"),
    (lambda: chain(chained=False), "small.fail then='requeue' does not name a chained move"),
    (lambda: chain(then="requeue"), "small.fail chain can have only two moves"),
    (
        lambda: small(replace(FINISH, then="requeue"), REQUEUE, without=(FINISH,)),
        "small.finish requeue does not leave done",
    ),
    (lambda: chain(error="record"), "small.fail requeue takes input no caller"),
    (lambda: chain(payload="replace"), "small.fail requeue takes input no caller"),
    (lambda: chain(priority="input"), "small.fail requeue takes input no caller"),
    (lambda: chain(result="record"), "small.fail requeue takes input no caller"),
    (lambda: chain(when=(due, unclaimed), claim="take"), "small.fail requeue takes input no caller"),
    (
        lambda: small(default_errors=(("finish", BROKEN),)),
        "default_errors 'finish' no move of this action records an error",
    ),
    # enqueue, claim and prune
    (lambda: small(without=(ENQUEUE,)), NO_SOURCE),
    (lambda: small(replace(ENQUEUE, name="import")), NO_SOURCE),
    (lambda: swapped(ENQUEUE, name="create"), NO_SOURCE),
    (lambda: small(unblock("failed", "ready")), "small parents_done needs a move enqueue_after"),
    (
        lambda: small(enqueue_after("failed")),
        "small enqueue_after leads to failed, but no move with parents_done leaves it",
    ),
    (
        lambda: small(enqueue_after("aside"), unblock("aside", "ready"), states=with_state(resting=True, slots=1)),
        "small aside must be a resting state without success or slots: its jobs wait for others",
    ),
    (
        lambda: small(
            enqueue_after("aside"), unblock("aside", "ready", action="unblock"), states=with_state(resting=True)
        ),
        "small.unblock set action='settle'",
    ),
    (lambda: swapped(ENQUEUE, to="running"), "small enqueue must lead to ready"),
    (lambda: small(without=(CLAIM,)), "small no move claims a job"),
    (lambda: swapped(PRUNE, sources=("done", "running")), "small prune must not delete running working"),
    (lambda: swapped(PRUNE, by=("operator",), stage=None), "small prune scheduled age_over"),
    (lambda: swapped(PRUNE, when=()), "small prune scheduled age_over"),
]


@table(("declare", "words"), REFUSALS)
def test_a_contradiction_is_refused_by_name(declare, words):
    with pytest.raises(DeclarationError) as refused:
        declare()
    message = str(refused.value)
    assert [word for word in words.split() if word not in message] == []


def test_what_only_looks_like_a_contradiction_is_accepted():
    assert small().name == "small"
    buried = small(Move("bury", ("failed",), "done", by=("operator",)))
    assert buried.actions["bury"][0].stamp == (), "an end reached from a rest keeps the finish it has"
    cleared = swapped(FAIL, run_at="clear")
    assert cleared.actions["fail"][0].run_at == "clear", "a move that ends the work may clear run_at"


def test_a_move_that_may_start_from_rest_must_set_run_at_though_it_may_also_start_from_work():
    again = Move("again", ("failed", "ready"), "ready", by=("operator",))
    with pytest.raises(DeclarationError, match=r"small\.again.*run_at"):
        small(again)
