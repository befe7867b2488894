"""What the peer scripts share: arguments, a start gate, a scratch database, the result line."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from urllib.parse import urlsplit

from bench.costs import Cost, Meter, own

READY_SECONDS = 120.0


@dataclass(frozen=True)
class Finished:
    """What a worker reports: when its last job was completed (monotonic clock), and how many."""

    at: float
    jobs: int


# Gets itself ready, calls what it is given to wait for the start signal, and drains.
Worker = Callable[[Callable[[], object]], Finished]


class Counter:
    """A handler that does nothing but be counted.

    It lives here because Huey knows a task by its module, and a script's own is "__main__" in one
    process and not in the next.
    """

    def __init__(self) -> None:
        self.jobs = 0

    def count(self) -> None:
        self.jobs += 1


def nothing() -> None:
    """What RQ is told to call, by its name."""


@dataclass(frozen=True)
class Result:
    """One run of one peer."""

    peer: str
    package: str
    store: str
    jobs: int
    processes: int
    enqueue_seconds: float
    drain_seconds: float
    completed: int
    cost: Cost | None = None  # of a job

    def line(self) -> dict[str, str | int | float]:
        return {
            "peer": self.peer,
            "version": version(self.package),
            "store": self.store,
            "jobs": self.jobs,
            "processes": self.processes,
            "enqueue_seconds": round(self.enqueue_seconds, 6),
            "enqueue_per_second": round(self.jobs / self.enqueue_seconds, 1),
            "drain_seconds": round(self.drain_seconds, 6),
            "drain_per_second": round(self.completed / self.drain_seconds, 1),
            "completed": self.completed,
            **(self.cost._asdict() if self.cost else {}),
        }


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--jobs", type=positive, required=True)
    parser.add_argument("--processes", type=positive, default=1)
    parser.add_argument("--json", action="store_true", help="the JSON line only, no sentence")
    return parser


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def report(result: Result, *, quiet: bool) -> int:
    """Print the line; the exit status tells whether every job was completed."""
    line = result.line()
    print(json.dumps(line), flush=True)
    if not quiet:
        print(
            f"{result.peer} {line['version']}, {result.processes} process(es):"
            f" enqueue {line['enqueue_per_second']:,} jobs/s,"
            f" drain {line['drain_per_second']:,} jobs/s",
            file=sys.stderr,
        )
    if result.completed == result.jobs:
        return 0
    print(f"{result.peer}: {result.completed} of {result.jobs} jobs completed", file=sys.stderr)
    return 1


def batches(total: int, size: int) -> Iterator[int]:
    """The lengths of the batches that make up the total."""
    for start in range(0, total, size):
        yield min(size, total - start)


@contextmanager
def scratch_database(url: str, peer: str) -> Iterator[str]:
    """A database of the run's own beside the one named; a killed run's is replaced."""
    import psycopg

    name = f"bench_peer_{peer}"
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield f"{parts.scheme}://{parts.netloc}/{name}{query}"
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def settle(url: str) -> None:
    """Do after the filling what autovacuum would have done within a minute.

    Without statistics Procrastinate sorts its whole backlog for every job it fetches.
    """
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def drain(worker: Worker, processes: int, meter: Meter | None = None) -> tuple[float, int]:
    """Seconds from the start signal to the last completed job, and the jobs completed."""
    context = get_context("spawn")
    gate = context.Barrier(processes + 1)
    lanes = []
    reports = []
    for _ in range(processes):
        ours, theirs = context.Pipe(duplex=False)
        lanes.append(context.Process(target=_lane, args=(worker, gate, theirs), daemon=True))
        lanes[-1].start()
        theirs.close()
        reports.append(ours)
    try:
        with meter.running() if meter else nullcontext():
            gate.wait(READY_SECONDS)
            started = time.monotonic()
            answers: list[tuple[Finished, Cost]] = [ours.recv() for ours in reports]
    except (BrokenBarrierError, EOFError):
        for lane in lanes:
            lane.join(5)  # it is telling why on standard error
        raise SystemExit("a worker died") from None
    for _, cost in answers:
        if meter:
            meter.add(cost)
    return max(one.at for one, _ in answers) - started, sum(one.jobs for one, _ in answers)


def _lane(worker: Worker, gate: Barrier, theirs: Connection) -> None:
    before = own()

    def ready() -> None:
        nonlocal before
        gate.wait(READY_SECONDS)
        before = own()

    try:
        finished = worker(ready)
        theirs.send((finished, own().since(before)))
    except BaseException:
        gate.abort()  # or the others would wait for this one
        raise
