"""One thread of a worker: claim a batch, handle it, write the results, repeat.

A job that was claimed before and got no result may have killed its worker. Such a suspect is
handled alone, under its own claim: if it kills a worker again, no other job loses an attempt. After
a large crash nearly all suspects are harmless, and one claim for each would take hours. Many
suspects are therefore claimed in groups, and only those whose group died as well are handled alone.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple, cast

from kesin.engine.queue import apply_changes
from kesin.engine.results import (
    BadResult,
    Failed,
    HandlerResult,
    checked_results,
    exception_message,
    failure_of,
    is_handler_error,
)
from kesin.foundation.logs import Logger
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.store.errors import StoreUnreachable
from kesin.store.records import DONE_RESULTS, Outcome

if TYPE_CHECKING:
    from kesin.engine.worker import Worker

log = Logger("kesin.worker")

MAX_CLAIM_BATCH = 500  # larger batches are not faster
FULL_BATCH_S = 0.25  # a batch that lasts longer than this makes the next one smaller
FLUSH_S = 0.5  # results wait no longer than this to be written
RATE_WAIT_S = 0.05  # at least, for a rate: claims of several jobs cost less
MAX_PAUSE_S = 30.0
MAX_WRITE_PAUSE_S = 2.0  # short, to write before the sweeper runs when the store is back


ActionKey = tuple[str, frozenset[str]]  # an action and its options


class ClaimShare(NamedTuple):
    """The tenants of the next claim, and how many jobs it may take."""

    tenants: Sequence[str] | None
    limit: int


# Takes (job) or (job, run), and may be async.
Handler = Callable[..., HandlerResult | Awaitable[HandlerResult]]
BatchHandler = Callable[[Sequence[Job]], Sequence[HandlerResult]]
ResultHook = Callable[[str, Sequence[Change], Sequence[Outcome]], None]
# Called for every turn; each share is handled before the next is drawn.
ClaimPlan = Callable[[], Iterable[ClaimShare]]


class WorkerThread:
    """The loop of one thread."""

    def __init__(self, worker: "Worker") -> None:
        self.worker = worker
        self.queue = worker.queue
        self.state_counts: Counter[str] = Counter()
        self._recoveries = {move.name for move in worker.queue.lifecycle.scheduled_moves if move.guard("lease_over")}
        self._suspects: list[list[str]] = []  # released groups, each to be claimed separately
        self._alone: set[str] = set()  # suspects that could not be released
        self._size = 1
        self._pause_s = 0.0
        self._random = random.Random()
        self._monotonic = worker.queue.clock.monotonic

    def run(self) -> None:
        while not self.worker.stopping:
            with self._survived():
                notified = self.queue.store.notification_count(self.queue.name)
                if not self.run_once() and not self.worker.stopping:
                    self._wait(notified)

    @contextmanager
    def _survived(self) -> Iterator[None]:
        """Log every error of the store, and pause after it; the pauses grow until one passes."""
        try:
            yield
            self._pause_s = 0.0
        except BaseException:
            pause_s = self._pause_s = min(max(self._pause_s * 2, 0.1), MAX_PAUSE_S)
            log.exception("worker_thread_failed", queue=self.queue.name, again_in_s=pause_s)
            self.worker.pause(pause_s * (0.5 + self._random.random()))

    def _wait(self, notified: int) -> None:
        """Wait until a job may have become ready since that notification, or for the next poll."""
        timeout_s = self.worker.poll_s * (0.5 + self._random.random())
        opens_at = self.queue.rate_opens_at(self.worker.tenants)
        if opens_at is not None:
            opens_s = (opens_at - self.queue.now()) / SECOND_US
            timeout_s = min(timeout_s, max(opens_s, RATE_WAIT_S))
        self.queue.store.wait(self.queue.name, notified, timeout_s)

    def drain(self) -> int:
        """Handle batches until no job is due."""
        handled = 0
        while not self.worker.stopping and (jobs := self.run_once()):
            handled += jobs
        return handled

    def run_once(self) -> int:
        """Claim, handle and write a batch, or one of each share of a plan; return how many jobs."""
        worker = self.worker
        if worker.plan is None:
            limit = worker.batch if worker.batch_handler else min(self._size, worker.batch)
            return self._run_batch(ClaimShare(worker.tenants, limit))
        handled = 0
        with ExitStack() as stack:
            shares = iter(worker.plan())
            if isinstance(shares, Generator):
                stack.callback(shares.close)  # it may hold a resource for the current share
            for share in shares:
                handled += self._run_batch(share)
                if worker.stopping:
                    break
        worker.last_success = self._monotonic()
        return handled

    def handle_ids(self, ids: Sequence[str]) -> int:
        return self._run_batch(ClaimShare(None, len(ids)), ids)

    def _run_batch(self, share: ClaimShare, ids: Sequence[str] | None = None, *, suspects_only: bool = False) -> int:
        worker = self.worker
        if worker.stopping:
            return 0
        handled_jobs = jobs = self._claim(share, ids)
        started = self._monotonic()
        if not jobs:
            self._size = self._size if suspects_only else 1
            return 0
        try:
            if worker.batch_handler:
                self._handle_batch(jobs)
            else:
                handled_jobs = jobs if suspects_only else self._release_suspects(jobs)
                self._handle_each(handled_jobs)
        except BaseException:
            worker.leases.drop(jobs)
            raise
        if suspects_only:
            return len(handled_jobs)
        handled, suspects, self._suspects = len(handled_jobs), self._suspects, []
        for group in suspects:  # each is claimed by itself; one not reached waits for another claim
            handled += self._run_batch(ClaimShare(None, len(group)), group, suspects_only=True)
        grow = self._monotonic() - started < FULL_BATCH_S and len(jobs) >= self._size
        self._size = min(self._size * 2, MAX_CLAIM_BATCH) if grow else max(self._size // 2, 1)
        return handled

    def _claim(self, share: ClaimShare, ids: Sequence[str] | None) -> list[Job]:
        """Claim jobs and hold their leases; once the grace period is over, release them."""
        worker, (tenants, limit) = self.worker, share
        jobs = self.queue.claim(worker.name, limit=limit, lease_seconds=worker.leases.lease_s, tenants=tenants, ids=ids)
        worker.last_success = self._monotonic()
        worker.leases.take(jobs)
        if jobs and worker.grace_over.is_set():
            worker.release_claims(jobs)
            return []
        if jobs and worker.on_claim:
            worker.on_claim(jobs)
        return jobs

    def _release_suspects(self, jobs: list[Job]) -> list[Job]:
        """Release suspects to be claimed alone; return the rest. If unreachable, leases run out."""
        candidates = [job for job in jobs if _may_be_suspect(job)] if len(jobs) > 1 else []
        if not candidates:
            return jobs
        try:
            suspects = [job for job in candidates if self._was_recovered(job)]
            released = self.worker.release_claims(suspects)
        except StoreUnreachable as problem:
            log.warning("suspects_unknown", queue=self.queue.name, why=str(problem))
            self.worker.leases.drop(candidates)
            return _without(jobs, candidates)
        self._suspects += _suspect_groups([job for job in suspects if job.id in released])
        unreleased = [job for job in suspects if job.id not in released]
        self.worker.leases.take(unreleased)
        self._alone = {job.id for job in unreleased}
        return _without(jobs, suspects) + unreleased

    def _was_recovered(self, job: Job) -> bool:
        """Whether the last claim was recovered; under a released one nothing may have been done."""
        released = False
        for event in reversed(self.queue.events(job.id)):
            if event.seq >= job.claim_seq:
                continue
            if event.move in self._recoveries:
                return True
            if event.move == "release":
                released = True
            elif event.claim == 1:
                if not released:
                    return False
                released = False
        return False

    def _handle_each(self, jobs: list[Job]) -> None:
        worker, leases = self.worker, self.worker.leases
        handler = cast("Callable[..., HandlerResult]", worker.handler)  # neither None nor async
        results: list[tuple[Job, HandlerResult]] = []
        flushed = self._monotonic()
        for number, job in enumerate(jobs):
            if worker.stopping:
                self._write_results(results)
                worker.release_claims(jobs[number:])
                return
            if leases.lost and leases.is_lost(job):
                leases.drop([job])  # another worker has it by now
                continue
            if results and job.id in self._alone:
                self._write_results(results)
                results = []
            results.append((job, self._run_handler(handler, job)))
            if self._monotonic() - flushed > FLUSH_S:
                self._write_results(results)
                results = []
                flushed = self._monotonic()
        self._write_results(results)

    def _run_handler(self, handler: Callable[..., HandlerResult], job: Job) -> HandlerResult:
        worker = self.worker
        given = (job, worker.run_of(job)) if worker.takes_run else (job,)
        try:
            if worker.time_limit_s is None:
                return handler(*given)
            with worker.time_limited(job):
                return handler(*given)
        except Failed as failed:
            return failed
        except BaseException as problem:  # a handler may raise anything
            if not is_handler_error(problem):
                raise
            self._log_exception(problem, job=job.id)
            return failure_of(problem)

    def _log_exception(self, problem: BaseException, **which: object) -> None:
        if isinstance(problem, BadResult):  # the handler is wrong: no other attempt mends it
            log.error("bad_result", queue=self.queue.name, why=str(problem), **which)
        else:
            log.warning("handler_raised", queue=self.queue.name, exc_info=True, **which)  # noqa: LOG014

    def _handle_batch(self, jobs: list[Job]) -> None:
        handler = self.worker.batch_handler
        assert handler is not None  # noqa: S101
        try:
            results = checked_results(jobs, handler(jobs))
        except BaseException as problem:
            if not is_handler_error(problem):
                raise
            if not isinstance(problem, Failed):
                self._log_exception(problem, jobs=len(jobs), first_job=jobs[0].id)
            results = [failure_of(problem)] * len(jobs)
        self._write_results(list(zip(jobs, results, strict=True)))

    def _write_results(self, results: list[tuple[Job, HandlerResult]]) -> None:
        """Write results, one statement for each action; log refusals."""
        if not results:
            return
        change_for = self.worker.change_for
        groups: dict[ActionKey, list[Change]] = {}
        for job, result in results:
            try:
                key, change = change_for(job, result)
            except Exception as problem:  # noqa: BLE001  # a handler may return anything
                why = exception_message(problem)
                log.error("bad_result", queue=self.queue.name, job=job.id, why=why)  # noqa: TRY400
                failed = Failed("BAD_ANSWER", why, category=Category.PERMANENT)
                key, change = change_for(job, failed)
            groups.setdefault(key, []).append(change)
        for (action, options), changes in groups.items():
            outcomes = self._apply(action, changes, options)
            done = [outcome for outcome in outcomes if outcome.result in DONE_RESULTS]
            refusals = [o for o in outcomes if not o.done] if len(done) < len(outcomes) else []
            for one in refusals:
                name, why = self.queue.name, one.reason or one.result
                log.warning("result_refused", queue=name, job=one.id, action=action, reason=why)
            self.state_counts.update([outcome.state or "" for outcome in done])
            self.worker.completed += len(done)
        self.worker.leases.drop([job for job, _ in results])

    def _apply(self, action: str, changes: list[Change], options: frozenset[str]) -> list[Outcome]:
        """Write changes, again while unreachable: what was committed is then "already" done."""
        worker, pause_s, deadline = self.worker, 0.1, float("inf")
        while True:
            try:
                return self._apply_once(action, changes, options)
            except StoreUnreachable as problem:
                if worker.stopping:
                    deadline = min(deadline, self._monotonic() + worker.grace_s)
                if worker.grace_over.is_set() or self._monotonic() >= deadline:
                    raise
                log.warning("result_not_written", queue=self.queue.name, why=str(problem))
                wait = worker.grace_over.wait if worker.stopping else worker.pause
                wait(pause_s * (0.5 + self._random.random()))
                pause_s = min(pause_s * 2, MAX_WRITE_PAUSE_S)

    def _apply_once(self, action: str, changes: list[Change], options: frozenset[str]) -> list[Outcome]:
        name, hook = self.worker.name, self.worker.in_transaction
        if hook is None:
            return apply_changes(self.queue, action, changes, actor=name, options=options)
        with self.queue.store.transaction():
            outcomes = apply_changes(self.queue, action, changes, actor=name, options=options)
            hook(action, changes, outcomes)
            return outcomes


def _may_be_suspect(job: Job) -> bool:
    """Whether the job's events need checking: it was claimed before and shows no failure."""
    used = job.attempt_count - job.attempt_base
    # The last attempt is always checked: a failure may be older than the lost claim.
    return used > 1 and (job.error_code is None or used >= job.max_attempts)


def _suspect_groups(suspects: list[Job]) -> list[list[str]]:
    """The ids to claim together; a job that lost two attempts or has its last one is alone."""
    used = {job.id: job.attempt_count - job.attempt_base for job in suspects}
    # More than one lost attempt and this one.
    alone = [job for job in suspects if used[job.id] > 2 or used[job.id] >= job.max_attempts]  # noqa: PLR2004
    many = _without(suspects, alone)
    size = max(isqrt(len(many)), 1)  # about as many groups as jobs in each group
    groups = [many[start : start + size] for start in range(0, len(many), size)]
    return [[job.id for job in group] for group in (*groups, *([job] for job in alone))]


def _without(jobs: list[Job], excluded: list[Job]) -> list[Job]:
    excluded_ids = {job.id for job in excluded}
    return [job for job in jobs if job.id not in excluded_ids]
