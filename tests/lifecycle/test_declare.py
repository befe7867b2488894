"""What a declaration is, and what can be read from it."""

from dataclasses import FrozenInstanceError, replace

import pytest

from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import STAGES, After, DeclarationError, due
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.lifecycle.small import BROKEN, CLAIM, ENQUEUE, FAIL, FINISH, RECOVER, STATES, small

# What a declaration is


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


@pytest.mark.parametrize("make", [oci_lifecycle, pdf_lifecycle, optiplan_lifecycle, task_lifecycle])
def test_the_sweeper_settles_caps_recovers_expires_revives_times_out_and_prunes_in_that_order(make):
    stages = [move.stage for move in make().scheduled_moves]
    assert STAGES == ("settle", "cap", "recover", "expire", "revive", "timeout", "prune")
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
        ("producer", ("artifact_gone", "cancel", "dismiss")),
        ("operator", ("cancel", "dismiss")),
    ],
)
def test_a_role_may_ask_for_what_is_declared_for_it_in_declared_order(role, actions):
    pdf = pdf_lifecycle()
    assert pdf.actions_of(role) == actions
    assert {action for action in (*pdf.actions, "none") if pdf.allows(action, role)} == {*actions}


def test_each_flag_is_a_bit_of_its_own():
    flags = tuple(f"flag{number}" for number in range(31))
    bits = [small(flags=flags).flag_bit(flag) for flag in flags]
    assert bits == [2**number for number in range(31)]


def test_another_cap_keeps_every_rule():
    capped = small().with_limits(max_attempts=2)
    assert (capped.max_attempts, capped.moves) == (2, small().moves)
    assert small().with_limits() == small()


def test_a_cap_of_nothing_is_refused_and_not_ignored():
    with pytest.raises(DeclarationError, match="max_attempts must be at least 1, got 0"):
        small().with_limits(max_attempts=0)
