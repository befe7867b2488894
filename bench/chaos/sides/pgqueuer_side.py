"""PgQueuer: an asyncpg pool, `pgqueuer.run`, and what its deployment checklist asks for."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pgqueuer
import psycopg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.chaos.journal import Journal
from bench.chaos.settings import LEASE_S, LOOK_S
from bench.chaos.sides.side import Fate, State, told

PACKAGE = "pgqueuer"
ENTRYPOINT = "job"
STATES: dict[str, State] = {"queued": "waiting", "picked": "running", "successful": "done"}


def prepare(where: str) -> None:
    async def install() -> None:
        connection = await asyncpg.connect(where)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.close()

    asyncio.run(install())


def send(where: str, count: int) -> Iterable[object]:
    async def enqueue() -> list[int]:
        connection = await asyncpg.connect(where)
        queries = Queries(AsyncpgDriver(connection))
        ids = await queries.enqueue([ENTRYPOINT] * count, [None] * count, [0] * count)
        await connection.close()
        return list(ids)

    return asyncio.run(enqueue())


def work(where: str, journal: Journal, seconds: float) -> None:
    logging.basicConfig(level=logging.ERROR)

    @asynccontextmanager
    async def factory() -> AsyncIterator[PgQueuer]:
        queue = PgQueuer.from_asyncpg_pool(await asyncpg.create_pool(where, min_size=2, max_size=10))

        @queue.entrypoint(ENTRYPOINT)
        async def job(one: Job) -> None:
            with told(journal, one.id):
                await asyncio.sleep(seconds)

        yield queue

    uvloop.run(
        pgqueuer.run(
            factory,
            dequeue_timeout=timedelta(seconds=LOOK_S),
            heartbeat_timeout=timedelta(seconds=LEASE_S),
            shutdown_on_listener_failure=True,
        )
    )


def left(where: str) -> int:
    with psycopg.connect(where) as connection:
        query = b"SELECT count(*) FROM pgqueuer WHERE status IN ('queued', 'picked')"
        (count,) = connection.execute(query).fetchone() or (0,)
    return int(count)


def fates(where: str) -> dict[str, Fate]:
    """Jobs that ended are deleted; the log knows them."""
    with psycopg.connect(where) as connection:
        here = connection.execute(b"SELECT id, status::text FROM pgqueuer").fetchall()
        logged = connection.execute(
            b"SELECT job_id, status::text, extract(epoch FROM created)::float8 FROM pgqueuer_log ORDER BY id"
        ).fetchall()
    successes: dict[int, list[float]] = defaultdict(list)
    states: dict[int, str] = {}
    for job, status, at in logged:
        if status == "successful":
            successes[job].append(at)
        if status not in ("queued", "picked"):
            states[job] = status
    states |= dict(here)
    return {str(job): Fate(STATES.get(status, "failed"), tuple(successes[job])) for job, status in states.items()}
