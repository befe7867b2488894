"""``queue.aio.enqueue(within=…)``: the caller's transaction is one of a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from kesin import BadInput, NewJob, Queue, StoreError, open_store, task_lifecycle
from kesin.foundation.clock import ManualClock
from kesin.store.limits import MAX_SQL_PAYLOAD_BYTES
from tests.store.conftest import empty

Opener = Callable[[str, bool], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def by_psycopg(url: str, commits: bool) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as own:
        yield own
        await (own.commit() if commits else own.rollback())


@asynccontextmanager
async def by_asyncpg(url: str, commits: bool, **options: Any) -> AsyncIterator[Any]:
    own = await asyncpg.connect(url, **options)
    transaction = own.transaction()
    await transaction.start()
    yield own
    await (transaction.commit() if commits else transaction.rollback())
    await own.close()


@asynccontextmanager
async def by_session(url: str, commits: bool, driver: str = "asyncpg", **options: Any) -> AsyncIterator[Any]:
    engine = create_async_engine(url.replace("postgresql:", f"postgresql+{driver}:"), **options)
    async with AsyncSession(engine) as own:
        yield own
        await (own.commit() if commits else own.rollback())
    await engine.dispose()


def by_psycopg_session(url: str, commits: bool) -> AbstractAsyncContextManager[Any]:
    return by_session(url, commits, "psycopg")


@pytest.fixture
def queue(postgres_store) -> Iterator[Queue]:
    yield Queue("mail", task_lifecycle(), postgres_store)
    empty(postgres_store)


@pytest.mark.parametrize("opener", [by_psycopg, by_asyncpg, by_session, by_psycopg_session])
def test_jobs_are_part_of_the_transaction_but_for_those_that_are_refused(queue, postgres_url, opener: Opener):
    news = [NewJob({"n": n}, key="same" if n < 2 else None) for n in range(3)]
    bad = [NewJob(object()), NewJob({}, after=["id"]), NewJob("x" * MAX_SQL_PAYLOAD_BYTES)]

    async def main(*, commits: bool) -> list[Any]:
        async with opener(postgres_url, commits) as own:
            first = await queue.aio.enqueue({"n": 1}, key="k", delay_s=5, within=own)
            again = await queue.aio.enqueue({"n": 2}, key="k", actor="late", within=own)
            assert (first.result, again.result, again.id) == ("inserted", "duplicate", first.id)
            more = await queue.aio.enqueue_many((new for new in [*bad, *news]), actor="importer", within=own)
            assert await asyncio.to_thread(lambda: queue.stats().total) == 0
        return [first, *more]

    for commits in (False, True):
        first, *refused, second, again, third = asyncio.run(main(commits=commits))
        assert [problem.code for problem in refused] == [*("not_json", "bad_after", "payload_too_large")]
        assert [second.result, again.result, third.result] == ["inserted", "duplicate", "inserted"]
        assert again.id == second.id
        jobs = {job.id: (job.actor, job.run_at > job.created_at) for job in queue.jobs().jobs}
        expected = {first.id: ("producer", True), second.id: ("importer", False), third.id: ("importer", False)}
        assert jobs == (expected if commits else {})


def test_what_is_in_no_transaction_or_leads_elsewhere_is_refused(queue, postgres_url, postgres_server, tmp_path):
    elsewhere = postgres_server.create_database("elsewhere_async")

    async def refused(within: Any, why: str, on: Queue = queue) -> None:
        with pytest.raises(StoreError, match=why):
            await on.aio.enqueue({}, within=within)

    async def main() -> None:
        own = await asyncpg.connect(postgres_url)
        await refused(own, "autocommit")
        await own.close()
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as plain:
            await refused(plain, "autocommit")
        engine = create_async_engine(
            postgres_url.replace("postgresql:", "postgresql+asyncpg:"), isolation_level="AUTOCOMMIT"
        )
        async with AsyncSession(engine) as session:
            await refused(session, "autocommit")
            with pytest.raises(StoreError, match="asynchronous"):
                queue.enqueue({}, within=session)
        await engine.dispose()
        async with await psycopg.AsyncConnection.connect(elsewhere) as other:
            await refused(other, "another database")
        await refused(object(), "not builtins.object")
        file = Queue("mail", task_lifecycle(), open_store(tmp_path / "k.db"))
        await refused(object(), "only a queue in PostgreSQL", file)

    asyncio.run(main())
    assert queue.stats().total == 0


class Unused:
    """A connection that must not be asked for anything."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_a_queue_with_a_clock_of_its_own_is_refused_and_the_synchronous_way_takes_it(postgres_store, postgres_url):
    clock = ManualClock()
    timed = Queue("timed", task_lifecycle(), postgres_store, clock=clock)
    with pytest.raises(StoreError, match=r"'timed' has its own clock.*queue\.enqueue\(…, within=…\)"):
        asyncio.run(timed.aio.enqueue({}, within=Unused()))
    with psycopg.connect(postgres_url) as own:
        timed.enqueue({}, within=own)
    assert [job.created_at for job in timed.jobs().jobs] == [clock.now()]
    empty(postgres_store)


def test_a_payload_beyond_the_limit_of_the_function_is_refused_before_anything_is_sent(postgres_store, postgres_url):
    roomy = Queue("roomy", task_lifecycle(), postgres_store, max_payload_bytes=1_000_000)
    largest = "ş" * (MAX_SQL_PAYLOAD_BYTES // 2 - 1)  # with its quotes, exactly the limit
    why = rf"{MAX_SQL_PAYLOAD_BYTES + 1} bytes.* {MAX_SQL_PAYLOAD_BYTES},.*queue\.enqueue\("
    with pytest.raises(BadInput, match=why) as refused:
        asyncio.run(roomy.aio.enqueue(f"{largest}x", within=Unused()))
    assert (refused.value.code, refused.value.field) == ("payload_too_large", "payload")

    async def enqueue_largest() -> None:
        async with by_psycopg(postgres_url, commits=True) as own:
            await roomy.aio.enqueue(largest, within=own)

    asyncio.run(enqueue_largest())
    with psycopg.connect(postgres_url) as own:
        roomy.enqueue(f"{largest}x", within=own)
    assert [len(job.payload) for job in roomy.jobs().jobs] == [len(largest) + 1, len(largest)]
    empty(postgres_store)
