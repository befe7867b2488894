"""What a handler may ask while it works."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

from kesin.engine.leases import Leases
from kesin.engine.queue import Queue
from kesin.lifecycle.model import Job
from kesin.store.records import Outcome


class Run:
    """The second argument of a handler that takes two."""

    __slots__ = ("_leases", "_queue", "_stop", "_worker", "job")

    def __init__(
        self, job: Job, *, queue: Queue, leases: Leases, worker: str, stop: threading.Event
    ) -> None:
        self.job = job
        self._queue = queue
        self._leases = leases
        self._worker = worker
        self._stop = stop

    @property
    def lost(self) -> bool:
        """The lease ran out: another worker may have the job, and this one's answer is refused."""
        return self._leases.is_lost(self.job)

    @property
    def stopping(self) -> bool:
        """The worker was asked to stop; finish soon, or be released."""
        return self._stop.is_set()

    def move(self, call: str, **details: Any) -> Outcome:
        """Make a move in the middle of the work, under the claim."""
        return self._queue.move(self.job, call, actor=self._worker, **details)


def takes_two(handler: Callable[..., object]) -> bool:
    """Whether a handler wants a ``Run`` beside the job."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in plain and one.default is one.empty]
    return len(needed) == 2  # noqa: PLR2004  # (job, run)
