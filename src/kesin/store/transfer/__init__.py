"""Raw rows for copies between stores and for backups; the factories choose by database."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kesin.foundation.settings import POSTGRES_SCHEMES, SQLITE_SCHEME
from kesin.store.contract import Store
from kesin.store.errors import StoreError
from kesin.store.sql.store import SqlStore
from kesin.store.transfer.copier_sql import PostgresCopier, SqlCopier, SqliteCopier
from kesin.store.transfer.dump import Dump
from kesin.store.transfer.dump_sqlite import SqliteDump

if TYPE_CHECKING:
    from kesin.store.transfer.copier_redis import RedisCopier  # needs the extra ``redis``

Copier: TypeAlias = "SqlCopier | RedisCopier"  # both offer the same operations


def copier_for(store: Store, queue: str) -> Copier:
    home = store.store_for(queue)
    if isinstance(home, SqlStore):
        return PostgresCopier(home) if home.dialect.name == "postgres" else SqliteCopier(home)
    from kesin.store.redis.store import RedisStore
    from kesin.store.transfer.copier_redis import RedisCopier  # these need the extra ``redis``

    if not isinstance(home, RedisStore):
        raise StoreError("jobs can be copied only between SQLite, PostgreSQL and Redis")
    return RedisCopier(home)


def dump_for(address: str) -> Dump:
    if address.startswith(POSTGRES_SCHEMES):
        from kesin.store.transfer.dump_postgres import PostgresDump  # needs the extra ``postgres``

        return PostgresDump(address)
    return SqliteDump(Path(address.removeprefix(SQLITE_SCHEME)))
