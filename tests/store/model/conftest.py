from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from kesin.store.contract import Store
from kesin.store.postgres import PostgresStore
from kesin.store.sqlite import SqliteStore

GUARDED = ("job", "job_body", "event")
TABLES = (*GUARDED, "note", "flow", "paused", "declared", "lifecycle")


@pytest.fixture(scope="session")
def postgres_store(postgres_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_url, schema="model", pool_size=2, listen=False, migrate=True)
    with closing(store):
        yield store


@contextmanager
def fresh_stores(postgres: PostgresStore) -> Iterator[dict[str, Store]]:
    """Both SQL stores, empty, so that a history may use the same ids whenever it is run."""
    with postgres._pool.connection() as connection, connection.transaction():
        for table in GUARDED:
            connection.execute(f"ALTER TABLE {postgres.schema}.{table} DISABLE TRIGGER USER")
        tables = ", ".join(f"{postgres.schema}.{table}" for table in TABLES)
        connection.execute(f"TRUNCATE {tables}")
        for table in GUARDED:
            connection.execute(f"ALTER TABLE {postgres.schema}.{table} ENABLE TRIGGER USER")
    with closing(SqliteStore(":memory:")) as sqlite:
        yield {"sqlite": sqlite, "postgres": postgres}


@pytest.fixture
def stores(postgres_store: PostgresStore) -> Iterator[dict[str, Store]]:
    with fresh_stores(postgres_store) as both:
        yield both
