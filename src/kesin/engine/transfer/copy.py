"""Copies queues from one store to another with their whole history, and proves the copy.

Meanwhile the source is paused; passes copy what still moves, until one finds nothing. Then both
stores are read, replayed and compared job by job. An interrupted copy is run again, and goes on.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kesin.engine.transfer.queue_copy import CopyResult, NamedStore, Progress, QueueCopy
from kesin.lifecycle.declare import Lifecycle
from kesin.store.errors import StoreError

CLAIM_POLL_S: Final = 0.2  # while waiting for claims to end
_IDLE: Final = threading.Event().wait  # the event is never set: this sleeps


def copy_queues(
    source: NamedStore,
    target: NamedStore,
    lifecycles: dict[str, Lifecycle],
    *,
    keep_source_running: bool = False,
    wait_s: float = 0.0,
    idle: Callable[[float], object] = _IDLE,
    progress: Progress = lambda _stage, _jobs: None,
    copy_other_data: Callable[[], object] = lambda: None,
) -> list[CopyResult]:
    """Copy and prove queues; then the target runs. ``copy_other_data`` runs when none moves."""
    copies = [QueueCopy(source, target, *queue, progress) for queue in lifecycles.items()]
    try:
        for queue_copy in copies:
            queue_copy.begin()
        waited = 0.0
        while waited < wait_s and any(queue_copy.count_claimed() for queue_copy in copies):
            idle(CLAIM_POLL_S)
            waited += CLAIM_POLL_S
        for queue_copy in copies:
            queue_copy.refuse_claims()
            queue_copy.prepare_target()
        while any(queue_copy.has_source_moved() for queue_copy in copies):
            _until_nothing_moves(copies)
            copy_other_data()
        for queue_copy in copies:
            queue_copy.refuse_other_writers()
        for queue_copy in copies:
            queue_copy.hand_over(keep_source_running=keep_source_running)
    except BaseException:
        for queue_copy in copies:
            with suppress(StoreError):  # the first error is raised, not its consequences
                queue_copy.give_up()
        raise
    return [queue_copy.result for queue_copy in copies]


def _until_nothing_moves(copies: list[QueueCopy]) -> None:
    """Prove all queues again if one moved while another was proved, until none moves."""
    unproved = copies
    while unproved:
        for queue_copy in unproved:
            queue_copy.catch_up()
        unproved = [queue_copy for queue_copy in unproved if not queue_copy.prove()] or [
            queue_copy for queue_copy in copies if queue_copy.has_source_moved()
        ]
