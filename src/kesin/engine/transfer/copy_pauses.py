"""The pauses of a copy. They show that a copy runs, and outlive its process."""

from __future__ import annotations

from typing import Final

from kesin.store.contract import Store
from kesin.store.records import Pause

ACTOR: Final = "store copy"


def pause_of(store: Store, queue: str) -> Pause | None:
    """The pause of the whole queue, if there is one."""
    return next((pause for pause in store.paused(queue) if not pause.tenant), None)


def moved_reason(name: str) -> str:
    """The reason of the pause on a source after its move."""
    return f"moved to {name}"


def was_moved_elsewhere(store: Store, queue: str, target: str) -> bool:
    """Whether this queue was moved to another store than the target, so it is out of date."""
    pause = pause_of(store, queue)
    reason = (pause.reason if pause is not None and pause.actor == ACTOR else None) or ""
    return reason.startswith(moved_reason("")) and reason != moved_reason(target)


def replace_pause(store: Store, queue: str, reason: str) -> None:
    """Change the reason of a pause in one transaction: the queue never runs in between."""
    with store.store_for(queue).transaction():
        store.resume(queue)
        store.pause(queue, actor=ACTOR, reason=reason)


def copy_pause(store: Store, pause: Pause) -> None:
    """Pause a queue or tenant exactly as another store has it."""
    store.pause(
        pause.queue, tenant=pause.tenant, actor=pause.actor, reason=pause.reason, now=pause.at
    )
