from dataclasses import FrozenInstanceError, replace

import pytest

from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.words import (
    GONE,
    OVER,
    READY,
    RESTING,
    STAGES,
    STAY,
    WAITING,
    After,
    DeclarationError,
    Fixed,
    Guard,
    age_over,
    budget_left,
    category_in,
    code_in,
    code_not_in,
    due,
    duration,
    flag_not_set,
    flag_set,
    holds_claim,
    lease_over,
    option,
    retries_left,
    slot_free,
    timer_over,
    unclaimed,
)
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle

BROKEN = Fixed("BROKEN", Category.PERMANENT, "it broke")
STATES = (
    State("ready", initial=True),
    State("running"),
    State("done", terminal=True, success=True),
    State("failed", resting=True),
)
ENQUEUE = Move("enqueue", (), "ready", by=("producer",), run_at="input")
CLAIM = Move(
    "claim",
    ("ready",),
    "running",
    by=("worker",),
    when=(due, unclaimed, budget_left),
    claim="take",
    attempt="count",
)
FINISH = Move(
    "finish",
    ("running",),
    "done",
    by=("worker",),
    when=(holds_claim,),
    claim="drop",
    stamp=("finished_at",),
)
FAIL = replace(FINISH, name="fail", call="fail", to="failed", error="record")
RECOVER = Move(
    "recover",
    ("running",),
    "ready",
    by=("clock",),
    when=(lease_over,),
    claim="drop",
    run_at="now",
    stage="recover",
)
PRUNE = Move(
    "prune",
    ("done", "failed"),
    GONE,
    by=("clock",),
    when=(age_over("finished_at", 60),),
    stage="prune",
)
REQUEUE = Move(
    "requeue",
    ("failed",),
    "ready",
    by=("worker",),
    run_at="now",
    unstamp=("finished_at",),
    chained=True,
)
ERRORS = Taxonomy(
    channels=("worker",),
    rules=same_everywhere(("worker",), dict.fromkeys(Category, Verdict.FAIL)),
    moves=((Verdict.FAIL, "fail"),),
)


def small(*more, without=(), **header):
    moves = [ENQUEUE, CLAIM, FINISH, FAIL, RECOVER, PRUNE]
    header.setdefault("name", "small")
    header.setdefault("states", STATES)
    kept = [move for move in moves if move not in without]
    return Lifecycle(moves=(*kept, *more), errors=ERRORS, **header)


def swapped(move, **changes):
    return small(replace(move, **changes), without=(move,))


