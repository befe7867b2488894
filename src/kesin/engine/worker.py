"""The claim loop: take jobs, run handlers, write results back in batches, stop gracefully.

A worker is a few lanes, each a thread that claims a batch, works through it and writes it back.
How many jobs a lane takes at once follows from how long they last: quick ones come by the
hundred, slow ones singly, so no job waits in a worker's pocket while others are idle.
"""

from __future__ import annotations

import inspect
import os
import random
import signal
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any, NamedTuple

from kesin.engine.answers import Answer, Done, Failed, Make, Wait
from kesin.engine.leases import Leases
from kesin.engine.queue import Queue
from kesin.engine.run import Run
from kesin.foundation.logs import Logger
from kesin.foundation.text import NotJson, canonical_json, storable
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.errors import Category, Verdict
from kesin.lifecycle.model import Change, Job
from kesin.store.contract import MAX_CODE, MAX_MESSAGE, Outcome, StoreUnreachable

log = Logger("kesin.worker")

Handler = Callable[..., Answer]  # (job) or (job, run)
BatchHandler = Callable[[Sequence[Job]], Sequence[Answer]]
Beside = Callable[[str, Sequence[Change], Sequence[Outcome]], None]

LARGEST_BATCH = 500  # nothing is gained above it
FULL_BATCH_S = 0.25  # a batch that lasts longer than this makes the next one smaller
FLUSH_S = 0.5  # results wait no longer than this to be written
LONGEST_PAUSE_S = 30.0
GRACE_S = 30.0
LONGEST_WRITE_PAUSE_S = 2.0  # short, to be ahead of the sweeper when the store is back

_Key = tuple[str, frozenset[str]]  # a call and its options


class Share(NamedTuple):
    """Whom a turn serves next, and with how many jobs at most."""

    tenants: Sequence[str] | None
    limit: int


Plan = Callable[[], Iterable[Share]]  # asked at every turn; a share is worked off before the next
_NO_OPTIONS: frozenset[str] = frozenset()


