"""Through Debian's PgBouncer in transaction mode, where a connection is another at each turn."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from kesin import Queue, Worker, open_store, task_lifecycle
from tests.servers import PostgresServer
from tests.store.within.drivers import (
    django_atomic,
    psycopg_dicts,
    psycopg_plain,
    sqlalchemy_session,
)
from tests.store.within.test_asynchronous import by_psycopg

CONFIG = """
[databases]
* = host={folder} port=5432 user=postgres
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = 2
"""
PATIENCE_S = 30


@pytest.fixture(scope="module")
def pooled(postgres_server: PostgresServer, tmp_path_factory) -> Iterator[str]:
    """The URL of a database with the schema in it, through the pooler."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    assert program, "PgBouncer is missing; run: make install"
    direct = postgres_server.create_database("pooled")
    open_store(direct, migrate=True).close()
    config = postgres_server.folder / "pgbouncer.ini"
    config.write_text(CONFIG.format(folder=postgres_server.folder))
    config.chmod(0o644)
    running = subprocess.Popen(
        [program, "-q", config], stderr=subprocess.DEVNULL, **postgres_server.somebody
    )
    url = direct.replace("port=5432", "port=6432")
    await_pooler(url, running)
    yield url
    running.terminate()
    running.wait(PATIENCE_S)


def await_pooler(url: str, running: subprocess.Popen[bytes]) -> None:
    """Until it answers: each failed look waits for the process a moment."""
    for _ in range(PATIENCE_S * 10):
        with suppress(psycopg.OperationalError), psycopg.connect(url):
            return
        with suppress(subprocess.TimeoutExpired):
            pytest.fail(f"PgBouncer ended: {running.wait(0.1)}")
    pytest.fail("PgBouncer did not answer")


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
