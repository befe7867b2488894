"""What the processes of the fault tests do, and where they die.

A process kills itself at a named point: the harness wraps one method of the store that it has
opened, so the code under test knows nothing of it. Processes are forked from one fresh interpreter
that has everything imported and nothing opened (``tests.apart``).
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal, NoReturn

from kesin.engine.leases import Leases
from kesin.engine.proof_cache import proof_of
from kesin.engine.queue import Queue
from kesin.engine.results import Done
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.foundation.clock import SystemClock, wall_clock_us
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Job
from kesin.lifecycle.task import task_lifecycle
from kesin.store.contract import Store
from kesin.store.postgres.store import PostgresStore
from kesin.store.redis.store import RedisStore
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.pdf.lifecycle import pdf_lifecycle

LEASE_S = 600  # nobody waits for it: the clock is moved
LIFECYCLES = {"task": task_lifecycle(max_attempts=5, lease_seconds=LEASE_S), "pdf": pdf_lifecycle()}
proof_of(LIFECYCLES["task"])  # once, for all that are forked

Moment = Literal["before", "inside", "after"]


class Ahead(SystemClock):
    """The machine's clock, set forward: leases end when the test says so."""

    def __init__(self, seconds: float = 0) -> None:
        self.seconds = seconds

    def now(self) -> int | None:
        return wall_clock_us() + round(self.seconds * 1_000_000)


@dataclass(frozen=True)
class Address:
    """Where a queue is, in words that travel to another process."""

    kind: str
    url: str
    name: str = "work"
    lifecycle: str = "task"

    def open(self) -> Store:
        if self.kind == "postgres":
            return PostgresStore(self.url, pool_size=3, listen=False)
        if self.kind == "redis":
            return RedisStore(self.url, listen=False)
        return SqliteStore(self.url)

    @property
    def rules(self) -> Lifecycle:
        return LIFECYCLES[self.lifecycle]

    def queue(self, store: Store, *, ahead_s: float = 0) -> Queue:
        return Queue(self.name, self.rules, store, clock=Ahead(ahead_s))


@dataclass(frozen=True)
class Point:
    """The call of a store's method at which the process dies, and when in it."""

    method: str
    moment: Moment
    call: int = 1

    def arm(self, store: Store) -> None:
        made: Callable[..., Any] = getattr(store, self.method)
        calls = itertools.count(1)

        def doomed(*args: Any, **how: Any) -> Any:
            if next(calls) != self.call:
                return made(*args, **how)
            if self.moment == "before":
                die()
            if self.moment == "inside":
                with store.transaction():
                    made(*args, **how)
                    die()
            made(*args, **how)
            die()

        setattr(store, self.method, doomed)


def die() -> NoReturn:
    """As ``kill -9`` does: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


# What they do until they die. Each says what it was answered.


def produce(address: Address, pipe: Connection, point: Point, keys: Sequence[str]) -> None:
    with closing(address.open()) as store:
        queue = address.queue(store)
        point.arm(store)
        for key in keys:
            pipe.send(queue.enqueue({"key": key}, key=key).id)


def work(address: Address, pipe: Connection, point: Point) -> None:
    """One job at a time."""
    with closing(address.open()) as store:
        queue = address.queue(store)
        point.arm(store)

        def handler(job: Job) -> Done:
            pipe.send(job.id)
            return Done(job.payload)

        Worker(queue, handler, batch=1, name="doomed").drain()


def work_beside(address: Address, pipe: Connection, _point: Point) -> None:
    """What a trade writes beside an answer is the last thing it does."""
    with closing(address.open()) as store:
        queue = address.queue(store)

        def handler(job: Job) -> None:
            pipe.send(job.id)

        Worker(queue, handler, in_transaction=lambda *_: die(), batch=1, name="doomed").drain()


def renew(address: Address, pipe: Connection, point: Point) -> None:
    """What the thread that renews does, when half of the lease is over."""
    with closing(address.open()) as store:
        queue = address.queue(store)
        clock = queue.clock = Aged()
        jobs = queue.claim("doomed")
        leases = Leases(queue, LEASE_S)
        leases.take(jobs)
        pipe.send((jobs[0].id, jobs[0].lease_until))
        clock.seconds = LEASE_S / 2
        point.arm(store)
        leases.renew()


class Aged(Ahead):
    """One whose steady clock is set forward as well."""

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


def sweep(address: Address, pipe: Connection, point: Point) -> None:
    """By a clock that says every lease is over."""
    with closing(address.open()) as store:
        queue = address.queue(store, ahead_s=2 * LEASE_S)
        point.arm(store)
        pipe.send("sweeping")
        Sweeper([queue]).sweep(("recover",))


def freeze(address: Address, pipe: Connection) -> None:
    """Take what is there and answer when told to; then say what became of it."""
    with closing(address.open()) as store:
        queue = address.queue(store)
        held: list[Job] = []

        def handler(jobs: Sequence[Job]) -> list[Done]:
            held.extend(jobs)
            pipe.send([job.id for job in jobs])
            pipe.recv()
            return [Done("too late") for _ in jobs]

        worker = Worker(queue, batch_handler=handler, name="frozen")
        ended = worker.run_once()
        pipe.send((dict(ended), queue.renew(held)))


def work_on(address: Address, pipe: Connection, batch: int, ahead_s: float = 0) -> None:
    """Sweep and work, telling each job, for as long as it lives."""
    with closing(address.open()) as store:
        queue = address.queue(store, ahead_s=ahead_s)

        def handler(job: Job) -> Done:
            pipe.send(job.id)
            return Done(job.payload)

        worker = Worker(queue, handler, batch=batch)
        sweeper = Sweeper([queue], batch=3)
        pipe.send("ready")
        pipe.recv()
        while True:
            sweeper.sweep(("cap", "recover"))
            worker.drain()
