"""The proof holds for every job a queue can hold: whatever its cap, and whoever has its key."""

from dataclasses import replace

import pytest

from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.moves import fail
from kesin.lifecycle.proof.rules import prove
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import Guard, budget_left, retries_left, timer_over, unclaimed
from kesin.workloads import lifecycles


def guarded(lifecycle: Lifecycle, name: str, guard: Guard, besides: Guard) -> Lifecycle:
    """The same, with one more guard on the move of that name that has the other one."""

    def changed(move: Move) -> Move:
        if move.name == name and besides in move.when:
            return replace(move, when=(*move.when, guard))
        return move

    return replace(lifecycle, moves=tuple(map(changed, lifecycle.moves)))


LARGE = ("oci", "optiplan")  # `prove` itself repeats the walk under each of these caps


@pytest.mark.parametrize("cap", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LARGE else name for name in lifecycles()]
)
def test_a_real_lifecycle_is_proved_for_a_job_with_a_cap_of_its_own(name: str, cap: int):
    assert prove(lifecycles()[name]().with_limits(max_attempts=cap))


def test_a_job_with_more_attempts_than_declared_is_thought_of():
    """With a cap of one nobody recovers with budget left; a job may be born with a cap of two."""
    once = guarded(task_lifecycle(max_attempts=1), "recover", timer_over, budget_left)
    [broken] = prove(once).broken
    assert broken.rule == "R3"
    assert "a job with max_attempts=2" in broken.why
    assert "running" in broken.why


def test_a_job_with_fewer_attempts_than_declared_is_thought_of():
    """Its first claim spends the budget, and then this recover needs a timer that nobody arms."""
    lifecycle = task_lifecycle(max_attempts=3)
    spent = next(move for move in lifecycle.moves if move.name == "recover" and budget_left not in move.when)
    armed = guarded(lifecycle, "recover", timer_over, spent.when[1])
    assert "R3" in {one.rule for one in prove(armed).broken}
    for cap in (1, 2):
        assert not prove(armed.with_limits(max_attempts=cap))


def test_a_job_with_so_many_attempts_that_its_retries_run_out_first_is_thought_of():
    """Of three attempts none is the fifth retry; a job may be born with ten."""
    task = task_lifecycle(max_attempts=3)
    ends = tuple(replace(one, resting=False, terminal=True) if one.name == "failed" else one for one in task.states)
    nap = fail("running", "waiting", name="nap", error="keep", retry="count", stamp=())
    wake = Move(
        "wake", ("waiting",), "ready", by=("clock",), when=(unclaimed, retries_left(5)), run_at="now", stage="revive"
    )
    kept = (one for one in task.moves if one.name not in ("requeue", "dismiss"))
    moves = (*kept, nap, wake)
    states = (*ends, State("waiting", holds_key=True))
    [broken] = prove(replace(task, states=states, moves=moves)).broken
    assert broken.rule == "R4"
    assert "a job with max_attempts=7: a job can wait in waiting" in broken.why


def without_key_in(state_name: str) -> Lifecycle:
    task = task_lifecycle()
    states = tuple(replace(state, holds_key=state.holds_key and state.name != state_name) for state in task.states)
    return replace(task, states=states)


def test_a_claim_that_needs_the_key_back_is_no_way_on_and_a_recovery_is_named_with_the_key_or_as_missing():
    """Another job may hold it, and rest with it for good."""
    [broken] = prove(without_key_in("ready")).broken
    assert broken.rule == "R4"
    assert "ready" in broken.why
    [why] = {broken.why for broken in prove(without_key_in("running")).broken if broken.rule == "R3"}
    assert why == (
        "if a worker dies in running, its job is never recovered: recover must reacquire the job's key for ready,"
        " but another job may hold it: let running hold the key as well"
    )
    task = task_lifecycle()
    unrecovered = replace(task, moves=tuple(move for move in task.moves if move.name != "recover"))
    [why] = {broken.why for broken in prove(unrecovered).broken if broken.rule == "R3"}
    assert why.endswith("is never recovered: no scheduled move has lease_over as its only guard")
