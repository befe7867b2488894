"""Huey on SQLite: synchronous=FULL, its consumer with worker threads."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from huey import SqliteHuey
from huey.consumer import Consumer, Worker

from bench.costs import Meter
from bench.peers import common

# Tried 1, 2 and 4: threads share one connection behind a lock, so more of them are slower.
WORKERS = 1


class DrainingWorker(Worker):
    """Huey's worker, which ends its consumer where it would sleep for want of work."""

    def sleep(self) -> None:
        if self.huey.storage.queue_size():  # it came here because of an error
            super().sleep()
        else:
            self.stop_flag.set()


class DrainingConsumer(Consumer):
    worker_class = DrainingWorker


class Tasks:
    """The queue in its file and the one task it knows."""

    def __init__(self, file: Path) -> None:
        # A no-op's None would not be stored anyway; without results no handles are made either.
        # The time-out is for the lock: with two processes the default of 5 s can run out.
        self.huey = SqliteHuey(filename=str(file), fsync=True, results=False, timeout=60)
        self.counter = common.Counter()
        self.noop = self.huey.task(name="noop")(self.counter.count)


def fill(file: Path, jobs: int) -> float:
    tasks = Tasks(file)
    started = time.monotonic()
    for _ in range(jobs):  # Huey has no bulk enqueue
        tasks.noop()
    seconds = time.monotonic() - started
    tasks.huey.storage.close()
    return seconds


def settle(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def work(ready: Callable[[], object], *, file: Path, workers: int) -> common.Finished:
    tasks = Tasks(file)
    consumer = DrainingConsumer(tasks.huey, workers=workers, periodic=False)
    tasks.huey.storage.queue_size()  # connects
    ready()
    consumer.start()
    consumer.stop_flag.wait()
    consumer.stop(graceful=True)
    return common.Finished(time.monotonic(), tasks.counter.jobs)


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--workers", type=common.positive, default=WORKERS)
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="bench_peer_huey_", dir=asked.dir) as folder:
        file = Path(folder) / "huey.db"
        meter = Meter(file)
        with meter.running():
            enqueue_seconds = fill(file, asked.jobs)
        settle(file)
        worker = partial(work, file=file, workers=asked.workers)
        drain_seconds, done = common.drain(worker, asked.processes, meter)
        cost = meter.read(asked.jobs)
        left = Tasks(file).huey.storage.queue_size()
    result = common.Result(
        peer="huey",
        package="huey",
        store="sqlite",
        jobs=asked.jobs,
        processes=asked.processes,
        enqueue_seconds=enqueue_seconds,
        drain_seconds=drain_seconds,
        completed=done - left,
        cost=cost,
    )
    return common.report(result, quiet=asked.json)


if __name__ == "__main__":
    sys.exit(main())
