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


NO_SOURCE = "small the moves without a source are enqueue and enqueue_after, each once"

REFUSALS = {
    # the header
    "a name that is no identifier": (lambda: small(name="9 lives"), "lifecycle '9 lives'"),
    "no attempt at all": (lambda: small(max_attempts=0), "small max_attempts at least 1 got 0"),
    "negative returns": (lambda: small(max_returns=-1), "small max_returns at least 0 got -1"),
    "no lease": (lambda: small(lease_seconds=0), "small lease_seconds at least 1 got 0"),
    "no run": (lambda: small(max_run_seconds=0), "small max_run_seconds at least 1 got 0"),
    "a fifth stamp": (lambda: small(stamps=tuple("abcde")), "small at most 4 stamps got 5"),
    "a thirty-second flag": (
        lambda: small(flags=tuple(f"flag{n}" for n in range(32))),
        "small at most 31 flags got 32",
    ),
    # the states
    "a state name with a space": (
        lambda: small(states=(*STATES, State("on hold"))),
        "small 'on hold' is not a state name",
    ),
    "a state declared twice": (
        lambda: small(states=(*STATES, State("failed"))),
        "small state failed is declared twice",
    ),
    "two initial states": (
        lambda: small(states=with_state(initial=True)),
        "small exactly one state is initial ready aside",
    ),
    "no initial state": (
        lambda: small(states=(replace(STATES[0], initial=False), *STATES[1:])),
        "small exactly one state is initial got none",
    ),
    "an initial state with room for one job": (
        lambda: small(states=(replace(STATES[0], exclusive=True), *STATES[1:])),
        "small.ready it is initial and has slots",
    ),
    "no slot at all": (lambda: small(states=with_state(slots=0)), "small.aside slots must be in 1…10000, got 0"),
    "fewer slots than none": (
        lambda: small(states=with_state(slots=-1)),
        "small.aside slots must be in 1…10000, got -1",
    ),
    "more slots than a claim can count": (
        lambda: small(states=with_state(slots=10_001)),
        "small.aside slots must be in 1…10000, got 10001",
    ),
    "slots of nothing": (
        lambda: small(states=with_state(slots=2, slots_per="worker")),
        "small.aside slots_per is 'queue' or 'tenant', got 'worker'",
    ),
    "slots of a tenant, but none": (
        lambda: small(states=with_state(slots_per="tenant")),
        "small.aside slots_per without slots= has no effect",
    ),
    "exclusive with slots": (
        lambda: small(states=with_state(exclusive=True, slots=2)),
        "small.aside exclusive means one slot per queue",
    ),
    "a rate of nothing": (
        lambda: swapped(CLAIM, when=(*CLAIM.when, rate(0, 60))),
        "small.claim rate 1…10000 claims got rate(0, 60)",
    ),
    "a rate in no time": (
        lambda: swapped(CLAIM, when=(*CLAIM.when, rate(5, 0))),
        "small.claim rate 1…86400 seconds, got rate(5, 0)",
    ),
    "a rate of what is no claim": (
        lambda: swapped(FINISH, when=(*FINISH.when, rate(1, 1))),
        "small.finish a rate needs a lifecycle with a single claim",
    ),
    "a rate beside another claim": (
        lambda: small(
            replace(CLAIM, when=(*CLAIM.when, rate(1, 1))),
            replace(CLAIM, name="wake", sources=("aside",)),
            without=(CLAIM,),
            states=with_state(),
        ),
        "small.claim a rate needs a lifecycle with a single claim",
    ),
    "no success": (
        lambda: small(states=tuple(replace(state, success=False) for state in STATES)),
        "small no state is marked success",
    ),
    # a move's ends
    "a move name with a dash": (lambda: swapped(FINISH, name="fin-ish"), "small.fin-ish name"),
    "a move of nobody": (lambda: swapped(FINISH, by=()), "small.finish no role by="),
    "an unknown source": (lambda: swapped(FINISH, sources=("flying",)), "small.finish unknown state 'flying'"),
    "an unknown target": (lambda: swapped(FINISH, to="flown"), "small.finish unknown 'flown'"),
    "a source that stands for no state": (lambda: swapped(FINISH, sources=(STAY,)), "small.finish unknown state '='"),
    "a source named twice": (
        lambda: swapped(FINISH, sources=("running", "running")),
        "small.finish source named twice",
    ),
    "a slot of a state that has none": (
        lambda: swapped(CLAIM, when=(*CLAIM.when, slot_free("running"))),
        "small.claim slot_free running has no slots",
    ),
    "a slot of a state that is not there": (
        lambda: swapped(CLAIM, when=(*CLAIM.when, slot_free("flying"))),
        "small.claim slot_free flying",
    ),
    "one name, one edge, two ways of counting": (
        lambda: small(replace(CLAIM, attempt="keep")),
        "small.claim two moves ready → running count differently",
    ),
    # run_at
    "a working job without a time to run at": (lambda: swapped(RECOVER, run_at="clear"), "small.recover clear run_at"),
    "a stay that clears the time to run at": (
        lambda: swapped(RECOVER, to=STAY, run_at="clear"),
        "small.recover clear run_at",
    ),
    "an enqueue without a time to run at": (
        lambda: swapped(ENQUEUE, run_at="keep"),
        "small.enqueue work ready must set run_at",
    ),
    "a rest that ends without a time to run at": (
        lambda: small(Move("again", ("failed",), "ready", by=("operator",))),
        "small.again work ready must set run_at",
    ),
    # stamps, flags and timers
    "an unknown stamp set": (lambda: swapped(CLAIM, stamp=("started_at",)), "small.claim unknown stamp 'started_at'"),
    "an unknown stamp given": (
        lambda: swapped(ENQUEUE, stamp_input=("ordered_at",)),
        "small.enqueue unknown stamp 'ordered_at'",
    ),
    "an unknown stamp cleared": (lambda: swapped(CLAIM, unstamp=("ended_at",)), "small.claim unknown stamp 'ended_at'"),
    "the age of an unknown stamp": (
        lambda: swapped(PRUNE, when=(age_over("sold_at", 60),)),
        "small.prune age_over unknown stamp 'sold_at'",
    ),
    "an unknown flag asked for": (
        lambda: swapped(CLAIM, when=(*CLAIM.when, flag_set("vip"))),
        "small.claim unknown flag 'vip'",
    ),
    "the absence of an unknown flag asked for": (
        lambda: swapped(CLAIM, when=(*CLAIM.when, flag_not_set("vip"))),
        "small.claim unknown flag 'vip'",
    ),
    "an unknown flag set": (lambda: swapped(CLAIM, flag=("vip",)), "small.claim unknown flag 'vip'"),
    "an end without finished_at": (lambda: swapped(FAIL, stamp=()), "small.fail ends failed must stamp finished_at"),
    "a timer for some errors that records none": (
        lambda: swapped(FINISH, timer=After(5), timer_for=(Category.AUTH,)),
        "small.finish timer_for error='record'",
    ),
    "a timer for some errors that arms none": (
        lambda: swapped(FAIL, timer_for=(Category.AUTH,)),
        "small.fail timer_for timer to arm",
    ),
    # claims
    "a claim of jobs that are not due": (
        lambda: swapped(CLAIM, when=(unclaimed, budget_left)),
        "claim needs the guards due",
    ),
    "a claim of jobs that are taken": (
        lambda: swapped(CLAIM, when=(due, budget_left)),
        "claim needs the guards unclaimed",
    ),
    "a claim by an operator": (lambda: swapped(CLAIM, by=("worker", "operator")), "claim only a worker claims"),
    "an attempt counted outside a claim": (
        lambda: swapped(FAIL, attempt="count"),
        "fail attempt is counted by a claim",
    ),
    "a claim held and not held": (
        lambda: swapped(FINISH, when=(holds_claim, unclaimed)),
        "finish holds_claim contradicts unclaimed",
    ),
    "a claim held and lost": (
        lambda: swapped(FINISH, when=(holds_claim, lease_over)),
        "finish holds_claim contradicts lease_over",
    ),
    # the clock
    "a clock move without a stage": (lambda: swapped(RECOVER, stage=None), "small.recover scheduled needs a stage"),
    "a stage without the clock": (
        lambda: swapped(RECOVER, by=("worker",)),
        "small.recover only a scheduled move has a stage",
    ),
    "a clock that takes a job from its worker": (
        lambda: small(expire("ready", "failed", 60, when=(age_over("created_at", 60),))),
        "small.expire give unclaimed or lease_over",
    ),
    "a clock that holds a claim": (
        lambda: swapped(RECOVER, when=(holds_claim,)),
        "small.recover scheduled cannot have holds_claim",
    ),
    "a clock that is given an option": (
        lambda: swapped(RECOVER, when=(lease_over, option("hard", is_set=True))),
        "small.recover scheduled cannot have option",
    ),
    "a clock that is given a time": (lambda: swapped(RECOVER, run_at="input"), "small.recover scheduled no input"),
    "a clock that is given a stamp": (
        lambda: small(replace(RECOVER, stamp_input=("sold_at",)), without=(RECOVER,), stamps=("sold_at",)),
        "small.recover scheduled no input",
    ),
    "a clock that is given a payload": (
        lambda: swapped(RECOVER, payload="replace"),
        "small.recover scheduled no input",
    ),
    "a clock that is given a priority": (
        lambda: swapped(RECOVER, priority="input"),
        "small.recover only an operator or a producer gives another priority",
    ),
    "a worker that is given a priority": (
        lambda: swapped(FINISH, priority="input"),
        "small.finish only an operator or a producer gives another priority",
    ),
    "an enqueue that is said to set a priority": (
        lambda: swapped(ENQUEUE, priority="input"),
        "small.enqueue has the priority that its producer gives",
    ),
    "a clock that reports an error": (
        lambda: swapped(RECOVER, error="record"),
        "small.recover scheduled records no error use Fixed",
    ),
    "a clock that reports a result": (
        lambda: swapped(RECOVER, result="record"),
        "small.recover scheduled records no error or result",
    ),
    "the age of a stamp without an index": (
        lambda: small(replace(PRUNE, when=(age_over("second", 60),)), without=(PRUNE,), stamps=("first", "second")),
        "small.prune first named stamp declare second first",
    ),
    # chains
    "a chain to nowhere": (lambda: swapped(FAIL, then="nowhere"), "small.fail then='nowhere' names no chained move"),
    "a chain to a move that can be made alone": (
        lambda: chain(chained=False),
        "small.fail then='requeue' names no chained move",
    ),
    "a chain of three": (lambda: chain(then="requeue"), "small.fail chain has two moves"),
    "a chain that breaks in the middle": (
        lambda: small(replace(FINISH, then="requeue"), REQUEUE, without=(FINISH,)),
        "small.finish requeue does not leave done",
    ),
    "a chain whose link wants an error from its caller": (
        lambda: chain(error="record"),
        "small.fail requeue has no caller",
    ),
    "a chain whose link wants a payload from its caller": (
        lambda: chain(payload="replace"),
        "small.fail requeue has no caller",
    ),
    "a chain whose link wants a priority from its caller": (
        lambda: chain(priority="input"),
        "small.fail requeue has no caller",
    ),
    "a chain whose link wants a result from its caller": (
        lambda: chain(result="record"),
        "small.fail requeue has no caller",
    ),
    "a chain whose link claims": (
        lambda: chain(when=(due, unclaimed), claim="take"),
        "small.fail requeue has no caller",
    ),
    "an error left unsaid where none is recorded": (
        lambda: small(default_errors=(("finish", BROKEN),)),
        "unsaid 'finish' no move of this action records an error",
    ),
    # enqueue, claim and prune
    "no enqueue": (lambda: small(without=(ENQUEUE,)), NO_SOURCE),
    "two ways to enqueue": (lambda: small(replace(ENQUEUE, name="import")), NO_SOURCE),
    "an enqueue under another name": (lambda: swapped(ENQUEUE, name="create"), NO_SOURCE),
    "parents without a way to have any": (
        lambda: small(unblock("failed", "ready")),
        "small parents_done needs a move enqueue_after",
    ),
    "parents that nothing waits for": (
        lambda: small(enqueue_after("failed")),
        "small enqueue_after leads to failed, and no parents_done leaves it",
    ),
    "work that waits for parents": (
        lambda: small(enqueue_after("aside"), unblock("aside", "ready"), states=with_state(resting=True, slots=1)),
        "small aside waits for other jobs: it must rest, without success or slots",
    ),
    "parents settled by a call of its own": (
        lambda: small(
            enqueue_after("aside"), unblock("aside", "ready", action="unblock"), states=with_state(resting=True)
        ),
        "small.unblock give action='settle'",
    ),
    "an enqueue into the wrong state": (lambda: swapped(ENQUEUE, to="running"), "small enqueue must lead to ready"),
    "nobody claims": (lambda: small(without=(CLAIM,)), "small no move claims a job"),
    "a prune of a job at work": (
        lambda: swapped(PRUNE, sources=("done", "running")),
        "small prune running still working",
    ),
    "a prune by hand": (lambda: swapped(PRUNE, by=("operator",), stage=None), "small prune scheduled age_over"),
    "a prune whatever the age": (lambda: swapped(PRUNE, when=()), "small prune scheduled age_over"),
}


@table("broken", REFUSALS)
def test_a_contradiction_is_refused_by_name(broken):
    declare, words = REFUSALS[broken]
    with pytest.raises(DeclarationError) as refused:
        declare()
    message = str(refused.value)
    assert [word for word in words.split() if word not in message] == []


def test_the_small_lifecycle_itself_is_accepted():
    assert small().name == "small"


def test_an_end_reached_from_a_rest_keeps_the_finish_it_has():
    buried = small(Move("bury", ("failed",), "done", by=("operator",)))
    assert buried.actions["bury"][0].stamp == ()


def test_a_move_that_ends_the_work_may_clear_run_at():
    assert swapped(FAIL, run_at="clear").actions["fail"][0].run_at == "clear"


def test_a_move_that_may_start_from_rest_must_set_run_at_though_it_may_also_start_from_work():
    again = Move("again", ("failed", "ready"), "ready", by=("operator",))
    with pytest.raises(DeclarationError, match=r"small\.again.*run_at"):
        small(again)
