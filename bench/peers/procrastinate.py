"""Procrastinate on PostgreSQL: psycopg, its worker with wait=False.

Either as it comes (one job at a time, on the pool it makes for itself), or tuned as far as we can.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector
from procrastinate.periodic import PeriodicDeferrer
from psycopg_pool import AsyncConnectionPool

from bench.costs import Meter
from bench.peers import common

TASK = "noop"
ENQUEUE_BATCH = 1_000
# Tried 1, 2, 10 and 50 at a time on 2, 3, 11 and 51 connections. It fetches one job after another,
# so more than a few connections only contend: 50 was half as fast as 10 on 3.
CONCURRENCY = 10
CONNECTIONS = 3


def pool(url: str, connections: int) -> AsyncConnectionPool[Any]:
    """Connections that commit by themselves and are not tried before every use.

    The pool Procrastinate makes for itself spends further round trips on both. It cannot listen on
    such connections, so the worker is told not to: in a drain there is nothing to be woken for.
    """
    return AsyncConnectionPool(url, min_size=connections, max_size=connections, open=False, kwargs={"autocommit": True})


FEATURES = ("plain", "within", "key", "priority", "one_a_tenant", "schedules")
TENANTS = 10
MINUTE_S = 60


async def enqueue(app: App, connection: Any, numbers: range, feature: str) -> None:
    """Its batches share everything but the arguments, so what differs is sent in several."""

    async def batch(size: int, **options: Any) -> None:
        await app.configure_task(TASK, **options).batch_defer_async(*[{}] * size)

    match feature:
        case "within":
            async with connection.transaction():
                await batch(len(numbers), connection=connection)
        case "key":
            for number in numbers:
                await app.configure_task(TASK, queueing_lock=f"order-{number}").defer_async()
        case "priority":
            for level in range(4):
                await batch(len(numbers[level::4]), priority=level - 1)
        case "one_a_tenant":
            for tenant in range(TENANTS):
                await batch(len(numbers[tenant::TENANTS]), lock=f"t{tenant}")
        case "schedules":  # as its worker does with ticks that were missed
            task = app.tasks[TASK]
            schedule = app.periodic_registry.register_task(
                task=task, cron="* * * * *", periodic_id=f"s{numbers[0]}", configure_kwargs={}
            )
            ticks = [(schedule, number * MINUTE_S) for number in numbers]
            await PeriodicDeferrer(app.periodic_registry).defer_jobs(ticks)
        case _:
            await batch(len(numbers))


async def fill(url: str, jobs: int, feature: str) -> float:
    logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it minds an app in a script
    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name=TASK)
    async def noop(**_: object) -> None:
        pass

    async with pool(url, 2) as connections, app.open_async(connections):
        await app.schema_manager.apply_schema_async()
        async with connections.connection() as callers:
            started = time.monotonic()
            for first in range(0, jobs, ENQUEUE_BATCH):
                numbers = range(first, min(first + ENQUEUE_BATCH, jobs))
                await enqueue(app, callers, numbers, feature)
            return time.monotonic() - started


async def drain(
    ready: Callable[[], object], url: str, concurrency: int, connections: int, *, as_it_comes: bool, feature: str
) -> common.Finished:
    app = App(connector=PsycopgConnector(conninfo=url))
    jobs = 0

    @app.task(name=TASK)
    async def noop(**_: object) -> None:
        nonlocal jobs
        jobs += 1

    if as_it_comes:
        async with app.open_async():
            ready()
            await app.run_worker_async(wait=False, install_signal_handlers=False)
            return common.Finished(time.monotonic(), jobs)
    async with pool(url, connections) as opened, app.open_async(opened):
        await opened.wait()
        ready()
        left = True
        while left:
            await app.run_worker_async(
                wait=False, concurrency=concurrency, listen_notify=False, install_signal_handlers=False
            )
            # It ends while the locks of all jobs that wait are taken, so it is started again.
            left = feature == "one_a_tenant" and await some_wait(app)
        return common.Finished(time.monotonic(), jobs)


async def some_wait(app: App) -> bool:
    query = "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status = 'todo') AS some"
    return bool((await app.connector.execute_query_one_async(query))["some"])


def work(
    ready: Callable[[], object], *, url: str, concurrency: int, connections: int, as_it_comes: bool, feature: str
) -> common.Finished:
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    how = {"as_it_comes": as_it_comes, "feature": feature}
    return asyncio.run(drain(ready, url, concurrency, connections, **how))


def completed(url: str) -> int:
    with psycopg.connect(url) as connection:
        query = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"
        (count,) = connection.execute(query).fetchone() or (0,)
    return int(count)


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--concurrency", type=common.positive, default=CONCURRENCY)
    parser.add_argument("--connections", type=common.positive, default=CONNECTIONS)
    parser.add_argument("--as-it-comes", action="store_true", help="nothing tuned")
    parser.add_argument("--feature", choices=FEATURES, default="plain")
    asked = parser.parse_args()
    with common.scratch_database(asked.url, "procrastinate") as url:
        meter = Meter(url)
        with meter.running():
            enqueue_seconds = asyncio.run(fill(url, asked.jobs, asked.feature))
        common.settle(url)
        worker = partial(
            work,
            url=url,
            concurrency=asked.concurrency,
            connections=asked.connections,
            as_it_comes=asked.as_it_comes,
            feature=asked.feature,
        )
        drain_seconds, _ = common.drain(worker, asked.processes, meter)
        cost = meter.read(asked.jobs)
        done = completed(url)
    result = common.Result(
        peer="procrastinate",
        package="procrastinate",
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
