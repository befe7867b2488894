"""One run of a queue: warmed up, filled, drained, and what both took.

It needs nothing but Kesin. So it is a script as well, which drains the plain queue of whichever
revision is on the path: a line with a number of jobs in, a line with the figures out.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg

import kesin
from kesin.store.contract import Store
from kesin.store.open import open_redis

QUEUE = "bench"
AT_ONCE = 1_000
WARM = 300  # jobs before the clocks run: statements are compiled, connections are open
THREADS = 2  # on PostgreSQL; SQLite has one writer

Fill = Callable[[range], object]
Drain = Callable[[], object]  # where it returns later than its last job was done: when that was


class Spent(NamedTuple):
    """By the clock on the wall, and by the processors for this process and for its server's."""

    seconds: float
    cpu: float


class Run(NamedTuple):
    """What so many jobs took."""

    jobs: int
    enqueue: Spent
    drain: Spent


def is_postgres(address: str) -> bool:
    return address.startswith("postgresql:")


def is_redis(address: str) -> bool:
    return address.startswith(("redis:", "unix:"))


def threads_for(address: str) -> int:
    return THREADS if is_postgres(address) else 1


def fill_by_the_thousand(queue: kesin.Queue, numbers: range, new: Callable[[int], kesin.NewJob]) -> None:
    for first in range(0, len(numbers), AT_ONCE):
        queue.enqueue_many([new(number) for number in numbers[first : first + AT_ONCE]])


@contextmanager
def measured(
    address: str, queue: kesin.Queue, fill: Fill, drain: Drain, *, warm: int = WARM
) -> Iterator[Callable[[int], Run]]:
    """What fills and drains so many jobs at each call, and sees that every one of them is done."""
    fill(range(warm))
    drain()
    enqueued = warm
    with _observed(address) as (settle, cpu_seconds):

        def run(jobs: int) -> Run:
            nonlocal enqueued
            numbers = range(enqueued, enqueued + jobs)
            enqueued += jobs
            enqueue = _timed(lambda: fill(numbers), cpu_seconds)
            settle()
            drained = _timed(drain, cpu_seconds)
            states = queue.stats().states
            if states["done"] != enqueued:
                raise RuntimeError(f"of {enqueued} jobs not all are done: {states}")
            return Run(jobs, enqueue, drained)

        yield run


def _timed(work: Callable[[], object], cpu_seconds: Callable[[], float]) -> Spent:
    cpu, started = cpu_seconds(), time.perf_counter()
    ended = work()
    if not isinstance(ended, float):
        ended = time.perf_counter()
    return Spent(ended - started, cpu_seconds() - cpu)


@contextmanager
def _observed(address: str) -> Iterator[tuple[Callable[[], object], Callable[[], float]]]:
    """How to end the business that a step left behind, and how to tell the processor time."""
    if is_postgres(address):
        with psycopg.connect(address, autocommit=True) as observer:
            settled = b"VACUUM ANALYZE kesin.job"
            yield lambda: observer.execute(settled), lambda: _cpu_with_backends(observer)
    elif is_redis(address):
        import redis

        with closing(redis.Redis.from_url(address)) as server:
            yield lambda: None, lambda: time.process_time() + _cpu_of(server.info("cpu"))
    else:
        with closing(sqlite3.connect(address)) as file:
            settle = "PRAGMA wal_checkpoint(TRUNCATE)"
            yield lambda: file.execute(settle).fetchall(), time.process_time


def _cpu_with_backends(observer: psycopg.Connection) -> float:
    """Of this process and of the server's processes for its connections."""
    ours = "datname = current_database() AND backend_type = 'client backend'"
    others = f"SELECT pid FROM pg_stat_activity WHERE {ours} AND pid <> pg_backend_pid()"
    pids = [pid for (pid,) in observer.execute(others.encode()).fetchall()]
    stats = [Path(f"/proc/{pid}/schedstat") for pid in pids]
    return time.process_time() + sum(int(one.read_text().split()[0]) for one in stats) / 1e9


def _cpu_of(used: dict[str, float]) -> float:
    return used["used_cpu_user"] + used["used_cpu_sys"]


def _store(address: str) -> Store:
    if is_redis(address):  # earlier revisions opened it by a function of its own
        return open_redis(address)
    return kesin.open_store(address)


@contextmanager
def plain(address: str) -> Iterator[Callable[[int], Run]]:
    """The plain task queue, opened."""
    with closing(_store(address)) as store:
        queue = kesin.Queue(QUEUE, kesin.task_lifecycle(), store)
        worker = kesin.Worker(queue, lambda _job: None, threads=threads_for(address))

        def fill(numbers: range) -> None:
            fill_by_the_thousand(queue, numbers, lambda number: kesin.NewJob({"n": number}))

        with measured(address, queue, fill, worker.drain) as run:
            yield run


def main(address: str) -> None:
    """Run as often as asked; the first line tells whose Kesin it is."""
    with plain(address) as run:
        print(json.dumps(kesin.__file__), flush=True)
        for line in sys.stdin:
            print(json.dumps(run(int(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
