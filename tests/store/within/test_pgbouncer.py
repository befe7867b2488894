"""Through Debian's PgBouncer in transaction mode, where a connection is another at each turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from kesin import Queue, Worker, open_store, task_lifecycle
from tests.pooler import pooler, through_pooler
from tests.servers import PostgresServer
from tests.store.within.drivers import (
    django_atomic,
    psycopg_dicts,
    psycopg_plain,
    sqlalchemy_session,
)
from tests.store.within.test_asynchronous import by_psycopg


@pytest.fixture(scope="module")
def pooled(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database with the schema in it, through the pooler."""
    direct = postgres_server.create_database("pooled")
    open_store(direct, migrate=True).close()
    with pooler(postgres_server, size=2, probe=direct):
        yield through_pooler(direct)


@pytest.fixture
def queue(pooled) -> Iterator[Queue]:
    store = open_store(pooled)
    yield Queue("mail", task_lifecycle(), store)
    store.close()


@pytest.mark.parametrize(
    "opener", [psycopg_plain, psycopg_dicts, sqlalchemy_session, django_atomic]
)
def test_a_job_is_part_of_the_transaction(queue, pooled, opener):
    before = queue.stats().total
    with opener(pooled) as given:
        for n in range(3):
            queue.enqueue({"n": n}, within=given.within)
        given.rollback()
    with opener(pooled) as given:
        outcome = queue.enqueue({"n": 1}, within=given.within)
        given.commit()
    assert queue.stats().total == before + 1
    assert queue.job(outcome.id).payload == {"n": 1}


def test_coroutines_too(queue, pooled):
    async def main() -> str:
        async with by_psycopg(pooled, True) as own:
            return (await queue.aio.enqueue({"n": 1}, within=own)).id

    assert queue.job(asyncio.run(main())).payload == {"n": 1}


def test_a_worker_drains_through_it_and_finishes_with_its_effect(queue):
    def handler(job, run):
        with run.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE IF NOT EXISTS effect (n integer)")
            transaction.connection.execute("INSERT INTO effect VALUES (1)")

    queue.enqueue({})
    waiting = queue.stats().states["ready"]
    Worker(queue, handler).drain()
    with queue.store.transaction() as connection:
        assert connection.execute("SELECT count(*) FROM effect").fetchone() == (waiting,)
    assert queue.stats().states["ready"] == 0


def test_nothing_is_prepared_for_a_worker_that_waits(queue, pooled):
    for _ in range(2):
        queue.store.wait("mail", queue.store.notification_count("mail") - 1, 0.0)
        assert queue.store._planned_claims._connection is None
        assert queue.enqueue({}).id in [job.id for job in queue.claim("worker", limit=10)]
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as connection:
        mode = connection.execute("SHOW plan_cache_mode").fetchone()
    assert mode == ("auto",)
