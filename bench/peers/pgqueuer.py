"""PgQueuer on PostgreSQL: asyncpg, logged tables, its QueueManager in drain mode."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from functools import partial

import asyncpg
import uvloop
from pgqueuer.core.qm import QueueManager
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job, TracebackRecord
from pgqueuer.queries import Queries
from pgqueuer.types import JOB_STATUS, QueueExecutionMode

from bench.costs import Meter
from bench.peers import common

ENTRYPOINT = "noop"
ENQUEUE_BATCH = 1_000
# Tried batches of 10, 100, 250, 500, 1000, 2000 and 5000: from 1000 on nothing is gained, 10 (its
# default) is several times slower. Of a pool of 4 (one listens) claiming and completing overlap.
BATCH = 1_000
CONNECTIONS = 4


class TimedQueries(Queries):
    """PgQueuer's queries, remembering when the last completion was committed."""

    completed_at = 0.0

    async def log_jobs(self, job_status: list[tuple[Job, JOB_STATUS, TracebackRecord | None]]) -> None:
        await super().log_jobs(job_status)
        self.completed_at = time.monotonic()


# With its slots and its keys, asked for one at a time; `slots` are more than are ever taken.
FEATURES = ("plain", "within", "key", "priority", "slots", "one_a_tenant")
SLOTS = {"slots": 1_000, "one_a_tenant": 1}
TENANTS = 10


def entrypoints(feature: str) -> list[str]:
    """Its limit of jobs at once is one of an entrypoint, so each tenant has its own."""
    tenants = TENANTS if feature == "one_a_tenant" else 1
    return [f"{ENTRYPOINT}{number}" for number in range(tenants)]


async def enqueue(queries: Queries, numbers: range, feature: str) -> None:
    names = entrypoints(feature)
    await queries.enqueue(
        [names[number % len(names)] for number in numbers],
        [None] * len(numbers),
        [number % 4 - 1 if feature == "priority" else 0 for number in numbers],
        dedupe_key=[f"order-{number}" if feature == "key" else None for number in numbers],
    )


async def fill(url: str, jobs: int, feature: str) -> float:
    """Install PgQueuer, tuned as its manual asks, and enqueue."""
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()  # durable unless told otherwise: every table logged
    await queries.optimize_autovacuum()
    started = time.monotonic()
    for first in range(0, jobs, ENQUEUE_BATCH):
        numbers = range(first, min(first + ENQUEUE_BATCH, jobs))
        async with connection.transaction() if feature == "within" else nullcontext():
            await enqueue(queries, numbers, feature)
    seconds = time.monotonic() - started
    await connection.close()
    return seconds


@asynccontextmanager
async def connected(url: str, connections: int) -> AsyncIterator[TimedQueries]:
    if connections == 1:
        connection = await asyncpg.connect(url)
        yield TimedQueries(AsyncpgDriver(connection))
        await connection.close()
    else:
        async with asyncpg.create_pool(url, min_size=connections, max_size=connections) as pool:
            yield TimedQueries(AsyncpgPoolDriver(pool))


async def drain(ready: Callable[[], object], url: str, batch: int, connections: int, feature: str) -> common.Finished:
    async with connected(url, connections) as queries:
        manager = QueueManager(queries)
        jobs = 0

        async def noop(_job: Job) -> None:
            nonlocal jobs
            jobs += 1

        for name in entrypoints(feature):
            manager.entrypoint(name, concurrency_limit=SLOTS.get(feature, 0))(noop)
        ready()
        await manager.run(
            batch_size=batch,
            mode=QueueExecutionMode.drain,
            dequeue_timeout=timedelta(seconds=0.1),
            log_aggregation_interval=timedelta(0),
        )
        return common.Finished(queries.completed_at, jobs)


def work(ready: Callable[[], object], *, url: str, batch: int, connections: int, feature: str) -> common.Finished:
    # as its own command line does
    return uvloop.run(drain(ready, url, batch, connections, feature))


async def completed(url: str) -> int:
    connection = await asyncpg.connect(url)
    left = await connection.fetchval("SELECT count(*) FROM pgqueuer")
    logged = await connection.fetchval("SELECT count(DISTINCT job_id) FROM pgqueuer_log WHERE status = 'successful'")
    await connection.close()
    return int(logged) - int(left)


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--batch", type=common.positive, default=BATCH)
    parser.add_argument("--connections", type=common.positive, default=CONNECTIONS)
    parser.add_argument("--feature", choices=FEATURES, default="plain")
    asked = parser.parse_args()
    with common.scratch_database(asked.url, "pgqueuer") as url:
        meter = Meter(url)
        with meter.running():
            enqueue_seconds = uvloop.run(fill(url, asked.jobs, asked.feature))
        common.settle(url)
        worker = partial(work, url=url, batch=asked.batch, connections=asked.connections, feature=asked.feature)
        drain_seconds, _ = common.drain(worker, asked.processes, meter)
        cost = meter.read(asked.jobs)
        done = uvloop.run(completed(url))
    result = common.Result(
        peer="pgqueuer",
        package="pgqueuer",
        store="postgresql",
        jobs=asked.jobs,
        processes=asked.processes,
        enqueue_seconds=enqueue_seconds,
        drain_seconds=drain_seconds,
        completed=done,
        cost=cost,
    )
    return common.report(result, quiet=asked.json)


if __name__ == "__main__":
    sys.exit(main())