def with_state(**marks):
    return (*STATES, State("aside", **marks))


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
        "small 'on hold' is no state name",
    ),
    "a state declared twice": (
        lambda: small(states=(*STATES, State("failed"))),
        "small state failed is declared twice",
    ),
    "two births": (
        lambda: small(states=with_state(initial=True)),
        "small exactly one state is initial ready aside",
    ),
    "nowhere to be born": (
        lambda: small(states=(replace(STATES[0], initial=False), *STATES[1:])),
        "small exactly one state is initial got none",
    ),
    "no success": (
        lambda: small(states=tuple(replace(state, success=False) for state in STATES)),
        "small no state is marked success",
    ),
    # a move's ends
    "a move name with a dash": (lambda: swapped(FINISH, name="fin-ish"), "small.fin-ish name"),
    "a move of nobody": (lambda: swapped(FINISH, by=()), "small.finish nobody by="),
    "an unknown source": (
        lambda: swapped(FINISH, sources=("flying",)),
        "small.finish unknown state 'flying'",
    ),
    "an unknown target": (lambda: swapped(FINISH, to="flown"), "small.finish unknown 'flown'"),
    "a source that stands for no state": (
        lambda: swapped(FINISH, sources=(STAY,)),
        "small.finish unknown state '='",
    ),
    "a source named twice": (
        lambda: swapped(FINISH, sources=("running", "running")),
        "small.finish source named twice",
    ),
    "a slot of a state that has none": (
        lambda: swapped(CLAIM, when=(*CLAIM.when, slot_free("running"))),
        "small.claim slot_free running not exclusive",
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
    "a working job without a time to run at": (
        lambda: swapped(RECOVER, run_at="clear"),
        "small.recover clear run_at",
    ),
    "a stay that clears the time to run at": (
        lambda: swapped(RECOVER, to=STAY, run_at="clear"),
        "small.recover clear run_at",
    ),
    "a birth without a time to run at": (
        lambda: swapped(ENQUEUE, run_at="keep"),
        "small.enqueue work ready must set run_at",
    ),
    "a rest that ends without a time to run at": (
        lambda: small(Move("again", ("failed",), "ready", by=("operator",))),
        "small.again work ready must set run_at",
    ),
    # stamps, flags and timers
    "an unknown stamp set": (
        lambda: swapped(CLAIM, stamp=("started_at",)),
        "small.claim unknown stamp 'started_at'",
    ),
    "an unknown stamp given": (
        lambda: swapped(ENQUEUE, stamp_input=("ordered_at",)),
        "small.enqueue unknown stamp 'ordered_at'",
    ),
    "an unknown stamp cleared": (
        lambda: swapped(CLAIM, unstamp=("ended_at",)),
        "small.claim unknown stamp 'ended_at'",
    ),
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
    "an unknown flag set": (
        lambda: swapped(CLAIM, flag=("vip",)),
        "small.claim unknown flag 'vip'",
    ),
    "an end without finished_at": (
        lambda: swapped(FAIL, stamp=()),
        "small.fail ends failed must stamp finished_at",
    ),
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
    "a claim by an operator": (
        lambda: swapped(CLAIM, by=("worker", "operator")),
        "claim only a worker claims",
    ),
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
    "a clock move without a stage": (
        lambda: swapped(RECOVER, stage=None),
        "small.recover clock needs a stage",
    ),
    "a stage without the clock": (
        lambda: swapped(RECOVER, by=("worker",)),
        "small.recover only a clock move has a stage",
    ),
    "a clock that holds a claim": (
        lambda: swapped(RECOVER, when=(holds_claim,)),
        "small.recover clock cannot meet holds_claim",
    ),
    "a clock that is given an option": (
        lambda: swapped(RECOVER, when=(lease_over, option("hard", is_set=True))),
        "small.recover clock cannot meet option",
    ),
    "a clock that is told when": (
        lambda: swapped(RECOVER, run_at="input"),
        "small.recover clock no input",
    ),
    "a clock that is given a stamp": (
        lambda: small(
            replace(RECOVER, stamp_input=("sold_at",)), without=(RECOVER,), stamps=("sold_at",)
        ),
        "small.recover clock no input",
    ),
    "a clock that is given a payload": (
        lambda: swapped(RECOVER, payload="replace"),
        "small.recover clock no input",
    ),
    "a clock that reports an error": (
        lambda: swapped(RECOVER, error="record"),
        "small.recover clock records no error use Fixed",
    ),
    "a clock that reports a result": (
        lambda: swapped(RECOVER, result="record"),
        "small.recover clock records no error or result",
    ),
    "the age of a stamp without an index": (
        lambda: small(
            replace(PRUNE, when=(age_over("second", 60),)),
            without=(PRUNE,),
            stamps=("first", "second"),
        ),
        "small.prune first named stamp declare second first",
    ),
    # chains
    "a chain to nowhere": (
        lambda: swapped(FAIL, then="nowhere"),
        "small.fail then='nowhere' names no chained move",
    ),
    "a chain to a move that can be made alone": (
        lambda: small(
            replace(FAIL, then="requeue"), replace(REQUEUE, chained=False), without=(FAIL,)
        ),
        "small.fail then='requeue' names no chained move",
    ),
    "a chain of three": (
        lambda: small(
            replace(FAIL, then="requeue"),
            replace(REQUEUE, then="requeue"),
            without=(FAIL,),
        ),
        "small.fail chain has two links",
    ),
    "a chain that breaks in the middle": (
        lambda: small(replace(FINISH, then="requeue"), REQUEUE, without=(FINISH,)),
        "small.finish requeue does not leave done",
    ),
    "a chain whose link wants an error from its caller": (
        lambda: small(
            replace(FAIL, then="requeue"), replace(REQUEUE, error="record"), without=(FAIL,)
        ),
        "small.fail requeue has no caller",
    ),
    "a chain whose link wants a payload from its caller": (
        lambda: small(
            replace(FAIL, then="requeue"), replace(REQUEUE, payload="replace"), without=(FAIL,)
        ),
        "small.fail requeue has no caller",
    ),
    "a chain whose link claims": (
        lambda: small(
            replace(FAIL, then="requeue"),
            replace(REQUEUE, when=(due, unclaimed), claim="take"),
            without=(FAIL,),
        ),
        "small.fail requeue has no caller",
    ),
    # births, claims and prunes
    "no birth": (lambda: small(without=(ENQUEUE,)), "small one move has no source enqueue"),
    "two ways to be born": (
        lambda: small(replace(ENQUEUE, name="import")),
        "small one move has no source enqueue",
    ),
    "a birth under another name": (
        lambda: swapped(ENQUEUE, name="create"),
        "small one move has no source named enqueue",
    ),
    "a birth in the wrong place": (
        lambda: swapped(ENQUEUE, to="running"),
        "small enqueue must lead to ready",
    ),
    "nobody claims": (lambda: small(without=(CLAIM,)), "small no move claims a job"),
    "a prune of a job at work": (
        lambda: swapped(PRUNE, sources=("done", "running")),
        "small prune running still working",
    ),
    "a prune by hand": (
        lambda: swapped(PRUNE, by=("operator",), stage=None),
        "small prune clock age_over",
    ),
    "a prune whatever the age": (
        lambda: swapped(PRUNE, when=()),
        "small prune clock age_over",
    ),
}


