"""What a queue can be asked for, each concept alone: how it is declared, filled and drained."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

import kesin
from bench import drained
from bench.drained import AT_ONCE, QUEUE, Drain, Fill, Run
from kesin.engine.schedules import declare_schedules, tick
from kesin.lifecycle.declare import Lifecycle

SLOTS = 1_000  # more than two threads ever hold, so that no job waits for one
RATE = (10_000, 1)  # more than is ever used
TENANTS = 10
PATIENCE_S = 120.0
ALL_STORES = frozenset({"SQLite", "PostgreSQL", "Redis"})
FEW = 0.1  # of the jobs of a round, where each has a commit of its own


@dataclass(frozen=True)
class Order:
    """The payload of typed jobs."""

    n: int


# How jobs are made


def _plain(number: int) -> kesin.NewJob:
    return kesin.NewJob({"n": number})


def _keyed(number: int) -> kesin.NewJob:
    return kesin.NewJob({"n": number}, key=f"order-{number}")


def _once(number: int) -> kesin.NewJob:
    return kesin.NewJob({"n": number}, key=f"order-{number}", once=True)


def _ranked(number: int) -> kesin.NewJob:
    return kesin.NewJob({"n": number}, priority=number % 4 - 1)


def _of_tenants(number: int) -> kesin.NewJob:
    return kesin.NewJob({"n": number}, tenant=f"t{number % TENANTS}")


def _typed(number: int) -> kesin.NewJob:
    return kesin.NewJob(Order(number))


# How they are enqueued

Fills = Callable[[kesin.Queue, str, ExitStack], Fill]


def _many(new: Callable[[int], kesin.NewJob]) -> Fills:
    def fills(queue: kesin.Queue, address: str, stack: ExitStack) -> Fill:
        return lambda numbers: drained.fill_by_the_thousand(queue, numbers, new)

    return fills


_by_the_thousand = _many(_plain)


def _chunks(numbers: range, size: int) -> Iterator[range]:
    return (numbers[first : first + size] for first in range(0, len(numbers), size))


def _callers_connection(address: str) -> Any:
    if drained.is_postgres(address):
        return psycopg.connect(address)
    return sqlite3.connect(address)


def _within(size: int) -> Fills:
    """So many jobs in each transaction of the caller's own connection."""

    def fills(queue: kesin.Queue, address: str, stack: ExitStack) -> Fill:
        connection = stack.enter_context(closing(_callers_connection(address)))

        def fill(numbers: range) -> None:
            for chunk in _chunks(numbers, size):
                queue.enqueue_many([_plain(number) for number in chunk], within=connection)
                connection.commit()

        return fill

    return fills


def _by_function(size: int) -> Fills:
    """So many calls of the SQL function in each transaction of a connection that knows no Kesin."""

    def fills(queue: kesin.Queue, address: str, stack: ExitStack) -> Fill:
        connection = stack.enter_context(psycopg.connect(address))
        called = b"SELECT result FROM kesin.enqueue(queue => %s, payload => %s)"

        def fill(numbers: range) -> None:
            for chunk in _chunks(numbers, size):
                for number in chunk:
                    connection.execute(called, (queue.name, json.dumps({"n": number})))
                connection.commit()

        return fill

    return fills


def _one_by_one(queue: kesin.Queue, address: str, stack: ExitStack) -> Fill:
    def fill(numbers: range) -> None:
        for number in numbers:
            queue.enqueue_many([_plain(number)])

    return fill


def _scheduled(queue: kesin.Queue, address: str, stack: ExitStack) -> Fill:
    """Missed ticks of schedules that tick each minute; each enqueues up to a thousand at once."""

    def fill(numbers: range) -> None:
        declare_schedules(
            queue,
            [
                kesin.Schedule(f"s{chunk[0]}", "* * * * *", {"n": 0}, catch_up=len(chunk))
                for chunk in _chunks(numbers, AT_ONCE)
            ],
        )
        rows = queue.store.schedules(queue.name)
        queue.store.write_schedules(queue.name, [row._replace(next_at=0) for row in rows])
        tick(queue)

    return fill


def _after_another(queue: kesin.Queue, address: str, stack: ExitStack) -> Fill:
    """Half of the jobs come after one of the other half each."""

    def fill(numbers: range) -> None:
        for chunk in _chunks(numbers, AT_ONCE):
            half = len(chunk) // 2
            parents = queue.enqueue_many([_plain(number) for number in chunk[half:]])
            ids = [parent.id for parent in parents if isinstance(parent, kesin.Outcome)]
            children = zip(chunk[:half], ids, strict=False)
            queue.enqueue_many([kesin.NewJob({"n": n}, after=[one]) for n, one in children])

    return fill


# How they are drained

Drains = Callable[[kesin.Queue, int], Drain]


def _handler(handler: Callable[..., object], **how: int) -> Drains:
    def drains(queue: kesin.Queue, threads: int) -> Drain:
        return kesin.Worker(queue, handler, threads=threads, **how).drain  # type: ignore[arg-type]

    return drains


def _noop(_job: kesin.Job) -> None:
    pass


_with_noop = _handler(_noop)


def _reads(job: kesin.Job) -> None:
    assert job.payload is not None


def _takes_run(_job: kesin.Job, _run: kesin.RunContext) -> None:
    pass


def _reports(_job: kesin.Job, run: kesin.RunContext) -> None:
    run.progress(0.5)


