"""The claim loop: take jobs, run handlers, write results back in batches, stop gracefully.

A worker is a few lanes, each a thread that claims a batch, works through it and writes it back.
How many jobs a lane takes at once follows from how long they last: quick ones come by the
hundred, slow ones singly, so no job waits in a worker's pocket while others are idle.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType
from typing import Any

from kesin.engine.leases import Leases
from kesin.engine.queue import Queue
from kesin.engine.results import Act, Answer, Done, Failed, Wait, short, takes_two
from kesin.engine.validation import LATEST_US
from kesin.engine.worker_thread import (
    LARGEST_BATCH,
    BatchHandler,
    Beside,
    Handler,
    Key,
    Lane,
    Plan,
    WorkerContext,
    WorkerState,
)
from kesin.foundation.logs import Logger
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.errors import Verdict
from kesin.lifecycle.model import Change, Job
from kesin.store.errors import StoreUnreachable
from kesin.store.limits import MAX_BATCH, MAX_CODE, MAX_MESSAGE

log = Logger("kesin.worker")

GRACE_S = 30.0
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
        self.batch_handler = batch_handler
        self.plan = plan
        self.beside = beside  # told of every answer written, in the transaction that writes it
        self.threads = threads
        self.batch = min(batch, LARGEST_BATCH) if handler else batch
        self.tenants = tenants
        self.channel = channel
        self.poll_s = poll_s
        self._worker_state = WorkerState(handler, grace_s)
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        lease_s = lease_seconds or queue.lifecycle.lease_seconds
        self.leases = Leases(queue, lease_s)
        self._complete_call = queue.lifecycle.errors.move_for(Verdict.COMPLETE)
        self._fitting: set[Key] = set()  # calls found to be a worker's to make
        self.takes_run = handler is not None and takes_two(handler)
        self._stop = threading.Event()
        self.over = threading.Event()  # set when the grace period ends
        self._lanes: list[threading.Thread] = []

    @property
    def handler(self) -> Handler | None:
        """What is called with each job, unless there is a batch handler."""
        return self._worker_state.handler

    @handler.setter
    def handler(self, handler: Handler) -> None:
        self._worker_state.handler = handler

    @property
    def grace_s(self) -> float:
        """How long a stop waits for what is running."""
        return self._worker_state.grace_s

    @grace_s.setter
    def grace_s(self, seconds: float) -> None:
        self._worker_state.grace_s = seconds

    @property
    def on_claim(self) -> Callable[[Sequence[Job]], None] | None:
        """What is called with the jobs of each claim, for measuring."""
        return self._worker_state.on_claim

    @on_claim.setter
    def on_claim(self, called: Callable[[Sequence[Job]], None] | None) -> None:
        self._worker_state.on_claim = called

    @property
    def completed(self) -> int:
        """How many results were written."""
        return self._worker_state.completed

    @property
    def last_success(self) -> float | None:
        """Monotonic seconds of the last claim that worked."""
        return self._worker_state.last_success

    @last_success.setter
    def last_success(self, at: float) -> None:
        self._worker_state.last_success = at

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    @property
    def context(self) -> WorkerContext:
        """What a thread needs of this worker."""
        return WorkerContext(
            name=self.name,
            queue=self.queue,
            leases=self.leases,
            state=self._worker_state,
            takes_run=self.takes_run,
            batch_handler=self.batch_handler,
            plan=self.plan,
            beside=self.beside,
            batch=self.batch,
            tenants=self.tenants,
            poll_s=self.poll_s,
            stop=self._stop,
            over=self.over,
            pause=self.pause,
            give_back=self.give_back,
            change_for=self.change_for,
        )

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
        return Lane(self.context).run

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
                return Lane(self.context).drain()
            with ThreadPoolExecutor(self.threads, "kesin-lane") as lanes:
                return sum(lanes.map(lambda _: Lane(self.context).drain(), range(self.threads)))
        finally:
            self.leases.stop()

    def turn(self) -> Counter[str]:
        """One turn in this thread: how many jobs ended in each state."""
        self.leases.start()
        try:
            lane = Lane(self.context)
            lane.pass_once()
            return lane.ended
        finally:
            self.leases.stop()

    def work_on(self, ids: Sequence[str]) -> Counter[str]:
        """Claim these jobs as far as they are due, and work through them, in this thread.

        How many ended in each state. Leases are renewed once ``leases`` are started.
        """
        lane = Lane(self.context)
        lane.among(ids)
        return lane.ended

    def give_back(self, jobs: Sequence[Job]) -> set[str]:
        """Release claims while the budget allows the attempt's return; the ids that are free now.

        The leases of the others are left to run out.
        """
        given: set[str] = set()
        if self.queue.lifecycle.allows("release", "worker"):
            for start in range(0, len(jobs), MAX_BATCH):
                part = jobs[start : start + MAX_BATCH]
                changes = [Change(job.id, job.claim_seq) for job in part]
                outcomes = self.queue.apply("release", changes, actor=self.name)
                given |= {outcome.id for outcome in outcomes if outcome.done}
        self.leases.drop(jobs)
        return given

    def change_for(self, job: Job, answer: Answer) -> tuple[Key, Change]:
        """The move an answer stands for; raises ValueError where no worker can make it."""
        key, change = self._translate(job, answer)
        if key not in self._fitting:
            self._check(key)
            self._fitting.add(key)
        return key, change

    def _check(self, key: Key) -> None:
        call, options = key
        if not self.queue.lifecycle.allows(call, "worker"):
            raise ValueError(f"{call!r} is no call a worker can make on {self.queue.name}")
        strange = options - self.queue.lifecycle.options_of(call)
        if strange:
            raise ValueError(f"{call!r} has no option {min(strange)!r}")

    def _translate(self, job: Job, answer: Answer) -> tuple[Key, Change]:
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
                    error_code=short(answer.code, MAX_CODE),
                    error_category=resolved.category.value,
                    error_message=short(answer.message or answer.code, MAX_MESSAGE),
                )
            case Wait(seconds, call):
                return (call, _NO_OPTIONS), Change(job.id, job.claim_seq, run_at=self._at(seconds))
            case Act():
                in_s = answer.run_in_s
                return (answer.call, answer.options), Change(
                    job.id,
                    job.claim_seq if answer.fenced else None,
                    error_code=answer.code and short(answer.code, MAX_CODE),
                    error_category=answer.category and answer.category.value,
                    error_message=answer.message and short(answer.message, MAX_MESSAGE),
                    result=None if answer.result is None else canonical_json(answer.result),
                    note=None if answer.note is None else canonical_json(answer.note),
                    run_at=None if in_s is None else self._at(in_s),
                )
            case _:
                raise ValueError(
                    f"a handler answers with Done, Failed, Wait or Act, not {answer!r}"
                )

    def _at(self, seconds: float) -> int:
        at = self.queue.now() + round(seconds * SECOND_US)
        if not 0 <= at < LATEST_US:
            raise ValueError(f"{seconds} seconds from now is no time to wait for")
        return at

    def _complete(self, job: Job, result: Any) -> tuple[Key, Change]:
        call = self._complete_call
        if call is None:
            raise ValueError(f"{self.queue.name} has no move for Done: answer with Act")
        text = None if result is None else canonical_json(result)
        return (call, _NO_OPTIONS), Change(job.id, job.claim_seq, result=text)


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
