"""The programs that ``test_processes`` starts: each is a process with a pipe to the test."""

import random
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection

from kesin import Done, NewJob, Queue, Sweeper, Worker, task_lifecycle
from kesin.foundation.clock import ManualClock, wall_clock_us
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.postgres.store import PostgresStore
from kesin.store.records import Filter, Outcome
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle

LEASE_S = 600
KEYS = 120


@dataclass(frozen=True)
class Address:
    """The address of a store, which can be sent to another process."""

    url: str
    schema: str = ""

    def open(self) -> Store:
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
        for start in range(0, len(keys), 30):
            part = keys[start : start + 30]
            outcomes = queue.enqueue_many(NewJob({"key": key}, key=key) for key in part)
            for key, outcome in zip(part, outcomes, strict=True):
                assert isinstance(outcome, Outcome)
                results.append((key, outcome.result, outcome.id))
        pipe.send(results)


def run_orders(address: Address, pipe: Connection, orders: int) -> None:
    """Run orders through the exclusive state until all are done; sends the results."""
    with closing(address.open()) as store:
        queue = Queue("orders", optiplan_lifecycle(), store)
        pipe.send("ready")
        pipe.recv()
        results: Counter[str] = Counter()
        while queue.stats().states["DONE"] < orders:
            for job in queue.claim("runner"):
                results["claimed"] += 1
                if job.state == "NEW":
                    queue.move(job, "prepare")
                    queue.move(job, "import")
                result = queue.move(job, "run").result
                results[result] += 1
                if result == "busy":
                    queue.move(job, "wait", run_in_s=0)
                    continue
                inside = queue.jobs(Filter(states=("OPTI_RUNNING",))).jobs
                assert [running.id for running in inside] == [job.id]
                for action in ("collect", "validate", "deliver", "done"):
                    assert queue.move(job, action).result == "moved"
        pipe.send(results)


def sweep_and_work(address: Address, pipe: Connection, later_s: int) -> None:
    """A sweeper and a worker whose clock is past every lease."""
    with closing(address.open()) as store:
        clock = ManualClock(wall_clock_us() + later_s * 1_000_000)
        queue = Queue("work", lifecycle(), store, clock=clock)
        pipe.send("ready")
        pipe.recv()
        moved = 0
        for _ in range(20):
            moved += Sweeper([queue], batch=7).sweep(("recover",)).total
            Worker(queue, lambda job: Done(job.payload), batch=5).drain()
        pipe.send(moved)
