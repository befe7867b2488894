"""Opening the store at an address, or the stores that the settings name."""

import os
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kesin.foundation.clock import monotonic
from kesin.store.contract import Store
from kesin.store.errors import StoreError, StoreUnreachable

if TYPE_CHECKING:
    from kesin.foundation.settings import Settings


OPEN_WAIT_S = 30.0
NO_PSYCOPG = "PostgreSQL needs psycopg: install it with `pip install 'kesin[postgres]'`"


def open_configured_store(
    settings: "Settings", *, in_redis: Collection[str] = (), keys_name_tenant: Collection[str] = ()
) -> Store:
    """Open the store of the settings; Redis, if set, holds ``in_redis``. See ``open_store``."""
    main = open_store(settings.database, migrate=False)
    if not settings.redis_url:
        return main
    from kesin.store.routed import RoutedStore

    redis = open_redis(settings.redis_url, keys_name_tenant=keys_name_tenant)
    return RoutedStore(main, dict.fromkeys(in_redis, redis))


def open_redis(url: str, *, keys_name_tenant: Collection[str] = ()) -> Store:
    """Open Redis. ``keys_name_tenant``: queues whose job keys are unique across tenants."""
    try:
        from kesin.store.redis.store import RedisStore
    except ImportError:
        raise StoreError("Redis needs its client: install it with `pip install 'kesin[redis]'`") from None
    return RedisStore(url, keys_name_tenant=frozenset(keys_name_tenant))


def open_store(
    address: str | Path, *, migrate: bool = True, keys_name_tenant: Collection[str] = (), wait_s: float = OPEN_WAIT_S
) -> Store:
    """Open the store at a path, ``:memory:``, ``sqlite:///path``, ``postgresql://…`` or ``redis://…``.

    SQLite's schema is always updated; PostgreSQL's only with ``migrate``. While PostgreSQL is
    unreachable, opening is retried every second for up to ``wait_s`` seconds; Redis connects on its
    first call. ``keys_name_tenant`` lists Redis queues whose job keys are unique across tenants.
    """
    text = str(address)
    if text.startswith(("postgresql://", "postgres://")):
        return _open_postgres(text, migrate=migrate, wait_s=wait_s)
    if text.startswith(("redis://", "rediss://", "unix://")):
        return open_redis(text, keys_name_tenant=keys_name_tenant)
    from kesin.store.sqlite.connections import disk_errors_translated
    from kesin.store.sqlite.store import SqliteStore

    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///") or ":memory:"
    elif "://" in text:
        scheme = text.split("://", 1)[0]
        raise StoreError(f"unknown database {scheme}://: use a file path or postgresql://…")
    if text != ":memory:":
        # Only their owner may read a new folder and file: payloads may hold names. SQLite gives its
        # side files the same permissions as the file.
        with disk_errors_translated(text):
            Path(text).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(text, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return SqliteStore(text)


def _open_postgres(url: str, *, migrate: bool, wait_s: float) -> Store:
    """Open PostgreSQL; a server that stops in between is waited for as well."""
    try:
        from kesin.store.postgres.reachability import RETRY_S
        from kesin.store.postgres.store import PostgresStore
    except ImportError:
        raise StoreError(NO_PSYCOPG) from None
    _check_postgres(url)
    deadline, pause = monotonic() + wait_s, threading.Event()
    while True:
        left_s = max(deadline - monotonic(), 0)
        try:
            return PostgresStore(url, migrate=migrate, wait_s=min(left_s, wait_s))
        except StoreUnreachable:
            if left_s <= RETRY_S:
                raise
            pause.wait(RETRY_S)


def _check_postgres(url: str) -> None:
    """Refuse an invalid address at once, without repeating it: it may hold a password."""
    from kesin.store.postgres.reachability import INVALID_ADDRESS, is_valid_address

    if not is_valid_address(url):
        raise StoreError(INVALID_ADDRESS)
