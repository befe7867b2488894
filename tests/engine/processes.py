"""The programs that ``test_processes`` starts: each is a process with a pipe to the test."""

import random
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection

from kesin import ManualClock, NewJob, Queue, Schedule, Sweeper, Worker, task_lifecycle
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.postgres.store import PostgresStore
from kesin.store.records import Outcome
from kesin.store.redis.store import RedisStore
from kesin.store.sqlite.store import SqliteStore

LEASE_S = 600
KEYS = 60


@dataclass(frozen=True)
class Address:
    """The address of a store, which can be sent to another process."""

    url: str
    schema: str = ""

    def open(self) -> Store:
        if self.url.startswith("unix:"):
            return RedisStore(self.url, listen=False)
        if self.schema:
            return PostgresStore(self.url, schema=self.schema, pool_size=2, listen=False)
        return SqliteStore(self.url)


def lifecycle() -> Lifecycle:
    return task_lifecycle(max_attempts=20, lease_seconds=LEASE_S)


def claim_and_finish(address: Address, pipe: Connection, batch: int) -> None:
    """Claim and complete jobs until none is left; sends their ids."""
    with closing(address.open()) as store:
        queue = Queue("work", lifecycle(), store)
        pipe.send("ready")
        pipe.recv()
        claimed: list[str] = []
        Worker(queue, lambda job: claimed.append(job.id), batch=batch).drain()
        pipe.send(claimed)


def enqueue_keys(address: Address, pipe: Connection, seed: int) -> None:
    """Enqueue the same keys as all other processes, in its own order; sends the results."""
    with closing(address.open()) as store:
        queue = Queue("work", lifecycle(), store)
        keys = [f"key-{number}" for number in range(KEYS)]
        random.Random(seed).shuffle(keys)
        pipe.send("ready")
        pipe.recv()
        results: list[tuple[str, str, str]] = []
        for start in range(0, len(keys), 15):
            part = keys[start : start + 15]
            outcomes = queue.enqueue_many(NewJob({"key": key}, key=key) for key in part)
            for key, outcome in zip(part, outcomes, strict=True):
                assert isinstance(outcome, Outcome)
                results.append((key, outcome.result, outcome.id))
        pipe.send(results)


def sweep_once(address: Address, pipe: Connection, day: int) -> None:
    """Sweep a queue with a schedule, so many days after it began."""
    with closing(address.open()) as store:
        clock = ManualClock()
        schedules = [Schedule("nightly", "0 3 * * *", {}), Schedule("hourly", "0 * * * *", {})]
        queue = Queue("ticks", lifecycle(), store, clock=clock, schedules=schedules)
        pipe.send("ready")
        pipe.recv()
        clock.advance(timedelta(days=day))
        Sweeper([queue]).sweep()
        pipe.send("swept")