class Worker:
    """Runs one handler over one queue."""

    def __init__(
        self,
        queue: Queue,
        handler: Handler | None = None,
        *,
        batch_handler: BatchHandler | None = None,
        plan: Plan | None = None,
        beside: Beside | None = None,
        threads: int = 1,
        batch: int = LARGEST_BATCH,
        lease_seconds: float | None = None,
        tenants: Sequence[str] | None = None,
        channel: str | None = None,
        poll_s: float = 1.0,
        grace_s: float = GRACE_S,
        name: str | None = None,
    ) -> None:
        if (handler is None) == (batch_handler is None):
            raise ValueError("give a handler or a batch_handler, and not both")
        if plan is not None and batch_handler is None:
            raise ValueError("a plan needs a batch_handler: it says how many jobs go together")
        for what, value in (("threads", threads), ("batch", batch), ("poll_s", poll_s)):
            if value <= 0:
                raise ValueError(f"{what} must be positive, got {value}")
        self.queue = queue
        self.handler = handler
        self.batch_handler = batch_handler
        self.plan = plan
        self.beside = beside  # told of every answer written, in the transaction that writes it
        self.threads = threads
        self.batch = min(batch, LARGEST_BATCH) if handler else batch
        self.tenants = tenants
        self.channel = channel
        self.poll_s = poll_s
        self.grace_s = grace_s
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        lease_s = lease_seconds or queue.lifecycle.lease_seconds
        self.leases = Leases(queue, lease_s)
        self.completed = 0
        self.last_success: float | None = None  # monotonic seconds of the last claim that worked
        self.on_claim: Callable[[Sequence[Job]], None] | None = None  # for measuring
        self._complete_call = queue.lifecycle.errors.move_for(Verdict.COMPLETE)
        self._fitting: set[_Key] = set()  # calls found to be a worker's to make
        self.takes_run = handler is not None and _takes_two(handler)
        self._stop = threading.Event()
        self.over = threading.Event()  # the grace period: whoever claims now gives it back
        self._lanes: list[threading.Thread] = []

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    def run(self) -> None:
        """Work until stopped; SIGTERM and SIGINT stop it when called in the main thread."""
        with _signals(self):
            self.start()
            while not self._stop.wait(0.5):
                pass
            self.join()

    def start(self) -> None:
        """Start the lanes and return."""
        self.leases.start()
        for number in range(self.threads):
            lane = threading.Thread(
                target=self.lane(number), name=f"kesin-{self.queue.name}-{number}", daemon=True
            )
            self._lanes.append(lane)
            lane.start()

    def lane(self, number: int) -> Callable[[], None]:  # noqa: ARG002  # they are all alike
        """What a lane does until the worker stops."""
        return _Lane(self).run

    @property
    def alive(self) -> bool:
        """Whether every lane runs."""
        return bool(self._lanes) and all(lane.is_alive() for lane in self._lanes)

    def stop(self) -> None:
        """Claim no more. ``join`` waits for what is running."""
        self._stop.set()
        self.queue.store.wake(self.queue.name)

    def pause(self, seconds: float) -> None:
        """Sit still for a while, or until asked to stop."""
        self._stop.wait(seconds)

    def join(self) -> None:
        """Wait out the grace period, then give back what is still running."""
        since = self.queue.clock.monotonic()
        for lane in self._lanes:
            while lane.is_alive() and self.queue.clock.monotonic() - since < self.grace_s:
                lane.join(0.1)  # in short turns: a second signal ends the grace period
        self.over.set()
        left = self.leases.held()
        if left:
            log.warning("released_at_stop", queue=self.queue.name, jobs=len(left))
            with suppress(StoreUnreachable):  # then their leases end
                self.give_back(left)
        self.leases.stop()

    def drain(self) -> int:
        """Work until no job is due; how many were handled. For scripts and tests.

        One lane works in this thread, further ones beside it; what one throws is thrown here.
        """
        self.leases.start()
        try:
            if self.threads == 1:
                return _Lane(self).drain()
            with ThreadPoolExecutor(self.threads, "kesin-lane") as lanes:
                return sum(lanes.map(lambda _: _Lane(self).drain(), range(self.threads)))
        finally:
            self.leases.stop()

    def turn(self) -> Counter[str]:
        """One turn in this thread: how many jobs ended in each state."""
        self.leases.start()
        try:
            lane = _Lane(self)
            lane.pass_once()
            return lane.ended
        finally:
            self.leases.stop()

    def work_on(self, ids: Sequence[str]) -> Counter[str]:
        """Claim these jobs as far as they are due, and work through them, in this thread.

        How many ended in each state. Leases are renewed once ``leases`` are started.
        """
        lane = _Lane(self)
        lane.among(ids)
        return lane.ended

    def give_back(self, jobs: Sequence[Job]) -> None:
        """Release claims: the attempt is returned while the budget allows it."""
        if jobs and self.queue.lifecycle.allows("release", "worker"):
            changes = [Change(job.id, job.claim_seq) for job in jobs]
            self.queue.apply("release", changes, actor=self.name)
        self.leases.drop(jobs)

    def change_for(self, job: Job, answer: Answer) -> tuple[_Key, Change]:
        """The move an answer stands for; raises ValueError where no worker can make it."""
        key, change = self._translate(job, answer)
        if key not in self._fitting:
            self._check(key)
            self._fitting.add(key)
        return key, change

    def _check(self, key: _Key) -> None:
        call, options = key
        if not self.queue.lifecycle.allows(call, "worker"):
            raise ValueError(f"{call!r} is no call a worker can make on {self.queue.name}")
        strange = options - self.queue.lifecycle.options_of(call)
        if strange:
            raise ValueError(f"{call!r} has no option {min(strange)!r}")

    def _translate(self, job: Job, answer: Answer) -> tuple[_Key, Change]:
        errors = self.queue.lifecycle.errors
        match answer:
            case None:
                return self._complete(job, None)
            case Done(result):
                return self._complete(job, result)
            case Failed():
                resolved = errors.resolve(
                    answer.code, channel=self.channel, category=answer.category
                )
                return (resolved.move, _NO_OPTIONS), Change(
                    job.id,
                    job.claim_seq,
                    error_code=_short(answer.code, MAX_CODE),
                    error_category=resolved.category.value,
                    error_message=_short(answer.message or answer.code, MAX_MESSAGE),
                )
            case Wait(seconds, call):
                at = self.queue.now() + round(seconds * SECOND_US)
                return (call, _NO_OPTIONS), Change(job.id, job.claim_seq, run_at=at)
            case Make():
                at_ = answer.run_in_s
                return (answer.call, answer.options), Change(
                    job.id,
                    job.claim_seq if answer.fenced else None,
                    error_code=answer.code and _short(answer.code, MAX_CODE),
                    error_category=answer.category and answer.category.value,
                    error_message=answer.message and _short(answer.message, MAX_MESSAGE),
                    result=None if answer.result is None else canonical_json(answer.result),
                    note=None if answer.note is None else canonical_json(answer.note),
                    run_at=None if at_ is None else self.queue.now() + round(at_ * SECOND_US),
                )
            case _:
                raise ValueError(
                    f"a handler answers with Done, Failed, Wait or Make, not {answer!r}"
                )

    def _complete(self, job: Job, result: Any) -> tuple[_Key, Change]:
        call = self._complete_call
        if call is None:
            raise ValueError(f"{self.queue.name} has no move for Done: answer with Make")
        text = None if result is None else canonical_json(result)
        return (call, _NO_OPTIONS), Change(job.id, job.claim_seq, result=text)


