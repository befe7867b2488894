"""Which store an address means."""

from __future__ import annotations

from pathlib import Path

from kesin.store.contract import Store, StoreError


def open_store(address: str | Path, *, migrate: bool = True) -> Store:
    """A store from a path, ``:memory:``, ``sqlite:///path`` or ``postgresql://…``.

    The embedded store always brings its own schema up to date; PostgreSQL only with ``migrate``.
    """
    text = str(address)
    if text.startswith(("postgresql://", "postgres://")):
        try:
            from kesin.store.postgres import PostgresStore
        except ImportError:
            raise StoreError(
                "PostgreSQL needs psycopg: install it with `pip install 'kesin[postgres]'`"
            ) from None
        return PostgresStore(text, migrate=migrate)
    from kesin.store.sqlite import SqliteStore

    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///") or ":memory:"
    elif "://" in text:
        scheme = text.split("://", 1)[0]
        raise StoreError(f"unknown database {scheme}://: use a file path or postgresql://…")
    if text != ":memory:":
        Path(text).parent.mkdir(parents=True, exist_ok=True)
    return SqliteStore(text)