def _ends_in_transaction(_job: kesin.Job, run: kesin.RunContext) -> None:
    with run.transaction() as transaction:
        transaction.result = {"paid": True}


def _returns(_job: kesin.Job, _run: kesin.RunContext) -> dict[str, bool]:
    return {"paid": True}


async def _awaits(_job: kesin.Job) -> None:
    pass


def _serves(concurrency: int) -> Drains:
    """A worker that serves, as one with coroutines does best; it is stopped when all is done."""

    def drains(queue: kesin.Queue, threads: int) -> Drain:
        def drain() -> float:
            waiting = queue.stats().states["ready"]
            worker = kesin.Worker(queue, _awaits, concurrency=concurrency, sweep=False)
            started = time.perf_counter()
            worker.start()
            while worker.completed < waiting and time.perf_counter() - started < PATIENCE_S:
                time.sleep(0.002)
            ended = time.perf_counter()
            worker.stop()
            worker.join()
            return ended

        return drain

    return drains


# The concepts


@dataclass(frozen=True, slots=True)
class Concept:
    """A queue that uses one thing, beside another that does not."""

    name: str
    lifecycle: Callable[[], Lifecycle] = kesin.task_lifecycle
    fills: Fills = _by_the_thousand
    drains: Drains = _with_noop
    payload: type | None = None
    beside: Concept | None = None  # what it is compared with; None: the plain queue
    part: float = 1.0  # of the jobs of a round, where each takes long
    stores: frozenset[str] = ALL_STORES  # where there is such a thing

    @contextmanager
    def opened(self, address: str) -> Iterator[Callable[[int], Run]]:
        """What fills and drains its queue with so many jobs."""
        with ExitStack() as stack:
            store = stack.enter_context(closing(kesin.open_store(address)))
            queue = kesin.Queue(QUEUE, self.lifecycle(), store, payload=self.payload)
            fill = self.fills(queue, address, stack)
            drain = self.drains(queue, drained.threads_for(address))
            warm = round(drained.WARM * self.part)
            yield stack.enter_context(drained.measured(address, queue, fill, drain, warm=warm))


PLAIN = Concept("plain")
SQL_STORES = ALL_STORES - {"Redis"}
WITHIN = Concept("caller's transaction, 1,000 jobs each: `within`", fills=_within(AT_ONCE), stores=SQL_STORES)
ONE_BY_ONE = Concept("one by one", fills=_one_by_one)
SQL_FUNCTION = Concept(
    "the SQL function, one job each, compared with one-job calls",
    fills=_by_function(1),
    beside=ONE_BY_ONE,
    part=FEW,
    stores=frozenset({"PostgreSQL"}),
)
IN_TRANSACTION = Concept(
    "`run.transaction`, compared with a handler that returns its result",
    drains=_handler(_ends_in_transaction),
    beside=Concept("returns", drains=_handler(_returns)),
    part=FEW,
)
KEY = Concept("a key: `key`", fills=_many(_keyed))
SCHEDULES = Concept("schedules, 1,000 ticks at once", fills=_scheduled)
PRIORITY = Concept("four priorities: `priority`", fills=_many(_ranked))
SLOTTED = Concept(f"slots: `concurrency={SLOTS}`", lambda: kesin.task_lifecycle(concurrency=SLOTS))
RATED = Concept(f"a rate limit: `rate={RATE}`", lambda: kesin.task_lifecycle(rate=RATE))
PARENTS = Concept("parents declared: `parents=True`", lambda: kesin.task_lifecycle(parents=True))
ASYNC = Concept("an async handler, 500 concurrently", drains=_serves(500))
ONE_A_TENANT = Concept(
    f"one job at a time for each of {TENANTS} tenants: `concurrency=1, per='tenant'`",
    lambda: kesin.task_lifecycle(concurrency=1, per="tenant"),
    fills=_many(_of_tenants),
    part=FEW,
)
CONCEPTS = (
    WITHIN,
    Concept(
        "caller's transaction, one job each, compared with one-job calls",
        fills=_within(1),
        beside=ONE_BY_ONE,
        part=FEW,
        stores=SQL_STORES,
    ),
    SQL_FUNCTION,
    IN_TRANSACTION,
    KEY,
    Concept("a key that persists: `once`", fills=_many(_once)),
    SCHEDULES,
    PRIORITY,
    Concept("for comparison: plain, 100 jobs per claim", drains=_handler(_noop, batch=100)),
    SLOTTED,
    Concept(
        f"slots for {TENANTS} tenants: `concurrency={SLOTS // TENANTS}, per='tenant'`",
        lambda: kesin.task_lifecycle(concurrency=SLOTS // TENANTS, per="tenant"),
        fills=_many(_of_tenants),
        beside=Concept(f"{TENANTS} tenants", fills=_many(_of_tenants)),
    ),
    RATED,
    PARENTS,
    Concept(
        "parents used: half the jobs run `after` the other half",
        lambda: kesin.task_lifecycle(parents=True),
        fills=_after_another,
    ),
    Concept("an async handler, 100 concurrently", drains=_serves(100)),
    ASYNC,
    Concept(
        "typed payloads, read by the handler: `payload`",
        fills=_many(_typed),
        drains=_handler(_reads),
        payload=Order,
        beside=Concept("payloads read", drains=_handler(_reads)),
    ),
    Concept(
        "`run.progress`, once per job, compared with a handler that takes `run`",
        drains=_handler(_reports),
        beside=Concept("takes run", drains=_handler(_takes_run)),
        part=FEW,
    ),
)
