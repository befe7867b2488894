"""Procrastinate, with the periodic task of its manual that retries stalled jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import psycopg
from procrastinate import App, JobContext, PsycopgConnector

from bench.chaos.journal import Journal
from bench.chaos.settings import AT_ONCE, BEAT_S, LEASE_S, LOOK_S
from bench.chaos.sides.side import Fate, State, told

PACKAGE = "procrastinate"
TASK = "job"
STATES: dict[str, State] = {"todo": "waiting", "doing": "running", "succeeded": "done"}


def app_at(where: str) -> App:
    """With the pool it makes for itself, which tries a connection before every use."""
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    return App(connector=PsycopgConnector(conninfo=where))


def prepare(where: str) -> None:
    async def apply() -> None:
        async with app_at(where).open_async() as app:
            await app.schema_manager.apply_schema_async()

    asyncio.run(apply())


def send(where: str, count: int) -> Iterable[object]:
    async def defer() -> list[int]:
        async with app_at(where).open_async() as app:
            return await app.configure_task(TASK).batch_defer_async(*[{}] * count)

    return asyncio.run(defer())


def work(where: str, journal: Journal, seconds: float) -> None:
    logging.basicConfig(level=logging.ERROR)
    app = app_at(where)

    @app.task(name=TASK, pass_context=True)
    async def job(context: JobContext) -> None:
        with told(journal, context.job.id):
            await asyncio.sleep(seconds)

    # As in "Retry stalled jobs" of its manual, but for the times: every ten minutes, 30 s there.
    @app.periodic(cron=f"* * * * * */{LOOK_S}")
    @app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
    async def retry_stalled_jobs(context: JobContext, timestamp: int) -> None:
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=LEASE_S):
            await app.job_manager.retry_job(job)

    async def run() -> None:
        async with app.open_async():
            await app.run_worker_async(
                concurrency=AT_ONCE,
                fetch_job_polling_interval=LOOK_S,
                update_heartbeat_interval=BEAT_S,
                stalled_worker_timeout=LEASE_S,
            )

    asyncio.run(run())


def left(where: str) -> int:
    query = "SELECT count(*) FROM procrastinate_jobs WHERE task_name = %s AND status IN ('todo', 'doing')"
    return int(_rows(where, query, TASK)[0][0])


def fates(where: str) -> dict[str, Fate]:
    found = _rows(
        where,
        "SELECT j.id, j.status::text, array_remove(array_agg(extract(epoch FROM e.at)::float8"
        " ORDER BY e.at) FILTER (WHERE e.type = 'succeeded'), NULL)"
        " FROM procrastinate_jobs j LEFT JOIN procrastinate_events e ON e.job_id = j.id"
        " WHERE j.task_name = %s GROUP BY j.id",
        TASK,
    )
    return {str(job): Fate(STATES.get(status, "failed"), tuple(at or ())) for job, status, at in found}


def _rows(where: str, query: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(where) as connection:
        return connection.execute(query.encode(), values).fetchall()
