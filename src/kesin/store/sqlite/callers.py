"""A transaction of the caller's own sqlite3 connection, in which the store makes its calls."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kesin.store.errors import StoreError
from kesin.store.within import driver_connection, no_transaction, not_ours


class CallersSqlite:
    """Runs statements as the store needs them, whatever the connection's owner prefers."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, params: Any = ()) -> sqlite3.Cursor:
        cursor = self._connection.cursor(sqlite3.Cursor)
        cursor.row_factory = None
        return cursor.execute(sql, params)


@contextmanager
def callers_connection(given: Any, path: str) -> Iterator[CallersSqlite]:
    """The connection that was given, in a transaction that may write, ready for the store."""
    connection = driver_connection(given)
    if not isinstance(connection, sqlite3.Connection):
        raise not_ours(connection, "give a connection of sqlite3, SQLAlchemy or Django")
    text_factory, connection.text_factory = connection.text_factory, str
    try:
        callers = CallersSqlite(connection)
        began = _begin(connection, callers, path)
        try:
            yield callers
        except BaseException:
            if began and connection.in_transaction:
                callers.execute("ROLLBACK")
            raise
    finally:
        connection.text_factory = text_factory


def _begin(connection: sqlite3.Connection, callers: CallersSqlite, path: str) -> bool:
    """Begin a transaction, unless the connection is in one; whether it was begun."""
    file = callers.execute("PRAGMA database_list").fetchone()[2]
    if not file or not Path(path).exists() or not Path(path).samefile(file):
        raise StoreError("within: the connection is to another database, not the queue's")
    if not connection.in_transaction:
        by_itself = getattr(connection, "autocommit", False) is True  # since Python 3.12
        if by_itself or connection.isolation_level is None:
            raise no_transaction("execute BEGIN IMMEDIATE first")
        callers.execute("BEGIN IMMEDIATE")
        return True
    return False
