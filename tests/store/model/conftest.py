from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from kesin.store.contract import Store
from kesin.store.postgres.store import PostgresStore
from kesin.store.redis.store import RedisStore
from kesin.store.sqlite.store import SqliteStore
from tests.redis_server import RedisServer
from tests.store.conftest import empty


@pytest.fixture(scope="session")
def redis_store(redis_server: RedisServer) -> Iterator[RedisStore]:
    with closing(RedisStore(redis_server.url(), listen=False)) as store:
        yield store


@contextmanager
def fresh_stores(postgres: PostgresStore, redis: RedisStore) -> Iterator[dict[str, Store]]:
    """Every store, empty, so that a history may use the same ids whenever it is run."""
    empty(postgres)
    redis.client.flushdb()
    with closing(SqliteStore(":memory:")) as sqlite:
        yield {"sqlite": sqlite, "postgres": postgres, "redis": redis}


@pytest.fixture
def stores(postgres_store: PostgresStore, redis_store: RedisStore) -> Iterator[dict[str, Store]]:
    with fresh_stores(postgres_store, redis_store) as every_store:
        yield every_store