class _Lane:
    """One thread's loop."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.queue = worker.queue
        self.ended: Counter[str] = Counter()
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
            except Exception:  # a lane outlives whatever the store throws
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
        worker.last_success = self._monotonic()
        return handled

    def among(self, ids: Sequence[str]) -> int:
        """A batch of these jobs, named by whoever sent for a worker."""
        return self._batch(Share(None, len(ids)), ids)

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
                self._handle_singly(jobs)
        except BaseException:
            worker.leases.drop(jobs)
            raise
        lasted_s = self._monotonic() - started
        grow = lasted_s < FULL_BATCH_S and len(jobs) >= self._size
        self._size = min(self._size * 2, LARGEST_BATCH) if grow else max(self._size // 2, 1)
        return len(jobs)

    def _handle_singly(self, jobs: list[Job]) -> None:
        worker = self.worker
        results: list[tuple[Job, Answer]] = []
        flushed = self._monotonic()
        for number, job in enumerate(jobs):
            if worker.stopping:
                self._write(results)
                worker.give_back(jobs[number:])
                return
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
        except Exception as problem:  # a handler may throw anything
            log.warning("handler_raised", queue=self.queue.name, job=job.id, exc_info=True)
            return Failed(type(problem).__name__, str(problem))

    def _handle_together(self, jobs: list[Job]) -> None:
        handler = self.worker.batch_handler
        assert handler is not None  # noqa: S101
        try:
            answers = list(handler(jobs))
            _all_answered(jobs, answers)
        except Failed as failed:
            answers = [failed] * len(jobs)
        except Exception as problem:
            log.warning("handler_raised", queue=self.queue.name, jobs=len(jobs), exc_info=True)
            answers = [Failed(type(problem).__name__, str(problem))] * len(jobs)
        self._write(list(zip(jobs, answers, strict=True)))

    def _write(self, results: list[tuple[Job, Answer]]) -> None:
        """Write answers back, one statement a call; what was refused is logged and noted."""
        if not results:
            return
        groups: dict[_Key, list[Change]] = {}
        for job, answer in results:
            try:
                key, change = self.worker.change_for(job, answer)
            except (NotJson, LookupError, ValueError) as problem:
                failed = Failed("BAD_ANSWER", str(problem), category=Category.PERMANENT)
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
            moved = [outcome.state or "" for outcome in outcomes if outcome.result == "moved"]
            self.ended.update(moved)
            self.worker.completed += len(moved)
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


def _all_answered(jobs: Sequence[Job], answers: Sequence[Answer]) -> None:
    if len(answers) != len(jobs):
        raise RuntimeError(f"{len(jobs)} jobs went in, {len(answers)} answers came out")


def _takes_two(handler: Handler) -> bool:
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in plain and one.default is one.empty]
    return len(needed) == 2  # noqa: PLR2004  # (job, run)


def _short(text: str, longest: int) -> str:
    return storable(text)[:longest]


class _signals:  # noqa: N801  # a context manager, used like a function
    """SIGTERM and SIGINT stop the worker; a second one gives everything back at once."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._stop)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._worker.stopping:
            self._worker.grace_s = 0.0
        self._worker.stop()
