"""What a handler returns, or raises at any depth (``Failed``); None means that a job is done."""

import inspect
import re
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kesin.engine.access.masking import mask_credentials, mask_text
from kesin.engine.queue import StaleClaim
from kesin.engine.validation import BadInput, delay_us
from kesin.foundation.clock import Duration
from kesin.foundation.text import storable
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import OWNED
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.limits import MAX_CODE, MAX_MESSAGE
from kesin.store.records import Outcome

if TYPE_CHECKING:
    from kesin.engine.worker import Worker

CANCELLED_CHECK_S = 1.0
PROGRESS_INTERVAL_S = 1.0
MAX_TRACEBACK = 4_000  # characters that are stored with a failed job
_MASKED_TIMES = 10  # how many times what is stored of a text is searched for secrets
_LONG_PATH = re.compile(r'File "[^"]*?([^/"]+/[^/"]+)"')  # where it is installed tells nothing
_NOT_RUN = {
    inspect.iscoroutinefunction: ("is async but gets many jobs at once: write `def` and call asyncio.run(…) in it"),
    inspect.isasyncgenfunction: (
        "is an async generator, which a worker does not run: write `def` and return the result"
    ),
    inspect.isgeneratorfunction: ("is a generator, which a worker does not run: replace `yield` with `return`"),
}


class BadResult(ValueError):
    """A result that a handler cannot mean; the job fails for good, with this message."""


@dataclass(frozen=True, slots=True)
class Done:
    """The job is done; ``result`` is stored with it."""

    result: Any = None


class Failed(Exception):  # a result that may also be raised
    """The job failed. The code decides what happens next: see the lifecycle's verdict table."""

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        category: Category | str | None = None,
        retry_in_s: Duration | None = None,  # instead of the lifecycle's pause
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.category = _category(category)
        self.retry_in_s = None if retry_in_s is None else _seconds(retry_in_s, "retry_in_s")
        self.traceback = ""  # of the exception that this failure stands for


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to do yet: release the claim and run the job again after ``seconds``."""

    seconds: Duration
    action: str = "wait"

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", _seconds(self.seconds, "seconds"))


@dataclass(frozen=True, slots=True)
class Act:
    """Request this action, with the values it records. For lifecycles with their own actions."""

    action: str
    result: Any = None
    code: str | None = None
    message: str | None = None
    category: Category | str | None = None
    note: Mapping[str, Any] | None = None
    run_in_s: Duration | None = None
    options: frozenset[str] = field(default_factory=frozenset)
    fenced: bool = True  # refused once the claim is lost; else allowed from any worker

    def __post_init__(self) -> None:
        object.__setattr__(self, "category", _category(self.category))
        if self.run_in_s is not None:
            object.__setattr__(self, "run_in_s", _seconds(self.run_in_s, "run_in_s"))


# A JSON value is the result of a job that is done.
HandlerResult = Done | Failed | Wait | Act | dict[str, Any] | list[Any] | str | float | None


def _category(category: Category | str | None) -> Category | None:
    try:
        return None if category is None else Category(category)
    except ValueError as problem:
        raise BadResult(str(problem)) from None


def _seconds(duration: Duration, name: str) -> float:
    try:
        return delay_us(duration, name) / SECOND_US
    except BadInput as problem:
        raise BadResult(str(problem)) from None


def over_time(limit_s: float) -> Failed:
    why = f"the handler took longer than {limit_s:g} s"
    return Failed("TIME_LIMIT", why, category=Category.TRANSIENT)


def is_handler_error(problem: BaseException) -> bool:
    """Whether the handler raised it; Ctrl-C and the like reach the main thread from outside."""
    if isinstance(problem, Exception | SystemExit):
        return True
    return threading.current_thread() is not threading.main_thread()


def failure_of(problem: BaseException) -> Failed:
    """The failure that an exception stands for; a broken ``__str__`` of it does no harm."""
    if isinstance(problem, Failed):
        return problem
    if isinstance(problem, BadResult):
        failed = Failed("BAD_ANSWER", str(problem), category=Category.PERMANENT)
    else:
        message = mask_credentials(exception_message(problem)[: _MASKED_TIMES * MAX_MESSAGE])
        failed = Failed(type(problem).__name__, message)
    failed.traceback = _traceback(problem)
    return failed


def _traceback(problem: BaseException) -> str:
    """The traceback without the worker's own frame, secrets and local variables; bounded."""
    frames = problem.__traceback__ and problem.__traceback__.tb_next
    text = "".join(traceback.format_exception(type(problem), problem, frames)).rstrip()
    text = mask_text(_without_middle(text, _MASKED_TIMES * MAX_TRACEBACK)) or ""
    return _without_middle(_LONG_PATH.sub(r'File "\1"', text), MAX_TRACEBACK)


