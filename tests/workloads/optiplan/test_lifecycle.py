"""What holds for every order by declaration; ``test_transitions.py`` tries each transition."""

import pytest

from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle

OPTIPLAN = optiplan_lifecycle()


def test_operators_may_ask_for_nothing_else():
    assert OPTIPLAN.actions_of("producer") == ()
    assert OPTIPLAN.actions_of("operator") == ("approve", "retry", "cancel", "request_cancel", "reissue")


@pytest.mark.parametrize("state", ["HOLD", "FAILED"])
def test_only_an_operator_leaves_a_rest(state):
    leaving = [move for move in OPTIPLAN.moves if state in move.sources]
    assert leaving
    assert {role for move in leaving for role in move.by} == {"operator"}


def test_one_order_at_a_time_is_optimised():
    assert [state.name for state in OPTIPLAN.states if state.exclusive] == ["OPTI_RUNNING"]


def test_an_order_number_is_held_in_every_state():
    assert all(state.holds_key for state in OPTIPLAN.states)
