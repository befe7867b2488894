"""What becomes of a job in the caller's transaction when something comes between: PostgreSQL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import closing, suppress
from typing import Any

import psycopg
import psycopg2
import pytest
import sqlalchemy

from kesin import Queue, open_store, task_lifecycle
from tests.faults.proxy import Postgres, Proxy
from tests.faults.wires import until_back
from tests.servers import PORT, PostgresServer
from tests.store.postgres.test_deadlock import until_it_waits
from tests.store.within.conftest import Place
from tests.store.within.drivers import DRIVERS, Given, psycopg2_plain
from tests.store.within.test_asynchronous import by_asyncpg, by_psycopg, by_psycopg_session, by_session

PATIENCE_S = 30
EACH_DRIVER = (*DRIVERS["postgres"], psycopg2_plain)


def enqueue(queue: Queue, given: Given, key: str) -> tuple[str, str]:
    """In the transaction of ``given``; by the SQL function where the driver is another one."""
    if isinstance(given.within, psycopg2.extensions.connection):
        store: Any = queue.store
        with given.within.cursor() as cursor:
            cursor.execute(
                f"SELECT result, job_id::text FROM {store.schema}.enqueue(%s, '{{}}', %s)", (queue.name, key)
            )
            return cursor.fetchone()
    outcome = queue.enqueue({}, key=key, within=given.within)
    return outcome.result, outcome.id


def sqlstate(problem: BaseException) -> str:
    """The database's own code, in whatever the driver raises."""
    problem = getattr(problem, "orig", None) or problem
    return str(getattr(problem, "sqlstate", None) or getattr(problem, "pgcode", ""))


# The key was taken since the snapshot


def test_a_snapshot_in_which_the_key_was_free_repeats(place: Place):
    """REPEATABLE READ: the key was taken after the snapshot, so the caller has to try again."""
    for number, opener in enumerate(EACH_DRIVER, 1):
        key = opener.__name__
        with opener(place.url) as given:
            given.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            given.execute("SELECT 1")
            first = place.queue.enqueue({}, key=key)
            with pytest.raises((psycopg.Error, psycopg2.Error)) as failed:
                enqueue(place.queue, given, key)
            assert sqlstate(failed.value) == "40001", key
            given.rollback()
        with opener(place.url) as given:
            given.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            assert enqueue(place.queue, given, key) == ("duplicate", first.id)
            given.commit()
        assert place.jobs() == number


