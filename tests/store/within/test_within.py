"""A job in the caller's own transaction: there when it commits, and not when it does not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import psycopg2
import pytest
import sqlalchemy
from psycopg.types.string import TextLoader
from sqlalchemy.orm import Session

from kesin import NewJob, Queue, Store, StoreError, task_lifecycle
from tests.servers import PostgresServer
from tests.store.within.conftest import Place, place_of
from tests.store.within.drivers import CASES, Given, django_connection


@pytest.fixture(params=CASES, ids=[f"{kind}-{opener.__name__}" for kind, opener in CASES])
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Place, Given]]:
    kind, opener = request.param
    with ExitStack() as stack:
        place = place_of(kind, request, stack)
        yield place, stack.enter_context(opener(place.url))


def test_a_job_and_the_callers_row_are_committed_together(case):
    place, given = case
    given.execute("INSERT INTO app_order VALUES (1)")
    outcome = place.queue.enqueue({"order": 1}, key="order-1", within=given.within)
    assert outcome.result == "inserted"
    assert place.jobs() == 0
    given.commit()
    assert (place.orders(), place.jobs()) == (1, 1)
    [job] = place.queue.claim("w", limit=5)
    assert (job.id, job.payload, job.dedup_key) == (outcome.id, {"order": 1}, "order-1")


def test_a_rollback_takes_the_job_along(case):
    place, given = case
    place.queue.enqueue({"order": 1}, within=given.within)
    given.execute("INSERT INTO app_order VALUES (1)")
    given.rollback()
    assert (place.orders(), place.jobs()) == (0, 0)


def test_a_key_that_is_held_gives_its_holder(case):
    place, given = case
    first = place.queue.enqueue({"n": 1}, key="same", within=given.within)
    again = place.queue.enqueue({"n": 2}, key="same", within=given.within)
    assert (again.result, again.id) == ("duplicate", first.id)
    given.commit()
    assert place.queue.enqueue({"n": 3}, key="same").id == first.id
    assert [note.kind for note in place.queue.notes(first.id)] == ["duplicate"] * 2


def test_many_jobs_and_one_that_is_refused(case):
    place, given = case
    news = [NewJob({"n": n}, key="same" if n < 2 else None) for n in range(4)]
    outcomes = place.queue.enqueue_many([*news, NewJob(object())], within=given.within)
    assert [getattr(outcome, "result", "bad") for outcome in outcomes] == [
        *("inserted", "duplicate", "inserted", "inserted", "bad")
    ]
    given.rollback()
    assert place.jobs() == 0


def test_a_bad_value_leaves_the_transaction_usable(case):
    place, given = case
    with pytest.raises(ValueError, match="once needs a key"):
        place.queue.enqueue({}, once=True, within=given.within)
    place.queue.enqueue({}, within=given.within)
    given.commit()
    assert place.jobs() == 1


# What is refused, and enqueues nothing


def refused(place: Place, within: Any, why: str) -> None:
    with pytest.raises(StoreError, match=why):
        place.queue.enqueue({}, within=within)
    assert place.jobs() == 0


def test_autocommit_is_refused(place, file_place):
    with psycopg.connect(place.url, autocommit=True) as own:
        refused(place, own, "autocommit")
    refused(file_place, sqlite3.connect(file_place.url, isolation_level=None), "autocommit")
    for one in (place, file_place):
        own_django = django_connection(one.url)
        refused(one, own_django, "transaction.atomic")
        own_django.close()
    engine = sqlalchemy.create_engine(
        place.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    with Session(engine) as session:
        refused(place, session, "autocommit")
    engine.dispose()


def test_what_is_not_on_psycopg_3_is_refused_by_a_message_that_says_so(place):
    why = r"psycopg 3, .*or call the SQL function enqueue, not psycopg2\..*connection"
    with closing(psycopg2.connect(place.url)) as own:
        refused(place, own, why)
    engine = sqlalchemy.create_engine(place.url.replace("postgresql:", "postgresql+psycopg2:"))
    with Session(engine) as session:
        refused(place, session, why)
    with engine.connect() as alone:
        refused(place, alone, why)
    engine.dispose()


def test_another_database_is_refused(place, file_place, tmp_path, postgres_server: PostgresServer):
    elsewhere = postgres_server.create_database("elsewhere")
    with psycopg.connect(elsewhere) as own:
        refused(place, own, "another database")
    refused(file_place, sqlite3.connect(tmp_path / "other.db"), "another database")
    refused(file_place, sqlite3.connect(":memory:"), "another database")
    with psycopg.connect(place.url) as own:
        refused(file_place, own, "give a connection of sqlite3")
    refused(place, sqlite3.connect(file_place.url), r"not sqlite3\.Connection")


@pytest.mark.parametrize("store", ["redis", "sqlite-memory"], indirect=True)
def test_a_store_without_a_database_of_the_callers_refuses(store: Store, tmp_path):
    queue = Queue("mail", task_lifecycle(), store)
    with pytest.raises(StoreError, match="within:"):
        queue.enqueue({}, within=sqlite3.connect(tmp_path / "k.db"))
    assert queue.stats().total == 0


@pytest.mark.parametrize("store", ["sqlite-file", "sqlite-memory", "postgres"], indirect=True)
def test_the_connection_of_the_stores_own_transaction_is_taken(store: Store):
    queue = Queue("mail", task_lifecycle(), store)
    with store.transaction() as connection:
        assert queue.enqueue({}, within=connection).result == "inserted"
    assert queue.stats().total == 1


def test_a_second_connection_inside_the_stores_own_transaction_is_refused(file_place):
    """It would wait for itself."""
    own = sqlite3.connect(file_place.url)
    with file_place.queue.store.transaction(), pytest.raises(StoreError, match="the store's own transaction"):
        file_place.queue.enqueue({}, within=own)
    own.close()


# PostgreSQL


def test_a_connection_that_answers_in_another_way_is_refused(place):
    with psycopg.connect(place.url) as own, own.pipeline():
        refused(place, own, "pipeline mode")
    with psycopg.connect(place.url, client_encoding="latin1") as own:
        refused(place, own, "client_encoding must be UTF8")


def test_a_time_without_a_zone_is_no_other_database(place):
    """As Django reads times with USE_TZ = False."""
    with psycopg.connect(place.url) as own:
        own.adapters.register_loader("timestamptz", TextLoader)
        assert place.queue.enqueue({}, within=own).result == "inserted"


def test_a_refusal_leaves_the_connection_as_it_was(place, file_place, postgres_server):
    elsewhere = postgres_server.create_database("elsewhere_idle")
    with psycopg.connect(elsewhere) as own:
        refused(place, own, "another database")
        assert own.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    engine = sqlalchemy.create_engine(
        place.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as alone:
        refused(place, alone, "AUTOCOMMIT")
        with alone.begin():
            alone.execute(sqlalchemy.text("SELECT 1"))
    engine.dispose()
    file, store = sqlite3.connect(file_place.url), file_place.queue.store
    with pytest.raises(sqlite3.OperationalError), store.joining(file):
        store._rows("SELECT * FROM nowhere", {})
    assert not file.in_transaction
    file.close()


def test_errors_of_the_callers_transaction_are_the_drivers_own(place):
    with psycopg.connect(place.url) as own:
        with pytest.raises(psycopg.errors.UndefinedTable):
            own.execute("SELECT * FROM nowhere")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            place.queue.enqueue({}, within=own)
    assert place.jobs() == 0
