"""Through Debian's PgBouncer in transaction mode, where a connection is another at each turn."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, closing
from typing import Any
from uuid import uuid4

import psycopg
import psycopg2
import pytest

from kesin import Queue, Worker, open_store, task_lifecycle
from tests.pooler import pooler, through_pooler
from tests.servers import PostgresServer
from tests.store.within.drivers import django_atomic, psycopg_dicts, psycopg_plain, sqlalchemy_session
from tests.store.within.test_asynchronous import Opener, by_asyncpg, by_psycopg, by_psycopg_session, by_session

POOL_SIZE = 2
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def pooled(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database with the schema in it, through the pooler."""
    direct = postgres_server.create_database(f"pooled{next(_numbers)}")
    open_store(direct, migrate=True).close()
    with pooler(postgres_server, size=POOL_SIZE, probe=direct):
        yield through_pooler(direct)


@pytest.fixture
def queue(pooled) -> Iterator[Queue]:
    store = open_store(pooled)
    yield Queue("mail", task_lifecycle(), store)
    store.close()


def test_a_job_is_part_of_the_transaction(queue, pooled):
    for opener in (psycopg_plain, psycopg_dicts, sqlalchemy_session, django_atomic):
        before = queue.stats().total
        with opener(pooled) as given:
            for n in range(3):
                queue.enqueue({"n": n}, within=given.within)
            given.rollback()
        with opener(pooled) as given:
            outcome = queue.enqueue({"n": 1}, within=given.within)
            given.commit()
        assert queue.stats().total == before + 1, opener
        assert queue.job(outcome.id).payload == {"n": 1}


def by_uncached_asyncpg(url: str, commits: bool) -> AbstractAsyncContextManager[Any]:
    """A statement that asyncpg prepared would be on another connection at the next turn."""
    return by_asyncpg(url, commits, statement_cache_size=0)


def by_uncached_session(url: str, commits: bool) -> AbstractAsyncContextManager[Any]:
    uncached = {"statement_cache_size": 0, "prepared_statement_name_func": lambda: f"_{uuid4()}_"}
    return by_session(f"{url}&prepared_statement_cache_size=0", commits, connect_args=uncached)


def test_coroutines_too(queue, pooled):
    async def main(opener: Opener) -> str:
        async with opener(pooled, False) as own:
            await queue.aio.enqueue({"n": 1}, within=own)
        async with opener(pooled, True) as own, opener(pooled, False) as other:
            await queue.aio.enqueue({"n": 2}, within=other)
            return (await queue.aio.enqueue({"n": 3}, within=own)).id

    openers: list[Opener] = [by_psycopg, by_psycopg_session, by_uncached_asyncpg, by_uncached_session]
    for opener in openers:
        before = queue.stats().total
        assert queue.job(asyncio.run(main(opener))).payload == {"n": 3}
        assert queue.stats().total == before + 1, opener


def test_the_function_from_psycopg2(queue, pooled):
    before = queue.stats().total
    with closing(psycopg2.connect(pooled)) as own, own.cursor() as cursor:
        for end in (own.rollback, own.commit):
            cursor.execute("SELECT result FROM kesin.enqueue('mail', '{}')")
            assert cursor.fetchone() == ("inserted",)
            end()
    assert queue.stats().total == before + 1


def test_callers_that_hold_every_connection_of_the_pool_wait_for_none(queue, pooled):
    """Nothing is asked on the store's own connection, which would be one more."""
    before = queue.stats().total
    with ExitStack() as stack:
        callers = [stack.enter_context(psycopg.connect(pooled)) for _ in range(POOL_SIZE)]
        for own in callers:
            own.execute("SELECT 1")
        for own in callers:
            assert queue.enqueue({}, within=own).result == "inserted"
    assert queue.stats().total == before + POOL_SIZE


def test_coroutines_that_hold_every_connection_of_the_pool_wait_for_none(queue, pooled):
    async def main() -> None:
        async with AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(by_psycopg(pooled, True)) for _ in range(POOL_SIZE)]
            for own in callers:
                await own.execute("SELECT 1")
            outcomes = [queue.aio.enqueue({}, within=own) for own in callers]
            assert {one.result for one in await asyncio.gather(*outcomes)} == {"inserted"}

    before = queue.stats().total
    asyncio.run(main())
    assert queue.stats().total == before + POOL_SIZE


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
