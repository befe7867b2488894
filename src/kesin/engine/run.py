"""What a handler may ask while it works."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kesin.lifecycle.model import Job
from kesin.store.records import Outcome

if TYPE_CHECKING:
    from kesin.engine.worker import Worker


class Run:
    """The second argument of a handler that takes two."""

    __slots__ = ("_queue", "_worker", "job")

    def __init__(self, worker: Worker, job: Job) -> None:
        self._worker = worker
        self._queue = worker.queue
        self.job = job

    @property
    def lost(self) -> bool:
        """The lease ran out: another worker may have the job, and this one's answer is refused."""
        return self._worker.leases.is_lost(self.job)

    @property
    def stopping(self) -> bool:
        """The worker was asked to stop; finish soon, or be released."""
        return self._worker.stopping

    def move(self, call: str, **details: Any) -> Outcome:
        """Make a move in the middle of the work, under the claim."""
        return self._queue.move(self.job, call, actor=self._worker.name, **details)


def takes_two(handler: Callable[..., object]) -> bool:
    """Whether a handler wants a ``Run`` beside the job."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in plain and one.default is one.empty]
    return len(needed) == 2  # noqa: PLR2004  # (job, run)
