from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from kesin.store.contract import Store
from kesin.store.postgres.connection import CONNECTION
from kesin.store.postgres.store import PostgresStore
from kesin.store.redis.store import RedisStore
from kesin.store.sqlite.store import SqliteStore
from tests.redis_server import RedisServer
from tests.store.conftest import empty


@pytest.fixture(scope="session")
def postgres_store(postgres_url: str) -> Iterator[PostgresStore]:
    """Its statements are planned once: the tests execute the same few statements many times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CONNECTION, "prepare_threshold", 2)
        patch.setitem(CONNECTION, "options", "-c plan_cache_mode=force_generic_plan")
        store = PostgresStore(postgres_url, schema="model", pool_size=2, listen=False, migrate=True)
    with closing(store):
        yield store


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
