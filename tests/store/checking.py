"""Versions of a lifecycle with a state that comes and goes, for the tests of upgrades."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest

from kesin.lifecycle.declare import Lifecycle, State
from kesin.lifecycle.moves import cancel, requeue
from kesin.lifecycle.task import task_lifecycle
from kesin.store.contract import Store
from kesin.store.rules import UpgradeRefused

CHECK = cancel("ready", "checking", name="check")
CHECKED = requeue("checking", "ready", name="checked")


def checking_lifecycle(*, retiring: bool = False, **marks: Any) -> Lifecycle:
    """Tasks that an operator may put aside; ``retiring``: with that state on its way out."""
    task = task_lifecycle()
    moves = (*task.moves, CHECKED) if retiring else (*task.moves, CHECKED, CHECK)
    states = (*task.states, State("checking", resting=True, retiring=retiring, **marks))
    return replace(task, states=states, moves=moves)


def versions(store: Store, queue: str) -> list[int]:
    return [version.version for version in store.rules(queue)]


def refused(store: Store, queue: str, lifecycle: Lifecycle) -> list[str]:
    """Open a queue under rules that it must refuse; the reasons. Nothing is stored."""
    before = store.rules(queue)
    with pytest.raises(UpgradeRefused) as raised:
        store.open(queue, lifecycle)
    assert store.rules(queue) == before
    return [str(rule) for rule in raised.value.broken]


def all_at_once(*calls: Callable[[], object]) -> list[BaseException | None]:
    """Make the calls at once, each in a thread; what each raised."""
    barrier = Barrier(len(calls))

    def make(call: Callable[[], object]) -> None:
        barrier.wait()
        call()

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(make, call) for call in calls]
        return [future.exception() for future in futures]
