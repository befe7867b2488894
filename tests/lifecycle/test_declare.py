"""What a declaration is, and what can be read from it."""

from dataclasses import FrozenInstanceError, replace

import pytest

from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import (
    FINISHED,
    READY,
    RESTING,
    STAGES,
    STAY,
    WAITING,
    After,
    DeclarationError,
    age_over,
    due,
)
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
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
)

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
        (Backoff((1,)), "jitter_s"),
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
    assert list(small().actions) == ["enqueue", "claim", "finish", "fail", "recover", "prune"]


def test_moves_of_one_call_are_its_alternatives_in_order():
    alternatives = [move.name for move in oci_lifecycle().actions["ack"]]
    assert alternatives == ["ack", "late_ack"]


def test_a_move_is_called_by_its_name_unless_it_says_otherwise():
    late = Move("late", ("ready",), "done", by=("worker",), action="finish")
    assert (CLAIM.action, late.action) == ("claim", "finish")


def test_a_chain_finds_every_alternative_of_its_second_link():
    pdf = pdf_lifecycle()
    fail = pdf.actions["fail"][0]
    assert [link.name for link in pdf.chained_moves(fail)] == ["requeue", "resume"]


def test_a_move_without_then_has_no_second_link():
    unnamed = small(replace(FAIL, then="requeue"), REQUEUE, without=(FAIL,))
    assert unnamed.chained_moves(FINISH) == ()


@pytest.mark.parametrize("make", [oci_lifecycle, pdf_lifecycle, optiplan_lifecycle, task_lifecycle])
def test_the_sweeper_caps_recovers_expires_revives_times_out_and_prunes_in_that_order(make):
    stages = [move.stage for move in make().scheduled_moves]
    assert STAGES == ("cap", "recover", "expire", "revive", "timeout", "prune")
    assert stages == sorted(stages, key=STAGES.index)


def test_clock_moves_of_one_stage_stand_in_the_order_they_are_declared():
    late, early = (replace(RECOVER, name=name, action=name) for name in ("late", "early"))
    swept = small(late, early, without=(RECOVER,))
    assert [move.name for move in swept.scheduled_moves] == ["late", "early", "prune"]


@pytest.mark.parametrize(
    ("role", "actions"),
    [
        ("worker", ("claim", "succeed", "fail", "release")),
        ("clock", ("lose", "expire", "prune")),
        ("producer", ("enqueue", "artifact_gone", "cancel")),
        ("operator", ("cancel",)),
    ],
)
def test_a_role_may_ask_for_what_is_declared_for_it_in_declared_order(role, actions):
    pdf = pdf_lifecycle()
    assert pdf.actions_of(role) == actions
    assert {action for action in (*pdf.actions, "none") if pdf.allows(action, role)} == {*actions}


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("NEW", READY),
        ("PREPARED", WAITING),
        ("OPTI_IMPORTED", READY),
        ("DONE", FINISHED),
        ("HOLD", RESTING),
    ],
)
def test_an_unclaimed_job_has_the_phase_of_its_state(state, phase):
    assert optiplan_lifecycle().unowned_phase(state) == phase


@pytest.mark.parametrize(
    ("stamp", "column"), [("finished_at", "finished_at"), ("failed_at", "stamp_3")]
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


def test_states_and_moves_are_found_by_what_they_are():
    assert (small().initial.name, small().enqueue_move.name) == ("ready", "enqueue")
    assert [move.name for move in small().claims] == ["claim"]
    assert [state.name for state in STATES if state.working] == ["ready", "running"]
    assert [move.name for move in small().scheduled_moves] == ["recover", "prune"]


def test_a_move_that_stays_leads_where_it_came_from():
    stays = replace(RECOVER, to=STAY)
    assert (stays.target("running"), RECOVER.target("running")) == ("running", "ready")


@pytest.mark.parametrize(
    ("move", "creates", "prunes", "claims", "automatic"),
    [
        (ENQUEUE, True, False, False, False),
        (CLAIM, False, False, True, True),
        (RECOVER, False, False, False, True),
        (PRUNE, False, True, False, True),
        (Move("cancel", ("ready",), "failed", by=("operator",)), False, False, False, False),
    ],
    ids=lambda value: value.name if isinstance(value, Move) else None,
)
def test_a_move_knows_what_kind_it_is(move, creates, prunes, claims, automatic):
    kind = (move.creates, move.prunes, move.claims, move.automatic)
    assert kind == (creates, prunes, claims, automatic)


def test_a_guard_is_found_by_its_kind():
    assert (PRUNE.guard("age_over"), PRUNE.guard("due")) == (age_over("finished_at", 60), None)


def test_another_cap_keeps_every_rule():
    capped = small().with_limits(max_attempts=2)
    assert (capped.max_attempts, capped.moves) == (2, small().moves)
    assert small().with_limits() == small()


def test_a_cap_of_nothing_is_refused_and_not_ignored():
    with pytest.raises(DeclarationError, match="max_attempts must be at least 1, got 0"):
        small().with_limits(max_attempts=0)


def test_a_backoff_may_stand_for_a_time_and_for_a_timer():
    later = replace(FAIL, timer=Backoff((5,)), timer_for=(Category.TRANSIENT,))
    assert small(later, without=(FAIL,)).actions["fail"] == (later,)
