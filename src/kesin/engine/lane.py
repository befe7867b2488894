"""One thread of a worker: claim a batch, work through it, write it back, again and again.

A job that was claimed before and never answered for may have killed its worker. Such a suspect is
worked on alone, under a claim of its own: whoever it kills, it takes no neighbour's attempt along.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from kesin.engine.answers import Answer, Failed, all_answered, its_own, thrown, words_of
from kesin.engine.run import Run
from kesin.foundation.logs import Logger
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.store.contract import Outcome, StoreUnreachable

if TYPE_CHECKING:
    from kesin.engine.worker import Worker

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


class Lane:
    """One thread's loop."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.queue = worker.queue
        self.ended: Counter[str] = Counter()
        self._recoveries = {
            move.name for move in worker.queue.lifecycle.clock_moves if move.guard("lease_over")
        }
        self._suspects: list[str] = []  # given back, to be claimed one by one
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
        """Claim a batch, work through it, write it back; how many jobs were claimed.

        With a plan, a batch for each of its shares.
        """
        worker = self.worker
        if worker.plan is None:
            limit = worker.batch if worker.batch_handler else min(self._size, worker.batch)
            handled = self._batch(Share(worker.tenants, limit))
            return handled + self._each_suspect()
        handled = 0
        with ExitStack() as ending:
            shares = iter(worker.plan())
            if isinstance(shares, Generator):
                ending.callback(shares.close)  # it may hold something for the share at hand
            for share in shares:
                handled += self._batch(share)
                if worker.stopping:
                    break
        worker.last_success = self._monotonic()
        return handled

    def among(self, ids: Sequence[str]) -> int:
        """A batch of these jobs, named by whoever sent for a worker."""
        return self._batch(Share(None, len(ids)), ids) + self._each_suspect()

    def _each_suspect(self) -> int:
        """Claim what was given back, one by one; what is not reached waits for the next claim."""
        suspects, self._suspects = self._suspects, []
        return sum(self._batch(Share(None, 1), [job_id]) for job_id in suspects)

    def _batch(self, share: Share, ids: Sequence[str] | None = None) -> int:
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
        worker.last_success = started = self._monotonic()
        if not jobs:
            self._size = 1
            return 0
        worker.leases.take(jobs)
        if worker.over.is_set():
            worker.give_back(jobs)
            return 0
        if worker.on_claim:
            worker.on_claim(jobs)
        try:
            if worker.batch_handler:
                self._handle_together(jobs)
            else:
                self._handle_singly(self._but_suspects(jobs))
        except BaseException:
            worker.leases.drop(jobs)
            raise
        lasted_s = self._monotonic() - started
        grow = lasted_s < FULL_BATCH_S and len(jobs) >= self._size
        self._size = min(self._size * 2, LARGEST_BATCH) if grow else max(self._size // 2, 1)
        return len(jobs)

    def _but_suspects(self, jobs: list[Job]) -> list[Job]:
        """Give back what may be poison, for a claim of its own; the others, such as cannot last."""
        suspects = [job for job in jobs if self._is_suspect(job)] if len(jobs) > 1 else []
        if not suspects:
            return jobs
        given = self.worker.give_back(suspects)
        self._suspects += [job.id for job in suspects if job.id in given]
        left = [job for job in suspects if job.id not in given]
        self.worker.leases.take(left)
        self._alone = {job.id for job in left}
        apart = {job.id for job in suspects}
        return [job for job in jobs if job.id not in apart] + left

    def _is_suspect(self, job: Job) -> bool:
        """Whether the claim before this one was taken back from a worker that never answered.

        Few jobs are looked at that closely: those that were claimed before and have no failure to
        tell of it. One may stay from before that claim, so the last attempt is always looked at.
        """
        used = job.attempt_count - job.attempt_base
        if used <= 1 or (job.error_code is not None and used < job.max_attempts):
            return False
        before = [event for event in self.queue.events(job.id) if event.seq == job.claim_seq - 1]
        return any(event.move in self._recoveries for event in before)

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
        handler = worker.handler
        assert handler is not None  # noqa: S101  # the constructor made sure
        try:
            return handler(job, Run(worker, job)) if worker.takes_run else handler(job)
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
        groups: dict[Key, list[Change]] = {}
        for job, answer in results:
            try:
                key, change = self.worker.change_for(job, answer)
            except Exception as problem:  # noqa: BLE001  # an answer may be anything
                failed = Failed("BAD_ANSWER", words_of(problem), category=Category.PERMANENT)
                key, change = self.worker.change_for(job, failed)
            groups.setdefault(key, []).append(change)
        for (call, options), changes in groups.items():
            outcomes = self._apply(call, changes, options)
            for outcome in outcomes:
                if not outcome.done:
                    log.warning(
                        "answer_refused",
                        queue=self.queue.name,
                        job=outcome.id,
                        call=call,
                        reason=outcome.reason or outcome.result,
                    )
            ended = [outcome.state or "" for outcome in outcomes if outcome.done]
            self.ended.update(ended)
            self.worker.completed += len(ended)
        self.worker.leases.drop([job for job, _ in results])

    def _apply(self, call: str, changes: list[Change], options: frozenset[str]) -> list[Outcome]:
        """Write answers, again while the store is away: what got through answers "already"."""
        worker, pause_s, until = self.worker, 0.1, float("inf")
        while True:
            try:
                return self._apply_once(call, changes, options)
            except StoreUnreachable as problem:
                if worker.stopping:
                    until = min(until, self._monotonic() + worker.grace_s)
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