def test_coroutines_repeat_too(place: Place):
    def statement(own: Any, sql: str) -> Any:
        return own.execute(sqlalchemy.text(sql) if hasattr(own, "sync_session") else sql)

    async def main(opener: Any) -> str:
        key = opener.__name__
        async with opener(place.url, False) as own:
            await statement(own, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await statement(own, "SELECT 1")
            await place.queue.aio.enqueue({}, key=key)
            with pytest.raises(Exception, match="could not serialize") as failed:
                await place.queue.aio.enqueue({}, key=key, within=own)
        async with opener(place.url, True) as own:
            assert (await place.queue.aio.enqueue({}, key=key, within=own)).result == "duplicate"
        return sqlstate(failed.value)

    for number, opener in enumerate((by_psycopg, by_asyncpg, by_session, by_psycopg_session), 1):
        assert asyncio.run(main(opener)) == "40001", opener
        assert place.jobs() == number


def test_a_key_that_changes_hands_at_every_look_is_given_up(place: Place):
    """As if its holder were gone whenever the function asks who it is: three looks, then 40001."""
    looks: list[str | None] = []
    with psycopg.connect(place.url) as own:
        own.add_notice_handler(lambda diagnostic: looks.append(diagnostic.message_primary))
        own.execute(
            "CREATE FUNCTION pg_temp.too_late() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE NOTICE 'taken'; RETURN NULL; END $$"
        )
        own.execute(
            f"CREATE TRIGGER too_late BEFORE INSERT ON {place.schema}.job_body FOR EACH ROW"
            " EXECUTE FUNCTION pg_temp.too_late()"
        )
        with pytest.raises(psycopg.errors.SerializationFailure, match="the key k keeps changing"):
            own.execute(f"SELECT * FROM {place.schema}.enqueue('mail', '{{}}', 'k')")
        own.rollback()
    assert looks == ["taken"] * 3
    assert place.jobs() == 0


# Two producers


def test_keys_taken_in_different_orders_deadlock_and_one_goes_on(place: Place):
    results = []

    def wait(other: Any, key: str) -> None:
        results.append(place.queue.enqueue({}, key=key, within=other).result)

    for opener in EACH_DRIVER:
        one, two = f"1 {opener.__name__}", f"2 {opener.__name__}"
        with psycopg.connect(place.url) as other, opener(place.url) as given:
            other.execute("SET deadlock_timeout = '1h'")
            given.execute("SET LOCAL deadlock_timeout = '1ms'")
            place.queue.enqueue({}, key=one, within=other)
            assert enqueue(place.queue, given, two)[0] == "inserted"
            waiting = threading.Thread(target=wait, args=(other, two))
            waiting.start()
            until_it_waits(place.url, other.info.backend_pid)
            with pytest.raises((psycopg.Error, psycopg2.Error)) as failed:
                enqueue(place.queue, given, one)
            assert sqlstate(failed.value) == "40P01", opener
            given.rollback()
            waiting.join()
            other.commit()
    assert results == ["inserted"] * len(EACH_DRIVER)
    kept = sorted(str(job.dedup_key) for job in place.queue.jobs().jobs)
    assert kept == sorted(f"{n} {opener.__name__}" for opener in EACH_DRIVER for n in (1, 2))


PRODUCER = """
import psycopg, sqlite3, sys
from kesin import Queue, task_lifecycle
from kesin.store.postgres.store import PostgresStore
from kesin.store.sqlite.store import SqliteStore
for store, own in (
    (PostgresStore({postgres!r}, schema={schema!r}), psycopg.connect({postgres!r})),
    (SqliteStore({sqlite!r}), sqlite3.connect({sqlite!r})),
):
    own.execute("INSERT INTO app_order VALUES (1)")
    print(Queue("mail", task_lifecycle(), store).enqueue({{}}, key="k", within=own).result, flush=True)
sys.stdin.read()
"""


def test_a_producer_that_is_killed_leaves_nothing(place: Place, file_place: Place):
    script = PRODUCER.format(postgres=place.url, schema=place.schema, sqlite=file_place.url)
    producer = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with producer:
        assert producer.stdout
        assert [producer.stdout.readline() for _ in range(2)] == [b"inserted\n"] * 2
        producer.kill()
        producer.wait(PATIENCE_S)
    for one in (place, file_place):
        assert one.queue.enqueue({}, key="k").result == "inserted"  # once the server has noticed
        assert (one.orders(), one.jobs()) == (0, 1)


# Notifications, and the end


def test_a_rollback_wakes_no_worker(place: Place):
    other = Queue("other", task_lifecycle(), place.queue.store)
    with psycopg.connect(place.url, autocommit=True) as listening:
        listening.execute(f"LISTEN {place.schema}")
        for opener in EACH_DRIVER:
            with opener(place.url) as given:
                enqueue(place.queue, given, "undone")
                given.rollback()
            with opener(place.url) as given:
                enqueue(other, given, opener.__name__)
                given.commit()
            woken = listening.notifies(timeout=PATIENCE_S, stop_after=1)
            assert [notice.payload for notice in woken] == ["other"], opener


@pytest.mark.parametrize(("how", "result"), [("cut_after", "duplicate"), ("cut_before", "inserted")])
def test_a_lost_answer_to_commit_is_repeated_with_once(place: Place, postgres_server: PostgresServer, how, result):
    """Whether it was committed is unknown: the same key, held for good, makes it harmless."""
    name = psycopg.conninfo.conninfo_to_dict(place.url)["dbname"]
    with Proxy(postgres_server.folder / f".s.PGSQL.{PORT}", Postgres()) as proxy:
        near = f"host=127.0.0.1 port={proxy.port} user=postgres dbname={name} sslmode=disable"
        own = psycopg.connect(f"{near} gssencmode=disable")
        first = place.queue.enqueue({"n": 1}, key="pay-7", once=True, within=own)
        proxy.fail(how, having=b"COMMIT")
        with pytest.raises(psycopg.OperationalError):
            own.commit()
        with suppress(psycopg.OperationalError):
            own.close()
    for job in place.queue.claim("w"):
        place.queue.move(job, "complete")
    with psycopg.connect(place.url) as own:
        again = place.queue.enqueue({"n": 1}, key="pay-7", once=True, within=own)
        own.commit()
    assert (again.result, again.id == first.id) == (result, result == "duplicate")
    assert place.queue.stats().states["done"] == (result == "duplicate")
    assert place.jobs() == 1


def test_a_server_that_was_restarted_is_the_same_database(ready_cluster):
    with PostgresServer(fsync=False, like=ready_cluster) as server:
        url = server.create_database("restarted")
        with closing(open_store(url, migrate=True)) as store:
            queue = Queue("mail", task_lifecycle(), store)
            server.stop()
            server.start()
            until_back(queue.stats)

            async def main() -> None:
                async with by_asyncpg(url, True) as own:
                    assert (await queue.aio.enqueue({}, key="a", within=own)).result == "inserted"

            with psycopg.connect(url) as own:
                assert queue.enqueue({}, key="b", within=own).result == "inserted"
            asyncio.run(main())
            assert queue.stats().total == 2
