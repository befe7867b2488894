"""A worker's threads claim quick jobs by the hundred and slow ones singly, so that none waits."""

import os
import signal
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from kesin.engine.leases import Leases
from kesin.engine.queue import Queue, apply_changes
from kesin.engine.results import (
    Act,
    BadResult,
    Done,
    Failed,
    HandlerResult,
    RunContext,
    Wait,
    accepts_run,
    is_async,
    over_time,
    require_plain_function,
    truncate,
    unusable_result,
)
from kesin.engine.sweeper import STAGE_INTERVALS_S, Sweeper
from kesin.engine.validation import BadInput, bounded_json, lease_us
from kesin.engine.worker_thread import (
    MAX_CLAIM_BATCH,
    ActionKey,
    BatchHandler,
    ClaimPlan,
    Handler,
    ResultHook,
    WorkerThread,
)
from kesin.foundation.clock import LATEST_US, Duration, in_seconds
from kesin.foundation.forks import ForkAware
from kesin.foundation.logs import Logger
from kesin.foundation.messages import note_json
from kesin.foundation.version import warn_renamed
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.errors import Category, Verdict
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.task import LATER
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.limits import MAX_BATCH, MAX_CODE, MAX_MESSAGE

log = Logger("kesin.worker")

GRACE_S = 30.0
CONCURRENCY = 100  # jobs that an async handler gets at once, by default
CANCEL_S = 2.0  # how long a cancelled handler may clean up
SWEEP_JITTER = 0.25  # pauses between sweeps are shorter by up to this part
SWEEPER_STOP_S = 5.0
_NO_OPTIONS: frozenset[str] = frozenset()


