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
from tests.store.within.drivers import CASES, Opener, django_connection


@pytest.fixture(params=CASES, ids=[f"{kind}-{opener.__name__}" for kind, opener in CASES])
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Place, Opener]]:
    kind, opener = request.param
    with ExitStack() as stack:
        yield place_of(kind, request, stack), opener


def test_a_job_and_the_callers_row_are_committed_together_or_not_at_all(case):
    """A value that is refused, and a key that is held, leave the transaction usable."""
    place, opener = case
    news = [NewJob({"order": n}, key="order-1" if n < 2 else None) for n in range(3)]
    results = [*("inserted", "duplicate", "inserted", "bad")]
    for kept in (False, True):
        with opener(place.url) as given:
            given.execute("INSERT INTO app_order VALUES (1)")
            with pytest.raises(ValueError, match="once needs a key"):
                place.queue.enqueue({}, once=True, within=given.within)
            first, again, *_ = outcomes = place.queue.enqueue_many([*news, NewJob(object())], within=given.within)
            assert [getattr(outcome, "result", "bad") for outcome in outcomes] == results
            later = place.queue.enqueue({}, key="order-1", within=given.within)
            assert again.id == later.id == first.id
            assert place.jobs() == 0
            (given.commit if kept else given.rollback)()
            assert (place.orders(), place.jobs()) == (kept, 2 * kept)
    assert place.queue.enqueue({}, key="order-1").id == first.id
    assert [note.kind for note in place.queue.notes(first.id)] == ["duplicate"] * 3
    jobs = {job.id: job for job in place.queue.claim("w", limit=5)}
    assert (jobs[first.id].payload, jobs[first.id].dedup_key) == ({"order": 0}, "order-1")


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
        refused(file_place, own, "give a sqlite3, SQLAlchemy")
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


def test_a_connection_that_answers_in_another_way_is_refused_or_understood(place):
    with psycopg.connect(place.url) as own, own.pipeline():
        refused(place, own, "pipeline mode")
    with psycopg.connect(place.url, client_encoding="latin1") as own:
        refused(place, own, "client_encoding must be UTF8")
    with psycopg.connect(place.url) as own:
        with pytest.raises(psycopg.errors.UndefinedTable):
            own.execute("SELECT * FROM nowhere")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):  # the driver's own
            place.queue.enqueue({}, within=own)
    assert place.jobs() == 0
    with psycopg.connect(place.url) as own:  # times without a zone, as Django reads them with USE_TZ = False
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
