"""One thread of a worker: claim a batch, work through it, write it back, again and again.

A job that was claimed before and never answered for may have killed its worker. Such a suspect is
worked on alone, under a claim of its own: whoever it kills, it takes no neighbour's attempt along.
After a great crash nearly all suspects are harmless, and one claim for each would take hours: many
at once are claimed in groups, and only those whose group died as well are alone.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

from kesin.engine.leases import Leases
from kesin.engine.queue import Queue
from kesin.engine.results import Answer, Failed, Run, all_answered, its_own, thrown, words_of
from kesin.foundation.logs import Logger
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Outcome

log = Logger("kesin.worker")

LARGEST_BATCH = 500  # nothing is gained above it
FULL_BATCH_S = 0.25  # a batch that lasts longer than this makes the next one smaller
FLUSH_S = 0.5  # results wait no longer than this to be written
LONGEST_PAUSE_S = 30.0
LONGEST_WRITE_PAUSE_S = 2.0  # short, to be ahead of the sweeper when the store is back


Key = tuple[str, frozenset[str]]  # a call and its options


class Share(NamedTuple):
    """Whom a turn serves next, and with how many jobs at most."""

    tenants: Sequence[str] | None
    limit: int


Handler = Callable[..., Answer]  # (job) or (job, run)
BatchHandler = Callable[[Sequence[Job]], Sequence[Answer]]
Beside = Callable[[str, Sequence[Change], Sequence[Outcome]], None]
Plan = Callable[[], Iterable[Share]]  # asked at every turn; a share is worked off before the next


@dataclass(slots=True)
class WorkerState:
    """What may change while a worker runs; all its threads share it."""

    handler: Handler | None
    grace_s: float
    on_claim: Callable[[Sequence[Job]], None] | None = None  # for measuring
    completed: int = 0
    last_success: float | None = None  # monotonic seconds of the last claim that worked


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What a thread needs of its worker."""

    name: str
    queue: Queue
    leases: Leases
    state: WorkerState
    takes_run: bool  # the handler wants a Run beside the job
    batch_handler: BatchHandler | None
    plan: Plan | None
    beside: Beside | None
    batch: int
    tenants: Sequence[str] | None
    poll_s: float
    stop: threading.Event  # set: claim no more
    over: threading.Event  # set: the grace period is over, new claims are given back
    pause: Callable[[float], None]
    give_back: Callable[[Sequence[Job]], set[str]]
    change_for: Callable[[Job, Answer], tuple[Key, Change]]

    @property
    def stopping(self) -> bool:
        """Whether the worker was asked to stop."""
        return self.stop.is_set()

    def run_of(self, job: Job) -> Run:
        """The second argument of a handler that takes two."""
        return Run(job, queue=self.queue, leases=self.leases, worker=self.name, stop=self.stop)