class Worker(ForkAware):
    """Runs one handler for the jobs of one queue, and sweeps the queue unless ``sweep=False``."""

    def __init__(
        self,
        queue: Queue,
        handler: Handler | None = None,
        *,
        batch_handler: BatchHandler | None = None,
        plan: ClaimPlan | None = None,
        in_transaction: ResultHook | None = None,
        threads: int = 1,
        concurrency: int | None = None,
        batch: int = MAX_CLAIM_BATCH,
        lease_seconds: Duration | None = None,
        tenants: Sequence[str] | None = None,
        channel: str | None = None,
        poll_s: Duration = 1.0,
        grace_s: Duration = GRACE_S,
        time_limit_s: Duration | None = None,
        name: str | None = None,
        sweep: bool = True,
        beside: ResultHook | None = None,  # the old name of in_transaction
    ) -> None:
        if beside is not None:
            warn_renamed("Worker(beside=…)", "Worker(in_transaction=…)")
            in_transaction = in_transaction or beside
        poll_s, grace_s = in_seconds(poll_s, "poll_s"), in_seconds(grace_s, "grace_s")
        _check_handlers(handler, batch_handler, plan)
        limit_s = None if time_limit_s is None else in_seconds(time_limit_s, "time_limit_s")
        options = {"threads": threads, "batch": batch, "poll_s": poll_s, "concurrency": concurrency}
        for option, value in {**options, "time_limit_s": limit_s}.items():
            if value is not None and value <= 0:
                raise ValueError(f"{option} must be positive, got {value}")
        self.awaits = is_async(handler)  # whether the handler is ``async def``
        if self.awaits and (threads, batch) != (1, MAX_CLAIM_BATCH):
            raise ValueError("an async handler cannot use threads or batches: set concurrency")
        if concurrency is not None and not self.awaits:
            raise ValueError("concurrency is only for async handlers: set threads")
        if limit_s is not None and batch_handler:
            raise ValueError("time_limit_s is only for handlers of single jobs")
        self.queue = queue
        self.batch_handler = batch_handler
        self.plan = plan
        self.in_transaction = in_transaction  # called in the transaction that writes results
        self.threads = threads
        self.batch = min(batch, MAX_CLAIM_BATCH) if handler else batch
        if self.awaits:
            self.batch = CONCURRENCY if concurrency is None else concurrency
        self.tenants = tenants
        self.channel = channel
        self.poll_s = poll_s
        self.sweep = sweep  # recover the jobs of workers that died, while this one runs
        self._sweeper: Sweeper | None = None
        self._handler = handler
        self.grace_s = grace_s  # how long a stop waits for running jobs
        self.on_claim: Callable[[Sequence[Job]], None] | None = None  # for measuring
        self.completed = 0  # how many results were written
        self.last_success: float | None = None  # monotonic seconds of the last claim that worked
        self._own_name = name
        self.name = name or _unique_name()
        lease = queue.lifecycle.lease_seconds if lease_seconds is None else lease_seconds
        self.time_limit_s = limit_s
        self.leases = Leases(queue, lease_us(lease) / SECOND_US)
        action = queue.lifecycle.errors.move_for(Verdict.COMPLETE)
        self._completion: ActionKey = (action or "", _NO_OPTIONS)
        self._allowed: set[ActionKey] = set()  # actions already found to be allowed for a worker
        self.takes_run = handler is not None and accepts_run(handler)
        self._stop = threading.Event()
        self.grace_over = threading.Event()  # set when the grace period ends
        self._threads: list[threading.Thread] = []
        self._sweeper_thread: threading.Thread | None = None
        self.watch_forks()

    def after_fork_in_child(self) -> None:
        """Start again as a new worker, without threads or claims."""
        self.name = self._own_name or _unique_name()
        self._stop, self.grace_over = threading.Event(), threading.Event()
        self._threads, self._sweeper, self._sweeper_thread = [], None, None

    @property
    def handler(self) -> Handler | None:
        """The function that is called with each job, unless there is a batch handler."""
        return self._handler

    @handler.setter
    def handler(self, handler: Handler) -> None:
        require_plain_function(handler)
        if is_async(handler) != self.awaits:
            raise ValueError("an async handler cannot take the place of a plain one, or vice versa")
        self._handler = handler

    @property
    def stopping(self) -> bool:
        """Whether the worker was asked to stop."""
        return self._stop.is_set()

    def run_of(self, job: Job) -> RunContext:
        """The ``RunContext`` for a handler that takes two arguments."""
        return RunContext(job, self)

    def run(self) -> None:
        """Work until stopped. In the main thread, SIGTERM and SIGINT stop the worker."""
        with _stop_on_signals(self):
            self.start()
            while not self._stop.wait(0.5):
                pass
            self.join()

    def start(self) -> None:
        """Start the threads and return."""
        self.leases.start()
        if self.sweep and not self.stopping:
            self._start_sweeper()  # before the threads: a handler may stop the worker at once
        for number in range(self.threads):
            target, name = self.thread_target(number), f"kesin-{self.queue.name}-{number}"
            thread = threading.Thread(target=target, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _start_sweeper(self) -> None:
        """Sweep this queue in a thread: whatever dies, a worker that runs recovers its jobs."""
        recover_s = min(STAGE_INTERVALS_S["recover"], self.leases.lease_s / 2)
        self._sweeper = Sweeper([self.queue], every_s={"recover": recover_s}, jitter=SWEEP_JITTER)
        self._sweeper_thread = threading.Thread(
            target=self._sweeper.run, name=f"kesin-{self.queue.name}-sweeper", daemon=True
        )
        self._sweeper_thread.start()

    def thread_target(self, number: int) -> Callable[[], None]:  # noqa: ARG002  # for subclasses
        """The function that a thread runs until the worker stops."""
        return self._new_thread().run

    def _new_thread(self) -> WorkerThread:
        if not self.awaits:
            return WorkerThread(self)
        from kesin.engine.async_thread import AsyncWorkerThread  # asyncio takes time to import

        return AsyncWorkerThread(self)

    @property
    def alive(self) -> bool:
        """Whether every thread is running."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Stop claiming jobs. ``join`` waits for running jobs."""
        self._stop.set()
        if self._sweeper is not None:
            self._sweeper.stop()
        self.queue.store.wake(self.queue.name)

    def pause(self, seconds: float) -> None:
        """Sleep for this many seconds, or until the worker is asked to stop."""
        self._stop.wait(seconds)

    def join(self) -> None:
        """Wait for running jobs until the grace period ends, then release the remaining jobs."""
        since = self.queue.clock.monotonic()
        for thread in self._threads:
            while thread.is_alive() and self.queue.clock.monotonic() - since < self.grace_s:
                thread.join(0.1)  # in short waits: a second signal ends the grace period
        self.grace_over.set()
        if self.awaits:  # handlers are cancelled before their jobs are released
            for thread in self._threads:
                thread.join(CANCEL_S)
        unfinished = self.leases.held()
        if unfinished:
            log.warning("released_at_stop", queue=self.queue.name, jobs=len(unfinished))
            with suppress(StoreUnreachable):  # their leases will run out
                self.release_claims(unfinished)
        self.leases.stop()
        if self._sweeper_thread is not None:
            self._sweeper_thread.join(SWEEPER_STOP_S)

    def drain(self) -> int:
        """Work until no job is due; return how many were handled. For scripts and tests.

        Does not sweep, unlike ``start`` and ``run``. With one thread, jobs run in the calling
        thread; with several, in a pool, whose exceptions are raised in the calling thread.
        """
        self.leases.start()
        try:
            if self.threads == 1:
                return self._new_thread().drain()
            with ThreadPoolExecutor(self.threads, "kesin-worker") as pool:
                return sum(pool.map(lambda _: self._new_thread().drain(), range(self.threads)))
        finally:
            self.leases.stop()

    def run_once(self) -> Counter[str]:
        """Claim and handle one batch in this thread; return how many jobs reached each state."""
        self.leases.start()
        try:
            thread = self._new_thread()
            thread.run_once()
            return thread.state_counts
        finally:
            self.leases.stop()

    def work_on(self, ids: Sequence[str]) -> Counter[str]:
        """Claim the jobs with these ids that are due, and handle them in this thread.

        Returns how many jobs reached each state. Leases are renewed only if ``leases`` is running.
        """
        thread = self._new_thread()
        thread.handle_ids(ids)
        return thread.state_counts

    @contextmanager
    def time_limited(self, job: Job) -> Iterator[None]:
        """Fail the job if the block takes longer than the time limit; a later result is refused.

        Python cannot stop the handler's thread, which therefore continues to run.
        """
        timer = threading.Timer(self.time_limit_s or 0, self._give_up, [job])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self, job: Job) -> None:
        log.warning("time_limit_over", queue=self.queue.name, job=job.id)
        (action, options), change = self.change_for(job, over_time(self.time_limit_s or 0))
        try:
            apply_changes(self.queue, action, [change], actor=self.name, options=options)
        except StoreError:  # its lease ends, and the sweeper recovers it
            log.exception("time_limit_not_written", queue=self.queue.name, job=job.id)
        finally:
            self.leases.lose(job)

    def release_claims(self, jobs: Sequence[Job]) -> set[str]:
        """Release claims, if the budget allows attempts to be returned; return the released ids.

        Jobs that are not released keep their leases until the leases expire.
        """
        released: set[str] = set()
        if self.queue.lifecycle.allows("release", "worker"):
            for start in range(0, len(jobs), MAX_BATCH):
                changes = [Change(job.id, job.claim_seq) for job in jobs[start : start + MAX_BATCH]]
                outcomes = apply_changes(self.queue, "release", changes, actor=self.name)
                released |= {outcome.id for outcome in outcomes if outcome.done}
        self.leases.drop(jobs)
        return released

    def change_for(self, job: Job, result: HandlerResult) -> tuple[ActionKey, Change]:
        """The action and change for a result; raises BadResult if a worker may not request it."""
        if result is None and self._completion in self._allowed:
            return self._completion, Change(job.id, job.claim_seq)
        key, change = self._translate(job, result)
        if key not in self._allowed:
            (action, options), lifecycle = key, self.queue.lifecycle
            if not lifecycle.allows(action, "worker"):
                raise BadResult(f"{action!r} is not a worker action of {self.queue.name}")
            if unknown := options - lifecycle.options_of(action):
                raise BadResult(f"{action!r} has no option {min(unknown)!r}")
            self._allowed.add(key)
        return key, change

    def _translate(self, job: Job, result: HandlerResult) -> tuple[ActionKey, Change]:
        match result:
            case Done(value):
                return self._complete(job, value)
            case Failed():
                return self._failed(job, result)
            case Wait(seconds, action):
                return (action, _NO_OPTIONS), Change(
                    job.id, job.claim_seq, run_at=self._time_after(in_seconds(seconds, "seconds"))
                )
            case Act():
                in_s = result.run_in_s
                return (result.action, result.options), Change(
                    job.id,
                    job.claim_seq if result.fenced else None,
                    error_code=result.code and truncate(result.code, MAX_CODE),
                    error_category=result.category and Category(result.category).value,
                    error_message=result.message and truncate(result.message, MAX_MESSAGE),
                    result=self._result_text(result.result),
                    note=note_json(result.message, result.note),
                    run_at=None if in_s is None else self._time_after(in_seconds(in_s, "run_in_s")),
                )
            case bool():
                raise BadResult(
                    f"a handler returned {result}: return Done({result}) if that is the job's"
                    " result, or Failed(code) if the job failed"
                )
            case None | dict() | list() | str() | int() | float():
                return self._complete(job, result)
            case _:
                raise unusable_result(result)

    def _failed(self, job: Job, failed: Failed) -> tuple[ActionKey, Change]:
        lifecycle = self.queue.lifecycle
        resolved = lifecycle.errors.resolve(failed.code, channel=self.channel, category=failed.category)
        options = _NO_OPTIONS if failed.retry_in_s is None else frozenset({LATER})
        if options - lifecycle.options_of(resolved.move):  # the code counts for more than the time
            log.warning("retry_in_s_without_effect", code=failed.code, action=resolved.move)
            options = _NO_OPTIONS
        return (resolved.move, options), Change(
            job.id,
            job.claim_seq,
            error_code=truncate(failed.code, MAX_CODE),
            error_category=resolved.category.value,
            error_message=truncate(failed.message or failed.code, MAX_MESSAGE),
            note=note_json(failed.message, traceback=failed.traceback),
            run_at=self._time_after(failed.retry_in_s or 0) if options else None,
        )

    def _time_after(self, seconds: float) -> int:
        at = self.queue.now() + round(seconds * SECOND_US)
        if not 0 <= at < LATEST_US:
            raise BadResult(f"{seconds} seconds from now is not a valid time to wait for")
        return at

    def _complete(self, job: Job, value: Any) -> tuple[ActionKey, Change]:
        if not self._completion[0]:
            raise BadResult(f"{self.queue.name} has no move for Done: return Act(action)")
        return self._completion, Change(job.id, job.claim_seq, result=self._result_text(value))

    def _result_text(self, value: Any) -> str | None:
        try:
            limit = self.queue.max_payload_bytes
            return None if value is None else bounded_json(value, "result", limit)
        except BadInput as problem:
            raise BadResult(problem.args[0]) from None


def _check_handlers(handler: Handler | None, batch_handler: BatchHandler | None, plan: ClaimPlan | None) -> None:
    if (handler is None) == (batch_handler is None):
        raise ValueError("give a handler or a batch_handler, not both")
    if plan is not None and batch_handler is None:
        raise ValueError("a plan decides how many jobs are handled together: give a batch_handler too")
    for function in (handler, batch_handler):
        if function is not None:
            require_plain_function(function, batch=function is batch_handler)


def _unique_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


@contextmanager
def _stop_on_signals(worker: Worker) -> Iterator[None]:
    """SIGTERM and SIGINT stop the worker; a second signal releases all jobs at once."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        if worker.stopping:
            worker.grace_s = 0.0
        worker.stop()

    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGTERM, signal.SIGINT) if in_main_thread else ()
    previous = {number: signal.signal(number, stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
