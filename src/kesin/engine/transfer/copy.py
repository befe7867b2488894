"""Queues taken from one store to another, with their whole history, and the proof of it.

The source hands out no jobs meanwhile. What still moves there is caught by passes: everything is
compared, and what is new or has come further is written again, until a pass finds nothing. Then
both sides are read whole, replayed, and compared job by job. A run that was broken off is simply
run again: it goes on from what is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kesin.engine.transfer.queue_copy import Copied, Progress, QueueCopy, Side
from kesin.lifecycle.declare import Lifecycle
from kesin.store.errors import StoreError

LOOK_S: Final = 0.2  # between two looks at claims that are waited for
_IDLE: Final = threading.Event().wait  # never set: a pause is a wait for it


def copy(
    source: Side,
    target: Side,
    queue: str,
    lifecycle: Lifecycle,
    *,
    keep_source_running: bool = False,
    wait_s: float = 0.0,
    idle: Callable[[float], object] = _IDLE,
    progress: Progress = lambda _stage, _jobs: None,
) -> Copied:
    """Copy one queue and prove it; then the target works, and the source is left paused."""
    copying = Copying(
        source, target, {queue: lifecycle}, wait_s=wait_s, idle=idle, progress=progress
    )
    return copying.run(keep_source_running=keep_source_running)[0]


class Copying:
    """Copies of several queues that are handed over together."""

    def __init__(
        self,
        source: Side,
        target: Side,
        queues: dict[str, Lifecycle],
        *,
        wait_s: float = 0.0,
        idle: Callable[[float], object] = _IDLE,
        progress: Progress = lambda _stage, _jobs: None,
    ) -> None:
        self._wait_s, self._idle = wait_s, idle
        self._copies = {
            name: QueueCopy(source, target, name, rules, progress) for name, rules in queues.items()
        }

    def run(
        self, *, keep_source_running: bool = False, beside: Callable[[], object] = lambda: None
    ) -> list[Copied]:
        """Copy, prove, and hand over. ``beside`` copies what is not jobs, when nothing moves."""
        copies = list(self._copies.values())
        try:
            for queue_copy in copies:
                queue_copy.begin()
            waited = 0.0
            while any(queue_copy.claimed() for queue_copy in copies) and waited < self._wait_s:
                self._idle(LOOK_S)
                waited += LOOK_S
            for queue_copy in copies:
                queue_copy.refuse_claims()
                queue_copy.welcome()
            while any(queue_copy.moved_since() for queue_copy in copies):
                self._until_nothing_moves(copies)
                beside()
            for queue_copy in copies:
                queue_copy.refuse_company()
            for queue_copy in copies:
                queue_copy.hand_over(keep_source_running=keep_source_running)
        except BaseException:
            for queue_copy in copies:
                with suppress(StoreError):  # what went wrong is told, not what followed from it
                    queue_copy.give_up()
            raise
        return [queue_copy.copied for queue_copy in copies]

    @staticmethod
    def _until_nothing_moves(copies: list[QueueCopy]) -> None:
        """A queue may move while another is proved: all of them once more, until none did."""
        unproved = copies
        while unproved:
            for queue_copy in unproved:
                queue_copy.catch_up()
            unproved = [queue_copy for queue_copy in unproved if not queue_copy.prove()] or [
                queue_copy for queue_copy in copies if queue_copy.moved_since()
            ]
