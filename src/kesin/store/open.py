"""Which store an address means."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kesin.store.contract import Store
from kesin.store.errors import StoreError

if TYPE_CHECKING:
    from kesin.foundation.settings import Settings


NO_PSYCOPG = "PostgreSQL needs psycopg: install it with `pip install 'kesin[postgres]'`"
PDF_QUEUES = ("pdf", "pdf_batches", "pdf_webhooks")  # they promise things in one transaction


def open_stores(settings: Settings, *, migrate: bool = False) -> Store:
    """The store of the settings; with a Redis, that is the home of the PDF workload's queues."""
    main = open_store(settings.database, migrate=migrate)
    if not settings.redis_url:
        return main
    from kesin.store.routed import Stores

    jobs = open_redis(settings.redis_url)
    return Stores(main, dict.fromkeys(PDF_QUEUES, jobs))


def open_redis(url: str) -> Store:
    """Redis as the home of PDFs: a job key says whose it is, so it is the whole name."""
    try:
        from kesin.store.redis.store import RedisStore
    except ImportError:
        raise StoreError(
            "Redis needs its client: install it with `pip install 'kesin[redis]'`"
        ) from None
    return RedisStore(url, own_keys=frozenset({"pdf"}))


def open_store(address: str | Path, *, migrate: bool = True) -> Store:
    """A store from a path, ``:memory:``, ``sqlite:///path``, ``postgresql://…`` or ``redis://…``.

    The embedded store always brings its own schema up to date; PostgreSQL only with ``migrate``.
    """
    text = str(address)
    if text.startswith(("postgresql://", "postgres://")):
        try:
            from kesin.store.postgres.store import PostgresStore
        except ImportError:
            raise StoreError(NO_PSYCOPG) from None
        _check_postgres(text)
        return PostgresStore(text, migrate=migrate)
    if text.startswith(("redis://", "rediss://", "unix://")):
        return open_redis(text)
    from kesin.store.sqlite.file import told
    from kesin.store.sqlite.store import SqliteStore

    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///") or ":memory:"
    elif "://" in text:
        scheme = text.split("://", 1)[0]
        raise StoreError(f"unknown database {scheme}://: use a file path or postgresql://…")
    if text != ":memory:":
        with told(text):
            _make_private(Path(text))
    return SqliteStore(text)


def _make_private(file: Path) -> None:
    """A new folder and a new file are their owner's alone: payloads may name people.

    What SQLite puts beside the file is as private as the file.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _check_postgres(url: str) -> None:
    """An address that cannot be read is told at once, and not repeated: it may hold a password."""
    from kesin.store.postgres.reachability import UNREADABLE, is_readable

    if not is_readable(url):
        raise StoreError(UNREADABLE)
