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
from psycopg_pool import AsyncConnectionPool

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
    return AsyncConnectionPool(
        url, min_size=connections, max_size=connections, open=False, kwargs={"autocommit": True}
    )


async def fill(url: str, jobs: int) -> float:
    logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it minds an app in a script
    app = App(connector=PsycopgConnector(conninfo=url))
    async with pool(url, 1) as connections, app.open_async(connections):
        await app.schema_manager.apply_schema_async()
        task = app.configure_task(TASK)
        started = time.monotonic()
        for size in common.batches(jobs, ENQUEUE_BATCH):
            await task.batch_defer_async(*[{}] * size)
        return time.monotonic() - started


async def drain(
    ready: Callable[[], object], url: str, concurrency: int, connections: int, *, as_it_comes: bool
) -> common.Finished:
    app = App(connector=PsycopgConnector(conninfo=url))
    jobs = 0

    @app.task(name=TASK)
    async def noop() -> None:
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
        await app.run_worker_async(
            wait=False,
            concurrency=concurrency,
            listen_notify=False,
            install_signal_handlers=False,
        )
        return common.Finished(time.monotonic(), jobs)


def work(
    ready: Callable[[], object], *, url: str, concurrency: int, connections: int, as_it_comes: bool
) -> common.Finished:
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    return asyncio.run(drain(ready, url, concurrency, connections, as_it_comes=as_it_comes))


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
    asked = parser.parse_args()
    with common.scratch_database(asked.url, "procrastinate") as url:
        enqueue_seconds = asyncio.run(fill(url, asked.jobs))
        common.settle(url)
        worker = partial(
            work,
            url=url,
            concurrency=asked.concurrency,
            connections=asked.connections,
            as_it_comes=asked.as_it_comes,
        )
        drain_seconds, _ = common.drain(worker, asked.processes)
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
    )
    return common.report(result, quiet=asked.json)


if __name__ == "__main__":
    sys.exit(main())
