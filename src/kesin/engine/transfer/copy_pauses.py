"""The pauses of a copy: they say what is under way, and survive the process that made them."""

from __future__ import annotations

from typing import Final

from kesin.store.contract import Store
from kesin.store.records import Pause

ACTOR: Final = "store copy"


def pause_of(store: Store, queue: str) -> Pause | None:
    """The pause of the whole queue, if there is one."""
    return next((one for one in store.paused(queue) if not one.tenant), None)


def moved_to(name: str) -> str:
    """The reason of the pause on a source after its move."""
    return f"moved to {name}"


def left_behind(store: Store, queue: str, target: str) -> bool:
    """Whether this queue was moved, and not to that target: then it is not what to go by."""
    held = pause_of(store, queue)
    if held is None or held.actor != ACTOR or not (held.reason or "").startswith(moved_to("")):
        return False
    return held.reason != moved_to(target)


def replace_pause(store: Store, queue: str, reason: str) -> None:
    """Pause for this reason; there is no moment in which it is not paused."""
    with store.home(queue).transaction():
        store.resume(queue)
        store.pause(queue, actor=ACTOR, reason=reason)


def repeat_pause(store: Store, one: Pause) -> None:
    """Pause a store's queue or tenant as another store has it."""
    store.pause(one.queue, tenant=one.tenant, actor=one.actor, reason=one.reason, now=one.at)
