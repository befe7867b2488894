"""Draining a queue, three ways, in as many processes as asked: F0, F1 and the engine.

Each process opens its own connection, says it is ready, and starts on a common signal; the clock
runs from the signal to the moment the last process finds nothing more to do.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from statistics import median
from typing import TypeAlias

import kesin
from bench import costs, floors
from kesin.engine.queue import apply_changes
from kesin.engine.replay import verify
from kesin.lifecycle.model import Change
from kesin.store.contract import Store
from kesin.store.postgres.store import PostgresStore
from kesin.store.sqlite.store import SqliteStore

QUEUE = "bench"
BATCH = 500
LANES = 2  # of the engine on PostgreSQL in all; PgQueuer has four connections a process
WAYS = ("F0", "F1", "engine")
# Jobs completed, when the last was, what the process used
Results: TypeAlias = "multiprocessing.Queue[tuple[int, float, costs.Cost]]"


@dataclass(frozen=True, slots=True)
class Drained:
    """One measured run."""

    way: str
    jobs: int
    seconds: float
    enqueue_seconds: float
    cost: costs.Cost  # of a job

    @property
    def per_second(self) -> float:
        """Completed jobs per second."""
        return self.jobs / self.seconds


def open_queue(address: str) -> kesin.Queue:
    """The bench's queue: the plain lifecycle."""
    return kesin.Queue(QUEUE, kesin.task_lifecycle(), kesin.open_store(address))


def fill(queue: kesin.Queue, jobs: int) -> float:
    """Enqueue no-op jobs by the thousand; the seconds it took."""
    started = time.perf_counter()
    for first in range(0, jobs, 1_000):
        size = min(1_000, jobs - first)
        queue.enqueue_many([kesin.NewJob({"n": first + n}) for n in range(size)])
    return time.perf_counter() - started


def statement_batches(queue: kesin.Queue, worker: str) -> Iterator[int]:
    """F1: the store's own generated statements, all triggers on, in a bare loop."""
    while jobs := queue.claim(worker, limit=BATCH):
        changes = [Change(job.id, job.claim_seq) for job in jobs]
        outcomes = apply_changes(queue, "complete", changes, actor=worker)
        yield sum(outcome.result == "moved" for outcome in outcomes)


def floor_batches(queue: kesin.Queue, address: str, worker: str) -> Iterator[int]:
    """F0: the hand-written statements."""
    if isinstance(queue.store, SqliteStore):
        return floors.sqlite_batches(queue.store, QUEUE, worker, BATCH)
    return floors.postgres_batches(address, QUEUE, worker, BATCH)


def _drainer(way: str, queue: kesin.Queue, address: str, worker: str, threads: int) -> Callable[[], int]:
    """Everything made and imported, ready to begin."""
    if way == "engine":  # the real thing: a worker with a handler that does nothing
        return kesin.Worker(queue, lambda _job: None, name=worker, threads=threads).drain
    batches = statement_batches(queue, worker) if way == "F1" else floor_batches(queue, address, worker)
    return lambda: sum(batches)


def _drain(way: str, address: str, number: int, threads: int, start: Barrier, done: Results) -> None:
    worker = f"w{number}"
    queue = open_queue(address)
    drain = _drainer(way, queue, address, worker, threads)
    start.wait()
    before = costs.own()
    completed, ended = drain(), time.perf_counter()
    done.put((completed, ended, costs.own().since(before)))
    queue.store.close()


def measure(way: str, address: str, jobs: int, processes: int) -> Drained:
    """Fill a fresh database, drain it in so many processes, check what is left behind."""
    queue = open_queue(address)
    meter = costs.Meter(address)
    with meter.running():
        enqueue_seconds = fill(queue, jobs)
    _settle(queue.store)
    if way == "F0":
        assert isinstance(queue.store, PostgresStore | SqliteStore)
        floors.drop_triggers(queue.store)
    # SQLite has one writer: a second thread would only wait for the first.
    threads = 1 if isinstance(queue.store, SqliteStore) else max(LANES // processes, 1)
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(processes + 1)
    done = context.Queue()
    lanes = [
        context.Process(target=_drain, args=(way, address, number, threads, start, done)) for number in range(processes)
    ]
    for lane in lanes:
        lane.start()
    with meter.running():
        start.wait()
        started = time.perf_counter()
        answers = [done.get(timeout=600) for _ in lanes]
    seconds = max(ended for _, ended, _ in answers) - started
    for lane, (*_, cost) in zip(lanes, answers, strict=True):
        lane.join()
        meter.add(cost)
    completed = sum(count for count, *_ in answers)
    _check(queue, way, jobs, completed)
    queue.store.close()
    return Drained(way, completed, seconds, enqueue_seconds, meter.read(jobs))


def in_step(floor: str, bare: str, jobs: int) -> float:
    """F1 / F0, the median of pairs of batches: a spell of slowness falls on both of a pair."""
    queues = {"F0": open_queue(floor), "F1": open_queue(bare)}
    for queue in queues.values():
        fill(queue, jobs)
        _settle(queue.store)
    assert isinstance(queues["F0"].store, PostgresStore | SqliteStore)
    floors.drop_triggers(queues["F0"].store)
    ways = (floor_batches(queues["F0"], floor, "w"), statement_batches(queues["F1"], "w"))
    lasted: tuple[list[float], list[float]] = ([], [])
    done = [0, 0]
    turn = (0, 1)
    while done != [jobs, jobs]:
        for number in turn:
            started = time.perf_counter()
            done[number] += next(ways[number])
            lasted[number].append(time.perf_counter() - started)
        turn = turn[::-1]
    for way, queue in queues.items():
        _check(queue, way, jobs, jobs)
        queue.store.close()
    return median(floor_s / bare_s for floor_s, bare_s in zip(*lasted, strict=True))


def _settle(store: Store) -> None:
    """Leave no unfinished business of the filling to the draining."""
    if isinstance(store, PostgresStore):
        store._rows("VACUUM ANALYZE kesin.job", {})
        store._rows("CHECKPOINT", {})
    elif isinstance(store, SqliteStore):
        store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _check(queue: kesin.Queue, way: str, jobs: int, completed: int) -> None:
    """Three events a job, counters equal to count(*), replay empty; F0 has no counters."""
    if completed != jobs:
        raise RuntimeError(f"{way}: {completed} of {jobs} jobs completed")
    audit = verify(queue.store, QUEUE)
    if audit.events != 3 * jobs:
        raise RuntimeError(f"{way}: {audit.events} events for {jobs} jobs, expected 3 each")
    wrong = [one for one in audit.differences if way != "F0" or one.job_id != QUEUE]
    if wrong:
        raise RuntimeError(f"{way}: replay differs: {wrong[0]}")
    if way != "F0" and queue.stats().states["done"] != jobs:
        raise RuntimeError(f"{way}: the counters say {queue.stats().states}")
