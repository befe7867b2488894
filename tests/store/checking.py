"""Versions of a lifecycle with a state that comes and goes, for the tests of upgrades."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kesin.lifecycle.declare import Lifecycle, State
from kesin.lifecycle.moves import cancel, requeue
from kesin.lifecycle.task import task_lifecycle

CHECK = cancel("ready", "checking", name="check")
CHECKED = requeue("checking", "ready", name="checked")


def checking_lifecycle(*, retiring: bool = False, **marks: Any) -> Lifecycle:
    """Tasks that an operator may put aside; ``retiring``: with that state on its way out."""
    task = task_lifecycle()
    moves = (*task.moves, CHECKED) if retiring else (*task.moves, CHECKED, CHECK)
    states = (*task.states, State("checking", resting=True, retiring=retiring, **marks))
    return replace(task, states=states, moves=moves)
