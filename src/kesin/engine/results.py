"""What a handler answers: small values that say what became of the job.

Returning nothing means it is done. ``Failed`` may also be raised, from however deep.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kesin.engine.leases import Leases
from kesin.engine.queue import Queue
from kesin.foundation.text import storable
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.records import Outcome


@dataclass(frozen=True, slots=True)
class Done:
    """The work is done; ``result`` is kept with the job."""

    result: Any = None


class Failed(Exception):  # an answer first, an exception when that is handier
    """The work failed. The code decides what follows: see the lifecycle's error table."""

    def __init__(self, code: str, message: str = "", *, category: Category | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.category = category


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do yet: let go of the claim and look again after ``seconds``."""

    seconds: float
    call: str = "wait"


@dataclass(frozen=True, slots=True)
class Act:
    """Make this move, with whatever it records. For lifecycles with words of their own."""

    call: str
    result: Any = None
    code: str | None = None
    message: str | None = None
    category: Category | None = None
    note: Mapping[str, Any] | None = None
    run_in_s: float | None = None
    options: frozenset[str] = field(default_factory=frozenset)
    fenced: bool = True  # refused once the claim is lost; else made whoever has the job by now


Answer = Done | Failed | Wait | Act | None


def its_own(problem: BaseException) -> bool:
    """Whether a handler threw it; Ctrl-C and the like come from outside, to the main thread."""
    if isinstance(problem, Exception | SystemExit):
        return True
    return threading.current_thread() is not threading.main_thread()


def thrown(problem: BaseException) -> Failed:
    """The answer that an exception stands for, whatever it is and whatever its own words do."""
    if isinstance(problem, Failed):
        return problem
    return Failed(type(problem).__name__, words_of(problem))


def words_of(problem: BaseException) -> str:
    """What an exception says, if it can say anything."""
    try:
        return str(problem)
    except Exception:  # noqa: BLE001  # its own words are a handler's code as well
        return "its message cannot be told"


def short(text: str, longest: int) -> str:
    """The beginning of a text, as it is stored; the rest, however long, is not looked at."""
    return storable(text[: 4 * longest])[:longest]


def all_answered(jobs: Sequence[object], answers: Sequence[Answer]) -> None:
    """Raise RuntimeError unless there are as many answers as jobs."""
    if len(answers) != len(jobs):
        raise RuntimeError(f"{len(jobs)} jobs went in, {len(answers)} answers came out")


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