def _without_middle(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\n…\n{text[-half:]}"


def require_plain_function(handler: Callable[..., object], *, batch: bool = False) -> None:
    """Raise ValueError for a handler that cannot be called with a job, or does nothing then."""
    name = getattr(handler, "__name__", handler)
    if not callable(handler):
        raise ValueError(f"the handler {name!r} is not a function")  # noqa: TRY004  # as the others
    if not any(_takes(handler, count) for count in ((1,) if batch else (1, 2))):
        given = "jobs" if batch else "job"
        raise ValueError(f"the handler {name!r} has the wrong number of parameters: write `def handler({given})`")
    function = _function(handler)
    fine = inspect.isgeneratorfunction if batch else inspect.iscoroutinefunction
    for is_kind, why in _NOT_RUN.items():
        if is_kind(function) and is_kind is not fine:
            raise ValueError(f"the handler {name!r} {why}")


def is_async(handler: Callable[..., object] | None) -> bool:
    return handler is not None and inspect.iscoroutinefunction(_function(handler))


def _function(handler: Any) -> Any:
    """The function that a handler calls in the end: it may be a partial or an object."""
    while isinstance(handler, partial):
        handler = handler.func
    return handler if inspect.isroutine(handler) else type(handler).__call__


def _takes(function: Callable[..., object], arguments: int) -> bool:
    """Whether a function can be called with this many arguments, as far as that can be known."""
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def checked_results(jobs: Sequence[Job], results: Iterable[HandlerResult]) -> list[HandlerResult]:
    """A batch's results as a list: RuntimeError unless one a job, BadResult if awaitable."""
    if inspect.isawaitable(results):
        raise unusable_result(results)
    listed = list(results)
    if len(listed) != len(jobs):
        raise RuntimeError(f"the handler got {len(jobs)} jobs but returned {len(listed)} results")
    return listed


def unusable_result(result: object) -> BadResult:
    """The refusal of a value that is no result, with what to return instead."""
    kind = type(result).__name__
    if inspect.iscoroutine(result):
        result.close()  # else Python warns of it somewhere else
    if inspect.isawaitable(result):
        return BadResult(
            f"a handler returned a {kind} that nothing awaits: return the result of asyncio.run(…),"
            " or make the handler a plain function"
        )
    lazy = inspect.isgenerator(result) or inspect.isasyncgen(result)
    hint = "; its code has not run: return a list of its values" if lazy else ""
    return BadResult(
        "a handler must return None, a JSON value, Done, Failed, Wait or Act,"
        f" not {kind}: {truncate(repr(result), MAX_CODE)}{hint}"
    )


def exception_message(problem: BaseException) -> str:
    """The message of an exception, or a placeholder if its ``__str__`` fails."""
    try:
        return str(problem)
    except Exception:  # noqa: BLE001  # __str__ is the handler's code as well
        return "its message cannot be shown"


def truncate(text: str, max_length: int) -> str:
    """The beginning of a text, as it is stored; the remainder is not read, however long it is."""
    return storable(text[: 4 * max_length])[:max_length]


@dataclass(slots=True)
class Transaction:
    """What ``run.transaction`` yields: the database connection, and the result to be stored."""

    connection: Any
    result: Any = None


class RunContext:
    """The second argument of a handler that takes two arguments."""

    __slots__ = ("_cancelled", "_looked_at", "_queue", "_said_at", "_worker", "job")

    def __init__(self, job: Job, worker: "Worker") -> None:
        self.job = job
        self._worker = worker
        self._queue = worker.queue
        self._cancelled, self._looked_at = False, self._queue.clock.monotonic()
        self._said_at = -PROGRESS_INTERVAL_S + self._looked_at

    @property
    def lost(self) -> bool:
        """True if the claim was lost: another worker may have the job, and results are refused."""
        return self._worker.leases.is_lost(self.job)

    @property
    def cancelled(self) -> bool:
        """Whether the job was taken away, e.g. by `cancel`; checked at most once a second."""
        now = self._queue.clock.monotonic()
        if not self._cancelled and now - self._looked_at >= CANCELLED_CHECK_S:
            self._looked_at = now
            job = self._queue.job(self.job.id)
            self._cancelled = job is None or (job.phase, job.claim_seq) != (OWNED, self.job.token)
        return self._cancelled or self.lost

    @property
    def stopping(self) -> bool:
        """Whether the worker was asked to stop. If so, finish soon, or the job is released."""
        return self._worker.stopping

    def parents(self) -> list[Job]:
        """The parents of this job, with their results."""
        return self._queue.parents(self.job.id)

    def progress(self, fraction: float | None = None, message: str | None = None) -> None:
        """Report the progress, from 0 to 1, and a message; both are shown while the job is running.

        Written at most once a second: reports in between are skipped, except the last.
        """
        number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        if fraction is not None and not (number and 0 <= fraction <= 1):
            raise BadResult(f"the progress of a job must be a number from 0 to 1, got {fraction!r}")
        if message is not None and not isinstance(message, str):
            raise BadResult(f"the progress message must be text, got {message!r}")
        now = self._queue.clock.monotonic()
        if now - self._said_at >= PROGRESS_INTERVAL_S or fraction == 1:
            self._said_at = now
            said = None if message is None else truncate(message, MAX_MESSAGE)
            claim = (self.job.id, self.job.token)
            queue = self._queue
            at = queue.clock.now()
            with suppress(StoreUnreachable):  # it is no reason to fail
                queue.store.report_progress(queue.name, claim, fraction, said, now=at)

    def move(self, action: str, **details: Any) -> Outcome:
        """Take an action under the claim, while the handler runs."""
        return self._queue.move(self.job, action, actor=self._worker.name, **details)

    @contextmanager
    def transaction(self, action: str = "complete") -> Iterator[Transaction]:
        """Commit your writes, jobs enqueued in the block and the job's outcome, or none of them.

        If the claim was lost, raises StaleClaim at the end of the block and rolls everything back.
        """
        with self._queue.store.transaction() as connection:
            transaction = Transaction(connection)
            yield transaction
            outcome = self.move(action, result=transaction.result)
            if outcome.result == "already":
                raise StaleClaim(f"job {self.job.id} was already finished: nothing is written twice")
            if outcome.result != "moved":
                why = outcome.reason or outcome.result
                raise StoreError(f"{action} of job {self.job.id} was refused: {why}")


def accepts_run(handler: Callable[..., object]) -> bool:
    return _takes(handler, 2) and not _takes(handler, 1)