class Lane:
    """One thread's loop."""

    def __init__(self, worker: WorkerContext) -> None:
        self.worker = worker
        self.queue = worker.queue
        self.ended: Counter[str] = Counter()
        self._recoveries = {
            move.name for move in worker.queue.lifecycle.clock_moves if move.guard("lease_over")
        }
        self._suspects: list[list[str]] = []  # given back, each group to be claimed by itself
        self._alone: set[str] = set()  # could not be given back
        self._size = 1
        self._random = random.Random()
        self._monotonic = worker.queue.clock.monotonic

    def run(self) -> None:
        worker, store, pause_s = self.worker, self.queue.store, 0.0
        while not worker.stopping:
            pulse = store.pulse(self.queue.name)
            try:
                handled = self.pass_once()
                pause_s = 0.0
            except BaseException:  # a lane outlives whatever the store throws
                pause_s = min(max(pause_s * 2, 0.1), LONGEST_PAUSE_S)
                log.exception("lane_failed", queue=self.queue.name, again_in_s=pause_s)
                worker.pause(pause_s * (0.5 + self._random.random()))
                continue
            if not handled and not worker.stopping:
                store.wait(self.queue.name, pulse, worker.poll_s * (0.5 + self._random.random()))

    def drain(self) -> int:
        """Pass until nothing is due."""
        handled = 0
        while not self.worker.stopping:
            jobs = self.pass_once()
            if not jobs:
                break
            handled += jobs
        return handled

    def pass_once(self) -> int:
        """Claim a batch, work through it, write it back; how many jobs were worked on.

        With a plan, a batch for each of its shares.
        """
        worker = self.worker
        if worker.plan is None:
            limit = worker.batch if worker.batch_handler else min(self._size, worker.batch)
            return self._batch(Share(worker.tenants, limit))
        handled = 0
        with ExitStack() as ending:
            shares = iter(worker.plan())
            if isinstance(shares, Generator):
                ending.callback(shares.close)  # it may hold something for the share at hand
            for share in shares:
                handled += self._batch(share)
                if worker.stopping:
                    break
        worker.state.last_success = self._monotonic()
        return handled

    def among(self, ids: Sequence[str]) -> int:
        """A batch of these jobs, named by whoever sent for a worker."""
        return self._batch(Share(None, len(ids)), ids)

    def _each_suspect(self) -> int:
        """Claim what was given back, by itself; what is not reached waits for the next claim."""
        suspects, self._suspects = self._suspects, []
        return sum(self._batch(Share(None, len(ids)), ids, apart=True) for ids in suspects)

    def _batch(self, share: Share, ids: Sequence[str] | None = None, *, apart: bool = False) -> int:
        worker = self.worker
        if worker.stopping:
            return 0
        jobs = self.queue.claim(
            worker.name,
            limit=share.limit,
            lease_seconds=worker.leases.lease_s,
            tenants=share.tenants,
            ids=ids,
        )
        worker.state.last_success = started = self._monotonic()
        if not jobs:
            self._size = self._size if apart else 1
            return 0
        worker.leases.take(jobs)
        if worker.over.is_set():
            worker.give_back(jobs)
            return 0
        if worker.state.on_claim:
            worker.state.on_claim(jobs)
        mine = jobs
        try:
            if worker.batch_handler:
                self._handle_together(jobs)
            else:
                mine = jobs if apart else self._but_suspects(jobs)
                self._handle_singly(mine)
        except BaseException:
            worker.leases.drop(jobs)
            raise
        if apart:
            return len(mine)
        handled = len(mine) + self._each_suspect()
        lasted_s = self._monotonic() - started
        grow = lasted_s < FULL_BATCH_S and len(jobs) >= self._size
        self._size = min(self._size * 2, LARGEST_BATCH) if grow else max(self._size // 2, 1)
        return handled

    def _but_suspects(self, jobs: list[Job]) -> list[Job]:
        """Give back what may be poison, for claims of its own; the others, such as cannot last.

        While the store is away nobody knows which these are: their leases are left to run out.
        """
        looked_at = [job for job in jobs if _may_be_suspect(job)] if len(jobs) > 1 else []
        if not looked_at:
            return jobs
        try:
            suspects = [job for job in looked_at if self._was_taken_back(job)]
            given = self.worker.give_back(suspects)
        except StoreUnreachable as problem:
            log.warning("suspects_not_known", queue=self.queue.name, why=str(problem))
            self.worker.leases.drop(looked_at)
            return _without(jobs, looked_at)
        self._suspects += _groups([job for job in suspects if job.id in given])
        left = [job for job in suspects if job.id not in given]
        self.worker.leases.take(left)
        self._alone = {job.id for job in left}
        return _without(jobs, suspects) + left

    def _was_taken_back(self, job: Job) -> bool:
        """Whether the claim before this one was taken from a worker that never answered.

        A claim that was given back does not count: nobody may have worked on the job under it.
        """
        given_back = False
        for event in reversed(self.queue.events(job.id)):
            if event.seq >= job.claim_seq:
                continue
            if event.move in self._recoveries:
                return True
            if event.move == "release":
                given_back = True
            elif event.claim == 1:
                if not given_back:
                    return False
                given_back = False
        return False

    def _handle_singly(self, jobs: list[Job]) -> None:
        worker = self.worker
        results: list[tuple[Job, Answer]] = []
        flushed = self._monotonic()
        for number, job in enumerate(jobs):
            if worker.stopping:
                self._write(results)
                worker.give_back(jobs[number:])
                return
            if results and job.id in self._alone:
                self._write(results)
                results = []
            results.append((job, self._answer(job)))
            if self._monotonic() - flushed > FLUSH_S:
                self._write(results)
                results = []
                flushed = self._monotonic()
        self._write(results)

    def _answer(self, job: Job) -> Answer:
        worker = self.worker
        handler = worker.state.handler
        assert handler is not None  # noqa: S101  # the constructor made sure
        try:
            return handler(job, worker.run_of(job)) if worker.takes_run else handler(job)
        except Failed as failed:
            return failed
        except BaseException as problem:  # a handler may throw anything
            if not its_own(problem):
                raise
            log.warning("handler_raised", queue=self.queue.name, job=job.id, exc_info=True)
            return thrown(problem)

    def _handle_together(self, jobs: list[Job]) -> None:
        handler = self.worker.batch_handler
        assert handler is not None  # noqa: S101
        try:
            answers = list(handler(jobs))
            all_answered(jobs, answers)
        except BaseException as problem:
            if not its_own(problem):
                raise
            if not isinstance(problem, Failed):
                log.warning("handler_raised", queue=self.queue.name, jobs=len(jobs), exc_info=True)
            answers = [thrown(problem)] * len(jobs)
        self._write(list(zip(jobs, answers, strict=True)))

    def _write(self, results: list[tuple[Job, Answer]]) -> None:
        """Write answers back, one statement a call; what was refused is logged and noted."""
        if not results:
            return
        change_for = self.worker.change_for
        groups: dict[Key, list[Change]] = {}
        for job, answer in results:
            try:
                key, change = change_for(job, answer)
            except Exception as problem:  # noqa: BLE001  # an answer may be anything
                failed = Failed("BAD_ANSWER", words_of(problem), category=Category.PERMANENT)
                key, change = change_for(job, failed)
            groups.setdefault(key, []).append(change)
        for (call, options), changes in groups.items():
            outcomes = self._apply(call, changes, options)
            done = [outcome for outcome in outcomes if outcome.done]
            if len(done) < len(outcomes):
                self._refused(call, outcomes)
            self.ended.update([outcome.state or "" for outcome in done])
            self.worker.state.completed += len(done)
        self.worker.leases.drop([job for job, _ in results])

    def _refused(self, call: str, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if not outcome.done:
                log.warning(
                    "answer_refused",
                    queue=self.queue.name,
                    job=outcome.id,
                    call=call,
                    reason=outcome.reason or outcome.result,
                )

    def _apply(self, call: str, changes: list[Change], options: frozenset[str]) -> list[Outcome]:
        """Write answers, again while the store is away: what got through answers "already"."""
        worker, pause_s, until = self.worker, 0.1, float("inf")
        while True:
            try:
                return self._apply_once(call, changes, options)
            except StoreUnreachable as problem:
                if worker.stopping:
                    until = min(until, self._monotonic() + worker.state.grace_s)
                if worker.over.is_set() or self._monotonic() >= until:
                    raise
                log.warning("answer_not_written", queue=self.queue.name, why=str(problem))
                wait = worker.over.wait if worker.stopping else worker.pause
                wait(pause_s * (0.5 + self._random.random()))
                pause_s = min(pause_s * 2, LONGEST_WRITE_PAUSE_S)

    def _apply_once(
        self, call: str, changes: list[Change], options: frozenset[str]
    ) -> list[Outcome]:
        name, beside = self.worker.name, self.worker.beside
        if beside is None:
            return self.queue.apply(call, changes, actor=name, options=options)
        with self.queue.store.transaction():
            outcomes = self.queue.apply(call, changes, actor=name, options=options)
            beside(call, changes, outcomes)
            return outcomes


def _may_be_suspect(job: Job) -> bool:
    """Whether its events are worth a look: claimed before, and no failure to tell of it.

    A failure may stay from before the claim that was lost, so the last attempt is always looked at.
    """
    used = job.attempt_count - job.attempt_base
    return used > 1 and (job.error_code is None or used >= job.max_attempts)


def _groups(suspects: list[Job]) -> list[list[str]]:
    """Who is claimed together: nobody who lost a second attempt, or has the last one."""
    alone = [job for job in suspects if _lost_more_than_one(job)]
    many = _without(suspects, alone)
    size = max(isqrt(len(many)), 1)  # as many groups as there are in each, about
    groups = [many[start : start + size] for start in range(0, len(many), size)]
    return [[job.id for job in group] for group in (*groups, *([job] for job in alone))]


def _lost_more_than_one(job: Job) -> bool:
    used = job.attempt_count - job.attempt_base
    return used > 2 or used >= job.max_attempts  # noqa: PLR2004  # the one lost, and this one


def _without(jobs: list[Job], others: list[Job]) -> list[Job]:
    left_out = {job.id for job in others}
    return [job for job in jobs if job.id not in left_out]
