"""What R3 says of a worker that dies: the cause, not the nearest one."""

from dataclasses import replace

from kesin import Lifecycle, prove, task_lifecycle


def without_keys_in(state_name: str) -> Lifecycle:
    task = task_lifecycle()
    states = tuple(replace(state, holds_key=state.holds_key and state.name != state_name) for state in task.states)
    return replace(task, states=states)


def test_a_recovery_that_needs_the_key_back_is_named_with_the_key():
    proof = prove(without_keys_in("running"))
    [why] = {broken.why for broken in proof.broken if broken.rule == "R3"}
    assert why == (
        "a worker that dies in running keeps the job: recover needs the job's key back for ready,"
        " and another job may hold it: let running hold the key as well"
    )


def test_a_missing_recovery_is_named_as_missing():
    task = task_lifecycle()
    moves = tuple(move for move in task.moves if move.name != "recover")
    [broken] = [rule for rule in prove(replace(task, moves=moves)).broken if rule.rule == "R3"]
    assert broken.why.endswith("keeps the job: no scheduled move on lease_over alone")