@pytest.mark.parametrize("broken", REFUSALS)
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
    assert buried.calls["bury"][0].stamp == ()


def test_a_move_that_ends_the_work_may_clear_run_at():
    assert swapped(FAIL, run_at="clear").calls["fail"][0].run_at == "clear"


def test_a_move_that_may_start_from_rest_must_set_run_at_though_it_may_also_start_from_work():
    again = Move("again", ("failed", "ready"), "ready", by=("operator",))
    with pytest.raises(DeclarationError, match=r"small\.again.*run_at"):
        small(again)


# What a declaration is


@pytest.mark.parametrize(
    "make", [oci_lifecycle, pdf_lifecycle, optiplan_lifecycle, task_lifecycle, small]
)
def test_two_equal_declarations_are_one_key(make):
    assert len({make(), make()}) == 1


def test_another_cap_is_another_lifecycle():
    assert small() != small(max_attempts=2)


def test_the_words_about_a_lifecycle_do_not_make_it_another():
    assert small(doc="long") == small(doc="short")


@pytest.mark.parametrize(
    ("thing", "attribute"),
    [
        (small(), "max_attempts"),
        (CLAIM, "when"),
        (STATES[0], "terminal"),
        (due, "kind"),
        (After(5), "seconds"),
        (BROKEN, "code"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_declaration_cannot_be_changed(thing, attribute):
    with pytest.raises(FrozenInstanceError):
        setattr(thing, attribute, None)


def test_replacing_a_part_checks_the_whole_again():
    with pytest.raises(DeclarationError, match="no move claims a job"):
        replace(small(), moves=(ENQUEUE, FINISH, FAIL, RECOVER))


# Reading a declaration


def test_calls_stand_in_the_order_they_are_declared():
    assert list(small().calls) == ["enqueue", "claim", "finish", "fail", "recover", "prune"]


def test_moves_of_one_call_are_its_alternatives_in_order():
    alternatives = [move.name for move in oci_lifecycle().calls["ack"]]
    assert alternatives == ["ack", "late_ack"]


def test_a_move_is_called_by_its_name_unless_it_says_otherwise():
    assert (CLAIM.call, Move("late", ("ready",), "done", by=("worker",), call="finish").call) == (
        "claim",
        "finish",
    )


def test_a_chain_finds_every_alternative_of_its_second_link():
    pdf = pdf_lifecycle()
    fail = pdf.calls["fail"][0]
    assert [link.name for link in pdf.chained(fail)] == ["requeue", "resume"]


def test_a_move_without_then_has_no_second_link():
    unnamed = small(replace(FAIL, then="requeue"), REQUEUE, without=(FAIL,))
    assert unnamed.chained(FINISH) == ()


@pytest.mark.parametrize("make", [oci_lifecycle, pdf_lifecycle, optiplan_lifecycle, task_lifecycle])
def test_the_sweeper_caps_recovers_expires_revives_times_out_and_prunes_in_that_order(make):
    stages = [move.stage for move in make().clock_moves]
    assert STAGES == ("cap", "recover", "expire", "revive", "timeout", "prune")
    assert stages == sorted(stages, key=STAGES.index)


def test_clock_moves_of_one_stage_stand_in_the_order_they_are_declared():
    late, early = (replace(RECOVER, name=name, call=name) for name in ("late", "early"))
    swept = small(late, early, without=(RECOVER,))
    assert [move.name for move in swept.clock_moves] == ["late", "early", "prune"]


def test_only_clock_moves_are_swept():
    assert [move.name for move in small().clock_moves] == ["recover", "prune"]


@pytest.mark.parametrize(
    ("call", "role", "allowed"),
    [
        ("succeed", "worker", True),
        ("succeed", "operator", False),
        ("cancel", "operator", True),
        ("cancel", "producer", True),
        ("cancel", "worker", False),
        ("requeue", "worker", False),
        ("requeue", "clock", False),
        ("unheard_of", "worker", False),
    ],
)
def test_a_role_may_ask_only_for_what_is_declared_for_it(call, role, allowed):
    assert pdf_lifecycle().allows(call, role) is allowed


@pytest.mark.parametrize(
    ("role", "calls"),
    [
        ("worker", ("claim", "succeed", "fail", "release")),
        ("clock", ("lose", "expire", "prune")),
        ("producer", ("enqueue", "artifact_gone", "cancel")),
        ("operator", ("cancel",)),
    ],
)
def test_the_calls_of_a_role_stand_in_declared_order(role, calls):
    assert pdf_lifecycle().calls_of(role) == calls


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("NEW", READY),
        ("PREPARED", WAITING),
        ("OPTI_IMPORTED", READY),
        ("OPTI_RUNNING", READY),
        ("OPTI_DONE", READY),
        ("XML_READY", READY),
        ("DELIVERED", WAITING),
        ("DONE", OVER),
        ("HOLD", RESTING),
        ("FAILED", RESTING),
    ],
)
def test_an_unclaimed_job_has_the_phase_of_its_state(state, phase):
    assert optiplan_lifecycle().unowned_phase(state) == phase


@pytest.mark.parametrize(
    ("stamp", "column"),
    [
        ("created_at", "created_at"),
        ("moved_at", "moved_at"),
        ("finished_at", "finished_at"),
        ("conversion_at", "stamp_1"),
        ("uploaded_at", "stamp_2"),
        ("failed_at", "stamp_3"),
    ],
)
def test_a_stamp_has_a_column(stamp, column):
    assert oci_lifecycle().stamp_column(stamp) == column


def test_an_undeclared_stamp_has_no_column():
    with pytest.raises(ValueError):
        oci_lifecycle().stamp_column("sold_at")


def test_each_flag_is_a_bit_of_its_own():
    flags = tuple(f"flag{number}" for number in range(31))
    bits = [small(flags=flags).flag_bit(flag) for flag in flags]
    assert bits == [2**number for number in range(31)]


def test_the_initial_state_is_where_the_birth_leads():
    assert (small().initial.name, small().birth.name) == ("ready", "enqueue")


def test_claims_are_the_moves_that_take_a_claim():
    assert [move.name for move in small().claims] == ["claim"]


def test_a_state_that_neither_ends_nor_rests_is_working():
    assert [state.name for state in STATES if state.working] == ["ready", "running"]


def test_a_move_that_stays_leads_where_it_came_from():
    stays = replace(RECOVER, to=STAY)
    assert (stays.target("running"), RECOVER.target("running")) == ("running", "ready")


@pytest.mark.parametrize(
    ("move", "births", "prunes", "claims", "automatic"),
    [
        (ENQUEUE, True, False, False, False),
        (CLAIM, False, False, True, True),
        (RECOVER, False, False, False, True),
        (PRUNE, False, True, False, True),
        (Move("cancel", ("ready",), "failed", by=("operator",)), False, False, False, False),
    ],
    ids=lambda value: value.name if isinstance(value, Move) else None,
)
def test_a_move_knows_what_kind_it_is(move, births, prunes, claims, automatic):
    kind = (move.births, move.prunes, move.claims, move.automatic)
    assert kind == (births, prunes, claims, automatic)


def test_a_guard_is_found_by_its_kind():
    assert (PRUNE.guard("age_over"), PRUNE.guard("due")) == (age_over("finished_at", 60), None)


def test_another_cap_keeps_every_rule():
    capped = small().with_limits(max_attempts=2)
    assert (capped.max_attempts, capped.moves) == (2, small().moves)


def test_without_another_cap_a_lifecycle_stays_itself():
    assert small().with_limits() == small()


def test_a_cap_of_nothing_is_refused_and_not_ignored():
    with pytest.raises(DeclarationError, match="max_attempts must be at least 1, got 0"):
        small().with_limits(max_attempts=0)


@pytest.mark.parametrize(
    ("guard", "shown"),
    [
        (due, "due"),
        (timer_over, "timer_over"),
        (code_in("A", "B"), "code_in(A, B)"),
        (code_not_in("A"), "code_not_in(A)"),
        (category_in(Category.AUTH), "category_in(AUTH)"),
        (flag_set("vip"), "flag_set(vip)"),
        (slot_free("running"), "slot_free(running)"),
        (retries_left(3), "retries_left(< 3)"),
        (age_over("created_at", 86_400), "age_over(created_at, 1 d)"),
        (option("hard", is_set=True), "option(hard=yes)"),
        (option("hard", is_set=False), "option(hard=no)"),
    ],
    ids=lambda value: value.kind if isinstance(value, Guard) else None,
)
def test_a_guard_reads_as_it_is_written(guard, shown):
    assert str(guard) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (5_400, "90 min"), (7_200, "2 h"), (172_800, "2 d")],
)
def test_a_duration_is_told_in_the_largest_unit_that_stays_whole(seconds, shown):
    assert duration(seconds) == shown


def test_a_timer_says_when_it_goes_off():
    assert str(After(1_200)) == "after 20 min"


def test_a_backoff_may_stand_for_a_time_and_for_a_timer():
    later = replace(FAIL, timer=Backoff((5,)), timer_for=(Category.TRANSIENT,))
    assert small(later, without=(FAIL,)).calls["fail"] == (later,)
